"""The offset map: source offset to target offset, exact, for every offset of a partition, both ways.

In a run ``length`` records in a row stand at source offsets ``source…`` and at target offsets ``target…``:
inside it, translation is addition. Between runs there are gaps: on the source's side transaction markers, aborted
records and what compaction removed; on the target's side the markers of fences. An offset in a gap names no record,
so it maps to the first record after it, which is where a consumer that stands there would go on. An offset below the
first run is such a gap, too: not the target's log start, which may lie anywhere (a topic that was emptied and adopted),
and where a consumer whose offset is not there is thrown to its ``auto.offset.reset``.

Runs are stored as *openings* only (where a run begins); lengths follow from what comes next. So a gapless partition
costs one small record per fence, whatever its size, and a run can be written before its first record is
(docs/mirror.md, rule 6): an opening beyond what was appended is void once a fence has shown how much was appended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from kafka_migration.domain.errors import Refused, StateConflict
from kafka_migration.domain.runs import FenceRuns


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpening:
    """Where a run begins. ``records`` have been written to the partition since ``fence``.

    The opening of a fence (``records`` = 0) carries ``closes``: the target offset at which the data of every
    earlier fence ended (that of the first marker after it). ``epoch`` is the source's leader epoch of the run's
    records, -1 if unknown (an opening of a fence alone has that of the record before it): by it a resumed copy
    recognises that the source was truncated meanwhile.
    """

    fence: int
    records: int
    source: int
    target: int
    closes: int | None = None
    epoch: int = -1

    def __post_init__(self) -> None:
        if min(self.fence, self.records, self.source, self.target) < 0:
            raise ValueError(f"a run opening cannot be negative: {self}")
        if (self.closes is not None) != (self.records == 0):
            raise ValueError(f"exactly the first opening of a fence closes the earlier ones: {self}")

    @property
    def is_cut(self) -> bool:
        """Whether a link begins here in logs that are equal so far: no fence's marker stands between."""
        return self.closes == self.target


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` records in a row, at ``source…`` and at ``target…``."""

    source: int
    target: int
    length: int


class NotMirroredYet(Refused):
    """An offset beyond the mirror's position: its record has no place on the target yet."""


@dataclass(frozen=True, slots=True)
class _Stretch:
    """The first ``count`` runs of ``runs``, one behind the other on the target up to ``end``."""

    runs: FenceRuns
    count: int
    end: int

    @property
    def source(self) -> int:
        return self.runs.source_at(0)

    @property
    def target(self) -> int:
        return self.runs.target_at(0)

    @property
    def source_end(self) -> int:
        return self.runs.source_at(self.count - 1) + self.end - self.runs.target_at(self.count - 1)

    def length(self, index: int) -> int:
        """How many records run ``index`` has."""
        end = self.runs.target_at(index + 1) if index + 1 < self.count else self.end
        return end - self.runs.target_at(index)

    def run(self, index: int) -> Run:
        return Run(self.runs.source_at(index), self.runs.target_at(index), self.length(index))


class OffsetMap:
    """The map of one partition, from the first mirrored offset up to the mirror's position.

    ``source_end`` and ``target_end`` are the position: the next source offset to copy and the target offset where
    its record will land. Both ends translate to each other. A translation is a binary search; ten million runs take
    some 80 MB, and all maps of the same openings share them.
    """

    __slots__ = ("_stretches", "source_end", "target_end")

    def __init__(self, runs: Iterable[Run], *, source_end: int, target_end: int) -> None:
        stretches: list[_Stretch] = []
        at: FenceRuns | None = None
        ends = (-1, -1)
        for run in runs:
            if run.length == 0:
                continue
            if run.length < 0 or run.source < ends[0] or run.target < ends[1]:
                raise _overlap(run, *ends)
            if at is None or run.target != ends[1]:
                if at is not None:
                    stretches.append(_Stretch(at, len(at), ends[1]))
                at = FenceRuns(0, run.target)
            at.add(run.target - at.target, run.source)
            ends = run.source + run.length, run.target + run.length
        if at is not None:
            stretches.append(_Stretch(at, len(at), ends[1]))
        self._take(stretches, source_end, target_end)

    def _take(self, stretches: list[_Stretch], source_end: int, target_end: int) -> None:
        ends = (-1, -1)
        for stretch in stretches:
            overlaps = stretch.source < ends[0] or stretch.target < ends[1]
            wrong = 0 if overlaps else stretch.runs.first_overlap(stretch.count)
            if wrong is not None:
                if wrong:
                    before = stretch.run(wrong - 1)
                    ends = before.source + before.length, before.target + before.length
                raise _overlap(stretch.run(wrong), *ends)
            ends = stretch.source_end, stretch.end
        if source_end < ends[0] or target_end < ends[1]:
            raise StateConflict(
                f"offset map: position {source_end}/{target_end} lies before its last run's end {ends[0]}/{ends[1]}",
                remedy="the stored map contradicts itself; mirror the topic again",
            )
        self._stretches = stretches
        self.source_end, self.target_end = source_end, target_end

    @classmethod
    def of_fences(cls, fences: Sequence[FenceRuns], *, source_end: int, target_end: int) -> OffsetMap:
        """The map that the openings of ``fences`` (the oldest first) describe, without void ones (written ahead,
        never appended). It reads them, and copies none."""
        stretches: list[_Stretch] = []
        limit = target_end
        for runs in reversed(fences):
            count = runs.before(limit)
            if count:
                stretches.append(_Stretch(runs, count, limit))
                limit = runs.target_at(0)
            if runs.closes is not None:
                # A fence newer than the reported position: data of the old one may reach further than reported.
                limit = min(limit, runs.closes)
        found = cls((), source_end=source_end, target_end=target_end)
        found._take(stretches[::-1], source_end, target_end)
        return found

    def __len__(self) -> int:
        return sum(stretch.count for stretch in self._stretches)

    def runs(self) -> Iterator[Run]:
        """All runs, in order, none empty."""
        for stretch in self._stretches:
            for index in range(stretch.count):
                yield stretch.run(index)

    def columns(self) -> tuple[Any, Any, Any]:
        """All runs as arrays of int64: source offsets, target offsets, lengths."""
        import numpy as np

        parts: list[tuple[Any, Any, Any]] = [(np.zeros(0, np.int64),) * 3]
        for stretch in self._stretches:
            records, sources = stretch.runs.columns(stretch.count)
            targets = records + stretch.runs.target
            parts.append((sources, targets, np.diff(targets, append=stretch.end)))
        sources, targets, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
        return sources, targets, lengths

    @property
    def records(self) -> int:
        """How many records the map covers."""
        return sum(stretch.end - stretch.target for stretch in self._stretches)

    def to_target(self, source_offset: int) -> int:
        """Where a consumer that would read ``source_offset`` next goes on, on the target.

        Raises :class:`NotMirroredYet` beyond the position.
        """
        self._require_mirrored(source_offset, self.source_end, "source")
        place = bisect_right(self._stretches, source_offset, key=lambda stretch: stretch.source) - 1
        if place < 0:
            return self._stretches[0].target if self._stretches else self.target_end
        stretch = self._stretches[place]
        index = bisect_right(range(stretch.count), source_offset, key=stretch.runs.source_at) - 1
        into = source_offset - stretch.runs.source_at(index)
        if into < stretch.length(index):
            return stretch.runs.target_at(index) + into
        after = self._after(place, index)
        return self.target_end if after is None else after.target

    def to_source(self, target_offset: int) -> int:
        """The inverse: where a consumer that would read ``target_offset`` next goes on, on the source."""
        self._require_mirrored(target_offset, self.target_end, "target")
        place = bisect_right(self._stretches, target_offset, key=lambda stretch: stretch.target) - 1
        if place < 0:
            return self._stretches[0].source if self._stretches else self.source_end
        stretch = self._stretches[place]
        if target_offset < stretch.end:
            index = bisect_right(range(stretch.count), target_offset, key=stretch.runs.target_at) - 1
            return stretch.runs.source_at(index) + target_offset - stretch.runs.target_at(index)
        after = self._after(place, stretch.count - 1)
        return self.source_end if after is None else after.source

    def _after(self, place: int, index: int) -> Run | None:
        """The run that follows run ``index`` of a stretch."""
        if index + 1 < self._stretches[place].count:
            return self._stretches[place].run(index + 1)
        return self._stretches[place + 1].run(0) if place + 1 < len(self._stretches) else None

    def _require_mirrored(self, offset: int, end: int, side: str) -> None:
        if offset > end:
            raise NotMirroredYet(
                f"{side} offset {offset} lies beyond the mirror's position {end}",
                remedy="wait until the mirror has copied up to it (lag), then translate again",
            )


def _overlap(run: Run, source_at: int, target_at: int) -> StateConflict:
    return StateConflict(
        f"offset map: {run} overlaps what comes before it (source {source_at}, target {target_at})",
        remedy="the stored map contradicts itself; mirror the topic again",
    )
