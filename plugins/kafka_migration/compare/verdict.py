"""From digests to a verdict. Pure: what was pinned, what was read, and where the logs start now.

Three doubts never become "equal": what could not be read, what was read short on both sides alike, and what expired
on the source meanwhile. The last is not loss, since nobody lost it: it can be validated again without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_migration.compare.digests import Digest, DigestReport, SegmentOutcome, is_same, sum_of
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import NOTHING_BUT_EQUAL, Equality, PartitionResult, SegmentResult, worst
from kafka_migration.compare.segments import cut, expected_records, tiles
from kafka_migration.domain.types import PartitionEnds, TopicPartition

_SHOWN_SEGMENTS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What an earlier validation found of a segment, from its start up to source offset ``end``: equal.

    ``whole``: nothing of the segment was read again. ``at`` is when the oldest part of it was read (ISO-8601, UTC).
    """

    end: int
    source: Digest
    target: Digest
    level: str
    whole: bool
    at: str


#: By partition and segment.
AllKept = Mapping[TopicPartition, Mapping[int, Kept]]


def judge(
    request: ValidationRequest,
    report: DigestReport,
    source_starts: Mapping[TopicPartition, int],
    kept: AllKept | None = None,
    stable: Mapping[TopicPartition, int] | None = None,
) -> list[PartitionResult]:
    """A result for every range of ``request``. ``source_starts`` are log start offsets seen *after* reading.

    ``stable`` are last stable offsets of the target: up to these, consumers of committed records can read. Where one
    lies before the pinned end, nothing is equal for them.
    ``kept`` was not read again, and counts as if it had been. Raises ValueError for a report that answers another
    request.
    """
    if report.id != request.id:
        raise ValueError(f"report {report.id} does not answer request {request.id}")
    found: defaultdict[TopicPartition, defaultdict[int, list[SegmentOutcome]]] = defaultdict(lambda: defaultdict(list))
    for one in report.outcomes:
        found[one.tp][one.segment].append(one)
    results = []
    for range_ in request.ranges:
        tp = range_.tp
        start_now = source_starts.get(tp, range_.source_start)
        result = _compare(request, range_, found[tp], (kept or {}).get(tp, {}), start_now)
        results.append(_with_unstable(result, (stable or {}).get(tp)))
    return results


def _with_unstable(result: PartitionResult, stable: int | None) -> PartitionResult:
    if stable is None or result.target_end is None or stable >= result.target_end:
        return result
    detailed = result.with_detail(
        f"the target's last stable offset is {stable}, before the pinned end {result.target_end}: a transaction is open"
        " there, and consumers of committed records see nothing behind it"
    )
    verdict = worst((result.verdict, Equality.INCONCLUSIVE))
    return replace(detailed, verdict=verdict, unstable=result.target_end - stable)


def not_compared(tp: TopicPartition, source_start: int, source_end: int, reason: str, *, lag: int) -> PartitionResult:
    """The result of a partition that could not even be pinned, since the mirror is ``lag`` source offsets short."""
    return PartitionResult(
        topic=tp.topic,
        partition=tp.partition,
        source_start=source_start,
        source_end=source_end,
        verdict=Equality.INCONCLUSIVE,
        detail=reason,
        lag=lag,
    )


def foreign(tp: TopicPartition, ends: PartitionEnds) -> PartitionResult:
    """The result of a partition of the target that the source does not have, and that holds something all the same."""
    return PartitionResult(
        topic=tp.topic,
        partition=tp.partition,
        source_start=0,
        source_end=0,
        target_start=ends.start,
        target_end=ends.end,
        verdict=Equality.DIFFERENT,
        detail=f"foreign: the source has no such partition, and the target's holds offsets {ends.start}..{ends.end}",
    )


def misrouted(results: Sequence[PartitionResult]) -> tuple[str, ...]:
    """Topics whose partitions differ although all their records together are equal: records in a wrong partition."""
    topics: dict[str, list[PartitionResult]] = {}
    for result in results:
        topics.setdefault(result.topic, []).append(result)
    return tuple(
        f"{topic}: partitions {', '.join(names)} differ, but hold the same records together: misrouted"
        for topic, parts in topics.items()
        if all(part.is_read for part in parts) and (names := _misrouted(parts))
    )


def _misrouted(parts: Sequence[PartitionResult]) -> list[str]:
    """Which of a topic's partitions differ, if all of them together hold the same records."""
    sides = [_sums(part.segments) for part in parts]
    source, target = map(sum_of, zip(*sides, strict=True))
    if (source.rows, source.total) != (target.rows, target.total):
        return []
    differ = [
        (str(part.partition), mine.total != its.total)
        for part, (mine, its) in zip(parts, sides, strict=True)
        if part.verdict is Equality.DIFFERENT and mine != its
    ]
    return [name for name, _ in differ] if len(differ) > 1 and any(is_moved for _, is_moved in differ) else []


def _sums(segments: Sequence[SegmentResult | SegmentOutcome | Kept]) -> tuple[Digest, Digest]:
    return sum_of(segment.source for segment in segments), sum_of(segment.target for segment in segments)


