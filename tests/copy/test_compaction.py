"""Compacted topics on real brokers: batches that the cleaner has thinned, emptied or marked, before and while they are
read."""

import random
import time
import uuid
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.controls import Pause, Throttle
from kafka_migration.domain.types import TopicPartition
from tests.copy.bench import BRIEF, Bench, bench
from tests.copy.everywhere import assert_same_everywhere, running, until_caught_up
from tests.copy.test_transactions import Writer
from tests.kafka_tools import Row, ToSend, produce, read_all, set_topic_config
from tests.waiting import wait_until
from tests.wire.logs import DELETE_HORIZON
from tests.wire.made import NOW, wired

#: A segment is closed every 20 records, each of which is a second later, and cleaned as soon as it is.
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "20000",
    "min.cleanable.dirty.ratio": "0.0",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "86400000",
    "message.timestamp.after.max.ms": str(2**63 - 1),
}
SETTINGS = Settings(streams=1, epoch_seconds=5, limits=Limits(**BRIEF))
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic() -> str:
    return f"compacted-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def both(compacting, target_cluster, topic) -> Iterator[Bench]:
    servers = compacting.bootstrap_servers
    with bench(servers, target_cluster.bootstrap_servers, {topic: 1}, config=COMPACTED) as it:
        yield it


def changes(count: int, *, first: int, seed: int, keys: int = 40) -> Iterable[ToSend]:
    """Records over a few keys, a second apart; one in eight deletes its key."""
    chance = random.Random(seed)
    for n in range(first, first + count):
        value = None if chance.random() < 0.125 else b"%d:" % n + chance.randbytes(chance.randrange(120))
        key = b"k%d" % chance.randrange(keys)
        yield ToSend(value, key, timestamp=NOW + 1_000 * n, headers=[("n", b"%d" % n)])


def write(it: Bench, topic: str, count: int, *, first: int, seed: int) -> None:
    """Write ``count`` records in batches of some ten, of every codec."""
    chance, at = random.Random(seed), first
    while at < first + count:
        size = min(chance.randrange(1, 30), first + count - at)
        config = {
            "compression.type": chance.choice(CODECS),
            "enable.idempotence": chance.random() < 0.5,
        }
        produce(it.source, topic, changes(size, first=at, seed=seed + at), **config)
        at += size


def rows(servers: str, topic: str) -> list[Row]:
    return read_all(servers, {topic: 1})[TopicPartition(topic, 0)]


def is_thinned(it: Bench, topic: str) -> bool:
    """Whether the cleaner has been over all of it but the newest segments, and left batches with holes."""
    with wired(it.source, topic) as wire:
        stored = [header for header, _ in wire.stored(TopicPartition(topic, 0))]
    holes = sum(1 for header in stored if not header.is_gapless and header.records)
    return holes >= 3 and sum(header.records for header in stored) < stored[-1].next_offset * 0.5


def test_thinned_log_arrives_with_every_offset_translated(both, topic):
    write(both, topic, 400, first=0, seed=1)
    wait_until(lambda: is_thinned(both, topic), "the cleaner has thinned batches")
    outcome = both.mirror(settings=SETTINGS).run(until_caught_up=True)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    left = assert_same_everywhere(both)
    assert 40 <= left < 250
    assert len(both.link.offset_maps()[TopicPartition(topic, 0)]) > 20, "a run for each row"


#: A mirror that fetches little at a time, and copies it slowly, in one epoch.
SLOWLY = Settings(
    streams=1,
    epoch_seconds=120,
    limits=Limits(
        **BRIEF,
        partition_fetch_bytes=2_000,
        fetch_bytes=2_000,
        partition_queue_bytes=4_000,
        throttle_bytes_per_second=5_000,
    ),
)
PARTS, PART = 2, 400


