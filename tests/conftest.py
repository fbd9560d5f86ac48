"""Real clusters for the whole run, started when the first test asks for them."""

import signal
from collections.abc import Iterator

import pytest

from demo.brokers import EmbeddedKafka


def pytest_configure() -> None:
    """A shell starts background jobs with SIGINT ignored, and processes inherit that: tests of Ctrl-C would wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
