"""Records out of the ordinary on real brokers: large ones, strange times, the broker's own times, nothing at all."""

import random
import uuid

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.wire import codecs
from kafka_migration.wire.records import RawRecord, as_long, raw_records, write_varint
from tests.copy.bench import BRIEF, OPEN_ENDED, bench, records
from tests.copy.everywhere import assert_same_everywhere
from tests.kafka_tools import ToSend, produce, read_all, set_topic_config
from tests.wire.logs import batch_of
from tests.wire.made import NOW, field, wired

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
LONG_MAX = 2**63 - 1


@pytest.fixture
def topic() -> str:
    return f"odd-{uuid.uuid4().hex[:8]}"


def test_records_past_every_default_limit_are_copied_between_small_ones(source_cluster, target_cluster, topic):
    large = {"max.message.bytes": str(24 * 2**20)}
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(*servers, {topic: 3}, config=large, target_config=large) as it:
        chance = random.Random(1)
        sent = [
            ToSend(chance.randbytes(chance.choice((10, 1_000, 1_500_000, 12_000_000))), b"k%d" % n, n % 3, NOW + n)
            for n in range(24)
        ]
        produce(it.source, topic, sent, **{"message.max.bytes": 24 * 2**20, "linger.ms": 0})
        # Leases as in earnest: brief ones run out while a busy machine copies 12 MB.
        outcome = it.mirror(settings=Settings(streams=2, epoch_seconds=5)).run(until_caught_up=True)
        assert (outcome.halted, outcome.fences) == ((), 1)
        assert assert_same_everywhere(it) == 24


def test_batches_larger_than_the_target_takes_are_split_and_a_record_that_is_halts(
    source_cluster, target_cluster, topic
):
    with bench(
        source_cluster.bootstrap_servers,
        target_cluster.bootstrap_servers,
        {topic: 2},
        target_config={"max.message.bytes": "9000"},
    ) as it:
        chance = random.Random(2)
        sent = [ToSend(chance.randbytes(2_000), b"k", 0, NOW + n) for n in range(50)]
        produce(it.source, topic, sent)
        produce(
            it.source,
            topic,
            [ToSend(b"fits", None, 1), ToSend(chance.randbytes(10_000), None, 1)],
            **{"linger.ms": 0, "batch.num.messages": 1},
        )
        outcome = it.mirror(settings=Settings(streams=1, epoch_seconds=5, limits=Limits(**BRIEF, join_bytes=0))).run(
            until_caught_up=True
        )
        assert outcome.halted == (TopicPartition(topic, 1),)
        assert it.link.halts()[TopicPartition(topic, 1)].reason == Halt.REFUSED
        found = read_all(it.target, it.topics)
        assert [row.value for row in found[TopicPartition(topic, 0)]] == [it.value for it in sent]
        assert [row.value for row in found[TopicPartition(topic, 1)]] == [b"fits"]


def _attributes(servers: str, topic: str) -> set[int]:
    with wired(servers, topic) as wire:
        stored = wire.stored(TopicPartition(topic, 0))
        return {header.attributes for header, _ in stored if not header.is_control}


@pytest.mark.parametrize("codec", CODECS)
def test_timestamps_that_the_source_gave_are_kept_as_the_targets_own(source_cluster, target_cluster, topic, codec):
    stamped = {"message.timestamp.type": "LogAppendTime"}
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}, config=stamped) as it:
        produce(it.source, topic, records(400, 2, 3), **{"compression.type": codec})
        produce(it.source, topic, records(50, 2, 4), **{"compression.type": codec, "linger.ms": 0})
        set_topic_config(it.source, topic, {"message.timestamp.type": "CreateTime"})
        produce(it.source, topic, records(50, 2, 5), **{"compression.type": codec})
        assert it.mirror().run(until_caught_up=True).halted == ()
        assert assert_same_everywhere(it) == 500
        # A producer leaves a batch as it is that compression would make larger: one record, say.
        used = {attributes & 7 for attributes in _attributes(it.source, topic)}
        assert used <= {CODECS.index(codec), codecs.NONE}
        # The mirror joins small batches, and the joined one is compressed.
        assert CODECS.index(codec) in _attributes(it.target, topic) <= used


