"""Where a record of the target should stand on the source, and the other way round: the runs of a range, searched."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.segments import split_bounds


class Places:
    """The runs of one range. Offsets are asked for in rising order, mostly: the last answer's run is tried first."""

    __slots__ = ("_at", "_runs", "_sources", "_targets", "range")

    def __init__(self, pinned: PartitionRange) -> None:
        self.range, self._runs = pinned, pinned.runs
        self._targets, self._sources = pinned.runs.targets, pinned.runs.sources
        self._at = 0

    def source_of(self, target: int) -> int | None:
        """Where the record at ``target`` stands on the source; None if the map has none there."""
        if len(self._runs):
            run = self._runs[self._at]
            if not run.target <= target < run.target + run.length:
                self._at = max(0, int(self._targets.searchsorted(target, "right")) - 1)
                run = self._runs[self._at]
            if run.target <= target < run.target + run.length:
                return run.source + target - run.target
        return None

    def place_of(self, target: int) -> int:
        """The same, but in a gap the place of the next record: the source's end, if there is none."""
        found = self.source_of(target)
        if found is not None:
            return found
        after = int(self._targets.searchsorted(target, "right"))
        return int(self._sources[after]) if after < len(self._runs) else self.range.source_end

    def target_of(self, source: int) -> int | None:
        """Where the record of ``source`` should stand; None if the map has none of it."""
        at = int(self._sources.searchsorted(source, "right")) - 1
        run = self._runs[at] if at >= 0 else None
        if run is None or source >= run.source + run.length:
            return None
        return run.target + source - run.source

    def window(self, start: int, end: int) -> tuple[int, int]:
        """The target's offsets (from, and up to without) that belong to source offsets ``start`` to ``end``.

        A gap belongs to the record behind it, as in :mod:`kafka_migration.compare.segments`.
        """
        pinned = self.range
        low = pinned.target_start if start <= pinned.source_start else split_bounds(pinned, start)[0]
        return low, pinned.target_end if end >= pinned.source_end else split_bounds(pinned, end)[0]


def regions(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """``spans`` (from, and up to without), with neighbours joined. Records shift over the borders of segments."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        is_next = bool(joined) and joined[-1][1] == start
        joined.append((joined.pop()[0] if is_next else start, end))
    return joined
