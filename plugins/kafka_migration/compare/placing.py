"""Where records count: the source offset of each, and the sums over those of one side of a segment."""

from __future__ import annotations

import struct
from typing import Any

import xxhash

from kafka_migration.compare.digests import Digest
from kafka_migration.compare.record_digest import Rows, ordered_hashes, record_hashes
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.segments import Pieces
from kafka_migration.wire.batch import CODEC, DELETE_HORIZON, HEADER_BYTES, BatchHeader

_MASK, _PROOF_MASK = 2**64 - 1, 2**128 - 1
_PLACE = struct.Struct(">qiqqii16s")
_xxh128_number = xxhash.xxh3_128_intdigest


def usual_attributes(segment: PartitionRange) -> int:
    """The bits that a batch of the target may have: the mirror writes codecs only, and a cleaner adds the time at
    which tombstones go."""
    return CODEC | DELETE_HORIZON if segment.target_compacted else CODEC


class Sums:
    """The sums of one side over the decoded records of a segment; see :class:`Digest`."""

    def __init__(self, segment: PartitionRange) -> None:
        self.segment, self.rows = segment, Rows()
        self._count = self._bytes = self._total = self._ordered = self._misplaced = 0
        self._proved = self._proof = self._attributes = 0

    def prove(self, header: BatchHeader, body: bytes, place: int) -> None:
        """Count a batch that needs no decoding, by what this side itself has of it: its ``header``, the hash of its
        records section (``body``), and the source offset at which its first record stands (``place``)."""
        counted = (header.codec, header.base_timestamp, header.max_timestamp, header.last_offset_delta, header.records)
        number = _xxh128_number(_PLACE.pack(place, *counted, body))
        self._proof = (self._proof + number) & _PROOF_MASK
        self._proved += header.records
        self._bytes += header.size - HEADER_BYTES

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

    def _arrays(self) -> tuple[Any, Any, Any]:
        import numpy as np  # only who compares pays for it

        rows = self.rows
        offsets = np.array(rows.offsets, np.int64)
        hashes = record_hashes(
            np.array(rows.contents, np.uint64), np.array(rows.times, np.int64), np.array(rows.flags, np.int64)
        )
        sizes = np.array(rows.sizes, np.int64)
        rows.clear()
        return offsets, hashes, sizes

    def _add(self, hashes: Any, places: Any, sizes: Any) -> None:
        import numpy as np

        self._count += len(hashes)
        self._bytes += int(sizes.sum())
        self._total = (self._total + int(hashes.sum(dtype=np.uint64))) & _MASK
        ordered = ordered_hashes(hashes, places)
        self._ordered = (self._ordered + int(ordered.sum(dtype=np.uint64))) & _MASK


class SourceSums(Sums):
    """Of the source, without what was given up."""

    def flush(self) -> None:
        """Take in the rows so far."""
        if not len(self.rows):
            return
        offsets, hashes, sizes = self._arrays()
        segment = self.segment
        mine = (offsets >= segment.source_start) & (offsets < segment.source_end)
        for start, end in segment.left_out:
            mine &= (offsets < start) | (offsets >= end)
        if not mine.all():
            offsets, hashes, sizes = offsets[mine], hashes[mine], sizes[mine]
        self._add(hashes, offsets, sizes)


class TargetSums(Sums):
    """Of the target. Each record counts where the offset map has it on the source."""

    def __init__(self, segment: PartitionRange) -> None:
        super().__init__(segment)
        self._pieces: Pieces | None = None
        self._usual = usual_attributes(segment)

    def see(self, header: BatchHeader) -> None:
        """Note attributes of a batch that the mirror never writes."""
        self._attributes |= header.attributes & ~self._usual & 0xFFFF

    def flush(self) -> None:
        """Take in the rows so far."""
        if not len(self.rows):
            return
        offsets, hashes, sizes = self._arrays()
        segment = self.segment
        mine = (offsets >= segment.target_start) & (offsets < segment.target_end)
        if not mine.all():
            offsets, hashes, sizes = offsets[mine], hashes[mine], sizes[mine]
        if not len(offsets):
            return
        if self._pieces is None:
            self._pieces = Pieces(segment)
        places, placed = self._pieces.place(offsets)
        self._misplaced += int((~placed).sum())
        self._add(hashes, places, sizes)
