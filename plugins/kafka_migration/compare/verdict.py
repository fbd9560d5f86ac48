"""From digests to a verdict. Pure: what was pinned, what was read, and where the logs start now.

Three doubts never become "equal": what could not be read, what was read short on both sides alike, and what expired
on the source meanwhile. The last is not loss, since nobody lost it: it can be validated again without.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, DigestReport, SegmentOutcome, is_same, sum_of
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Equality, PartitionResult, SegmentResult, worst
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
    reasons = {
        TopicPartition(failure.topic, failure.partition): failure.reason
        for failure in report.failures
        if failure.segment is None
    }
    known = _known(report, kept or {})
    results = []
    for range_ in request.ranges:
        start_now = source_starts.get(range_.tp, range_.source_start)
        if range_.tp in reasons:
            result = _unread(range_, reasons[range_.tp], start_now)
        else:
            result = _compare(request, range_, known[range_.tp], start_now)
        results.append(_with_unstable(result, (stable or {}).get(range_.tp)))
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


def outcomes_of(request: ValidationRequest, report: DigestReport) -> list[SegmentOutcome]:
    """The segments of ``report`` that could be read, with the bounds that they were asked for with."""
    found = report.by_partition()
    failed = {(failure.topic, failure.partition, failure.segment) for failure in report.failures}
    outcomes = []
    for range_ in request.ranges:
        source, target = found.get((range_.tp, SOURCE), {}), found.get((range_.tp, TARGET), {})
        for number, tile in tiles(range_, request.segment_records):
            if {(range_.topic, range_.partition, number), (range_.topic, range_.partition, None)} & failed:
                continue
            outcomes.append(
                SegmentOutcome.of(
                    number,
                    tile,
                    request.read_level(range_),
                    source=source.get(number),
                    target=target.get(number),
                )
            )
    return outcomes


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


def _sums(segments: Sequence[SegmentResult]) -> tuple[Digest, Digest]:
    return sum_of(segment.source for segment in segments), sum_of(segment.target for segment in segments)


def _unread(range_: PartitionRange, reason: str, start_now: int) -> PartitionResult:
    expired = start_now > range_.source_start
    why = f"source offsets {range_.source_start}..{start_now} expired while being read; " if expired else ""
    return _result(
        range_,
        (),
        verdict=Equality.EXPIRED if expired else Equality.INCONCLUSIVE,
        detail=f"{why}not read: {reason}",
        is_read=False,
    )


@dataclass(slots=True)
class _Known:
    """What is known of one segment: both sides as they were read now, and what was ``kept`` from before."""

    source: Digest = field(default_factory=Digest)
    target: Digest = field(default_factory=Digest)
    failure: str = ""
    kept: Kept | None = None


def _known(report: DigestReport, kept: AllKept) -> Mapping[TopicPartition, Mapping[int, _Known]]:
    found: defaultdict[TopicPartition, defaultdict[int, _Known]] = defaultdict(lambda: defaultdict(_Known))
    for (tp, side), digests in report.by_partition().items():
        for segment, digest in digests.items():
            if side == SOURCE:
                found[tp][segment].source = digest
            else:
                found[tp][segment].target = digest
    for failure in report.failures:
        if failure.segment is not None:
            found[TopicPartition(failure.topic, failure.partition)][failure.segment].failure = failure.reason
    for tp, segments in kept.items():
        for segment, before in segments.items():
            found[tp][segment].kept = before
    return found


def _compare(
    request: ValidationRequest, range_: PartitionRange, known: Mapping[int, _Known], start_now: int
) -> PartitionResult:
    size = request.segment_records
    tile_of, expected = dict(tiles(range_, size)), expected_records(range_, size)
    segments = []
    for number in sorted({*expected, *known}):
        one = known.get(number) or _Known()
        tile = tile_of.get(number) or _beside(range_, number * size, (number + 1) * size)
        segment = _segment(range_, number, tile, expected.get(number, 0), one)
        if number in expected or one.failure or segment.source.rows or segment.target.rows:
            # Not an empty stretch of the target that no source offset belongs to.
            level = one.kept.level if one.kept and one.kept.whole else request.read_level(range_)
            verdict = _verdict(segment, start_now, begins=range_.source_start)
            segments.append(replace(segment, level=level, verdict=verdict))
    return _result(
        range_,
        tuple(segments),
        verdict=worst(segment.verdict for segment in segments),
        detail=_detail(segments, start_now) + _compacted(segments),
        is_read=not any(segment.failure for segment in segments),
    )


def _segment(range_: PartitionRange, number: int, tile: PartitionRange, mapped: int, known: _Known) -> SegmentResult:
    """What was read and kept of a segment, where the map has ``mapped`` records; not judged yet."""
    source, target, kept = known.source, known.target, known.kept
    if kept is not None:
        source, target = kept.source + source, kept.target + target
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
        failure=known.failure,
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
        return "equal"
    parts = [f"source offsets {segment.start}..{segment.end}: {segment.detail}" for segment in bad[:_SHOWN_SEGMENTS]]
    if len(bad) > _SHOWN_SEGMENTS:
        parts.append(f"{len(bad) - _SHOWN_SEGMENTS} more segments")
    if any(segment.verdict is Equality.EXPIRED for segment in bad):
        parts.append(f"the source's log starts at {start_now} by now")
    return "; ".join(parts)


def _result(
    range_: PartitionRange, segments: tuple[SegmentResult, ...], *, verdict: Equality, detail: str, is_read: bool
) -> PartitionResult:
    return PartitionResult(
        topic=range_.topic,
        partition=range_.partition,
        source_start=range_.source_start,
        source_end=range_.source_end,
        target_start=range_.target_start,
        target_end=range_.target_end,
        expected=sum(segment.expected for segment in segments) if segments else range_.records,
        segments=segments,
        verdict=verdict,
        detail=detail,
        is_read=is_read,
    )
