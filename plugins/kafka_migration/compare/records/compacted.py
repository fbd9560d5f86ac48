"""What compaction may take: when a record that one side has, and the other has not, is no difference.

The cleaner removes a record only if its log holds a newer one of the same key, if it has no key, or if it is a
tombstone that is older than ``delete.retention.ms`` and nothing older of its key is left. So a key's newest record at
the pinned end shows whether the two sides are equal, as long as it is known what was written behind that end: newer
records there may have swept away what was pinned.

What the other side holds counts as far as this one has held it, too, though it may be gone from here by now: all that
was mirrored. What the source has got since sweeps nothing from the target.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, OnRead, SegmentOutcome, recombine
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.job import Log
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.record_digest import KEY_IS_NULL, VALUE_IS_NULL, ordered_hashes
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut, parts, tiles
from kafka_migration.domain.errors import ClusterUnreachable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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


def with_compacted(both: DataFrame, ranges: Iterable[PartitionRange], now_ms: int) -> DataFrame:
    """The records of both sides, with those marked (``compacted``) that the other side lost to compaction.

    By the rule of :func:`is_explained`, as far as one read of both logs can show; those ``behind`` the pinned ends
    (by their places) are left out afterwards. What it cannot explain counts as a difference, though a pass of the
    cleaner may run meanwhile: then a later reading explains it, by this same rule. Costs a sort by place and one by
    key, which topics that nobody compacts are spared.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    by_topic = {range_.topic: range_ for range_ in ranges}
    place = f.col("source_offset")
    is_source = f.col("side") == SOURCE
    by_place = Window.partitionBy("topic", "partition", "source_offset", "behind")
    by_key = Window.partitionBy("topic", "partition", "key_hash")

    def of_topic(value_of: Callable[[PartitionRange], int | bool]) -> Column:
        chain = None
        for topic, range_ in by_topic.items():
            chain = (f if chain is None else chain).when(f.col("topic") == topic, f.lit(value_of(range_)))
        return f.lit(None) if chain is None else chain

    both = both.withColumns(
        {
            "on_source": f.max(is_source).over(by_place),
            "on_target": f.max(~is_source).over(by_place),
            "newest": f.max(place).over(by_key),
            "newest_target": f.max(f.when(place <= BEHIND, place)).over(by_key),
            "oldest_source": f.min(f.when(is_source, place)).over(by_key),
            "oldest_target": f.min(f.when(~is_source, place)).over(by_key),
        }
    )
    gone_from_source = ~is_source & ~f.col("on_source") & of_topic(lambda range_: range_.compacted)
    gone_from_target = is_source & ~f.col("on_target") & of_topic(lambda range_: range_.target_compacted)
    oldest = f.when(is_source, f.col("oldest_target")).otherwise(f.col("oldest_source"))
    kept_for = f.when(is_source, of_topic(lambda range_: range_.target_tombstones_ms)).otherwise(
        of_topic(lambda range_: range_.source_tombstones_ms)
    )
    age = f.lit(now_ms) - f.col("timestamp_ms")
    is_gone_tombstone = f.col("is_tombstone") & ((age < 0) | (age >= kept_for)) & (oldest.isNull() | (oldest > place))
    # Of both sides, what the side that lacks it has had.
    newest = f.when(is_source, f.col("newest_target")).otherwise(f.col("newest"))
    is_explained_here = f.col("key_hash").isNull() | (newest > place) | is_gone_tombstone
    compacted = (gone_from_source | gone_from_target) & f.col("in_run") & is_explained_here
    return both.withColumn("compacted", f.coalesce(compacted, f.lit(False))).where(~f.col("behind"))


#: Source offsets of the partitions that one job reads: Spark sorts their records by key, on disk where need be.
_WAVE_OFFSETS = 16_000_000
_PART_OFFSETS = 1_000_000
_LEVEL = "record"
_MOST_FAILURES = 24
_ROWS = (
    "side string, topic string, partition int, segment long, source_offset long, in_run boolean, size long, hash long,"
    " ordered long, key_hash long, is_tombstone boolean, timestamp_ms long, behind boolean, attributes int"
)


