"""The Spark session of a validation, and the jars of Spark's Kafka source that it needs."""

from __future__ import annotations

import hashlib
import os
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.shipped import shipped
from kafka_migration.domain.spark_settings import exposure, settings_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS_VARIABLE = "KAFKA_MIGRATION_SPARK_JARS"
_CACHE = shipped(".cache/jars/spark")
_LOCK = shipped("jars.lock")


def spark_jars(environ: Mapping[str, str] | None = None) -> tuple[Path, ...]:
    """Paths of the jars: what KAFKA_MIGRATION_SPARK_JARS lists (comma-separated), else the checkout's cache.

    Raises BadInput if there are none, one that is listed does not exist, or one of the cache is not what jars.lock
    names: it runs with the credentials of both clusters, and a cache is easily shared. For ``--jars`` of spark-submit,
    too.
    """
    listed = (os.environ if environ is None else environ).get(JARS_VARIABLE, "")
    jars = [Path(part.strip()) for part in listed.split(",") if part.strip()]
    for jar in jars:
        if not jar.is_file():
            raise BadInput(
                "this jar does not exist", field=JARS_VARIABLE, value=str(jar), remedy=f"correct {JARS_VARIABLE}"
            )
    jars = jars or _cached()
    if not jars:
        raise BadInput(
            "the jars of Spark's Kafka source are missing",
            field=JARS_VARIABLE,
            remedy=f"run `make setup`, or list spark-sql-kafka-0-10, spark-token-provider-kafka-0-10, kafka-clients and"
            f" commons-pool2 in {JARS_VARIABLE}, comma-separated",
        )
    return tuple(jars)


def _cached() -> list[Path]:
    try:
        locked = tomllib.loads(_LOCK.read_text(encoding="utf-8"))["spark"]
    except (OSError, KeyError, tomllib.TOMLDecodeError):
        return []
    found = []
    for coordinates, checksum in locked.items():
        _, artifact, version = coordinates.split(":")
        jar = _CACHE / f"{artifact}-{version}.jar"
        if not jar.is_file():
            return []
        with jar.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != checksum:
                raise BadInput(
                    f"this jar is not the one that {_LOCK.name} names: its checksum is another",
                    field=JARS_VARIABLE,
                    value=str(jar),
                    remedy="find out who changed it, remove it, and run `make setup`, which fetches it again",
                )
        found.append(jar)
    return sorted(found)


def open_session(
    name: str,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    system_properties: Mapping[str, str] | None = None,
    log: Callable[[str], None] = print,
) -> SparkSession:
    """A session called ``name``. The caller stops it. ``system_properties`` are set in all of its JVMs; no secrets.
    ``log`` is given a warning where the session is open to the network. The JVM, if it is started here, spends little
    on compiling its code, since Python does the work.

    Under spark-submit, master and jars are spark-submit's (``--master``, ``--jars``), and ``master`` is not looked at.
    Otherwise ``master`` is used, or this machine, and :func:`spark_jars`. Executors run this very interpreter, unless
    PYSPARK_PYTHON is set.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Set by spark-submit for the Python that it starts; what was submitted with is known to its JVM.
        SparkContext._ensure_initialized()
        master = SparkConf().get("spark.master")
    else:
        builder = builder.config("spark.jars", ",".join(str(jar) for jar in spark_jars()))
    master = master or "local[*]"
    builder = builder.master(master)
    settings = {
        **settings_for(master),
        "spark.ui.showConsoleProgress": "false",
        **_EXACT,
        **_READ_ONCE,
        **(conf or {}),
    }
    if system_properties:
        settings[_EXECUTOR_OPTIONS] = _with_properties(settings.get(_EXECUTOR_OPTIONS), system_properties)
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _jvm_options(_COMPILED_ONCE):
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if warning := exposure(master, session.sparkContext.getConf().get):
        log(warning)
    jvm = session.sparkContext._jvm
    for key, value in (system_properties or {}).items():
        # The driver's JVM runs already, and on a local master it is the executor, too.
        jvm.java.lang.System.setProperty(key, value)  # type: ignore[union-attr]
    return session


@contextmanager
def _jvm_options(options: str) -> Iterator[None]:
    """What JVM PySpark starts meanwhile has these, before those of the environment: those count where both name one."""
    given = os.environ.get(_OPTIONS_VARIABLE)
    os.environ[_OPTIONS_VARIABLE] = f"{options} {given or ''}".strip()
    try:
        yield
    finally:
        if given is None:
            del os.environ[_OPTIONS_VARIABLE]
        else:
            os.environ[_OPTIONS_VARIABLE] = given


def _with_properties(given: str | None, properties: Mapping[str, str]) -> str:
    """Java options that set ``properties``, after those that are ``given`` here or on spark-submit's command line."""
    from pyspark import SparkConf

    before = given or SparkConf().get(_EXECUTOR_OPTIONS, "") or ""
    return " ".join([before, *(f'"-D{key}={value}"' for key, value in properties.items())]).strip()


_EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"


#: Of the driver's JVM, where nobody submits it.
_OPTIONS_VARIABLE = "SPARK_SUBMIT_OPTS"
#: The first of the JVM's two compilers. The second takes more than a second of both cores in a validation.
_COMPILED_ONCE = "-XX:TieredStopAtLevel=1"
#: An overflow must be an error, never a wrong sum.
_EXACT = {"spark.sql.ansi.enabled": "true"}
#: Spark keeps 64 clients of an executor for five minutes, each with megabytes that it has fetched, for whoever reads
#: the same partition in the same query again. Nobody does, and over a hundred partitions it fills the heap.
_READ_ONCE = {
    "spark.kafka.consumer.cache.capacity": "1",
    "spark.kafka.consumer.cache.timeout": "1s",
    "spark.kafka.consumer.cache.evictorThreadRunInterval": "1s",
    "spark.kafka.consumer.fetchedData.cache.timeout": "1s",
    "spark.kafka.consumer.fetchedData.cache.evictorThreadRunInterval": "1s",
}
