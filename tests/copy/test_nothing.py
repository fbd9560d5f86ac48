"""Offsets below a log's end of which the broker sends nothing: compacted away, or only late."""

import uuid
from dataclasses import replace

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.configs import topic_configs
from kafka_migration.wire.fetch import FetchSession
from tests.copy.bench import BRIEF, assert_same, bench, records
from tests.kafka_tools import create_topics, produce, read_all
from tests.wire.made import wired

SETTINGS = Settings(streams=1, epoch_seconds=5, limits=Limits(**BRIEF))


@pytest.fixture
def silent(monkeypatch):
    """The source sends no record for the first answers, as a broker does that waits for remote storage. Gives how many
    are left."""
    left = [6]

    send = FetchSession._send

    async def silenced(*arguments, **options):
        response = await send(*arguments, **options)
        if not left[0]:
            return response
        left[0] -= 1
        return replace(response, answers=[replace(it, records=b"") for it in response.answers])

    monkeypatch.setattr(FetchSession, "_send", silenced)
    return left


def test_records_that_the_broker_sends_late_are_copied(silent, source_cluster, target_cluster):
    topic = f"late-{uuid.uuid4().hex[:8]}"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(600, 2, seed=1))
        it.mirror(settings=SETTINGS).run(until_caught_up=True)
        assert not silent[0]
        assert assert_same(it) == 600


def test_what_is_compacted_away_up_to_the_end_is_passed_over(silent, source_cluster, target_cluster):
    """Brokers of today keep the last batch: here they have records, and do not send them."""
    topic = f"emptied-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "compact"}
    silent[0] = 10**6
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=config) as it:
        produce(it.source, topic, [replace(each, key=each.key or b"k") for each in records(50, 1, seed=2)])
        it.mirror(settings=SETTINGS).run(until_caught_up=True)
        assert it.link.positions()[TopicPartition(topic, 0)].source == 50
        assert read_all(it.target, it.topics)[TopicPartition(topic, 0)] == []


def test_configuration_is_read_over_the_wire(source_cluster):
    topic = f"configured-{uuid.uuid4().hex[:8]}"
    create_topics(source_cluster.bootstrap_servers, {topic: 1}, {"cleanup.policy": "compact,delete"})
    with wired(source_cluster.bootstrap_servers) as wire:
        found = wire.net.run(topic_configs, wire.cluster, topic, ("cleanup.policy", "retention.ms", "no.such"))
    assert found["cleanup.policy"] == "compact,delete"
    assert sorted(found) == ["cleanup.policy", "retention.ms"]
