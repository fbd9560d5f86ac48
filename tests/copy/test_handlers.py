"""Handlers on real brokers: each record is what they make of it, once; what they drop is a gap of the offset map."""

import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.handlers import Handle, HandlerOf, no_handler
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.wire import pieces
from tests.copy.bench import BRIEF, SHORT, Bench, assert_same, bench, records
from tests.copy.everywhere import assert_translates
from tests.copy.frozen import Elsewhere
from tests.copy.test_transactions import interleave
from tests.handlers import as_is, by_offset, fails_on_poison, for_all, grows, handled, handler, nothing, slow
from tests.kafka_tools import ToSend, produce, read_all, stable_ends
from tests.waiting import wait_until
from tests.wire.made import wired

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic() -> str:
    return f"handled-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def both(source_cluster, target_cluster, topic) -> Iterator[Bench]:
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        yield it


def copied(it: Bench, handler_of: HandlerOf, **limits: object) -> MirrorEnd:
    settings = Settings(streams=2, epoch_seconds=5, handler_of=handler_of, limits=Limits(**BRIEF | limits))
    return it.mirror(settings=settings).run(until_caught_up=True)


def assert_handled(it: Bench, function: Handle) -> int:
    """The target holds what ``function`` makes of the source's records, and every offset translates to the first of
    them at or after it; the lag is 0. How many records it holds."""
    source, target, maps = read_all(it.source, it.topics), read_all(it.target, it.topics), it.link.offset_maps()
    ends, positions = stable_ends(it.source, it.topics), it.link.positions()
    for tp, rows in source.items():
        expected = handled(rows, function)
        assert [row.without_offset() for row in target[tp]] == [row.without_offset() for row in expected], tp
        assert_translates(maps[tp], expected, target[tp])
        assert positions[tp].source == ends[tp], "what is dropped is no lag"
    return sum(map(len, target.values()))


@pytest.mark.long
@pytest.mark.parametrize("limits", [BRIEF, SHORT], ids=["joined", "alone"])
def test_records_are_dropped_and_changed_over_every_codec_and_between_transactions(both, topic, limits):
    for codec in CODECS:
        produce(both.source, topic, records(300, 2, seed=1), **{"compression.type": codec})
    interleave(both.source, topic, transactions=20, seed=2)
    outcome = copied(both, for_all(by_offset), **limits)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    assert assert_handled(both, by_offset) > 900
    with wired(both.target, topic) as wire:
        stored = [header for tp in maps_of(topic) for header, _ in wire.stored(tp)]
    assert {header.codec for header in stored} == set(range(5)), "as the source's batches have them"


def maps_of(topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, 0), TopicPartition(topic, 1)]


@pytest.mark.long
def test_mirror_that_is_killed_goes_on_with_what_the_handler_makes_of_the_rest(both, topic, tmp_path):
    produce(both.source, topic, records(6_000, 2, seed=3), **{"batch.size": 2_000})
    with Elsewhere(both, tmp_path / "log", handled=True, throttle_bytes_per_second=100_000) as first:
        wait_until(lambda: sum(p.records for p in both.link.positions().values()) > 500, "it is in the middle")
        first.process.kill()
    assert sum(p.source for p in both.link.positions().values()) < 5_000
    outcome = copied(both, for_all(by_offset))
    assert (outcome.reason, outcome.halted, outcome.fences) == ("caught_up", (), 1)
    assert assert_handled(both, by_offset) > 3_900


def test_topic_of_which_nothing_is_left_is_caught_up_with_and_stays_so(both, topic):
    for n in range(2):
        produce(both.source, topic, records(1_000, 2, seed=n))
        outcome = copied(both, for_all(nothing))
        assert (outcome.reason, outcome.halted, outcome.records) == ("caught_up", (), 0)
        assert assert_handled(both, nothing) == 0
    found = both.link.offset_maps()[TopicPartition(topic, 0)]
    assert {found.to_target(at) for at in range(1_001)} == {found.target_end}, "where the next record will stand"


