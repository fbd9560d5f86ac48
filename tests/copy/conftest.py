"""Clusters that forget: the mirror's tests of what brokers no longer keep out."""

from collections.abc import Iterator

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver import pace


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs are dealt into all streams, however little there is to copy: tests are of what tasks do side by side."""
    monkeypatch.setattr(pace, "SMALL_BACKLOG", -1)


@pytest.fixture(scope="session")
def forgetful() -> Iterator[EmbeddedKafka]:
    """A cluster that forgets a producer a second and a half after the time of its last record, or marker."""
    memory = {"producer.id.expiration.ms": "1500", "producer.id.expiration.check.interval.ms": "200"}
    with EmbeddedKafka(name="forgetful", properties=memory) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def remembering() -> Iterator[EmbeddedKafka]:
    """One that remembers for half a minute, so that it forgets producers of old records, but not a fresh marker."""
    memory = {"producer.id.expiration.ms": "30000", "producer.id.expiration.check.interval.ms": "200"}
    with EmbeddedKafka(name="remembering", properties=memory) as cluster:
        yield cluster
