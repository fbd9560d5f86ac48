"""Clusters that forget: the mirror's tests of what brokers no longer keep out."""

from collections.abc import Iterator

import pytest

from demo.brokers import EmbeddedKafka


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
