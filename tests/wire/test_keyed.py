"""Keyed records of internal topics on a real broker: durable when told so, and followed from any offset."""

import time
import uuid
from collections.abc import Sequence

import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.ledger import partition_of
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.keyed import KeyedAppender, KeyedTail
from tests.kafka_tools import create_topics, delete_records, delete_topic, read_all
from tests.wire.made import Wire, wired


@pytest.fixture
def topic():
    return f"keyed-{uuid.uuid4().hex[:8]}"


def _put(
    wire: Wire, topic: str, entries: Sequence[tuple[bytes, bytes | None]], *, partitions: int, seconds: float = 30
) -> None:
    appender = KeyedAppender(wire.cluster, topic, partitions=partitions)
    wire.net.run(lambda: appender.put(entries, deadline=time.monotonic() + seconds))


def test_entries_of_many_batches_stand_in_order_in_the_partitions_of_their_keys(target_cluster, topic):
    create_topics(target_cluster.bootstrap_servers, {topic: 3})
    entries = [(b"key-%d" % (n % 40), b"%d:" % n + b"x" * 1_500) for n in range(3_000)]
    with wired(target_cluster.bootstrap_servers) as wire:
        _put(wire, topic, entries, partitions=3)
    rows = read_all(target_cluster.bootstrap_servers, {topic: 3})
    for p in range(3):
        expected = [entry for entry in entries if partition_of(entry[0], 3) == p]
        assert [(row.key, row.value) for row in rows[TopicPartition(topic, p)]] == expected
        assert len(expected) * 1_500 > 2 * 500_000, "more than fits a batch"


def test_tail_yields_what_came_since_the_last_poll_and_nothing_twice(target_cluster, topic):
    create_topics(target_cluster.bootstrap_servers, {topic: 1})
    with wired(target_cluster.bootstrap_servers) as wire:
        _put(wire, topic, [(b"early", b"1")], partitions=1)
        tail = KeyedTail(wire.cluster, TopicPartition(topic, 0), 1)
        assert wire.net.run(tail.poll) == []
        entries = [(b"a", b"1"), (b"b", None), (b"a", b"2")]
        _put(wire, topic, entries, partitions=1)
        assert wire.net.run(tail.poll) == entries
        assert wire.net.run(tail.poll) == []


def test_tail_of_a_topic_that_is_not_there_is_empty_and_not_an_error(target_cluster, topic):
    with wired(target_cluster.bootstrap_servers) as wire:
        tail = KeyedTail(wire.cluster, TopicPartition(topic, 0), 0)
        assert wire.net.run(tail.poll) == []


def test_leader_that_is_out_of_date_is_asked_for_anew(target_cluster, topic):
    tp = TopicPartition(topic, 0)
    create_topics(target_cluster.bootstrap_servers, {topic: 1})
    with wired(target_cluster.bootstrap_servers, topic) as wire:
        wire.cluster.leaders[tp] = type(wire.cluster.leaders[tp])(node=4711, epoch=0)
        _put(wire, topic, [(b"a", b"1")], partitions=1)
        assert wire.cluster.leaders[tp].node == 1
        wire.cluster.leaders[tp] = type(wire.cluster.leaders[tp])(node=4711, epoch=0)
        tail, found = KeyedTail(wire.cluster, tp, 0), list[object]()
        while not found:
            found = wire.net.run(tail.poll)
        assert found == [(b"a", b"1")]


def test_write_that_cannot_be_done_says_so_at_its_deadline(target_cluster, topic):
    with wired(target_cluster.bootstrap_servers) as wire, pytest.raises(CouldNotFindOut, match=topic):
        _put(wire, topic, [(b"a", b"1")], partitions=1, seconds=0.5)


def test_deleted_topic_does_not_swallow_entries(target_cluster, topic):
    create_topics(target_cluster.bootstrap_servers, {topic: 1})
    with wired(target_cluster.bootstrap_servers, topic) as wire:
        delete_topic(target_cluster.bootstrap_servers, topic)
        with pytest.raises(CouldNotFindOut, match=topic):
            _put(wire, topic, [(b"a", b"1")], partitions=1, seconds=0.5)


def test_tail_goes_on_behind_records_that_were_deleted(target_cluster, topic):
    create_topics(target_cluster.bootstrap_servers, {topic: 1})
    with wired(target_cluster.bootstrap_servers) as wire:
        _put(wire, topic, [(b"a", b"1"), (b"b", b"2"), (b"c", b"3")], partitions=1)
        tail = KeyedTail(wire.cluster, TopicPartition(topic, 0), 1)
        assert wire.net.run(tail.poll) == [(b"b", b"2"), (b"c", b"3")]
        delete_records(target_cluster.bootstrap_servers, {TopicPartition(topic, 0): 3})
        _put(wire, topic, [(b"d", b"4")], partitions=1)
        assert wire.net.run(tail.poll) == [(b"d", b"4")]
