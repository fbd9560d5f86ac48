"""How a range falls into segments, and how the target's offsets align with the source's. Pure arithmetic.

The target's offsets cannot be divided into segments themselves: fences shift them. So every offset of the target's
range is first taken to a source offset, by *pieces*: a run's piece by addition, a gap's piece (markers, where no
record may stand) to the source offset where the next record stands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs

#: Pieces are found by their offset's high bits; the bounds keep a bucket from holding thousands of them, or none.
_SMALLEST_SHIFT, _LARGEST_SHIFT = 6, 40
_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class Piece:
    """Target offsets ``start`` to ``end`` (not included). In a run, ``start`` holds the record of ``source``.

    In a gap (``in_run`` false) no record may stand; whatever does counts to the segment of ``source``.
    """

    start: int
    end: int
    source: int
    in_run: bool


class Pieces:
    """Pieces that cover the target's range without holes, in order, as columns of one length (numpy)."""

    __slots__ = ("ends", "in_run", "sources", "starts")

    def __init__(self, it: PartitionRange) -> None:
        import numpy as np

        runs, last = it.runs, max(it.source_end - 1, it.source_start)
        # Before each run, and behind the last one, lies a gap, which may be empty.
        behind = runs.targets + runs.lengths
        starts, ends, sources = (np.empty(2 * len(runs) + 1, np.int64) for _ in range(3))
        starts[0::2], starts[1::2] = np.concatenate(([it.target_start], behind)), runs.targets
        ends[0::2], ends[1::2] = np.concatenate((runs.targets, [it.target_end])), behind
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


def pieces(it: PartitionRange) -> Iterator[Piece]:
    """:class:`Pieces`, one by one."""
    found = Pieces(it)
    yield from map(Piece, found.starts.tolist(), found.ends.tolist(), found.sources.tolist(), found.in_run.tolist())


def expected_records(it: PartitionRange, segment_records: int) -> dict[int, int]:
    """Segment -> how many records the runs put into it, of every segment that the source's range touches."""
    import numpy as np

    if it.source_start == it.source_end:
        return {}
    first, last = it.source_start // segment_records, -(-it.source_end // segment_records)
    before = it.runs.records_before(np.arange(first, last + 1, dtype=np.int64) * segment_records)
    return dict(zip(range(first, last), np.diff(before).tolist(), strict=True))


def tiles(it: PartitionRange, segment_records: int) -> Iterator[tuple[int, PartitionRange]]:
    """Every segment that ``it`` touches, by number, as a range of its own: none overlaps, and nothing is left over.

    On the target a gap (markers) belongs to the segment of the run behind it, as :func:`pieces` says, and what stands
    behind the last run to the last segment. A range without source offsets, but with some of the target's, is one tile.
    """
    if it.source_start == it.source_end:
        if it.target_start < it.target_end:
            yield it.source_start // segment_records, it
        return
    at, target = it.source_start, it.target_start
    while at < it.source_end:
        segment = at // segment_records
        end = min((segment + 1) * segment_records, it.source_end)
        to = it.target_end if end == it.source_end else split_bounds(it, end)[0]
        yield segment, cut(it, at, end, target, max(target, to))
        at, target = end, max(target, to)


def split_bounds(it: PartitionRange, source_offset: int) -> tuple[int, int]:
    """Between which target offsets ``it`` may be split so that ``source_offset`` is where its second part begins: from
    behind the last record before it, to the first one from there on. Nothing but a gap lies between."""
    place = it.runs.since(source_offset)
    low, high = it.target_start, it.runs[place].target if place < len(it.runs) else it.target_end
    if place:
        run = it.runs[place - 1]
        low = run.target + min(run.length, source_offset - run.source)
        if source_offset < run.source + run.length:
            high = low
    # A target that lost its tail ends before its runs do.
    return min(max(low, it.target_start), it.target_end), min(max(high, it.target_start), it.target_end)


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


def cut(it: PartitionRange, start: int, end: int, target_start: int, target_end: int) -> PartitionRange:
    """The part of ``it`` with these bounds, on the source and on the target."""
    left_out = ((max(low, start), min(high, end)) for low, high in it.left_out)
    return replace(
        it,
        source_start=start,
        source_end=end,
        target_start=target_start,
        target_end=target_end,
        runs=it.runs.clip(start, end),
        left_out=tuple((low, high) for low, high in left_out if low < high),
    )


def around(it: PartitionRange) -> Iterator[PartitionRange]:
    """``it`` without what is left out of it, in parts. What stands on the target between two belongs to the latter."""
    at, target = it.source_start, it.target_start
    for low, high in it.left_out:
        if at < low:
            to = max(target, split_bounds(it, low)[0])
            yield cut(it, at, low, target, to)
            target = to
        at = high
    if at < it.source_end or target < it.target_end:
        yield cut(it, at, it.source_end, target, it.target_end)


def part(it: PartitionRange, first: int, last: int, segment_records: int) -> PartitionRange:
    """Segments ``first`` up to, and without, ``last`` of ``it``, as a range. Raises ValueError if it has none."""
    found = [tile for segment, tile in tiles(it, segment_records) if first <= segment < last]
    if not found:
        raise ValueError(f"{it.tp}: no segment from {first} to {last} in {it.source}")
    head, tail = found[0], found[-1]
    return cut(it, head.source_start, tail.source_end, head.target_start, tail.target_end)


def bucket_shift(found: Iterable[Pieces]) -> int:
    """By how many bits to shift an offset right, so that a bucket holds few pieces, and a piece spans few buckets.

    With the mean length of a piece as the bucket, there are at most three entries a piece.
    """
    count = total = 0
    for it in found:
        count, total = count + len(it), total + int((it.ends - it.starts).sum())
    mean = max(1, total // max(1, count))
    return min(max(mean.bit_length() - 1, _SMALLEST_SHIFT), _LARGEST_SHIFT)


def buckets(found: Pieces, shift: int) -> tuple[Any, Any]:
    """Which buckets each piece reaches into: indices of pieces, and a bucket for each of them."""
    import numpy as np

    first = found.starts >> shift
    counts = ((found.ends - 1) >> shift) - first + 1
    which = np.repeat(np.arange(len(found)), counts)
    before = np.cumsum(counts) - counts
    return which, first[which] + np.arange(len(which)) - before[which]