class Stretch(NamedTuple):
    """Records of one side that one task reads: those of ``tile``, or, ``behind`` the pinned end, those from there to
    the log end of that time, which count nowhere."""

    side: str
    tile: PartitionRange
    behind: bool


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
    waiting, failed = list(_waves(ranges))[::-1], 0
    while waiting:
        wave = waiting.pop()
        try:
            new = _read(spark, request, wave, orders)
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


def _waves(ranges: Iterable[PartitionRange]) -> Iterator[list[PartitionRange]]:
    wave: list[PartitionRange] = []
    size = 0
    for range_ in ranges:
        offsets = range_.source_end - range_.source_start
        if wave and size + offsets > _WAVE_OFFSETS:
            yield wave
            wave, size = [], 0
        wave.append(range_)
        size += offsets
    if wave:
        yield wave


def _read(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], orders: Orders
) -> list[SegmentOutcome]:
    spark.sparkContext.setJobGroup(request.id, f"validation of {request.migration}: {len(ranges)} compacted partitions")
    work = [stretch for range_ in ranges for stretch in _stretches(range_)]
    rows = _spread(spark, work, _task(orders, request.segment_records), _ROWS)
    rows = with_compacted(rows, ranges, int(time.time() * 1000))
    digested: dict[tuple[str, int, int], dict[str, Digest]] = {}
    for row in by_segment(rows).collect():
        digested.setdefault((row.topic, row.partition, row.segment), {})[row.side] = _digest_of(row.asDict())
    found = []
    for range_ in ranges:
        numbered = list(tiles(range_, request.segment_records))
        known = {number for number, _ in numbered}
        end, target_end = range_.source_end, range_.target_end
        beyond = cut(range_, end, end, target_end, target_end)
        # Also records that the map has nowhere near: of no segment that was asked for.
        for key in sorted(key for key in digested if key[:2] == range_.tp and key[2] not in known):
            numbered.append((key[2], beyond))
        for number, tile in numbered:
            sides = digested.get((*range_.tp, number), {})
            found.append(SegmentOutcome.of(number, tile, _LEVEL, source=sides.get(SOURCE), target=sides.get(TARGET)))
    return found


def _spread(spark: SparkSession, work: Sequence[Any], task: Callable[[Any], Iterator[Any]], schema: str) -> DataFrame:
    """A frame of what ``task`` yields (Arrow batches of ``schema``) for each of ``work``, a Spark task for each.

    ``work`` is pickled into rows, so it must hold no secrets; what ``task`` encloses is in no plan.
    """
    import pyarrow
    from pyspark.sql import functions as f

    places = pyarrow.array(range(len(work)), pyarrow.int32())
    table = pyarrow.table({"place": places, "work": [pickle.dumps(one) for one in work]})

    def mapped(found: Iterator[Any]) -> Iterator[Any]:
        for rows in found:
            for one in rows.column("work").to_pylist():
                yield from task(pickle.loads(one))

    return spark.createDataFrame(table).repartitionById(len(work), f.col("place")).mapInArrow(mapped, schema)


