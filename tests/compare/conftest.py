"""One Spark session for all tests of the reader, with an event log, so that tests can look for what is in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from demo import jars
from kafka_migration.compare.session import JARS_VARIABLE, open_session
from kafka_migration.copy.package import ship
from tests.compare.lab import Lab


@pytest.fixture(scope="session")
def event_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of the session's event log."""
    return tmp_path_factory.mktemp("event-log")


@pytest.fixture(scope="session")
def spark(event_log: Path) -> Iterator[SparkSession]:
    """A session on this machine."""
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": event_log.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(JARS_VARIABLE, ",".join(str(path) for path in jars.paths("spark")))
        session = open_session("tests of validation", master="local[2]", conf=conf)
    ship(session.sparkContext)
    yield session
    session.stop()


@pytest.fixture(scope="session")
def lab(source_cluster, target_cluster) -> Lab:
    """Copies of topics, made by hand."""
    return Lab(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
