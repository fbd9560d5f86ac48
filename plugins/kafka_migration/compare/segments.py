"""How a range falls into segments, and how the target's offsets align with the source's. Pure arithmetic.

The target's offsets cannot be divided into segments themselves: fences shift them. So every offset of the target's
range is first taken to a source offset, by *pieces*: a run's piece by addition, a gap's piece (markers, where no
record may stand) to the source offset where the next record stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from kafka_migration.compare.request import PartitionRange, clipped
from kafka_migration.compare.runs import Runs

_AT_ONCE = 10_000


class Pieces:
    """Pieces that cover the target's range without holes, in order, as columns of one length (numpy): target offsets
    ``starts`` to ``ends`` (not included). ``in_run``, the record of ``sources`` stands at the start. In a gap no record
    may stand; whatever does counts to the segment of that source offset."""

    __slots__ = ("ends", "in_run", "sources", "starts")

    def __init__(self, range_: PartitionRange) -> None:
        import numpy as np

        runs, last = range_.runs, max(range_.source_end - 1, range_.source_start)
        # Before each run, and behind the last one, lies a gap, which may be empty.
        behind = runs.targets + runs.lengths
        starts, ends, sources = (np.empty(2 * len(runs) + 1, np.int64) for _ in range(3))
        starts[0::2], starts[1::2] = np.concatenate(([range_.target_start], behind)), runs.targets
        ends[0::2], ends[1::2] = np.concatenate((runs.targets, [range_.target_end])), behind
        sources[0::2], sources[1::2] = np.concatenate((runs.sources, [last])), runs.sources
        in_run = np.zeros(len(starts), np.bool_)
        in_run[1::2] = True
        kept = starts < ends
        self.starts, self.ends, self.sources, self.in_run = (one[kept] for one in (starts, ends, sources, in_run))

    def __len__(self) -> int:
        return len(self.starts)

    def place(self, offsets: Any) -> tuple[Any, Any]:
        """Of target offsets inside the range: where each stands on the source, and whether in a run."""
        import numpy as np

        at = np.searchsorted(self.starts, offsets, "right") - 1
        placed = self.in_run[at]
        return np.where(placed, self.sources[at] + offsets - self.starts[at], self.sources[at]), placed


def expected_records(range_: PartitionRange, segment_records: int) -> dict[int, int]:
    """Segment -> how many records the runs put into it, of every segment that the source's range touches."""
    import numpy as np

    if range_.source_start == range_.source_end:
        return {}
    first, last = range_.source_start // segment_records, -(-range_.source_end // segment_records)
    before = range_.runs.records_before(np.arange(first, last + 1, dtype=np.int64) * segment_records)
    return dict(zip(range(first, last), np.diff(before).tolist(), strict=True))


def tiles(range_: PartitionRange, segment_records: int) -> Iterator[tuple[int, PartitionRange]]:
    """Every segment that ``range_`` touches, by number, as a range of its own: none overlaps, and nothing is left over.

    On the target a gap (markers) belongs to the segment of the run behind it, as in :class:`Pieces`, and what stands
    behind the last run to the last segment. A range without source offsets, but with some of the target's, is one tile.
    """
    if range_.source_start == range_.source_end:
        if range_.target_start < range_.target_end:
            yield range_.source_start // segment_records, range_
        return
    at, target = range_.source_start, range_.target_start
    while at < range_.source_end:
        segment = at // segment_records
        end = min((segment + 1) * segment_records, range_.source_end)
        to = range_.target_end if end == range_.source_end else split_bounds(range_, end)[0]
        yield segment, cut(range_, at, end, target, max(target, to))
        at, target = end, max(target, to)


def parts(range_: PartitionRange, count: int) -> Iterator[PartitionRange]:
    """``range_`` in ``count`` parts of about equally many source offsets, or fewer."""
    size = range_.source_end - range_.source_start
    return divided(range_, (range_.source_start + size * n // count for n in range(1, count)))


def divided(range_: PartitionRange, bounds: Iterable[int]) -> Iterator[PartitionRange]:
    """``range_`` in parts; each but the first begins at one of ``bounds``, source offsets in ascending order."""
    at, target = range_.source_start, range_.target_start
    for end in bounds:
        if at < end:
            to = max(target, split_bounds(range_, end)[0])
            yield cut(range_, at, end, target, to)
            at, target = end, to
    yield cut(range_, at, range_.source_end, target, range_.target_end)


def split_bounds(range_: PartitionRange, source_offset: int) -> tuple[int, int]:
    """Between which target offsets a range may be split so that ``source_offset`` is where its second part begins: from
    behind the last record before it, to the first one from there on. Nothing but a gap lies between."""
    place = range_.runs.since(source_offset)
    low, high = range_.target_start, range_.runs[place].target if place < len(range_.runs) else range_.target_end
    if place:
        run = range_.runs[place - 1]
        low = run.target + min(run.length, source_offset - run.source)
        if source_offset < run.source + run.length:
            high = low
    # A target that lost its tail ends before its runs do.
    return min(max(low, range_.target_start), range_.target_end), min(max(high, range_.target_start), range_.target_end)


def places_hash(runs: Runs) -> str:
    """A short hash of which record ``runs`` put where, however they are divided."""
    them = runs.merged()
    ends = [-1, *(them.sources + them.lengths).tolist()]
    found = blake2b(digest_size=8)
    for at in range(0, len(them), _AT_ONCE):
        sources, targets = (one[at : at + _AT_ONCE].tolist() for one in (them.sources, them.targets))
        rows = zip(ends[at : at + len(sources)], sources, targets, strict=True)
        found.update(b"".join([b"%d;%d>%d," % row for row in rows]))
    found.update(b"%d" % ends[-1])
    return found.hexdigest()


def cut(range_: PartitionRange, start: int, end: int, target_start: int, target_end: int) -> PartitionRange:
    """The part of ``range_`` with these bounds, on the source and on the target."""
    return replace(
        range_,
        source_start=start,
        source_end=end,
        target_start=target_start,
        target_end=target_end,
        runs=range_.runs.clip(start, end),
        left_out=clipped(range_.left_out, start, end),
        target_left_out=clipped(range_.target_left_out, target_start, target_end),
    )