def test_record_that_the_handler_fails_on_halts_its_partition_right_before_it(both, topic):
    produce(both.source, topic, records(100, 2, seed=4))
    produce(both.source, topic, [ToSend(b"before", None, 1), ToSend(b"poison", None, 1), ToSend(b"after", None, 1)])
    outcome = copied(both, for_all(fails_on_poison))
    bad = TopicPartition(topic, 1)
    assert outcome.halted == (bad,)
    halt = both.link.halts()[bad]
    assert (halt.reason, halt.source_offset) == (Halt.HANDLER, 51)
    assert "tests.handlers:fails_on_poison, record at source offset 51: ValueError (handlers.py, line" in halt.detail
    assert "poison" not in halt.detail.replace("fails_on_poison", "")
    source, target = read_all(both.source, both.topics), read_all(both.target, both.topics)
    for tp, rows in target.items():
        before = [row for row in source[tp] if tp != bad or row.offset < 51]
        assert [row.without_offset() for row in rows] == [row.without_offset() for row in handled(before, by_offset)]


@pytest.mark.long
def test_handler_that_takes_longer_for_a_batch_than_a_round_lasts_gets_on_all_the_same(both, topic):
    # What begins a run is sent before a round ends, whatever made it: here none does.
    produce(both.source, topic, records(20, 2, seed=8))
    copied(both, for_all(as_is))
    produce(both.source, topic, records(120, 2, seed=9), **{"linger.ms": 200})
    until = time.monotonic() + 60
    settings = Settings(streams=1, epoch_seconds=1, handler_of=for_all(slow), limits=Limits(**BRIEF))
    mirror = both.mirror(settings=settings, interrupted=lambda: time.monotonic() > until)
    outcome = mirror.run(until_caught_up=True)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    assert outcome.rounds < 3, "what was handled in one is not handled again in the next"
    assert_handled(both, as_is)


def test_handler_that_the_executor_lacks_halts_the_topics_partitions_alone(source_cluster, target_cluster):
    names = [f"handled-{uuid.uuid4().hex[:8]}" for _ in range(2)]
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(*servers, dict.fromkeys(names, 1)) as it:
        for name in names:
            produce(it.source, name, records(50, 1, seed=5))
        missing = replace(handler(as_is), sha256="0" * 64)
        outcome = copied(it, lambda topic: missing if topic == names[0] else None)
        assert outcome.halted == (TopicPartition(names[0], 0),)
        halt = it.link.halts()[outcome.halted[0]]
        assert (halt.reason, halt.source_offset) == (Halt.HANDLER, 0)
        assert "has the SHA-256" in halt.detail
        assert halt.detail.endswith("; no record is at fault")
        assert len(read_all(it.target, it.topics)[TopicPartition(names[1], 0)]) == 50


def test_record_that_grows_beyond_what_the_target_takes_halts_alone_in_its_batch(source_cluster, target_cluster, topic):
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(*servers, {topic: 2}, target_config={"max.message.bytes": "4000"}) as it:
        produce(it.source, topic, records(60, 1, seed=7))
        produce(it.source, topic, [ToSend(b"grow"), ToSend(b"behind")])
        outcome = copied(it, for_all(grows))
        assert outcome.halted == (TopicPartition(topic, 0),)
        halt = it.link.halts()[outcome.halted[0]]
        assert (halt.reason, halt.source_offset) == (Halt.REFUSED, 60)
        assert "the batch of source offsets 60 to 60" in halt.detail
        assert "MESSAGE_SIZE_TOO_LARGE" in halt.detail
        assert len(read_all(it.target, it.topics)[TopicPartition(topic, 0)]) == 60


def test_topic_without_a_handler_is_copied_byte_for_byte_as_before(both, topic, monkeypatch):
    def decode(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(pieces, "handled", decode)
    produce(both.source, topic, records(2_000, 2, seed=6), **{"compression.type": "zstd"})
    copied(both, no_handler, join_bytes=0)
    assert assert_same(both) == 2_000
    with wired(both.source, topic) as source, wired(both.target, topic) as target:
        for tp in maps_of(topic):
            sections = [[batch[61:] for _, batch in wire.stored(tp)] for wire in (source, target)]
            assert sections[0] == sections[1][-len(sections[0]) :]
