"""Topics that a mirror copied, and copies of those, batch by batch, into each of which one fault can be put."""

import random
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from confluent_kafka.admin import AdminClient

from kafka_migration.domain.codes import STALE_LEADER
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.markers import write_markers_directly
from tests.compare.lab import Copied
from tests.copy.bench import OPEN_ENDED, bench
from tests.kafka_tools import ToSend, create_topics, produce
from tests.mutation.logs import Log, Stored
from tests.waiting import wait_until
from tests.wire.made import Wire, wired

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
PARTITIONS = 2
#: Of the records of a topic, so many stand in its second partition: one to put a record of the first into.
_SECOND = 0.05
_PATIENCE_SECONDS = 180.0
_FIRST_MS = 1_600_000_000_000
#: Not the mirror's: nobody else writes these markers.
_AUTHOR = Identity(987_654, 1)
_KEEP = {**OPEN_ENDED, "file.delete.delay.ms": "1000", "max.message.bytes": str(8 << 20)}


def records(count: int, partition: int, chance: random.Random) -> Iterator[ToSend]:
    """Records of all sorts, no two alike, in no order of time."""
    for n in range(count):
        headers: list[tuple[str, bytes | None]] = [("trace", b"%d" % n), ("hop", chance.randbytes(4)), ("none", None)]
        yield ToSend(
            None if n % 29 == 0 else b"" if n % 31 == 0 else b"%d:" % n + chance.randbytes(chance.randrange(50)),
            None if n % 7 == 0 else b"" if n % 37 == 0 else b"key-%d" % chance.randrange(5_000),
            partition,
            _FIRST_MS + (n ^ 5) + partition,
            headers[: chance.randrange(4)] if n % 3 == 0 else [],
        )


@dataclass
class Original:
    """A topic of one codec, as its producer wrote it and as the mirror copied it; `maps` are the mirror's own."""

    codec: str
    source: dict[int, Log]
    target: dict[int, Log]
    maps: dict[int, OffsetMap]


def originals(source: str, target: str, *, count: int, seed: int, codecs: Sequence[str] = CODECS) -> list[Original]:
    """Fill a topic of each codec with `count` records in its first partition, and have the mirror copy it in two runs.

    So the target's logs hold the markers of two fences, and batches that the mirror joined.
    """
    names = {codec: f"original-{codec}-{uuid.uuid4().hex[:6]}" for codec in codecs}
    sizes = {0: count, 1: max(10, int(count * _SECOND))}
    with ExitStack() as stack:
        it = stack.enter_context(bench(source, target, dict.fromkeys(names.values(), PARTITIONS)))
        for half in range(2):
            for codec, name in names.items():
                chance = random.Random(f"{seed} {codec} {half}")
                sent = [
                    record
                    for partition, size in sizes.items()
                    for record in records(size // 2 if half == 0 else size - size // 2, partition, chance)
                ]
                batch = {"batch.num.messages": chance.choice((50, 400, 1000)), "linger.ms": 5}
                later = [_later(record, half) for record in sent]
                produce(source, name, later, **{"compression.type": codec, **batch})
            ended = it.mirror().run(until_caught_up=True)
            if ended.halted:
                raise RuntimeError(f"the mirror halted: {ended.halted}")
        found, maps = [], it.link.offset_maps()
        for codec, name in names.items():
            mine = {partition: maps[TopicPartition(name, partition)] for partition in range(PARTITIONS)}
            found.append(Original(codec, _stored(source, name), _stored(target, name), mine))
    for servers in (source, target):
        delete(servers, names.values())
    return found


def _later(record: ToSend, half: int) -> ToSend:
    return ToSend(record.value, record.key, record.partition, (record.timestamp or 0) + half * 10**9, record.headers)


def _stored(servers: str, name: str) -> dict[int, Log]:
    with wired(servers, name) as wire:
        return {n: Log.stored(wire.stored(TopicPartition(name, n))) for n in range(PARTITIONS)}


def write(servers: str, topics: Mapping[str, Mapping[int, Log]]) -> None:
    """Create topics, and have their partitions' logs be these: batches, and markers before their sections."""
    create_topics(servers, dict.fromkeys(topics, PARTITIONS), _KEEP)
    logs = {TopicPartition(name, n): log for name, parts in topics.items() for n, log in parts.items()}
    with wired(servers) as wire:
        wait_until(
            lambda: not wire.refresh(*topics) and all(tp in wire.cluster.leaders for tp in logs),
            "leaders",
        )
        for section in range(max(len(log.sections) for log in logs.values())):
            mine = {tp: log for tp, log in logs.items() if section < len(log.sections)}
            for turn in range(max(log.gaps[section] for log in mine.values())):
                _mark(wire, [tp for tp, log in mine.items() if turn < log.gaps[section]])
            waiting = {tp: iter(log.sections[section]) for tp, log in mine.items()}
            while waiting:
                request = {}
                for tp, batches in list(waiting.items()):
                    batch = next(batches, None)
                    if batch is None:
                        del waiting[tp]
                    else:
                        request[tp] = batch.to_append()
                _append(wire, request)
        for tp, log in logs.items():
            end = sum(log.gaps) + len(log)
            wait_until(lambda tp=tp, end=end: wire.end(tp) == end, f"{tp} ends at {end}")


def _append(wire: Wire, request: dict[TopicPartition, bytes]) -> None:
    """A batch to each partition. The leader of a new one may not know yet that it is."""
    until = time.monotonic() + _PATIENCE_SECONDS
    while request:
        (answers,) = wire.append(request)
        wrong = {answer.partition: answer.error for answer in answers if answer.error}
        if wrong and (not STALE_LEADER.issuperset(wrong.values()) or time.monotonic() > until):
            raise RuntimeError(f"a broker refuses batches: {wrong}")
        request = {tp: request[tp] for tp in wrong}


def append(servers: str, tp: TopicPartition, batch: Stored) -> None:
    """One more batch at the end of a log."""
    with wired(servers, tp.topic) as wire:
        before = wire.end(tp)
        _append(wire, {tp: batch.to_append()})
        wait_until(lambda: wire.end(tp) == before + batch.count, f"{tp} ends at {before + batch.count}")


def _mark(wire: Wire, tps: list[TopicPartition]) -> None:
    wire.net.run(
        lambda: write_markers_directly(wire.cluster, _AUTHOR, tps, deadline=time.monotonic() + _PATIENCE_SECONDS)
    )


def delete(servers: str, names: Iterable[str]) -> None:
    """Delete topics, and wait until they are gone."""
    admin, gone = AdminClient({"bootstrap.servers": servers, "log_level": 0}), set(names)
    for future in admin.delete_topics(sorted(gone)).values():
        future.result(60)
    wait_until(lambda: not gone & set(admin.list_topics(timeout=30).topics), "topics are gone")


@contextmanager
def written(source: str, target: str, copies: Mapping[str, tuple[Original, Mapping[int, Log]]]) -> Iterator[Copied]:
    """Topics on both clusters, each an original's on the source, and these logs on the target; deleted in the end."""
    link = Copied(
        {TopicPartition(name, n): found for name, (copy, _) in copies.items() for n, found in copy.maps.items()}
    )
    write(source, {name: copy.source for name, (copy, _) in copies.items()})
    write(target, {name: logs for name, (_, logs) in copies.items()})
    try:
        yield link
    finally:
        for servers in (source, target):
            delete(servers, copies)
