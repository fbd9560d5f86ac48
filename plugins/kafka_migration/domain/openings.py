"""All openings of a partition, as they are stored: a sequence that looks like objects and is kept in a few bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import overload

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import OffsetMap, Run, RunOpening
from kafka_migration.domain.runs import FenceRuns


class Openings(Sequence[RunOpening]):
    """Ordered by fence and records, void ones included. Openings come in any order; the last of a key is kept."""

    def __init__(self, openings: Sequence[RunOpening] = ()) -> None:
        self._fences: dict[int, FenceRuns] = {}
        self._ordered: list[FenceRuns] | None = None
        for opening in openings:
            self.add(opening)

    def add(self, opening: RunOpening) -> None:
        """One more. Raises StateConflict if it contradicts the others of its fence about where that ends.

        A cut may come once more, of a link that was begun again: the later one is kept.
        """
        runs = self._fences.get(opening.fence)
        if runs is None or opening.is_cut:
            runs = self._fences[opening.fence] = FenceRuns(opening.fence, opening.target - opening.records)
            self._ordered = None
        if opening.target - opening.records != runs.target:
            raise StateConflict(
                f"offset map: {opening} does not stand {opening.records} records behind its fence, at {runs.target}",
                remedy="the stored map contradicts itself; mirror the topic again",
            )
        if opening.closes is not None:
            runs.closes = opening.closes
        runs.add(opening.records, opening.source, opening.epoch)

    def newest(self) -> Openings:
        """Those of the newest fence alone."""
        found = Openings()
        if self._fences:
            fence = max(self._fences)
            found._fences = {fence: self._fences[fence]}
        return found

    def first_of_newest(self) -> RunOpening:
        """The opening with which the newest fence began. Raises ValueError if there is none."""
        return _opening(self._fences[max(self._fences)], 0)

    def before(self, target: int) -> Openings:
        """Those of the newest fence alone of which a record may stand before target offset ``target``; none if none."""
        found = Openings()
        fences = [runs for runs in self._in_order() if runs.target <= target]
        if fences:
            found._fences = {fences[-1].fence: fences[-1]}
        return found

    def offset_map(self, *, source_end: int, target_end: int) -> OffsetMap:
        """The map up to a position; it reads these openings, and copies none."""
        return OffsetMap.of_fences(self._in_order(), source_end=source_end, target_end=target_end)

    def records(self, *, target_end: int) -> int:
        """How many records the map up to there covers, without making it."""
        covered, limit = 0, target_end
        for runs in reversed(self._in_order()):
            start = runs.target_at(0)
            covered += max(0, limit - start)
            limit = min(limit, start, start if runs.closes is None else runs.closes)
        return covered

    def _in_order(self) -> list[FenceRuns]:
        """The oldest fence first."""
        if self._ordered is None:
            self._ordered = [self._fences[fence] for fence in sorted(self._fences)]
        return self._ordered

    def __len__(self) -> int:
        return sum(len(runs) for runs in self._fences.values())

    @overload
    def __getitem__(self, index: int) -> RunOpening: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RunOpening]: ...
    def __getitem__(self, index: int | slice) -> RunOpening | Sequence[RunOpening]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        fences = self._in_order()
        starts = [0]
        for runs in fences:
            starts.append(starts[-1] + len(runs))
        at = index + starts[-1] if index < 0 else index
        if not 0 <= at < starts[-1]:
            raise IndexError(f"opening {index} of {starts[-1]}")
        fence = bisect_right(starts, at) - 1
        return _opening(fences[fence], at - starts[fence])

    def __iter__(self) -> Iterator[RunOpening]:
        for runs in self._in_order():
            for at in range(len(runs)):
                yield _opening(runs, at)

    def __repr__(self) -> str:
        return f"Openings({len(self)} of fences {sorted(self._fences)})"


def openings_of(runs: Iterable[Run], *, first_fence: int, source_end: int, target_end: int) -> Iterator[RunOpening]:
    """The openings of a map that was found from logs: ``runs`` in order, up to where a link begins behind them.

    Nobody wrote behind their fences, which are numbered from ``first_fence`` on: one wherever the target has something
    between two runs. The first voids whatever is stored of fences before it, and the last is a cut
    (:attr:`RunOpening.is_cut`).
    """
    fence, begun, end = first_fence - 1, 0, 0
    for run in runs:
        if fence < first_fence or run.target != end:
            fence, begun = fence + 1, run.target
            closes = end if fence > first_fence else 0
            yield RunOpening(fence=fence, records=0, source=run.source, target=run.target, closes=closes)
        else:
            records = run.target - begun
            yield RunOpening(fence=fence, records=records, source=run.source, target=run.target)
        end = run.target + run.length
    if end < target_end:
        fence += 1
        yield RunOpening(fence=fence, records=0, source=source_end, target=target_end, closes=end)
    yield RunOpening(fence=fence + 1, records=0, source=source_end, target=target_end, closes=target_end)


def _opening(runs: FenceRuns, at: int) -> RunOpening:
    records = runs.records_at(at)
    return RunOpening(
        fence=runs.fence,
        records=records,
        source=runs.source_at(at),
        target=runs.target + records,
        closes=runs.closes if records == 0 else None,
        epoch=runs.epoch_at(at),
    )