def _stretches(range_: PartitionRange) -> Iterator[Stretch]:
    count = -(-(range_.source_end - range_.source_start) // _PART_OFFSETS) or 1
    for tile in parts(range_, count):
        for side in (SOURCE, TARGET):
            yield Stretch(side, tile, behind=False)
    for side, end, tail in (
        (SOURCE, range_.source_end, range_.source_tail),
        (TARGET, range_.target_end, range_.target_tail),
    ):
        if end < tail:
            yield Stretch(side, range_, behind=True)


def _task(orders: Orders, segment_records: int) -> Callable[[Stretch], Iterator[Any]]:
    def work(stretch: Stretch) -> Iterator[Any]:
        from kafka_migration.compare.task import clients, side_of

        side, tile, behind = stretch
        with clients({side: orders.wires[side]}) as both:
            span = None
            if behind:
                span = (tile.source_end, tile.source_tail) if side == SOURCE else (tile.target_end, tile.target_tail)
            read = side_of(side, tile, both[side], orders, span=span)
            sums = (SourceSums if side == SOURCE else TargetSums)(tile)
            while (records := read.next()) is not None:
                placed = _behind(stretch, records) if behind else sums.place(records)
                sums.see(0 if behind else read.attributes)
                yield _rows(stretch, segment_records, placed, sums.digest().attributes)

    return work


def _behind(stretch: Stretch, records: Any) -> tuple[Any, Any, Any]:
    """As :meth:`Sums.place`, of records behind the pinned end."""
    import numpy as np

    side, tile, _ = stretch
    start, end = (tile.source_end, tile.source_tail) if side == SOURCE else (tile.target_end, tile.target_tail)
    mine = records.between(start, end)
    is_late = (mine.offsets >= tile.source_mirrored) & (side == SOURCE)
    return mine, np.where(is_late, NOT_MIRRORED, BEHIND), np.zeros(len(mine), np.bool_)


def _rows(stretch: Stretch, segment_records: int, placed: tuple[Any, Any, Any], attributes: int) -> Any:
    import numpy as np
    import pyarrow

    side, tile, behind = stretch
    records, places, in_run = placed
    count = len(records)
    is_null = (records.flags & KEY_IS_NULL) != 0
    columns = {
        "side": pyarrow.repeat(side, count),
        "topic": pyarrow.repeat(tile.topic, count),
        "partition": pyarrow.repeat(pyarrow.scalar(tile.partition, pyarrow.int32()), count),
        "segment": places // segment_records,
        "source_offset": places,
        "in_run": in_run,
        "size": records.sizes,
        "hash": records.hashes.view(np.int64),
        "ordered": ordered_hashes(records.hashes, places).view(np.int64),
        "key_hash": pyarrow.array(records.keys.view(np.int64), mask=is_null),
        "is_tombstone": (records.flags & VALUE_IS_NULL) != 0,
        "timestamp_ms": records.times,
        "behind": np.full(count, behind),
        "attributes": np.full(count, attributes, np.int32),
    }
    return pyarrow.record_batch(columns)


def by_segment(both: DataFrame) -> DataFrame:
    """One row a side and segment: counts and sums over what :func:`with_compacted` gives."""
    from pyspark.sql import functions as f

    counts = ~f.col("compacted")

    def total(column: Column) -> Column:
        return f.coalesce(f.sum(f.when(counts, column)), f.lit(0))

    def halves(name: str) -> list[Column]:
        # A sum of whole hashes overflows, which is an error under ANSI. Halves do not, up to 2^31 records a segment.
        low, high = f.col(name).bitwiseAND(f.lit(0xFFFFFFFF)), f.shiftright(f.col(name), 32)
        return [total(low).alias(f"{name}_low"), total(high).alias(f"{name}_high")]

    return both.groupBy("side", "topic", "partition", "segment").agg(
        f.count_if(counts).alias("rows"),
        total(f.col("size")).alias("bytes"),
        *halves("hash"),
        *halves("ordered"),
        f.count_if(~f.col("in_run")).alias("misplaced"),
        f.count_if(f.col("compacted")).alias("compacted"),
        f.bit_or("attributes").alias("attributes"),
    )


def _digest_of(row: dict[str, Any]) -> Digest:
    same = ("rows", "bytes", "misplaced", "compacted", "attributes")
    return Digest(
        **{name: row[name] for name in same},
        total=recombine(row["hash_low"], row["hash_high"]),
        ordered=recombine(row["ordered_low"], row["ordered_high"]),
    )
