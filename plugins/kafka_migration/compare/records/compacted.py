"""What compaction may take: when a record that one side has, and the other has not, is no difference.

The cleaner removes a record only if its log holds a newer one of the same key, if it has no key, or if it is a
tombstone that is older than ``delete.retention.ms`` and nothing older of its key is left. So a key's newest record at
the pinned end shows whether the two sides are equal, as long as it is known what was written behind that end: newer
records there may have swept away what was pinned.

What the other side holds counts as far as this one has held it, too, though it may be gone from here by now: all that
was mirrored. What the source has got since sweeps nothing from the target.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, OnRead, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.job import SHARES_PER_SLOT, Log
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.reading import LONG_SECONDS
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import cut, parts, tiles
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.levels import Level
from kafka_migration.domain.spark_worker import keep_imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Of every record behind the pinned ends: newer than any place. And of those that only the source has had so far.
BEHIND, NOT_MIRRORED = 2**62, 2**62 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A record that only one side has: its key and ``place`` (a source offset), and whether it is a tombstone."""

    place: int
    key: bytes | None
    is_tombstone: bool
    timestamp: int


@dataclass(slots=True)
class Seen:
    """The places of all records of one key, by side; those behind the pinned end are :data:`BEHIND`, or
    :data:`NOT_MIRRORED`."""

    places: dict[str, set[int]] = field(default_factory=lambda: {SOURCE: set(), TARGET: set()})


def is_explained(missing: Missing, seen: Seen, *, missing_on: str, now_ms: int, tombstones_ms: int) -> bool:
    """Whether compaction alone may have taken a record from the side ``missing_on``, whose ``delete.retention.ms`` is
    ``tombstones_ms``; ``seen`` is what both logs hold of its key by now."""
    other = TARGET if missing_on == SOURCE else SOURCE
    mine = seen.places[missing_on]
    if missing.place in mine or missing.place not in seen.places[other]:
        # Read between two passes of the cleaner: by now it is there, or on neither side.
        return True
    had = mine | (seen.places[other] - {NOT_MIRRORED})
    if missing.key is None or max(had, default=-1) > missing.place:
        return True
    if not missing.is_tombstone:
        return False
    # A time that is yet to come does not show when it was written.
    is_old = missing.timestamp > now_ms or now_ms - missing.timestamp >= tombstones_ms
    return is_old and min(mine, default=BEHIND) > missing.place


#: Source offsets of the partitions that one job reads, at the least: so many as that every slot has some stretches.
_WAVE_OFFSETS = 16_000_000
#: Of what one task reads and keeps in memory, at the most, and what is worth a task. And what a stretch costs besides.
_MOST_OFFSETS, _LEAST_OFFSETS, _STRETCH_COST = 1_000_000, 20_000, 500
_MOST_FAILURES = 24
#: In place of a segment's number: the partition could not be read, and the reason stands in place of the side.
UNREAD = -1

#: The number of a partition in its job, a segment's (or :data:`UNREAD`), and a side; and what that side holds of it.
Digested = tuple[tuple[int, int, str], Digest]


class Stretch(NamedTuple):
    """Records that are read at once: those of both sides of ``tile``, which is of the partition with this ``number`` in
    its job; or, if there is a ``side``, those at its offsets ``start`` to ``end`` (not included), which are behind the
    pinned end, and count nowhere."""

    number: int
    tile: PartitionRange
    side: str = ""
    start: int = 0
    end: int = 0


def outcomes(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    orders: Orders,
    *,
    secrets: Collection[str] = (),
    on_read: OnRead = lambda _found: None,
    log: Log = lambda _text: None,
) -> list[SegmentOutcome]:
    """Every segment of ``ranges``, which are whole logs up to their pinned ends. Never raises for what cannot be read:
    that is in its outcome. ``on_read`` is called with partitions as soon as their job ends."""
    found: list[SegmentOutcome] = []
    tasks = SHARES_PER_SLOT * max(1, spark.sparkContext.defaultParallelism)
    waiting, failed = list(_waves(ranges, max(_WAVE_OFFSETS, tasks * _MOST_OFFSETS)))[::-1], 0
    late: list[PartitionRange] = []
    while waiting or late:
        if not waiting:
            # Everything else is read: now there is time to wait for a leader.
            orders, waiting, late = replace(orders, seconds=LONG_SECONDS), [late], []
        wave = waiting.pop()
        unread: dict[int, str] = {}
        try:
            new, unread = _read(spark, request, wave, orders, tasks)
        except Exception as error:
            reason = reason_of(error, secrets)
            failed += 1
            is_gone = failed >= _MOST_FAILURES or ClusterUnreachable.__name__ in reason
            if is_gone:
                # The cluster is the trouble, not a partition, and each try may cost a minute.
                wave += [range_ for other in waiting for range_ in other] + late
                waiting.clear()
                late.clear()
            log(f"a read of {len(wave)} compacted partitions failed: {reason}")
            if len(wave) > 1 and not is_gone:
                middle = len(wave) // 2
                waiting += [wave[middle:], wave[:middle]]
                continue
            new, unread = [], dict.fromkeys(range(len(wave)), reason)
        else:
            if orders.seconds < LONG_SECONDS:
                late += [wave[number] for number in unread]
                unread = {}
        for number, reason in unread.items():
            why = hidden(reason, secrets)
            new += [orders.failure(tile, why) for tile in tiles(wave[number], request.segment_records)]
        on_read(new)
        found += new
    return found


