"""Real clusters for the whole run, started when the first test asks for them."""

import json
import os
import signal
from collections.abc import Iterator

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.clusters.lookup import variable_of
from kafka_migration.phases.signing import CONNECTION
from tests.losing import put_back


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and processes inherit that: tests of Ctrl-C would wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Answers are signed, in this process and in those that tests start.
    os.environ[variable_of(CONNECTION)] = json.dumps({"conn_type": "generic", "password": "a key of the tests: " * 2})


@pytest.fixture(scope="session")
def source_cluster() -> Iterator[EmbeddedKafka]:
    """A running single-node cluster to migrate from; tests share it, so each names topics and groups of its own."""
    with EmbeddedKafka(name="source") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def target_cluster() -> Iterator[EmbeddedKafka]:
    """A running single-node cluster to migrate to; tests share it, so each names topics and groups of its own."""
    with EmbeddedKafka(name="target") as cluster:
        yield cluster


@pytest.fixture(scope="session")
def compacting() -> Iterator[EmbeddedKafka]:
    """A cluster whose cleaner looks for work five times a second."""
    with EmbeddedKafka(name="compacting", properties={"log.cleaner.backoff.ms": "200"}) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def three() -> Iterator[EmbeddedKafka]:
    """Three brokers, which forget producers of old records soon, and notice a dead broker soon."""
    properties = {
        "producer.id.expiration.ms": "30000",
        "producer.id.expiration.check.interval.ms": "200",
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
    }
    with EmbeddedKafka(name="three", nodes=3, properties=properties, heap_megabytes=384) as cluster:
        yield cluster


@pytest.fixture
def lossy(three: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    """The three brokers, all of which are there again after the test."""
    yield three
    put_back(three)