def test_log_that_is_compacted_while_it_is_read_arrives_as_it_was_or_is(both, topic):
    tp, thinned = TopicPartition(topic, 0), 0
    # Not before the mirror is in the middle of it.
    compact(both, topic, now=False)
    both.link.pause(Pause(by="ada", at="now"))
    with running(both, SLOWLY) as ends:
        for part in range(PARTS):
            write(both, topic, PART, first=PART * part, seed=part)
            both.link.resume(by="ada", at="now")
            wait_until(lambda part=part: position(both, tp) > PART * part + 20, "a part is copied")
            both.link.pause(Pause(by="ada", at="now"))
            at = until_still(both, tp)
            before = ahead(both, tp, at)
            compact(both, topic, now=True)
            wait_until(
                lambda at=at, before=before: ahead(both, tp, at) < before - 20,
                f"batches ahead of {at} are thinned",
            )
            thinned += before - ahead(both, tp, at)
            compact(both, topic, now=False)
        both.link.resume(by="ada", at="now")
        both.link.throttle(Throttle(bytes_per_second=None, by="ada", at="now"))
        until_caught_up(both)
    assert (ends[0].halted, ends[0].fences, ends[0].rounds) == ((), 1, 1), "all of it fell between fetches of one run"
    assert thinned > 100
    written = dict(enumerate(each for part in range(PARTS) for each in _written(part)))
    source, target = rows(both.source, topic), rows(both.target, topic)
    found = both.link.offset_maps()[tp]
    offsets = [found.to_source(row.offset) for row in target]
    assert offsets == sorted(set(offsets))
    for offset, row in zip(offsets, target, strict=True):
        it = written[offset]
        assert (row.key, row.value, row.timestamp) == (it.key, it.value, it.timestamp), offset
    by_source = dict(zip(offsets, target, strict=True))
    for row in source:
        assert by_source[row.offset].without_offset() == row.without_offset(), row.offset
    assert len(source) < len(target) < PARTS * PART, "some were copied before they went, others went before"
    for at in range(offsets[0], found.source_end + 1):
        index = bisect_left(offsets, at)
        assert found.to_target(at) == (target[index].offset if index < len(target) else found.target_end), at


def compact(it: Bench, topic: str, *, now: bool) -> None:
    """Let the cleaner at the log, or keep it away: no log is dirtier than wholly."""
    set_topic_config(it.source, topic, {"min.cleanable.dirty.ratio": "0.0" if now else "1.0"})


def position(it: Bench, tp: TopicPartition) -> int:
    at = it.link.positions().get(tp)
    return 0 if at is None else at.source


def until_still(it: Bench, tp: TopicPartition) -> int:
    """Where a paused mirror stands, once it does."""
    seen, since = position(it, tp), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, since
        if (now := position(it, tp)) != seen:
            seen, since = now, time.monotonic()
        return time.monotonic() - since > 2.5

    wait_until(is_still, "it stands still")
    return seen


def ahead(it: Bench, tp: TopicPartition, at: int) -> int:
    """How many records the batches from `at` on have, as they are stored."""
    with wired(it.source, tp.topic) as wire:
        return sum(header.records for header, _ in wire.stored(tp, at))


def _written(part: int) -> list[ToSend]:
    """What :func:`write` writes, without writing it."""
    chance, at, found = random.Random(part), PART * part, list[ToSend]()
    while at < PART * (part + 1):
        size = min(chance.randrange(1, 30), PART * (part + 1) - at)
        chance.choice(CODECS), chance.random()
        found += changes(size, first=at, seed=part + at)
        at += size
    return found


def test_tombstones_with_a_delete_horizon_keep_their_times_and_lose_the_horizon(both, topic):
    write(both, topic, 200, first=0, seed=5)
    tp = TopicPartition(topic, 0)

    def is_marked() -> bool:
        with wired(both.source, topic) as wire:
            return sum(1 for header, _ in wire.stored(tp) if header.attributes & DELETE_HORIZON) >= 2

    wait_until(is_marked, "the cleaner has given tombstones a horizon")
    both.mirror(settings=SETTINGS).run(until_caught_up=True)
    assert assert_same_everywhere(both) > 0
    with wired(both.target, topic) as wire:
        assert not any(header.attributes & DELETE_HORIZON for header, _ in wire.stored(tp))
    assert any(row.value is None for row in rows(both.target, topic))


def test_transactions_of_which_compaction_took_records_and_markers(both, topic):
    set_topic_config(both.source, topic, {"delete.retention.ms": "100"})
    writers = [Writer(both.source, topic) for _ in range(2)]
    # Markers have the time of day, so that records of long ago behind them would close no segment.
    chance, at, now = random.Random(9), 0, int(time.time() * 1000)
    for n in range(30):
        writer = writers[n % 2]
        writer.producer.begin_transaction()
        for _ in range(chance.randrange(1, 8)):
            writer.producer.produce(
                topic, b"%d" % at, key=b"k%d" % chance.randrange(6), partition=0, timestamp=now + 1_000 * at
            )
            at += 1
        assert writer.producer.flush(30) == 0
        writer.end(commit=n % 3 != 0)

    later = iter(range(now + 10**6, now + 10**9, 30_000))

    def is_cleaned() -> bool:
        # Without something new the cleaner does not look again.
        produce(both.source, topic, [ToSend(b"later", b"later", timestamp=next(later))])
        with wired(both.source, topic) as wire:
            stored = [header for header, _ in wire.stored(TopicPartition(topic, 0))]
        return sum(1 for header in stored if header.is_control and header.records) < 20

    wait_until(is_cleaned, "markers went, too")
    outcome = both.mirror(settings=SETTINGS).run(until_caught_up=True)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    assert assert_same_everywhere(both) >= 6
