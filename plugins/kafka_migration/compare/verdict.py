"""From digests to a verdict. Pure: what was pinned, what was read, and where the logs start now.

Three doubts never become "equal": what could not be read, what was read short on both sides alike, and what expired
on the source meanwhile. The last is told apart from loss, since nobody lost it: it can be validated again without.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, DigestReport, SegmentOutcome, is_same, sum_of
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Equality, PartitionResult, SegmentResult, worst
from kafka_migration.compare.segments import expected_records, tiles
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
    reasons = {TopicPartition(it.topic, it.partition): it.reason for it in report.failures if it.segment is None}
    found = _Found(request, report, kept or {})
    results = []
    for it in request.ranges:
        start_now = source_starts.get(it.tp, it.source_start)
        if it.tp in reasons:
            results.append(_unread(it, reasons[it.tp], start_now))
        else:
            results.append(_compare(it, found, start_now))
    return [_with_unstable(it, (stable or {}).get(it.tp)) for it in results]


def _with_unstable(it: PartitionResult, stable: int | None) -> PartitionResult:
    if stable is None or it.target_end is None or stable >= it.target_end:
        return it
    said = (
        f"the target's last stable offset is {stable}, before the pinned end {it.target_end}: a transaction is open"
        " there, and consumers of committed records see nothing behind it"
    )
    return replace(
        it,
        verdict=worst((it.verdict, Equality.INCONCLUSIVE)),
        detail=said if it.verdict is Equality.EQUAL else f"{it.detail}; {said}",
        unstable=it.target_end - stable,
    )


def outcomes_of(request: ValidationRequest, report: DigestReport) -> list[SegmentOutcome]:
    """The segments of ``report`` that could be read, with the bounds that they were asked for with."""
    found = report.by_partition()
    failed = {(it.topic, it.partition, it.segment) for it in report.failures}
    outcomes = []
    for it in request.ranges:
        source, target = found.get((it.tp, SOURCE), {}), found.get((it.tp, TARGET), {})
        for number, tile in tiles(it, request.segment_records):
            if {(it.topic, it.partition, number), (it.topic, it.partition, None)} & failed:
                continue
            outcomes.append(
                SegmentOutcome.of(
                    number,
                    tile,
                    "record" if request.by_record(it) else "batch",
                    source=source.get(number),
                    target=target.get(number),
                )
            )
    return [*outcomes, *report.second]


def not_compared(tp: TopicPartition, source_start: int, source_end: int, reason: str, *, lag: int) -> PartitionResult:
    """The result of a partition that could not even be pinned, since the mirror is ``lag`` source offsets short."""
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
        expected=0,
        segments=(),
        verdict=Equality.DIFFERENT,
        detail=f"foreign: the source has no such partition, and the target's holds offsets {ends.start}..{ends.end}",
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


class _Found:
    """What is known of segments, read or kept."""

    def __init__(self, request: ValidationRequest, report: DigestReport, kept: AllKept) -> None:
        self.segment_records, self._kept = request.segment_records, kept
        self._read = report.by_partition()
        self._by_record = {it.tp for it in request.ranges if request.by_record(it)}
        self._failures: dict[TopicPartition, dict[int, str]] = {}
        for failed in report.failures:
            if failed.segment is not None:
                tp = TopicPartition(failed.topic, failed.partition)
                self._failures.setdefault(tp, {})[failed.segment] = failed.reason
        self._second: dict[TopicPartition, dict[int, SegmentOutcome]] = {}
        for outcome in report.second:
            self._second.setdefault(outcome.tp, {})[outcome.segment] = outcome

    def segments(self, tp: TopicPartition) -> set[int]:
        """All that is known of, of one partition."""
        source, target = self._read.get((tp, SOURCE), {}), self._read.get((tp, TARGET), {})
        return {*source, *target, *self._failures.get(tp, {}), *self._kept.get(tp, {})}

    def read(self, side: str, tp: TopicPartition, segment: int) -> Digest:
        """What was read now."""
        return self._read.get((tp, side), {}).get(segment, Digest())

    def failure(self, tp: TopicPartition, segment: int) -> str:
        return self._failures.get(tp, {}).get(segment, "")

    def kept(self, tp: TopicPartition, segment: int) -> Kept | None:
        return self._kept.get(tp, {}).get(segment)

    def level(self, tp: TopicPartition, segment: int) -> str:
        kept = self.kept(tp, segment)
        if kept is not None and kept.whole:
            return kept.level
        if segment in self._second.get(tp, {}) and (kept is None or kept.level != "batch"):
            return "both"
        return "record" if tp in self._by_record else "batch"

    def contradiction(self, tp: TopicPartition, segment: int) -> tuple[Equality, str]:
        """What the second level says against the first."""
        second = self._second.get(tp, {}).get(segment)
        if second is None:
            return Equality.EQUAL, ""
        if second.failure:
            return Equality.INCONCLUSIVE, f"not read at record level: {second.failure}"
        source, target = self.read(SOURCE, tp, segment), self.read(TARGET, tp, segment)
        # Attributes are of headers alone, which record level does not see: no contradiction.
        first_is_same = is_same(source, replace(target, attributes=0))
        if first_is_same and not second.is_same:
            return Equality.DIFFERENT, (
                "record level finds a difference that batch level does not:"
                f" {second.source.rows} records of the source, {second.target.rows} of the target,"
                f" {second.target.misplaced} of them where the offset map has none"
            )
        if not first_is_same and second.is_same:
            return Equality.DIFFERENT, "record level finds no difference here, batch level does"
        counts = (source.rows, target.rows + target.compacted)
        others = (second.source.rows, second.target.rows + second.target.compacted)
        if counts[1] != others[1] or (counts[0] != others[0] and not (target.compacted or second.target.compacted)):
            return Equality.INCONCLUSIVE, f"batch level counts {counts} records, record level {others}"
        return Equality.EQUAL, ""


def _compare(it: PartitionRange, found: _Found, start_now: int) -> PartitionResult:
    bounds = dict(tiles(it, found.segment_records))
    expected = expected_records(it, found.segment_records)
    segments = []
    for at in sorted({*expected, *found.segments(it.tp)}):
        kept, tile = found.kept(it.tp, at), bounds.get(at)
        source, target = found.read(SOURCE, it.tp, at), found.read(TARGET, it.tp, at)
        if kept is not None:
            source, target = kept.source + source, kept.target + target
        size = found.segment_records
        segment = SegmentResult(
            segment=at,
            start=tile.source_start if tile else min(max(at * size, it.source_start), it.source_end),
            end=tile.source_end if tile else max(min((at + 1) * size, it.source_end), it.source_start),
            expected=_expected(it, expected.get(at, 0), source, target),
            source=source,
            target=target,
            verdict=Equality.EQUAL,
            target_start=tile.target_start if tile else it.target_end,
            target_end=tile.target_end if tile else it.target_end,
            level=found.level(it.tp, at),
            failure=found.failure(it.tp, at),
            kept=kept is not None and kept.whole,
            read_at=kept.at if kept is not None else "",
        )
        if at in expected or segment.failure or source.rows or target.rows:
            # Not an empty stretch of the target that no source offset belongs to.
            segments.append(_judged(segment, start_now, *found.contradiction(it.tp, at), begins=it.source_start))
    bad = [segment for segment in segments if segment.verdict is not Equality.EQUAL]
    detail = _detail(bad, start_now) + _compacted(segments)
    is_read = not any(segment.failure for segment in segments)
    return _result(it, tuple(segments), verdict=worst(s.verdict for s in segments), detail=detail, is_read=is_read)


def _expected(it: PartitionRange, mapped: int, source: Digest, target: Digest) -> int:
    """How many records of a segment both sides should have, where the map has ``mapped``."""
    # What compaction took from one side since is expected of neither.
    left = mapped - source.compacted - target.compacted
    # What it took from both, nobody can count.
    return min(left, max(source.rows, target.rows)) if it.compacted and it.target_compacted else left


def _compacted(segments: Sequence[SegmentResult]) -> str:
    gone = {
        "source": sum(segment.target.compacted for segment in segments),
        "target": sum(segment.source.compacted for segment in segments),
    }
    said = [
        f"{count} records were compacted away on the {side} since they were copied"
        for side, count in gone.items()
        if count
    ]
    return "".join(f"; {one}" for one in said)


def _judged(it: SegmentResult, start_now: int, other: Equality, contradiction: str, *, begins: int) -> SegmentResult:
    verdict = Equality.EQUAL
    if it.failure:
        # What expired may have ended the reading of its neighbours, too: they are read again with what is left.
        verdict = Equality.EXPIRED if begins < start_now else Equality.INCONCLUSIVE
    elif not is_same(it.source, it.target):
        # Expiry takes records from the source, and does nothing else: any other difference is none of its doing.
        expired = it.start < start_now and it.source.rows < it.expected and it.target.rows == it.expected
        is_odd = it.target.misplaced or it.target.attributes
        verdict = Equality.EXPIRED if expired and not is_odd else Equality.DIFFERENT
    elif it.source.unclear or it.target.unclear:
        # Only batch level has the bytes of these headers' names.
        verdict = Equality.INCONCLUSIVE
    elif it.source.rows != it.expected:
        # Equal to each other, but not what the map says: both may have been read short.
        verdict = Equality.INCONCLUSIVE
    if contradiction and verdict is not Equality.EXPIRED:
        expired = it.start < start_now
        verdict = Equality.EXPIRED if expired and verdict is Equality.EQUAL else worst((verdict, other))
        return replace(it, verdict=verdict, contradiction=contradiction)
    return replace(it, verdict=verdict)


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
        expected=sum(segment.expected for segment in segments) if segments else it.records,
        segments=segments,
        verdict=verdict,
        detail=detail,
        is_read=is_read,
    )
