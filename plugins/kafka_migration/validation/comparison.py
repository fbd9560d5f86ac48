"""What was pinned is read on both clusters and judged, once and again where records vanished while they were read."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import DigestReport
from kafka_migration.compare.launch import Runner
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Equality, PartitionResult, ValidationResult
from kafka_migration.compare.verdict import foreign, judge, misrouted, not_compared
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.levels import Level
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.renamed import other_names
from kafka_migration.validation.explain import OpenLogs, to_read_again, with_tails
from kafka_migration.validation.job import write_json
from kafka_migration.validation.pins import Pins, foreign_partitions, pin_again, stable_ends
from kafka_migration.validation.segments import Chosen, Segments

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Retention may take records while they are read. What it leaves is pinned again, so many times.
_ATTEMPTS = 3
#: Compaction may do so, too: then the rest is read again.
PASSES = 6


@dataclass(slots=True, kw_only=True)
class Comparison:
    """The comparison called ``id`` of what ``pins`` hold, at ``level``: ``run`` has segments read, and ``logs`` show
    what compaction explains.

    ``ranges`` are what was compared, as it was read last.
    """

    ctx: Context
    id: str
    pins: Pins
    segments: Segments
    level: Level
    run: Runner
    logs: OpenLogs
    ranges: dict[TopicPartition, PartitionRange] = field(init=False)
    _results: dict[TopicPartition, PartitionResult] = field(init=False)
    _seconds: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        pins = self.pins
        self.ranges = {range_.tp: range_ for range_ in pins.ranges}
        self._results = {
            tp: not_compared(tp, ends.start, ends.end, pins.reasons[tp], lag=pins.short[tp])
            for tp, ends in pins.unpinned.items()
        }

    def result(self) -> ValidationResult:
        """How it ended, without which records differ."""
        ranges: Sequence[PartitionRange] = self.pins.ranges
        for attempt in range(1, PASSES + 1):
            if not ranges:
                break
            ranges = with_tails(self.ctx, ranges)
            self._compare(attempt, ranges)
            ranges = self._vanished(attempt, ranges)
        beside = foreign_partitions(self.ctx, {tp.topic for tp in self._results})
        self._results |= {tp: foreign(tp, ends) for tp, ends in beside.items()}
        partitions = tuple(self._results[tp] for tp in sorted(self._results))
        return ValidationResult(
            id=self.id,
            migration=self.ctx.plan.name,
            at=self.pins.at,
            level=self.level,
            segment_records=self.ctx.plan.validation.segment_records,
            partitions=partitions,
            seconds=round(self._seconds, 3),
            hints=misrouted(partitions),
        )

    def _compare(self, attempt: int, ranges: Sequence[PartitionRange]) -> None:
        """Read what of ``ranges`` is not known already, and judge all of it."""
        ctx, plan = self.ctx, self.ctx.plan.validation
        self.ranges |= {range_.tp: range_ for range_ in ranges}
        chosen, topics = self.segments.choose(ranges), {range_.topic for range_ in ranges}
        request = ValidationRequest(
            id=f"{self.id}-{attempt}",
            migration=ctx.plan.name,
            source=ctx.plan.connection(ctx.direction.origin),
            target=ctx.plan.connection(ctx.direction.destination),
            segment_records=plan.segment_records,
            ranges=chosen.ranges,
            level=self.level,
            sample=plan.sample,
            seed=self.id,
            source_names=other_names(ctx.origin, topics),
            target_names=other_names(ctx.destination, topics),
        )
        ctx.log(_what_is_read(chosen))
        report = DigestReport(id=request.id, outcomes=(), seconds=0.0)
        if request.ranges:
            report = _digest(request, self.run)
            # The job's output has named them already, where somebody read it.
            self.segments.found(one for one in report.outcomes if not one.failure)
        self._seconds += report.seconds
        starts = {tp: ends.start for tp, ends in ctx.origin.ends([range_.tp for range_ in ranges]).items()}
        stable = stable_ends(ctx, ranges)
        for result in judge(replace(request, ranges=tuple(ranges)), report, starts, chosen.kept, stable):
            self._results[result.tp] = self._with_expired(_with_left_out(result, self.ranges[result.tp]))

    def _with_expired(self, result: PartitionResult) -> PartitionResult:
        """With what expired of the records that were mirrored: they are on the target only, and not compared now.
        Earlier validations may have compared some of these source offsets."""
        first, start = self.pins.first_offsets.get(result.tp, result.source_start), result.source_start
        if start <= first:
            return result
        expired, before = start - first, self.segments.compared_before(result.tp, first, start)
        detail = f"source offsets {first}..{start} have expired and are not compared"
        detail += f" ({before} of these {expired} were, before they expired)" if before else ""
        return replace(result.with_detail(detail), expired=expired, never_compared=expired - before)

    def _vanished(self, attempt: int, ranges: Sequence[PartitionRange]) -> tuple[PartitionRange, ...]:
        """What of ``ranges`` is to be read again, since retention or compaction took records while it was read."""
        expired = [range_ for range_ in ranges if self._results[range_.tp].verdict is Equality.EXPIRED]
        if attempt >= _ATTEMPTS:
            expired = []
        if expired:
            self.ctx.log(
                f"records expired on the source while being read, in {listed(range_.tp for range_ in expired)}:"
                " reading what is left"
            )
        again = to_read_again(self.ctx, ranges, self._results, self.logs) if attempt < PASSES else ()
        if again:
            self.ctx.log(
                f"records may have been compacted away while being read, in {listed(range_.tp for range_ in again)}:"
                " reading all of it again"
            )
        return (*(pin_again(self.ctx, expired) if expired else ()), *again)


def _what_is_read(chosen: Chosen) -> str:
    partitions, records = {range_.tp for range_ in chosen.ranges}, sum(range_.records for range_ in chosen.ranges)
    kept = f"; {chosen.kept_segments} segments stand as they stood when they were found equal"
    return (
        f"reading {len(partitions)} partitions, {records:,} records, on both clusters"
        f"{kept if chosen.kept_segments else ''}"
    )


def _with_left_out(result: PartitionResult, pinned: PartitionRange) -> PartitionResult:
    if pinned.left_out:
        result = result.with_detail(f"source offsets {_rows(pinned.left_out)} were given up and are not compared")
    if pinned.target_left_out:
        result = result.with_detail(
            f"target offsets {_rows(pinned.target_left_out)} hold what `adopt` has left there, beside the copy"
        )
    return result


def _rows(spans: Iterable[tuple[int, int]]) -> str:
    return ", ".join(f"{start}..{end}" for start, end in spans)


def _digest(request: ValidationRequest, run: Runner) -> DigestReport:
    with tempfile.TemporaryDirectory(prefix="kafka-migration-") as work:
        asked, answer = Path(work) / "request.json", Path(work) / "digests.json"
        write_json(asked, request.as_dict())
        run(asked, answer)
        try:
            report = DigestReport.from_dict(json.loads(answer.read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CouldNotFindOut(
                f"the Spark job left no digests ({error})", remedy="look at its log, then run `validate` again"
            ) from error
    if report.id != request.id:
        raise CouldNotFindOut("the Spark job answered another request", remedy="run `validate` again")
    return report
