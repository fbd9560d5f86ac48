"""Where the runs of one fence begin, millions of them, in eight bytes each: searched, never scanned.

Behind a fence records stand on the target without a gap, so the target offset of a run is the fence's end and the
count of records before it. What is kept of a run is that count and its *gap*: source offset minus count. Neither ever
decreases, so both are small differences within a chunk (delta encoding with a frame of reference).
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

_CHUNK = 65_536
_PENDING = 1 << 20
_NONE = array("I", [0])

#: Arrays of runs: records before each, source offsets, leader epochs.
_Columns = tuple[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Runs in a row: differences to ``records`` and ``gap``, those of the first. ``epochs`` is one for all or each."""

    records: int
    gap: int
    record_deltas: array[int]
    gap_deltas: array[int]
    epochs: int | array[int]
    is_sound: bool

    def __len__(self) -> int:
        return len(self.record_deltas)

    @property
    def last_records(self) -> int:
        """How many records stand before its last run."""
        return self.records + self.record_deltas[-1]

    def epoch(self, at: int) -> int:
        return self.epochs if isinstance(self.epochs, int) else self.epochs[at]


class FenceRuns:
    """Runs since one fence, by the records before them. ``target`` is the target offset of the fence's first record,
    ``closes`` where the data of earlier fences ended. Added in any order; of one count the last one added is kept."""

    __slots__ = ("_chunks", "_pending", "_starts", "closes", "fence", "target")

    def __init__(self, fence: int, target: int, closes: int | None = None) -> None:
        self.fence, self.target, self.closes = fence, target, closes
        self._chunks: list[_Chunk] = []
        self._starts: list[int] = []
        self._pending = (array("q"), array("q"), array("i"))

    def add(self, records: int, source: int, epoch: int = -1) -> None:
        """A run begins after ``records`` records, at source offset ``source``, in the source's leader epoch."""
        for column, value in zip(self._pending, (records, source, epoch), strict=True):
            column.append(value)
        if len(self._pending[0]) >= _PENDING:
            self._settle()

    def __len__(self) -> int:
        self._settle()
        return self._starts[-1] + len(self._chunks[-1]) if self._chunks else 0

    def records_at(self, index: int) -> int:
        """How many records stand before run ``index``."""
        chunk, at = self._find(index)
        return chunk.records + chunk.record_deltas[at]

    def source_at(self, index: int) -> int:
        """The source offset at which run ``index`` begins."""
        chunk, at = self._find(index)
        return chunk.records + chunk.record_deltas[at] + chunk.gap + chunk.gap_deltas[at]

    def target_at(self, index: int) -> int:
        """The target offset at which run ``index`` begins."""
        return self.target + self.records_at(index)

    def epoch_at(self, index: int) -> int:
        """The source's leader epoch of run ``index``; -1 if unknown."""
        chunk, at = self._find(index)
        return chunk.epoch(at)

    def columns(self, count: int) -> tuple[Any, Any]:
        """Of the first ``count`` runs, as arrays: how many records stand before each, and the source offsets."""
        import numpy as np

        self._settle()
        chunks = [_unpack(chunk)[:2] for start, chunk in zip(self._starts, self._chunks, strict=True) if start < count]
        if not chunks:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        records, sources = (np.concatenate(column)[:count] for column in zip(*chunks, strict=True))
        return records, sources

    def before(self, target: int) -> int:
        """How many runs begin before target offset ``target``."""
        return bisect_right(range(len(self)), target - 1, key=self.target_at)

    def first_overlap(self, among: int) -> int | None:
        """The first of ``among`` runs that begins before the one in front of it ends, or None."""
        self._settle()
        before: int | None = None
        for start, chunk in zip(self._starts, self._chunks, strict=True):
            if start >= among:
                break
            for at in range(len(chunk)) if not chunk.is_sound else (0,):
                gap = chunk.gap + chunk.gap_deltas[at]
                if before is not None and gap < before and start + at < among:
                    return start + at
                before = gap
            before = chunk.gap + chunk.gap_deltas[-1]
        return None

    def _find(self, index: int) -> tuple[_Chunk, int]:
        self._settle()
        chunk = bisect_right(self._starts, index) - 1
        return self._chunks[chunk], index - self._starts[chunk]

    def _settle(self) -> None:
        if not self._pending[0]:
            return
        if not self._chunks and len(self._pending[0]) == 1:
            # As most fences are: thousands of partitions are read in half the time.
            (records,), (source,), (epoch,) = self._pending
            self._chunks, self._starts = [_Chunk(records, source - records, _NONE, _NONE, epoch, True)], [0]
        else:
            import numpy as np  # only who reads long maps pays for it

            new = _in_order(*(np.frombuffer(column, dtype=column.typecode) for column in self._pending))
            self._chunks = self._merged(new)
            self._starts = [0, *accumulate(len(chunk) for chunk in self._chunks[:-1])]
        self._pending = (array("q"), array("q"), array("i"))

    def _merged(self, new: _Columns) -> list[_Chunk]:
        """The chunks with the runs of ``new`` in their places."""
        import numpy as np

        first = int(new[0][0])
        # Chunks below what is new stay as they are; the last one is filled up.
        keep = bisect_right(self._chunks, first - 1, key=lambda chunk: chunk.last_records)
        if keep == len(self._chunks) and self._chunks and len(self._chunks[-1]) < _CHUNK // 2:
            keep -= 1
        chunks, taken, old = self._chunks[:keep], 0, self._chunks[keep:]
        for chunk in old:
            end = chunk.last_records
            until = len(new[0]) if chunk is old[-1] else int(np.searchsorted(new[0], end, side="right"))
            if until > taken:
                both = (
                    np.concatenate((mine, more[taken:until])) for mine, more in zip(_unpack(chunk), new, strict=True)
                )
                chunks += _pack(*_in_order(*both))
            else:
                chunks.append(chunk)
            taken = until
        return chunks if old else [*chunks, *_pack(*new)]


