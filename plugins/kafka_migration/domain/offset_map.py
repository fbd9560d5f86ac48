"""The offset map: source offset to target offset, exact, for every offset of a partition, both ways.

A run says that ``length`` records in a row stand at source offsets ``source…`` and at target offsets ``target…``:
inside it, translation is addition. Between runs there are gaps: on the source's side transaction markers, aborted
records and what compaction removed; on the target's side the markers of fences. An offset in a gap names no record,
so it maps to the first record after it, which is where a consumer that stands there would go on.

Runs are stored as *openings* only (where a run begins); lengths follow from what comes next. So a gapless partition
costs one small record per fence, whatever its size, and a run can be written before its first record is (MIRROR.md,
rule 6): an opening beyond what was appended is void once a fence has told how much was appended.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_migration.domain.errors import Refused, StateConflict


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOpening:
    """Where a run begins. ``records`` have been written to the partition since the fence of producer epoch ``fence``.

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


@dataclass(frozen=True, slots=True)
class Run:
    """``length`` records in a row, at ``source…`` and at ``target…``."""

    source: int
    target: int
    length: int


class NotMirroredYet(Refused):
    """An offset beyond the mirror's position: its record has no place on the target yet."""


class OffsetMap:
    """The map of one partition, from the first mirrored offset up to the mirror's position.

    ``source_end`` and ``target_end`` are the position: the next source offset to copy and the target offset where
    its record will land. Both ends translate to each other.
    """

    __slots__ = ("_source", "_target", "_length", "source_end", "target_end", "target_start")

    def __init__(self, runs: Iterable[Run], *, source_end: int, target_end: int, target_start: int = 0) -> None:
        self._source, self._target, self._length = array("q"), array("q"), array("q")
        source_at = target_at = -1
        for run in runs:
            if run.length == 0:
                continue
            if run.length < 0 or run.source < source_at or run.target < target_at:
                raise StateConflict(
                    f"offset map: {run} overlaps what comes before it (source {source_at}, target {target_at})",
                    remedy="the stored map contradicts itself; mirror the topic again",
                )
            self._source.append(run.source)
            self._target.append(run.target)
            self._length.append(run.length)
            source_at, target_at = run.source + run.length, run.target + run.length
        if source_end < source_at or target_end < target_at:
            raise StateConflict(
                f"offset map: position {source_end}/{target_end} lies before its last run's end"
                f" {source_at}/{target_at}",
                remedy="the stored map contradicts itself; mirror the topic again",
            )
        self.source_end, self.target_end, self.target_start = source_end, target_end, target_start

    @classmethod
    def from_openings(
        cls, openings: Iterable[RunOpening], *, source_end: int, target_end: int, target_start: int = 0
    ) -> OffsetMap:
        """The map that stored openings describe, with void ones (written ahead, never appended) left out."""
        ordered = sorted(openings, key=lambda o: (o.fence, o.records))
        runs: list[Run] = []
        limit = target_end
        for at in range(len(ordered) - 1, -1, -1):
            opening = ordered[at]
            if opening.target < limit:
                runs.append(Run(opening.source, opening.target, limit - opening.target))
                limit = opening.target
            if opening.closes is not None:
                # A fence newer than the position told: data of the old one may reach further than told.
                limit = min(limit, opening.closes)
        return cls(reversed(runs), source_end=source_end, target_end=target_end, target_start=target_start)

    def __len__(self) -> int:
        return len(self._source)

    def runs(self) -> Iterator[Run]:
        """All runs, in order, none empty."""
        for source, target, length in zip(self._source, self._target, self._length, strict=True):
            yield Run(source, target, length)

    @property
    def records(self) -> int:
        """How many records the map covers."""
        return sum(self._length)

    def to_target(self, source_offset: int) -> int:
        """Where a consumer that would read ``source_offset`` next goes on, on the target.

        Raises :class:`NotMirroredYet` beyond the position.
        """
        return self._translate(
            source_offset,
            self._source,
            self._target,
            self.source_end,
            self.target_end,
            self.target_start,
            "source",
        )

    def to_source(self, target_offset: int) -> int:
        """The inverse: where a consumer that would read ``target_offset`` next goes on, on the source.

        An offset below the first mirrored record maps to that record's source offset.
        """
        first = self._source[0] if self._source else self.source_end
        return self._translate(
            target_offset, self._target, self._source, self.target_end, self.source_end, first, "target"
        )

    def _translate(
        self,
        offset: int,
        here: array[int],
        there: array[int],
        end: int,
        other_end: int,
        first: int,
        side: str,
    ) -> int:
        if offset > end:
            raise NotMirroredYet(
                f"{side} offset {offset} lies beyond the mirror's position {end}",
                remedy="wait until the mirror has copied up to it (lag), then translate again",
            )
        at = bisect_right(here, offset) - 1
        if at < 0:
            return first if offset < end else other_end
        into = offset - here[at]
        if into < self._length[at]:
            return there[at] + into
        return there[at + 1] if at + 1 < len(there) else other_end
