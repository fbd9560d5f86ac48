"""Where records count: the source offset of each, and the sums over those of one side of a segment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from kafka_migration.compare.decode.columns import Columns, ordered_sum
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.segments import Pieces

_MASK, _PROOF_MASK = 2**64 - 1, 2**128 - 1
#: Of a batch's attributes (protocol guide, "Record Batch").
_CODEC, _DELETE_HORIZON = 0x07, 0x40


def usual_attributes(segment: PartitionRange) -> int:
    """The bits that a batch of the target may have: the mirror writes codecs only, and a cleaner adds the time at
    which tombstones go."""
    return _CODEC | _DELETE_HORIZON if segment.target_compacted else _CODEC


class Sums:
    """The sums of one side over the records of a segment; see :class:`Digest`."""

    def __init__(self, segment: PartitionRange) -> None:
        self.segment = segment
        self._count = self._bytes = self._total = self._ordered = self._misplaced = 0
        self._proved = self._proof = self._attributes = 0

    def prove(self, numbers: Sequence[int], *, records: int, size: int) -> None:
        """Count batches that need no decoding: the hash (128 bits) of what this side has of each and of its place, how
        many records they hold, and how many bytes these take."""
        self._proof = (self._proof + sum(numbers)) & _PROOF_MASK
        self._proved += records
        self._bytes += size

    def see(self, attributes: int) -> None:
        """Note a batch's attributes: those of the target that the mirror never writes count."""

    def add(self, records: Columns) -> None:
        """Count ``records``; those beyond the segment's bounds do not."""
        mine, places, placed = self.place(records)
        if not len(mine):
            return
        self._count += len(mine)
        self._bytes += int(mine.sizes.sum())
        self._misplaced += int((~placed).sum())
        self._total = (self._total + int(mine.hashes.sum())) & _MASK
        self._ordered = (self._ordered + ordered_sum(mine.hashes, places)) & _MASK

    def place(self, records: Columns) -> tuple[Columns, Any, Any]:
        """Those of ``records`` that stand in the segment, where each of them stands on the source, and whether the
        offset map has a record there."""
        raise NotImplementedError

    def digest(self) -> Digest:
        return Digest(
            rows=self._count + self._proved,
            bytes=self._bytes,
            total=self._total,
            ordered=self._ordered,
            misplaced=self._misplaced,
            proved=self._proved,
            proof=self._proof,
            attributes=self._attributes,
        )


class SourceSums(Sums):
    """Of the source."""

    def place(self, records: Columns) -> tuple[Columns, Any, Any]:
        import numpy as np  # only who compares pays for it

        segment = self.segment
        kept = records.between(segment.source_start, segment.source_end, segment.left_out)
        return kept, kept.offsets, np.ones(len(kept), np.bool_)


class TargetSums(Sums):
    """Of the target. Each record counts where the offset map has it on the source."""

    def see(self, attributes: int) -> None:
        self._attributes |= attributes & ~usual_attributes(self.segment) & 0xFFFF

    def place(self, records: Columns) -> tuple[Columns, Any, Any]:
        segment = self.segment
        kept = records.between(segment.target_start, segment.target_end, segment.target_left_out)
        return (kept, *self._pieces.place(kept.offsets))

    @cached_property
    def _pieces(self) -> Pieces:
        return Pieces(self.segment)