def _compare(
    request: ValidationRequest,
    range_: PartitionRange,
    found: Mapping[int, Sequence[SegmentOutcome]],
    kept: Mapping[int, Kept],
    start_now: int,
) -> PartitionResult:
    size = request.segment_records
    tile_of, expected = dict(tiles(range_, size)), expected_records(range_, size)
    segments = []
    for number in sorted({*expected, *found, *kept}):
        tile = tile_of.get(number) or _beside(range_, number * size, (number + 1) * size)
        before = kept.get(number)
        segment = _segment(range_, number, tile, expected.get(number, 0), found.get(number, ()), before)
        if number in expected or segment.failure or segment.source.rows or segment.target.rows:
            # Not an empty stretch of the target that no source offset belongs to.
            level = before.level if before and before.whole else request.read_level(range_)
            verdict = _verdict(segment, start_now, begins=range_.source_start)
            segments.append(replace(segment, level=level, verdict=verdict))
    return PartitionResult(
        topic=range_.topic,
        partition=range_.partition,
        source_start=range_.source_start,
        source_end=range_.source_end,
        target_start=range_.target_start,
        target_end=range_.target_end,
        expected=sum(segment.expected for segment in segments) if segments else range_.records,
        segments=tuple(segments),
        verdict=worst(segment.verdict for segment in segments),
        detail=_detail(segments, start_now) + _compacted(segments),
        is_read=not any(segment.failure for segment in segments),
    )


def _segment(
    range_: PartitionRange,
    number: int,
    tile: PartitionRange,
    mapped: int,
    found: Sequence[SegmentOutcome],
    kept: Kept | None,
) -> SegmentResult:
    """What was ``found`` and ``kept`` of a segment, where the map has ``mapped`` records; not judged yet."""
    read = [one for one in found if not one.failure]
    source, target = _sums([kept, *read] if kept else read)
    return SegmentResult(
        segment=number,
        start=tile.source_start,
        end=tile.source_end,
        expected=_expected(range_, mapped, source, target),
        source=source,
        target=target,
        verdict=Equality.EQUAL,
        target_start=tile.target_start,
        target_end=tile.target_end,
        failure=next((one.failure for one in found if one.failure), ""),
        kept=kept is not None and kept.whole,
        read_at="" if kept is None else kept.at,
    )


def _beside(range_: PartitionRange, start: int, end: int) -> PartitionRange:
    """The bounds of a segment that the source's range does not touch, though the target holds something of it."""
    start, end = (min(max(at, range_.source_start), range_.source_end) for at in (start, end))
    return cut(range_, start, end, range_.target_end, range_.target_end)


def _expected(range_: PartitionRange, mapped: int, source: Digest, target: Digest) -> int:
    """How many records of a segment both sides should have, where the map has ``mapped``."""
    # What compaction took from one side since is expected of neither.
    left = mapped - source.compacted - target.compacted
    # What it took from both, nobody can count.
    return min(left, max(source.rows, target.rows)) if range_.compacted and range_.target_compacted else left


def _compacted(segments: Sequence[SegmentResult]) -> str:
    gone = {
        "source": sum(segment.target.compacted for segment in segments),
        "target": sum(segment.source.compacted for segment in segments),
    }
    return "".join(
        f"; {count} records were compacted away on the {side} since they were copied"
        for side, count in gone.items()
        if count
    )


def _verdict(segment: SegmentResult, start_now: int, *, begins: int) -> Equality:
    if segment.failure:
        # What expired may have ended the reading of its neighbours, too: they are read again with what is left.
        return Equality.EXPIRED if begins < start_now else Equality.INCONCLUSIVE
    if not is_same(segment.source, segment.target):
        return Equality.EXPIRED if _is_expired(segment, start_now) else Equality.DIFFERENT
    # Equal to each other, but not as many as the map has: both may have been read short.
    is_short = segment.source.rows != segment.expected
    return Equality.INCONCLUSIVE if is_short else Equality.EQUAL


def _is_expired(segment: SegmentResult, start_now: int) -> bool:
    """Whether expiry explains a difference: it takes records from the source, and does nothing else."""
    is_source_short = segment.source.rows < segment.expected and segment.target.rows == segment.expected
    is_odd = segment.target.misplaced or segment.target.attributes
    return segment.start < start_now and is_source_short and not is_odd


def _detail(segments: Sequence[SegmentResult], start_now: int) -> str:
    bad = [segment for segment in segments if segment.verdict is not Equality.EQUAL]
    if not bad:
        return NOTHING_BUT_EQUAL
    parts = [f"source offsets {segment.start}..{segment.end}: {segment.detail}" for segment in bad[:_SHOWN_SEGMENTS]]
    if len(bad) > _SHOWN_SEGMENTS:
        parts.append(f"{len(bad) - _SHOWN_SEGMENTS} more segments")
    if any(segment.verdict is Equality.EXPIRED for segment in bad):
        parts.append(f"the source's log starts at {start_now} by now")
    return "; ".join(parts)