def _waves(ranges: Iterable[PartitionRange], most: int) -> Iterator[list[PartitionRange]]:
    wave: list[PartitionRange] = []
    size = 0
    for range_ in ranges:
        offsets = _offsets(range_)
        if wave and size + offsets > most:
            yield wave
            wave, size = [], 0
        wave.append(range_)
        size += offsets
    if wave:
        yield wave


def _offsets(range_: PartitionRange) -> int:
    """How much of it is read, about: of one side, and what is behind the pinned ends."""
    pinned = max(range_.source_end - range_.source_start, range_.target_end - range_.target_start)
    return pinned + sum(max(0, end - start) for _, start, end in _tails(range_))


def _tails(range_: PartitionRange) -> tuple[tuple[str, int, int], ...]:
    """Of each side, the offsets behind its pinned end: from, and up to without."""
    return (SOURCE, range_.source_end, range_.source_tail), (TARGET, range_.target_end, range_.target_tail)


def _read(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], orders: Orders, tasks: int
) -> tuple[list[SegmentOutcome], dict[int, str]]:
    """One job: its first stage compares what both logs hold at the same places, the second what only one of them holds
    with all that they hold of its key. Keys are divided among the second's tasks by their hashes. And which of
    ``ranges``, by their place, could not be read, and why."""
    spark.sparkContext.setJobGroup(request.id, f"validation of {request.migration}: {len(ranges)} compacted partitions")
    work = _shares(ranges, tasks)
    tombstones_ms = [(range_.source_tombstones_ms, range_.target_tombstones_ms) for range_ in ranges]
    first, second = _tasks(orders, request.segment_records, len(work), tombstones_ms, int(time.time() * 1000))
    read = spark.sparkContext.parallelize(work, len(work)).flatMap(first).partitionBy(len(work), int)
    settled = read.mapPartitions(second).reduceByKey(add, min(len(work), tasks), lambda key: key[0] + key[1])
    digested: dict[int, dict[int, dict[str, Digest]]] = {}
    unread: dict[int, str] = {}
    for (number, segment, side), digest in settled.collect():
        if segment == UNREAD:
            unread[number] = side
        else:
            digested.setdefault(number, {}).setdefault(segment, {})[side] = digest
    found = []
    for number, range_ in enumerate(ranges):
        if number in unread:
            continue
        of_segment = digested.get(number, {})
        numbered = list(tiles(range_, request.segment_records))
        end, target_end = range_.source_end, range_.target_end
        beyond = cut(range_, end, end, target_end, target_end)
        # Also records that the map has nowhere near: of no segment that was asked for.
        numbered += [(segment, beyond) for segment in sorted(of_segment.keys() - {segment for segment, _ in numbered})]
        for segment, tile in numbered:
            sides = of_segment.get(segment, {})
            found.append(
                SegmentOutcome.of(segment, tile, Level.RECORD, source=sides.get(SOURCE), target=sides.get(TARGET))
            )
    return found, unread


def _shares(ranges: Sequence[PartitionRange], tasks: int) -> list[list[Stretch]]:
    """What each task reads."""
    most = min(_MOST_OFFSETS, max(_LEAST_OFFSETS, -(-sum(map(_offsets, ranges)) // tasks)))
    shares: list[list[Stretch]] = [[]]
    room = most
    for number, range_ in enumerate(ranges):
        for stretch in _stretches(number, range_, most):
            tile = stretch.tile
            size = stretch.end - stretch.start if stretch.side else tile.source_end - tile.source_start
            if shares[-1] and size > room:
                shares.append([])
                room = most
            shares[-1].append(stretch)
            room -= size + _STRETCH_COST
    return shares


def _stretches(number: int, range_: PartitionRange, most: int) -> Iterator[Stretch]:
    for tile in parts(range_, -(-(range_.source_end - range_.source_start) // most) or 1):
        yield Stretch(number, tile)
    for side, start, end in _tails(range_):
        alone = replace(range_, runs=Runs())
        for at in range(start, end, most):
            yield Stretch(number, alone, side, at, min(end, at + most))


def _tasks(
    orders: Orders, segment_records: int, buckets: int, tombstones_ms: Sequence[tuple[int, int]], now_ms: int
) -> tuple[Callable[[list[Stretch]], Iterable[Any]], Callable[[Iterable[Any]], Iterable[Digested]]]:
    """Of one job: what reads a share, and what settles all that is found of some keys."""

    def first(share: list[Stretch]) -> Iterable[Any]:
        from kafka_migration.compare.records import by_key  # which needs numpy

        try:
            yield from by_key.read(orders, share, segment_records, buckets)
        finally:
            keep_imports()

    def second(found: Iterable[Any]) -> Iterable[Digested]:
        from kafka_migration.compare.records import by_key

        return by_key.settled((one for _, one in found), segment_records, tombstones_ms, now_ms)

    return first, second