def _in_order(records: Any, source: Any, epochs: Any) -> _Columns:
    """By records; of several with the same count the last."""
    import numpy as np

    if len(records) > 1 and not bool((records[1:] > records[:-1]).all()):
        order = np.argsort(records, kind="stable")
        records, source, epochs = records[order], source[order], epochs[order]
        last = np.append(records[1:] != records[:-1], True)
        records, source, epochs = records[last], source[last], epochs[last]
    return records, source, epochs


def _pack(records: Any, source: Any, epochs: Any) -> Iterator[_Chunk]:
    for at in range(0, len(records), _CHUNK):
        part, gaps, mine = records[at : at + _CHUNK], source[at : at + _CHUNK], epochs[at : at + _CHUNK]
        gaps = gaps - part
        one = bool((mine == mine[0]).all())
        yield _Chunk(
            records=int(part[0]),
            gap=int(gaps[0]),
            record_deltas=_narrow(part - part[0]),
            gap_deltas=_narrow(gaps - gaps[0]),
            epochs=int(mine[0]) if one else array("i", mine.astype("i").tobytes()),
            is_sound=bool((gaps[1:] >= gaps[:-1]).all()),
        )


def _narrow(deltas: Any) -> array[int]:
    fits = len(deltas) == 0 or (int(deltas.min()) >= 0 and int(deltas.max()) < 2**32)
    kind = "I" if fits else "q"
    return array(kind, deltas.astype(kind).tobytes())


def _unpack(chunk: _Chunk) -> _Columns:
    import numpy as np

    count = len(chunk)
    records = np.array(chunk.record_deltas, dtype="q") + chunk.records
    gaps = np.array(chunk.gap_deltas, dtype="q") + chunk.gap
    epochs = np.full(count, chunk.epochs, dtype="i") if isinstance(chunk.epochs, int) else np.array(chunk.epochs)
    return records, records + gaps, epochs
