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
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, OnRead, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.job import SHARES_PER_SLOT, Log
from kafka_migration.compare.orders import RECORD, Orders
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut, parts, tiles
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.spark_worker import keep_imports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafka_migration.compare.records.by_key import Digested

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
#: Of what one task reads and keeps in memory, at the most, and what is worth a task.
_MOST_OFFSETS, _LEAST_OFFSETS = 1_000_000, 20_000
_MOST_FAILURES = 24


class Stretch(NamedTuple):
    """Records that are read at once: those of both sides of ``tile``, which is of the partition with this ``number`` in
    its job; or those of one side (``behind``) from the pinned end to the log end of that time, which count nowhere."""

    number: int
    tile: PartitionRange
    behind: str = ""

    @property
    def span(self) -> tuple[int, int]:
        """Of those behind the pinned end: offsets from, and up to without."""
        tile = self.tile
        return (tile.source_end, tile.source_tail) if self.behind == SOURCE else (tile.target_end, tile.target_tail)

    @property
    def offsets(self) -> int:
        start, end = self.span if self.behind else (self.tile.source_start, self.tile.source_end)
        return end - start


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
    while waiting:
        wave = waiting.pop()
        try:
            new = _read(spark, request, wave, orders, tasks)
        except Exception as error:
            reason = reason_of(error, secrets)
            failed += 1
            is_gone = failed >= _MOST_FAILURES or ClusterUnreachable.__name__ in reason
            if is_gone:
                # The cluster is the trouble, not a partition, and each try may cost a minute.
                wave += [range_ for other in waiting for range_ in other]
                waiting.clear()
            log(f"a read of {len(wave)} compacted partitions failed: {reason}")
            if len(wave) > 1 and not is_gone:
                middle = len(wave) // 2
                waiting += [wave[middle:], wave[:middle]]
                continue
            new = [orders.failure(tile, reason) for range_ in wave for tile in tiles(range_, request.segment_records)]
        on_read(new)
        found += new
    return found


def _waves(ranges: Iterable[PartitionRange], most: int) -> Iterator[list[PartitionRange]]:
    wave: list[PartitionRange] = []
    size = 0
    for range_ in ranges:
        offsets = range_.source_end - range_.source_start
        if wave and size + offsets > most:
            yield wave
            wave, size = [], 0
        wave.append(range_)
        size += offsets
    if wave:
        yield wave


def _read(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], orders: Orders, tasks: int
) -> list[SegmentOutcome]:
    """One job: its first stage compares what both logs hold at the same places, the second what only one of them holds
    with all that they hold of its key. Keys are divided among the second's tasks by their hashes."""
    spark.sparkContext.setJobGroup(request.id, f"validation of {request.migration}: {len(ranges)} compacted partitions")
    work = _shares(ranges, tasks)
    kept_ms = [(range_.source_tombstones_ms, range_.target_tombstones_ms) for range_ in ranges]
    first, second = _tasks(orders, request.segment_records, len(work), kept_ms, int(time.time() * 1000))
    rows = spark.sparkContext.parallelize(work, len(work)).flatMap(first)
    digested: dict[tuple[int, int], dict[str, Digest]] = {}
    for number, segment, side, digest in rows.partitionBy(len(work), int).mapPartitions(second).collect():
        sides = digested.setdefault((number, segment), {})
        sides[side] = sides.get(side, Digest()) + digest
    found = []
    for number, range_ in enumerate(ranges):
        numbered = list(tiles(range_, request.segment_records))
        known = {segment for segment, _ in numbered}
        end, target_end = range_.source_end, range_.target_end
        beyond = cut(range_, end, end, target_end, target_end)
        # Also records that the map has nowhere near: of no segment that was asked for.
        for segment in sorted(segment for of, segment in digested if of == number and segment not in known):
            numbered.append((segment, beyond))
        for segment, tile in numbered:
            sides = digested.get((number, segment), {})
            found.append(SegmentOutcome.of(segment, tile, RECORD, source=sides.get(SOURCE), target=sides.get(TARGET)))
    return found


def _shares(ranges: Sequence[PartitionRange], tasks: int) -> list[list[Stretch]]:
    """What each task reads."""
    total = sum(range_.source_end - range_.source_start for range_ in ranges)
    most = min(_MOST_OFFSETS, max(_LEAST_OFFSETS, -(-total // tasks)))
    shares: list[list[Stretch]] = [[]]
    room = most
    for number, range_ in enumerate(ranges):
        for stretch in _stretches(number, range_, most):
            if shares[-1] and stretch.offsets > room:
                shares.append([])
                room = most
            shares[-1].append(stretch)
            room -= stretch.offsets
    return shares


def _stretches(number: int, range_: PartitionRange, most: int) -> Iterator[Stretch]:
    count = -(-(range_.source_end - range_.source_start) // most) or 1
    for tile in parts(range_, count):
        yield Stretch(number, tile)
    for side in (SOURCE, TARGET):
        behind = Stretch(number, range_, behind=side)
        if behind.span[0] < behind.span[1]:
            yield behind


def _tasks(
    orders: Orders, segment_records: int, buckets: int, kept_ms: Sequence[tuple[int, int]], now_ms: int
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

        return by_key.settled((one for _, one in found), segment_records, kept_ms, now_ms)

    return first, second
