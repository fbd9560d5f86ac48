"""The Spark session of a command or a submitted job."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from kafka_migration.copy.package import ship
from kafka_migration.copy.spark import REQUIRED_CONF
from kafka_migration.domain.spark_settings import exposure, settings_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CORES = "spark.cores.max"


def open_session(
    name: str,
    *,
    master: str | None = None,
    cores: int | None = None,
    conf: Mapping[str, str] | None = None,
    log: Callable[[str], None] = print,
) -> SparkSession:
    """A session called ``name``; ``master`` None leaves it to spark-submit (or local, without one).

    The caller stops it. Executors get the package from ``--py-files`` if it came so, else from here. Workers run this
    interpreter unless PYSPARK_PYTHON names another: Spark's own default is whatever ``python3`` means on the PATH,
    which lacks our packages. Of a standalone master, which gives an application all the cores that it has, no more than
    ``cores`` are asked for, unless spark.cores.max is set. ``log`` is given a warning where the session is open to the
    network.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is None and "PYSPARK_GATEWAY_PORT" in os.environ:
        # Set by spark-submit for the Python that it starts; what was submitted with is known to its JVM.
        SparkContext._ensure_initialized()
        master = SparkConf().get("spark.master")
    master = master or "local[*]"
    # Spark's progress bar counts tasks of a round, and would write over the lines that count records.
    shown = {"spark.ui.showConsoleProgress": "false"}
    for key, value in {**settings_for(master), **shown, **REQUIRED_CONF, **(conf or {})}.items():
        builder = builder.config(key, value)
    if cores is not None and master.startswith("spark://"):
        SparkContext._ensure_initialized()
        builder = builder.config(_CORES, SparkConf().get(_CORES, str(cores)))
    builder = builder.master(master)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    if warning := exposure(master, session.sparkContext.getConf().get):
        log(warning)
    ship(session.sparkContext)
    return session


def close_session(session: SparkSession) -> None:
    """Stop ``session``. Where its JVM is gone nothing is left to stop, and the error for that would hide the one that
    ends the run."""
    from py4j.protocol import Py4JError

    with suppress(Py4JError, OSError):
        session.stop()
