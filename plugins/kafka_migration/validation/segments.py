"""How a range falls into segments, and how the target's offsets align with the source's. Pure arithmetic.

The target's offsets cannot be divided into segments themselves: fences shift them. So every offset of the target's
range is first taken to a source offset, by *pieces*: a run's piece by addition, a gap's piece (markers, where no
record may stand) to the source offset where the next record stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kafka_migration.validation.request import PartitionRange

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
    """Segment -> how many records the runs put into it, of every segment that the source's range touches."""
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
    return dict(counts)


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
