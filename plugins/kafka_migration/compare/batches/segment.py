"""One segment compared batch by batch, both sides side by side.

Where a batch of the source and one of the target hold the same bytes (records section, and what the header says of
them: codec, timestamps, count), and the offset map says that their records stand at each other's offsets, all records
in them are equal, and no one needs to decode them. Each side counts such a batch by its own header, bytes and place, so
that the two digests stay two numbers: a pair that was taken for equal and is not would still make them differ.
Everything else (joined or made anew, cut at the segment's bounds, wrong) is decoded on both sides, and goes into the
same digest as record level's. Both sums add up whatever the order, so which batches are decoded changes what a digest
looks like, and never whether two are equal.
"""

from __future__ import annotations

from collections import deque

import xxhash

from kafka_migration.compare.batches.decoding import decode
from kafka_migration.compare.batches.side import Block, CannotRead, Side
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.request import PartitionRange
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch

_FLUSH_ROWS = 20_000
#: Traits behind those of codecs.
_OLD, _IN_TRANSACTION, _STAMPED = 1 << 8, 1 << 9, 1 << 10
_xxh128 = xxhash.xxh3_128_digest


async def compare(
    segment: PartitionRange, source: Side, target: Side, *, decode_all: bool = False
) -> tuple[Digest, Digest, int]:
    """The digests of both sides of ``segment``, and traits of the source's batches (:class:`.digests.SegmentOutcome`).
    ``decode_all`` proves nothing by bytes.

    Raises CannotRead where either side cannot be read, or a batch is damaged.
    """
    return await _Comparison(segment, source, target, decode_all).run()


async def visible(segment: PartitionRange, target: Side) -> Digest:
    """Nothing but the ``attributes`` of the target's batches. Raises CannotRead."""
    seen = TargetSums(segment)
    try:
        while (found := await target.next()) is not None:
            for it in found:
                seen.see(it.header)
    finally:
        target.drop()
    return seen.digest()


def _traits(header: BatchHeader) -> int:
    return (
        1 << header.codec
        | (header.magic < 2) * _OLD
        | header.is_transactional * _IN_TRANSACTION
        | header.is_log_append_time * _STAMPED
    )


class _Comparison:
    def __init__(self, segment: PartitionRange, source: Side, target: Side, decode_all: bool) -> None:
        self.segment, self.decode_all = segment, decode_all
        self.sides = source, target
        self.sums, self.there = SourceSums(segment), TargetSums(segment)
        self.traits = 0
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
                    self._decode_source()
                elif one is None:
                    self._decode_target()
                else:
                    self._both(one, other)
            self.sums.flush()
            self.there.flush()
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
            for it in found:
                if side:
                    self.there.see(it.header)
                else:
                    self.traits |= _traits(it.header)
        return waiting[0]

    def _both(self, one: Block, other: Block) -> None:
        place, last = self._places(other)
        bodies = self._twins(one, other) if place == one.first else None
        if bodies is not None:
            self.sums.prove(one.header, bodies[0], one.first)
            self.there.prove(other.header, bodies[1], place)
            self.waiting[0].popleft()
            self.waiting[1].popleft()
        elif one.first <= last:
            # The source first, up to where the target's batch ends: behind it both may begin at one place again.
            self._decode_source()
        else:
            self._decode_target()

    def _places(self, it: Block) -> tuple[int, int]:
        """Source offsets of the first and the last record of a batch of the target, as the map says; the first is -1
        unless they stand in one run, and thus in a row."""
        end = it.header.next_offset
        sources, targets, behind, at = self._sources, self._targets, self._behind, self._run
        while at < len(targets) and behind[at] <= it.first:
            at += 1
        self._run = at
        if at == len(targets):
            return -1, self.segment.source_end
        if it.first >= targets[at] and end <= behind[at]:
            first = sources[at] + it.first - targets[at]
            return first, first + end - it.first - 1
        while at + 1 < len(targets) and targets[at + 1] < end:
            at += 1
        return -1, sources[at] + max(0, min(end, behind[at]) - targets[at] - 1)

    def _twins(self, one: Block, other: Block) -> tuple[bytes, bytes] | None:
        """The hash of each batch's records section, if both batches hold the same records by their bytes."""
        mine, its, it = one.header, other.header, self.segment
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
            or mine.base_offset < it.source_start
            or mine.next_offset > it.source_end
            or its.base_offset < it.target_start
            or its.next_offset > it.target_end
            or any(low < mine.next_offset and mine.base_offset < high for low, high in it.left_out)
        ):
            return None
        bodies = _xxh128(one.batch[HEADER_BYTES:]), _xxh128(other.batch[HEADER_BYTES:])
        return bodies if bodies[0] == bodies[1] else None

    def _decode_source(self) -> None:
        rows, block = self.sums.rows, self.waiting[0].popleft()
        self._decode(block, 0)
        if len(rows) >= _FLUSH_ROWS:
            self.sums.flush()

    def _decode_target(self) -> None:
        rows, block = self.there.rows, self.waiting[1].popleft()
        self._decode(block, 1)
        if len(rows) >= _FLUSH_ROWS:
            self.there.flush()

    def _decode(self, block: Block, side: int) -> None:
        sums = (self.sums, self.there)[side]
        try:
            decode(block.header, block.batch, sums.rows)
        except CorruptBatch as error:
            raise CannotRead(f"{('source', 'target')[side]}: {self.segment.tp}: {error}") from error
