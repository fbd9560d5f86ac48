"""The runs of an offset map in bulk: three packed columns, searched and cut without touching each run.

A transactional topic has a run for every few records, so millions in a partition. As objects they would cost the driver
150 bytes each, and each cut a scan; as columns 24 bytes, a cut is two binary searches, and its columns are views.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.offset_map import OffsetMap, Run

if TYPE_CHECKING:
    import numpy as np

    Column = np.ndarray[tuple[int], np.dtype[np.int64]]

_COLUMNS = ("sources", "targets", "lengths")
_FAST = 1


class Runs:
    """Runs in order: ``sources`` and ``targets`` are where each begins, ``lengths`` how many records each has."""

    __slots__ = _COLUMNS

    sources: Column
    targets: Column
    lengths: Column

    def __init__(self, runs: Iterable[Run] = ()) -> None:
        import numpy as np  # only who compares pays for it

        rows = np.array([(run.source, run.target, run.length) for run in runs], np.int64).reshape(-1, 3)
        self.sources, self.targets, self.lengths = (np.ascontiguousarray(rows[:, n]) for n in range(3))

    @classmethod
    def of(cls, sources: Column, targets: Column, lengths: Column) -> Runs:
        """Runs of these columns."""
        found = cls.__new__(cls)
        found.sources, found.targets, found.lengths = sources, targets, lengths
        return found

    @classmethod
    def of_map(cls, offset_map: OffsetMap) -> Runs:
        return cls.of(*offset_map.columns())

    def __len__(self) -> int:
        return len(self.sources)

    def __iter__(self) -> Iterator[Run]:
        return map(Run, self.sources.tolist(), self.targets.tolist(), self.lengths.tolist())

    def __getitem__(self, index: int) -> Run:
        return Run(int(self.sources[index]), int(self.targets[index]), int(self.lengths[index]))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Runs) and all(
            (getattr(self, name).shape == getattr(other, name).shape)
            and bool((getattr(self, name) == getattr(other, name)).all())
            for name in _COLUMNS
        )

    def __hash__(self) -> int:
        return hash((len(self), self.records))

    def __repr__(self) -> str:
        return f"Runs({len(self)} of {self.records} records)"

    def __reduce__(self) -> tuple[Any, ...]:
        # Of views only what they show, not what they are views of.
        return Runs.of, tuple(getattr(self, name).copy() for name in _COLUMNS)

    @property
    def records(self) -> int:
        """How many records the runs hold."""
        return int(self.lengths.sum())

    @property
    def source_end(self) -> int:
        """The source offset behind the last record, -1 if there is none."""
        return int(self.sources[-1] + self.lengths[-1]) if len(self) else -1

    def first_misfit(self, start: int) -> int | None:
        """The first run that is empty, or begins before the one in front of it ends (the first one: before source
        offset ``start``); None if all are in order."""
        import numpy as np

        if not len(self):
            return None
        wrong = self.lengths < 1
        wrong[0] |= self.sources[0] < start
        wrong[1:] |= self.sources[1:] < self.sources[:-1] + self.lengths[:-1]
        return int(np.argmax(wrong)) if bool(wrong.any()) else None

    def since(self, source: int) -> int:
        """The first run that begins at ``source`` or later, as an index."""
        return int(self.sources.searchsorted(source))

    def clip(self, start: int, end: int) -> Runs:
        """The parts whose source offsets lie in ``start`` (included) to ``end`` (not)."""
        low, high = self.since(start), self.since(end)
        if low and self.sources[low - 1] + self.lengths[low - 1] > start:
            low -= 1
        if low >= high or start >= end:
            return Runs()
        columns = [getattr(self, name)[low:high] for name in _COLUMNS]
        before = max(0, start - int(columns[0][0]))
        behind = max(0, int(columns[0][-1] + columns[2][-1]) - end)
        if before or behind:
            columns = [column.copy() for column in columns]
            columns[0][0] += before
            columns[1][0] += before
            columns[2][0] -= before
            columns[2][-1] -= behind
        return Runs.of(*columns)

    def records_before(self, sources: Column) -> Column:
        """How many records stand before each of these source offsets."""
        import numpy as np

        if not len(self):
            return np.zeros(len(sources), np.int64)
        at = self.sources.searchsorted(sources, "right") - 1
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(self.lengths)))
        inside = np.minimum(self.lengths[at], sources - self.sources[at])
        return np.where(at < 0, 0, before[at] + inside)

    def merged(self) -> Runs:
        """The same places in as few runs as can be, however they were divided."""
        import numpy as np

        if len(self) < 2:
            return self
        ends, ends_there = self.sources + self.lengths, self.targets + self.lengths
        begins = np.concatenate(([True], (self.sources[1:] != ends[:-1]) | (self.targets[1:] != ends_there[:-1])))
        lengths = np.add.reduceat(self.lengths, np.flatnonzero(begins))
        return Runs.of(self.sources[begins], self.targets[begins], lengths)

    def as_dict(self) -> dict[str, str]:
        """JSON types only: differences, which are small, compressed."""
        import numpy as np

        def packed(column: Column) -> str:
            return base64.b64encode(zlib.compress(column.astype("<i8").tobytes(), _FAST)).decode()

        zero = np.zeros(1, np.int64)
        return {
            "sources": packed(np.diff(self.sources, prepend=zero)),
            "targets": packed(np.diff(self.targets, prepend=zero)),
            "lengths": packed(self.lengths),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, str]) -> Runs:
        import numpy as np

        def unpacked(name: str) -> Column:
            return np.frombuffer(zlib.decompress(base64.b64decode(value[name])), "<i8").astype(np.int64)

        return cls.of(np.cumsum(unpacked("sources")), np.cumsum(unpacked("targets")), unpacked("lengths"))
