"""From digests to a verdict. Pure: what was pinned, what was read, and where the logs start now.

Three doubts never become "equal": what could not be read, what was read short on both sides alike, and what expired
on the source meanwhile. The last is told apart from loss, since nobody lost it: it can be validated again without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.digests import SOURCE, TARGET, Digest, DigestReport, sum_of
from kafka_migration.validation.request import PartitionRange, ValidationRequest
from kafka_migration.validation.result import Equality, PartitionResult, SegmentResult, worst
from kafka_migration.validation.segments import expected_records

_SHOWN_SEGMENTS = 3


def judge(
    request: ValidationRequest, report: DigestReport, source_starts: Mapping[TopicPartition, int]
) -> list[PartitionResult]:
    """A result for every range of ``request``. ``source_starts`` are log start offsets seen *after* reading.

    Raises ValueError for a report that answers another request.
    """
    if report.id != request.id:
        raise ValueError(f"report {report.id} does not answer request {request.id}")
    reasons = {TopicPartition(it.topic, it.partition): it.reason for it in report.failures}
    found = report.by_partition()
    results = []
    for it in request.ranges:
        start_now = source_starts.get(it.tp, it.source_start)
        if it.tp in reasons:
            results.append(_unread(it, reasons[it.tp], start_now))
        else:
            source, target = found.get((it.tp, SOURCE), {}), found.get((it.tp, TARGET), {})
            results.append(_compare(it, source, target, start_now, request.segment_records))
    return results


def not_compared(tp: TopicPartition, source_start: int, source_end: int, reason: str) -> PartitionResult:
    """The result of a partition that could not even be pinned."""
    return PartitionResult(
        topic=tp.topic,
        partition=tp.partition,
        source_start=source_start,
        source_end=source_end,
        target_start=None,
        target_end=None,
        expected=0,
        segments=(),
        verdict=Equality.INCONCLUSIVE,
        detail=reason,
        is_read=False,
    )


def misrouted(results: Sequence[PartitionResult]) -> tuple[str, ...]:
    """Topics whose partitions differ although all their records together are equal: records in a wrong partition."""
    topics: dict[str, list[PartitionResult]] = {}
    for it in results:
        topics.setdefault(it.topic, []).append(it)
    hints = []
    for topic, parts in topics.items():
        differ = [it for it in parts if it.verdict is Equality.DIFFERENT and it.source != it.target]
        if len(differ) < 2 or not all(it.is_read for it in parts):
            continue
        source, target = sum_of(it.source or Digest() for it in parts), sum_of(it.target or Digest() for it in parts)
        moved = any(it.source and it.target and it.source.total != it.target.total for it in differ)
        if moved and (source.rows, source.total) == (target.rows, target.total):
            names = ", ".join(str(it.partition) for it in differ)
            hints.append(f"{topic}: partitions {names} differ, but hold the same records together: misrouted")
    return tuple(hints)


def _unread(it: PartitionRange, reason: str, start_now: int) -> PartitionResult:
    expired = start_now > it.source_start
    why = f"source offsets {it.source_start}..{start_now} expired while being read; " if expired else ""
    return _result(
        it,
        (),
        verdict=Equality.EXPIRED if expired else Equality.INCONCLUSIVE,
        detail=f"{why}not read: {reason}",
        is_read=False,
    )


def _compare(
    it: PartitionRange,
    source: Mapping[int, Digest],
    target: Mapping[int, Digest],
    start_now: int,
    segment_records: int,
) -> PartitionResult:
    expected = expected_records(it, segment_records)
    segments = []
    for at in sorted({*expected, *source, *target}):
        segment = SegmentResult(
            segment=at,
            start=min(max(at * segment_records, it.source_start), it.source_end),
            end=max(min((at + 1) * segment_records, it.source_end), it.source_start),
            # What compaction took from the source since is expected of neither side.
            expected=expected.get(at, 0) - target.get(at, Digest()).compacted,
            source=source.get(at, Digest()),
            target=target.get(at, Digest()),
            verdict=Equality.EQUAL,
        )
        segments.append(_judged(segment, start_now))
    bad = [segment for segment in segments if segment.verdict is not Equality.EQUAL]
    detail, compacted = _detail(bad, start_now), sum(segment.target.compacted for segment in segments)
    if compacted:
        detail += f"; {compacted} records were compacted away on the source since they were copied"
    return _result(it, tuple(segments), verdict=worst(s.verdict for s in segments), detail=detail, is_read=True)


def _judged(it: SegmentResult, start_now: int) -> SegmentResult:
    verdict = Equality.EQUAL
    if it.differences or it.target.misplaced:
        # Expiry takes records from the source, and does nothing else: any other difference is none of its doing.
        expired = it.start < start_now and it.source.rows < it.expected and it.target.rows == it.expected
        verdict = Equality.EXPIRED if expired and not it.target.misplaced else Equality.DIFFERENT
    elif it.source.rows != it.expected:
        # Equal to each other, but not what the map says: both may have been read short.
        verdict = Equality.INCONCLUSIVE
    return SegmentResult(
        segment=it.segment,
        start=it.start,
        end=it.end,
        expected=it.expected,
        source=it.source,
        target=it.target,
        verdict=verdict,
    )


def _detail(bad: Sequence[SegmentResult], start_now: int) -> str:
    if not bad:
        return "equal"
    said = [f"source offsets {it.start}..{it.end}: {it.detail}" for it in bad[:_SHOWN_SEGMENTS]]
    if len(bad) > _SHOWN_SEGMENTS:
        said.append(f"{len(bad) - _SHOWN_SEGMENTS} more segments")
    if any(it.verdict is Equality.EXPIRED for it in bad):
        said.append(f"the source's log starts at {start_now} by now")
    return "; ".join(said)


def _result(
    it: PartitionRange, segments: tuple[SegmentResult, ...], *, verdict: Equality, detail: str, is_read: bool
) -> PartitionResult:
    return PartitionResult(
        topic=it.topic,
        partition=it.partition,
        source_start=it.source_start,
        source_end=it.source_end,
        target_start=it.target_start,
        target_end=it.target_end,
        expected=it.records - sum(segment.target.compacted for segment in segments),
        segments=segments,
        verdict=verdict,
        detail=detail,
        is_read=is_read,
    )
