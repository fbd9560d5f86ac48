"""Batches that librdkafka made, on real brokers: fetched, read, trimmed, appended again."""

import uuid

import pytest

from kafka_migration.domain.codes import INVALID_RECORD, UNKNOWN_TOPIC_ID
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import MAX_SEQUENCE, parse_header, readdress, verify_crc
from kafka_migration.wire.cluster import EARLIEST, LATEST, LeaderUnknown
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import FetchFrom
from kafka_migration.wire.join import reencoded
from kafka_migration.wire.records import key_value, raw_records
from tests.kafka_tools import ToSend, create_topics, delete_records, delete_topic, produce, read_all
from tests.wire.logs import raw
from tests.wire.made import NOW, made_batch, wired

RECORDS = [
    ToSend(b"0" * 200, b"key", timestamp=NOW),
    ToSend(None, b"key", timestamp=NOW + 7),
    ToSend(b"", None, timestamp=NOW - 7, headers=[("a", b"1"), ("a", None), ("", b"")]),
    ToSend(b"x" * 1000, b"", timestamp=NOW + 1),
    ToSend(bytes(range(256)), b"\x00\xff", timestamp=NOW + 10**9),
    ToSend(b"last", b"k", timestamp=NOW),
]


@pytest.fixture
def topic():
    return f"wire-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("codec", codecs.NAMES)
def test_batch_of_any_codec_trimmed_at_every_offset_reads_back_as_its_tail(source_cluster, topic, codec):
    servers, last = source_cluster.bootstrap_servers, len(RECORDS)
    create_topics(servers, {topic: last}, {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**62)})
    produce(servers, topic, RECORDS, **{"compression.type": codec})
    with wired(servers, topic) as wire:
        stored = wire.stored(TopicPartition(topic, 0))
        assert [header.records for header, _ in stored] == [last]
        ((header, batch),) = stored
        verify_crc(header, memoryview(batch))
        assert codecs.NAMES[header.codec] == codec
        rows = read_all(servers, {topic: 1})[TopicPartition(topic, 0)]
        read = [(header.base_timestamp + r.timestamp_delta, *key_value(r)) for r in raw_records(header, batch)]
        assert read == [(row.timestamp, row.key, row.value) for row in rows]
        tails = {TopicPartition(topic, first): raw(reencoded(header, batch, first)) for first in range(1, last)}
        plain = {tp: readdress(cut, producer_id=-1, producer_epoch=-1, sequence=-1) for tp, cut in tails.items()}
        (answers,) = wire.append(plain)
    assert [(a.error, a.base_offset) for a in answers] == [(0, 0)] * (last - 1)
    found = read_all(servers, {topic: last})
    for first in range(1, last):
        tail = [row.without_offset() for row in found[TopicPartition(topic, first)]]
        assert tail == [row.without_offset() for row in rows[first:]], first


def test_sequence_that_wraps_inside_a_batch_goes_on_where_brokers_expect_it(source_cluster, topic):
    tp = TopicPartition(topic, 0)
    create_topics(source_cluster.bootstrap_servers, {topic: 1})
    with wired(source_cluster.bootstrap_servers, topic) as wire:
        first, sizes, answers = MAX_SEQUENCE - 3, (5, 2, 4), []
        for size in sizes:
            batch = readdress(made_batch([b"v"] * size), producer_id=10**12, producer_epoch=0, sequence=first)
            answers += wire.append({tp: batch})[0]
            first += size
        assert [(a.error, a.base_offset) for a in answers] == [(0, 0), (0, 5), (0, 7)]
        assert [header.base_sequence for header, _ in wire.stored(tp)] == [MAX_SEQUENCE - 3, 2, 4]
        gap = readdress(made_batch([b"v"]), producer_id=10**12, producer_epoch=0, sequence=first + 1)
        assert wire.append({tp: gap})[0][0].error == 45, "out of order"


