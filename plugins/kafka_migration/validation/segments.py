"""How a range falls into segments, and how the target's offsets align with the source's. Pure arithmetic.

The target's offsets cannot be divided into segments themselves: fences shift them. So every offset of the target's
range is first taken to a source offset, by *pieces*: a run's piece by addition, a gap's piece (markers, where no
record may stand) to the source offset where the next record stands.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from hashlib import blake2b

from kafka_migration.domain.offset_map import Run
from kafka_migration.validation.request import PartitionRange, clip

#: Pieces are found by their offset's high bits; the bounds keep a bucket from holding thousands of them, or none.
_SMALLEST_SHIFT, _LARGEST_SHIFT = 6, 40


@dataclass(frozen=True, slots=True)
class Piece:
    """Target offsets ``start`` to ``end`` (not included). In a run, ``start`` holds the record of ``source``.

    In a gap (``in_run`` false) no record may stand; whatever does counts to the segment of ``source``.
    """

    start: int
    end: int
    source: int
    in_run: bool


def pieces(it: PartitionRange) -> Iterator[Piece]:
    """Pieces that cover the target's range without holes, in order."""
    at = it.target_start
    for run in it.runs:
        if at < run.target:
            yield Piece(at, run.target, run.source, False)
        yield Piece(run.target, run.target + run.length, run.source, True)
        at = run.target + run.length
    if at < it.target_end:
        yield Piece(at, it.target_end, max(it.source_end - 1, it.source_start), False)


def expected_records(it: PartitionRange, segment_records: int) -> dict[int, int]:
    """Segment -> how many records the runs put into it, of every segment that the source's range touches.

    Without those that compaction is known to have taken.
    """
    if it.source_start == it.source_end:
        return {}
    counts: Counter[int] = Counter()
    for segment in range(it.source_start // segment_records, -(-it.source_end // segment_records)):
        counts[segment] = 0
    for run in it.runs:
        at, end = run.source, run.source + run.length
        while at < end:
            segment = at // segment_records
            until = min(end, (segment + 1) * segment_records)
            counts[segment] += until - at
            at = until
    counts.subtract(place // segment_records for place in it.explained)
    return dict(counts)


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
    place = bisect_left(it.runs, source_offset, key=lambda run: run.source)
    low, high = it.target_start, it.runs[place].target if place < len(it.runs) else it.target_end
    if place:
        run = it.runs[place - 1]
        low = run.target + min(run.length, source_offset - run.source)
        if source_offset < run.source + run.length:
            high = low
    # A target that lost its tail ends before its runs do.
    return min(max(low, it.target_start), it.target_end), min(max(high, it.target_start), it.target_end)


def places_hash(runs: Iterable[Run]) -> str:
    """A short hash of which record ``runs`` put where, however they are divided."""
    found, source, target = blake2b(digest_size=8), -1, -1
    for run in runs:
        if (run.source, run.target) != (source, target):
            found.update(b"%d;%d>%d," % (source, run.source, run.target))
        source, target = run.source + run.length, run.target + run.length
    found.update(b"%d" % source)
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
        runs=tuple(clip(it.runs, start, end)),
        left_out=tuple((low, high) for low, high in left_out if low < high),
        explained=tuple(place for place in it.explained if start <= place < end),
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


def bucket_shift(found: Iterable[Piece]) -> int:
    """By how many bits to shift an offset right, so that a bucket holds few pieces, and a piece spans few buckets.

    With the mean length of a piece as the bucket, there are at most three entries a piece.
    """
    count = total = 0
    for piece in found:
        count, total = count + 1, total + piece.end - piece.start
    mean = max(1, total // max(1, count))
    return min(max(mean.bit_length() - 1, _SMALLEST_SHIFT), _LARGEST_SHIFT)


def buckets(piece: Piece, shift: int) -> range:
    """The buckets that ``piece`` reaches into."""
    return range(piece.start >> shift, ((piece.end - 1) >> shift) + 1)