@pytest.mark.parametrize("codec", [codecs.NONE, codecs.ZSTD])
def test_times_at_their_ends_and_empty_and_null_fields_arrive_as_they_are(source_cluster, target_cluster, topic, codec):
    times = (0, -1, 1, NOW, -5, 253_402_300_799_999, LONG_MAX, -(10**14), 0)
    fields = (None, b"", b"x")
    headers = (
        write_varint(3)
        + (write_varint(1) + b"h" + field(None))
        + (write_varint(1) + b"h" + field(b""))
        + (write_varint(0) + field(b"v"))
    )
    open_ended = {"message.timestamp.after.max.ms": str(LONG_MAX), "message.timestamp.before.max.ms": str(LONG_MAX)}
    tp = TopicPartition(topic, 0)
    with bench(
        source_cluster.bootstrap_servers,
        target_cluster.bootstrap_servers,
        {topic: 2},
        config=open_ended,
        target_config={**OPEN_ENDED, **open_ended},
    ) as it:
        with wired(it.source, topic) as wire:
            for n, time in enumerate(times):
                made = [
                    RawRecord(0, at, 0, field(fields[(n + at) % 3]) + field(fields[at % 3]) + headers)
                    for at in range(3)
                ]
                batch = batch_of(
                    made, base_offset=0, last_delta=2, attributes=codec, base_timestamp=time, max_timestamp=time
                )
                (answers,) = wire.append({tp: batch})
                assert answers[0].error == 0, (time, answers)
            source = _stored(wire, tp)
        assert it.mirror().run(until_caught_up=True).halted == ()
        with wired(it.target, topic) as wire:
            assert _stored(wire, tp) == source
        assert len(source) == 3 * len(times)
        assert assert_same_everywhere(it) == 3 * len(times), "partition 1 is empty, and stays so"


def _stored(wire, tp):
    """Time, attributes and everything else of every record, as the log has it."""
    return [
        (header.base_timestamp + record.timestamp_delta, record.attributes, record.rest)
        for header, batch in wire.stored(tp)
        if not header.is_control
        for record in raw_records(header, batch)
    ]


def test_times_that_wrap_past_the_end_of_a_long_are_copied_as_the_source_gives_them(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topic: str
) -> None:
    open_ended = {"message.timestamp.after.max.ms": str(LONG_MAX), "message.timestamp.before.max.ms": str(LONG_MAX)}
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with bench(
        source_cluster.bootstrap_servers,
        target_cluster.bootstrap_servers,
        {topic: 2},
        config=open_ended,
        # Smaller than the batch: it is split, and each part gets a latest timestamp of its own.
        target_config={**OPEN_ENDED, **open_ended, "max.message.bytes": "400"},
    ) as it:
        produce(it.source, topic, [ToSend(b"small", None, 1)])
        with wired(it.source, topic) as wire:
            rest = field(b"k") + field(b"v" * 200) + write_varint(0)
            records = [RawRecord(5 * n, n, 0, rest) for n in range(4)]
            batch = batch_of(
                records, base_offset=0, last_delta=3, base_timestamp=LONG_MAX, max_timestamp=LONG_MAX, leader_epoch=-1
            )
            (answers,) = wire.append({tp: batch})
            assert answers[0].error == 0, "brokers take it, and every Java client reads it wrapped"
        assert it.mirror().run(until_caught_up=True).halted == ()
        with wired(it.target, topic) as wire:
            assert [as_long(time) for time, *_ in _stored(wire, tp)] == [as_long(LONG_MAX + 5 * n) for n in range(4)]
            assert len(_stored(wire, other)) == 1
