"""One segment compared batch by batch, both sides side by side.

Where a batch of the source and one of the target hold the same bytes (records section, and what the header holds of
them: codec, timestamps, count), and by the offset map their records stand at each other's offsets, all records
in them are equal, and no one needs to decode them. Each side counts such a batch by its own header, bytes and place, so
that the two digests stay two numbers: a pair that was taken for equal and is not would still make them differ.
Everything else (joined or re-encoded, cut at the segment's bounds, wrong) is decoded on both sides, and goes into the
same digest as record level's. Both sums add up whatever the order, so which batches are decoded changes what a digest
looks like, and never whether two are equal.

Decoding is where the time goes, so it is done for many batches at once (:mod:`kafka_migration.compare.decode`).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

import xxhash

from kafka_migration.compare.batches.side import Block, Side
from kafka_migration.compare.decode.columns import NO_STAMP, Damaged, Section, columns_of, decode_all
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.reading import IN_TRANSACTION, OLD, STAMPED, CannotRead
from kafka_migration.compare.request import PartitionRange
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from kafka_migration.wire.old_formats import messages_of

#: Batches are decoded together, up to so many bytes.
_MOST_ENCODED = 2 << 20
_PLACE = struct.Struct(">qiqqii16s")
_xxh128, _xxh128_number = xxhash.xxh3_128_digest, xxhash.xxh3_128_intdigest


async def compare(
    segment: PartitionRange, source: Side, target: Side, *, decode_all: bool = False
) -> tuple[Digest, Digest, int]:
    """The digests of both sides of ``segment``, and traits of the source's batches (:class:`.digests.SegmentOutcome`).
    ``decode_all`` proves nothing by bytes.

    Raises CannotRead where either side cannot be read, or a batch is damaged.
    """
    return await _Comparison(segment, source, target, decode_all).run()


def _traits(header: BatchHeader) -> int:
    return (
        1 << header.codec
        | (header.magic < 2) * OLD
        | header.is_transactional * IN_TRANSACTION
        | header.is_log_append_time * STAMPED
    )


class _Comparison:
    def __init__(self, segment: PartitionRange, source: Side, target: Side, decode_all: bool) -> None:
        self.segment, self.decode_all = segment, decode_all
        self.sides = source, target
        self.sums, self.there = SourceSums(segment), TargetSums(segment)
        self.traits = 0
        self.encoded: tuple[list[Block], list[Block]] = ([], [])
        self.size = [0, 0]
        self.waiting: tuple[deque[Block], deque[Block]] = (deque(), deque())
        runs = segment.runs
        self._sources, self._targets = runs.sources.tolist(), runs.targets.tolist()
        self._behind, self._run = (runs.targets + runs.lengths).tolist(), 0

    async def run(self) -> tuple[Digest, Digest, int]:
        try:
            while True:
                one, other = await self._head(0), await self._head(1)
                if one is None and other is None:
                    break
                if other is None:
                    self._decode(0)
                elif one is None:
                    self._decode(1)
                else:
                    self._both(one, other)
            for number in (0, 1):
                self._flush(number)
        finally:
            for side in self.sides:
                side.drop()
        return self.sums.digest(), self.there.digest(), self.traits

    async def _head(self, side: int) -> Block | None:
        waiting = self.waiting[side]
        while not waiting:
            found = await self.sides[side].next()
            if found is None:
                return None
            waiting.extend(found)
            for block in found:
                if side:
                    self.there.see(block.header.attributes)
                else:
                    self.traits |= _traits(block.header)
        return waiting[0]

    def _both(self, one: Block, other: Block) -> None:
        place, last = self._places(other)
        bodies = self._twins(one, other) if place == one.first else None
        if bodies is not None:
            # Each side by what it has itself.
            for sums, header, at, body in (
                (self.sums, one.header, one.first, bodies[0]),
                (self.there, other.header, place, bodies[1]),
            ):
                sums.prove(_proof(header, at, body), records=header.records, size=header.size - HEADER_BYTES)
            self.waiting[0].popleft()
            self.waiting[1].popleft()
        elif one.first <= last:
            # The source first, up to where the target's batch ends: behind it both may begin at one place again.
            self._decode(0)
        else:
            self._decode(1)

    def _places(self, block: Block) -> tuple[int, int]:
        """Source offsets of the first and the last record of a batch of the target, by the map; the first is -1
        unless they stand in one run, and thus in a row."""
        end = block.header.next_offset
        sources, targets, behind, at = self._sources, self._targets, self._behind, self._run
        while at < len(targets) and behind[at] <= block.first:
            at += 1
        self._run = at
        if at == len(targets):
            return -1, self.segment.source_end
        if block.first >= targets[at] and end <= behind[at]:
            first = sources[at] + block.first - targets[at]
            return first, first + end - block.first - 1
        # Searched: of small transactions a thousand runs may stand in one batch that was joined.
        at = bisect_left(targets, end, at + 1) - 1
        return -1, sources[at] + max(0, min(end, behind[at]) - targets[at] - 1)

    def _twins(self, one: Block, other: Block) -> tuple[bytes, bytes] | None:
        """The hash of each batch's records section, if both batches hold the same records by their bytes."""
        mine, its, segment = one.header, other.header, self.segment
        if (
            self.decode_all
            or mine.records != its.records
            or mine.size != its.size
            or mine.magic != 2
            or its.magic != 2
            or mine.codec != its.codec
            or mine.last_offset_delta != its.last_offset_delta
            or mine.base_timestamp != its.base_timestamp
            or mine.max_timestamp != its.max_timestamp
            or not mine.is_gapless
            or mine.is_log_append_time
            or its.is_log_append_time
            or mine.base_offset < segment.source_start
            or mine.next_offset > segment.source_end
            or its.base_offset < segment.target_start
            or its.next_offset > segment.target_end
            or any(low < mine.next_offset and mine.base_offset < high for low, high in segment.left_out)
        ):
            return None
        bodies = _xxh128(one.batch[HEADER_BYTES:]), _xxh128(other.batch[HEADER_BYTES:])
        return bodies if bodies[0] == bodies[1] else None

    def _decode(self, side: int) -> None:
        block = self.waiting[side].popleft()
        self.encoded[side].append(block)
        self.size[side] += block.header.size
        if self.size[side] >= _MOST_ENCODED:
            self._flush(side)

    def _flush(self, side: int) -> None:
        """Count what is to be decoded so far."""
        blocks, sums = self.encoded[side], (self.sums, self.there)[side]
        try:
            if old := [block for block in blocks if block.header.magic < 2]:
                sums.add(columns_of((*message, ()) for block in old for message in messages_of(*block[1:])))
            if len(old) < len(blocks):
                sums.add(decode_all(_sections(blocks)))
        except (CorruptBatch, Damaged) as error:
            raise CannotRead(f"{('source', 'target')[side]}: {self.segment.tp}: {error}") from error
        blocks.clear()
        self.size[side] = 0


def _proof(header: BatchHeader, place: int, body: bytes) -> int:
    """Of a batch that needs no decoding, by what one side has of it: its ``header``, the hash of its records section
    (``body``), and the source offset at which its first record stands (``place``)."""
    counted = (header.codec, header.base_timestamp, header.max_timestamp, header.last_offset_delta, header.records)
    return _xxh128_number(_PLACE.pack(place, *counted, body))


def _sections(blocks: Sequence[Block]) -> list[Section]:
    """Those of format v2. With LogAppendTime all of a batch were appended at its latest timestamp, whatever their
    deltas are (KIP-32): that is what consumers see."""
    return [
        Section(
            codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:])),
            header.records,
            header.base_offset,
            header.last_offset_delta,
            header.base_timestamp,
            header.max_timestamp if header.is_log_append_time else NO_STAMP,
        )
        for _, header, batch in blocks
        if header.magic == 2
    ]