def test_base_offset_other_than_zero_is_refused_for_good(source_cluster, topic):
    tp = TopicPartition(topic, 0)
    create_topics(source_cluster.bootstrap_servers, {topic: 1})
    with wired(source_cluster.bootstrap_servers, topic) as wire:
        assert wire.append({tp: made_batch([b"v"], base_offset=5)})[0][0].error == INVALID_RECORD


def test_pinned_id_tells_a_recreated_topic_apart(source_cluster, topic):
    tp, servers = TopicPartition(topic, 0), source_cluster.bootstrap_servers
    create_topics(servers, {topic: 1})
    with wired(servers, topic) as wire:
        wire.cluster.pinned[topic] = wire.cluster.topic_ids[topic]
        assert wire.append({tp: made_batch([b"v"])})[0][0].error == 0
        delete_topic(servers, topic)
        create_topics(servers, {topic: 1})
        wire(type(wire.cluster).wait_for_leaders, [tp], deadline=float("inf"))
        assert wire.cluster.topic_ids[topic] != wire.cluster.pinned[topic]
        assert wire.append({tp: made_batch([b"v"])})[0][0].error == UNKNOWN_TOPIC_ID
        node = wire.cluster.leaders[tp].node
        (fetched,) = wire(fetch, node, [FetchFrom(tp, 0, 1000)], max_wait_ms=0, max_bytes=1000)
        assert fetched.error == UNKNOWN_TOPIC_ID
        wire.cluster.pinned.clear()
        assert wire.append({tp: made_batch([b"v"])})[0][0].error == 0


def test_offsets_are_those_of_the_log_and_an_unknown_topic_is_named(source_cluster, topic):
    servers = source_cluster.bootstrap_servers
    create_topics(servers, {topic: 2})
    produce(servers, topic, [ToSend(b"v", partition=n % 2) for n in range(10)])
    delete_records(servers, {TopicPartition(topic, 1): 2})
    with wired(servers, topic) as wire:
        tps = [TopicPartition(topic, p) for p in range(2)]
        list_offsets = type(wire.cluster).list_offsets
        assert wire(list_offsets, tps, EARLIEST, deadline=float("inf")) == dict(zip(tps, (0, 2), strict=True))
        assert wire(list_offsets, tps, LATEST, deadline=float("inf")) == dict(zip(tps, (5, 5), strict=True))
        assert wire.cluster.partitions[topic] == {0, 1}
        with pytest.raises(LeaderUnknown, match=f"{topic}-nope"):
            wire(list_offsets, [TopicPartition(f"{topic}-nope", 0)], LATEST, deadline=0.0)


def test_request_to_a_broker_that_nobody_knows_fails_without_raising(source_cluster, topic):
    create_topics(source_cluster.bootstrap_servers, {topic: 1})
    with wired(source_cluster.bootstrap_servers, topic) as wire:
        from kafka_migration.wire.produce import Append

        append = Append(wire.cluster, 4711, {TopicPartition(topic, 0): made_batch([b"v"])})
        told: list[object] = []
        append.then(lambda answers, _seconds, error: told.append((answers, type(error).__name__)))
        assert told == [([], "UnknownBrokerIdError")]
        assert not append.was_not_sent


def test_header_of_a_stored_batch_is_what_was_sent(source_cluster, topic):
    tp = TopicPartition(topic, 0)
    create_topics(source_cluster.bootstrap_servers, {topic: 1})
    batch = made_batch([b"a", None], codec=codecs.ZSTD)
    with wired(source_cluster.bootstrap_servers, topic) as wire:
        wire.append({tp: batch}, {tp: batch})
        stored = wire.stored(tp)
        assert [header.base_offset for header, _ in stored] == [0, 2]
        assert all(copy[21:] == batch[21:] for _, copy in stored)
        assert wire.stored(tp, 3)[0][0] == parse_header(stored[1][1]), "a fetch begins with the batch around its offset"
