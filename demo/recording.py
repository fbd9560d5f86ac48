"""Make the class archives: run a broker and a Spark session, each once, and let their JVMs write what they loaded.

    python -m demo.recording

is the Spark session.
"""

from __future__ import annotations

import os
import subprocess
import sys

from demo import class_archives
from demo.brokers import EmbeddedKafka
from demo.brokers.ports import HOST
from demo.brokers.releases import NEWEST
from demo.errors import DemoError
from demo.jars import ROOT

_END_SECONDS = 300.0
_WAIT_SECONDS = 60.0


def make_archives() -> list[str]:
    """Make what is missing; a line for each archive, also for one that could not be made: nothing depends on it."""
    from confluent_kafka import KafkaException

    lines = []
    for archive, record in (
        (class_archives.of_brokers(NEWEST.jar_set), _record_broker),
        (class_archives.of_spark(), _record_spark),
    ):
        try:
            state = str(archive.path) if archive.make(record) else "no archive was written; JVMs start without it"
        except (DemoError, KafkaException, OSError, subprocess.TimeoutExpired) as error:
            state = f"no archive; JVMs start without it: {error}"
        lines.append(f"classes, {archive.name}: {state}")
    return lines


def _record_broker(options: list[str]) -> None:
    from confluent_kafka import Consumer, Producer
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    cluster = EmbeddedKafka(name="classes", jvm_options=options).start()
    try:
        # What clients ask of brokers most, so that the classes for it are in the archive, too.
        servers: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        topic = "classes"
        admin = AdminClient(servers)
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(_WAIT_SECONDS)
        producer = Producer({**servers, "transactional.id": topic})
        producer.init_transactions(_WAIT_SECONDS)
        producer.begin_transaction()
        producer.produce(topic, b"value", b"key")
        producer.commit_transaction(_WAIT_SECONDS)
        consumer = Consumer({**servers, "group.id": topic, "auto.offset.reset": "earliest"})
        consumer.subscribe([topic])
        consumer.poll(_WAIT_SECONDS)
        consumer.commit(asynchronous=False)
        consumer.close()
    finally:
        # It writes the archive when it ends.
        cluster.stop(grace_seconds=_END_SECONDS)


def _record_spark(options: list[str]) -> None:
    # Its JVM ends after its Python, and holds the output open until then: the archive is written by that time.
    subprocess.run(
        [sys.executable, "-m", "demo.recording"],
        cwd=ROOT,
        env={
            **os.environ,
            "SPARK_SUBMIT_OPTS": " ".join(options),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_END_SECONDS,
        check=False,
    )


def _use_spark() -> None:
    """What the mirror and a validation do: tasks in Python, and a query with a shuffle."""
    from pyspark.sql import SparkSession, functions

    builder = SparkSession.builder.appName("classes").master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    session.sparkContext.parallelize([1], 1).map(str).collect()
    rows = session.range(10).withColumn("key", functions.expr("cast(id % 2 as string)"))
    rows.groupBy("key").agg(functions.sum("id"), functions.max("id")).orderBy("key").collect()
    session.stop()


if __name__ == "__main__":
    _use_spark()
