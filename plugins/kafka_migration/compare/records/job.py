"""Record level: digests of everything asked for, whatever part of it can be read.

Segments are read in waves, each a Spark job, so that what a wave found is kept before the next one begins. A
read that fails proves nothing about the partitions beside the one that broke it. So what failed is halved and read
again, until what cannot be read stands alone and is reported by segment; the rest is digested all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, OnRead, SegmentOutcome
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.records.reader import Connections, digests
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import cut, tiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LEVEL = "record"
#: After so many failed jobs in a row the cluster is the trouble, not a partition; each may cost a minute of waiting.
_MOST_FAILURES = 24
#: Source offsets in a wave: half a minute of work for two cores.
_WAVE_OFFSETS = 4_000_000
#: A run weighs as much as so many: the driver broadcasts the runs of a wave.
_OFFSETS_A_RUN = 20
#: Ranges of one partition in a wave: Spark plans a read for each.
_RANGES_A_PARTITION = 4


def outcomes(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    connections: Connections,
    *,
    secrets: Collection[str] = (),
    log: Callable[[str], None] = lambda _text: None,
    on_read: OnRead = lambda _found: None,
) -> list[SegmentOutcome]:
    """Every segment of ``ranges``, which may hold several ranges of a partition. ``on_read`` is called wave by wave."""
    found: list[SegmentOutcome] = []
    waiting = list(_waves(ranges, request.segment_records))[::-1]
    reads = failed = 0
    while waiting:
        mine = waiting.pop()
        group = f"{request.id} read {reads}"
        reads += 1
        if failed >= _MOST_FAILURES:
            new = _failed(mine, request.segment_records, f"not read: {failed} Spark jobs in a row before it failed")
        else:
            try:
                spark.sparkContext.setJobGroup(group, f"validation of {request.migration}: {len(mine)} partitions")
                new, failed = _read(spark, request, mine, connections), 0
            except Exception as error:
                failed += 1
                reason = reason_of(error, secrets)
                log(f"a read of {len(mine)} partitions failed: {reason}")
                if len(mine) > 1 and _failed_in_a_task(spark, group):
                    middle = len(mine) // 2
                    waiting += [mine[middle:], mine[:middle]]
                    continue
                new = _failed(mine, request.segment_records, reason)
        on_read(new)
        found += new
    return found


def _waves(ranges: Sequence[PartitionRange], segment_records: int) -> Iterator[list[PartitionRange]]:
    """``ranges``, which stand in order, in parts of whole segments, together of about a wave each; those of compacted
    logs stay whole."""
    wave: list[PartitionRange] = []
    size = 0
    for range_ in ranges:
        if sum(other.tp == range_.tp for other in wave[-_RANGES_A_PARTITION:]) == _RANGES_A_PARTITION:
            yield wave
            wave, size = [], 0
        if range_.by_key:
            # Whether compaction may have taken a record is seen from all of its key's records.
            wave.append(range_)
            size += range_.source_end - range_.source_start
            continue
        at, target = range_.source_start, range_.target_start
        for _, tile in tiles(range_, segment_records):
            size += tile.source_end - tile.source_start + _OFFSETS_A_RUN * len(tile.runs)
            if size >= _WAVE_OFFSETS:
                wave.append(cut(range_, at, tile.source_end, target, tile.target_end))
                at, target = tile.source_end, tile.target_end
                yield wave
                wave, size = [], 0
        if (at, target) != (range_.source_end, range_.target_end):
            wave.append(cut(range_, at, range_.source_end, target, range_.target_end))
    if wave:
        yield wave


def _read(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], connections: Connections
) -> list[SegmentOutcome]:
    digested: dict[tuple[str, int, int], dict[str, Digest]] = {}
    for row in digests(spark, request, ranges, connections):
        key = (row.topic, row.partition, row.segment)
        sides = digested.setdefault(key, {})
        sides[row.side] = sides.get(row.side, Digest()) + row.digest
    found = []
    for range_ in ranges:
        for number, tile in tiles(range_, request.segment_records):
            sides = digested.pop((range_.topic, range_.partition, number), {})
            found.append(_outcome(number, tile, sides))
    by_name = {(range_.topic, range_.partition): range_ for range_ in ranges}
    for (topic, partition, number), sides in digested.items():
        # Records that the map has nowhere near: of no segment that was asked for.
        range_ = by_name[topic, partition]
        end, target_end = range_.source_end, range_.target_end
        found.append(_outcome(number, cut(range_, end, end, target_end, target_end), sides))
    return found


def _outcome(number: int, tile: PartitionRange, sides: dict[str, Digest]) -> SegmentOutcome:
    return SegmentOutcome.of(number, tile, LEVEL, source=sides.get(SOURCE), target=sides.get(TARGET))


def _failed(ranges: Sequence[PartitionRange], segment_records: int, reason: str) -> list[SegmentOutcome]:
    return [
        SegmentOutcome.of(number, tile, LEVEL, failure=reason)
        for range_ in ranges
        for number, tile in tiles(range_, segment_records)
    ]


def _failed_in_a_task(spark: SparkSession, group: str) -> bool:
    """Whether executors failed, rather than the driver, whom every narrower job would fail the same way.

    The error itself does not show it: Spark unwraps it.
    """
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    return any(job is not None and str(job.status) == "FAILED" for job in jobs)
