"""A query of Spark Structured Streaming, in a process of its own: ``python -m tests.positions.query ORDERS.json``.

It reads two topics from their checkpoint on, as two sources, until there is no more (``availableNow``), and writes down
what each batch got: ``OUTPUT/N.json`` has the values of batch N, or, if it counts, the counts of keys after it. The
batch ``dies_in`` is planned and never committed, as if the process had died in it.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from kafka_migration.compare.session import open_session


@dataclass(frozen=True)
class Orders:
    servers: str
    topics: list[str]
    checkpoint: str
    output: str
    per_batch: int
    counts: bool = False
    dies_in: int = -1

    def write(self, path: Path) -> Path:
        path.write_text(json.dumps(asdict(self)))
        return path


def run(orders: Orders) -> None:
    from pyspark.sql import DataFrame

    spark = open_session("positions", master="local[1]", conf={"spark.sql.shuffle.partitions": "1"})

    def source(topic: str) -> DataFrame:
        return (
            spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", orders.servers)
            .option("kafka.isolation.level", "read_committed")
            .option("subscribe", topic)
            .option("startingOffsets", "earliest")
            .option("failOnDataLoss", "true")
            .option("maxOffsetsPerTrigger", str(orders.per_batch))
            .load()
            .selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value")
        )

    def take(rows: DataFrame, batch: int) -> None:
        if batch == orders.dies_in:
            raise RuntimeError("died, as ordered")
        got = (
            {row["key"]: row["count"] for row in rows.collect()}
            if orders.counts
            else [row["value"] for row in rows.collect()]
        )
        (Path(orders.output) / f"{batch}.json").write_text(json.dumps(got))

    both = source(orders.topics[0]).union(source(orders.topics[1]))
    query = (
        (both.groupBy("key").count() if orders.counts else both)
        .writeStream.foreachBatch(take)
        .outputMode("complete" if orders.counts else "append")
        .option("checkpointLocation", orders.checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    except Exception as error:
        if "died, as ordered" not in str(error):
            raise
    finally:
        spark.stop()


if __name__ == "__main__":
    run(Orders(**json.loads(Path(sys.argv[1]).read_text())))
