"""One segment compared batch by batch, both sides side by side.

Where a batch of the source and one of the target hold the same bytes (records section, and what the header holds of
them: codec, timestamps, count), and by the offset map their records stand at each other's offsets, all records
in them are equal, and no one needs to decode them. Each side counts such a batch by its own header, bytes and place, so
that the two digests stay two numbers: a pair that was taken for equal and is not would still make them differ.
Everything else (joined or re-encoded, cut at the segment's bounds, wrong) is decoded on both sides, and goes into the
same digest as record level's. Both sums add up whatever the order, so which batches are decoded changes what a digest
looks like, and never whether two are equal.

Decoding is where the time goes, so key and value are hashed where they lie, and no object is made for a record.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque

import xxhash

from kafka_migration.compare.batches.side import Block, CannotRead, Side
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.record_digest import (
    HEADERS_FROM,
    KEY_IS_NULL,
    LACKING_FROM,
    SEED,
    VALUE_IS_NULL,
    Rows,
    with_header,
    with_lacking,
    xxh64,
)
from kafka_migration.compare.request import PartitionRange
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from kafka_migration.wire.old_formats import messages_of
from kafka_migration.wire.records import read_varint

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
            for block in found:
                seen.see(block.header)
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
                    self._decode(0)
                elif one is None:
                    self._decode(1)
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
            for block in found:
                if side:
                    self.there.see(block.header)
                else:
                    self.traits |= _traits(block.header)
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
        sums, block = (self.sums, self.there)[side], self.waiting[side].popleft()
        try:
            decode(block.header, block.batch, sums.rows)
        except CorruptBatch as error:
            raise CannotRead(f"{('source', 'target')[side]}: {self.segment.tp}: {error}") from error
        if len(sums.rows) >= _FLUSH_ROWS:
            sums.flush()


def decode(header: BatchHeader, batch: memoryview, rows: Rows) -> None:
    """Append the records of ``batch`` to ``rows``. Raises CorruptBatch where it cannot be read.

    With LogAppendTime all of a batch were appended at its latest timestamp, whatever their deltas are (KIP-32): that is
    what consumers see.
    """
    if header.magic != 2:
        for message in messages_of(header, batch):
            rows.add(message.offset, message.timestamp, message.key, message.value)
        return
    data = codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:]))
    fixed = header.max_timestamp if header.is_log_append_time else None
    try:
        _records(header, data, rows, fixed)
    except IndexError as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: records end early") from error


def _records(header: BatchHeader, data: bytes, rows: Rows, fixed: int | None) -> None:
    contents, times, offsets = rows.contents.append, rows.times.append, rows.offsets.append
    flags_of, sizes = rows.flags.append, rows.sizes.append
    base, base_time, before, limit = header.base_offset, header.base_timestamp, -1, header.last_offset_delta
    at, end_of_data = 0, len(data)
    for _ in range(header.records):
        # Nearly all varints here have one byte or two: those are read in place.
        number = data[at]
        at += 1
        if number >= 0x80:
            number, at = read_varint(data, at - 1)
        else:
            number = (number >> 1) ^ -(number & 1)
        end = at + number
        at += 1  # attributes, of which no bit is used
        time = data[at]
        at += 1
        if time >= 0x80:
            time, at = read_varint(data, at - 1)
        else:
            time = (time >> 1) ^ -(time & 1)
        delta = data[at]
        at += 1
        if delta >= 0x80:
            delta, at = read_varint(data, at - 1)
        else:
            delta = (delta >> 1) ^ -(delta & 1)
        if number < 0 or end > end_of_data or not before < delta <= limit:
            raise CorruptBatch(f"batch at offset {base}: a record of {number} bytes at offset {base + delta}")
        before = delta
        content, flags, total = SEED, 0, 0
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_varint(data, at - 1)
        else:
            size = (size >> 1) ^ -(size & 1)
        if size < 0:
            flags = KEY_IS_NULL
        else:
            content = xxh64(data[at : at + size], SEED)
            at, total = at + size, size
        size = data[at]
        at += 1
        if size >= 0x80:
            size, at = read_varint(data, at - 1)
        else:
            size = (size >> 1) ^ -(size & 1)
        if size < 0:
            flags |= VALUE_IS_NULL
        else:
            content = xxh64(data[at : at + size], content)
            at, total = at + size, total + size
        count = data[at]
        at += 1
        if count:
            count, at = read_varint(data, at - 1)
            if count < 0:
                raise CorruptBatch(f"batch at offset {base}: a record of {count} headers")
            flags |= count << HEADERS_FROM
            lacking: list[int] = []
            for place in range(count):
                size, at = read_varint(data, at)
                name, at = data[at : at + size], at + size
                held, at = read_varint(data, at)
                if size < 0 or at + held > end:
                    raise CorruptBatch(f"batch at offset {base}: a header that does not fit its record")
                if held < 0:
                    content = with_header(content, name, None)
                    lacking.append(place)
                else:
                    content = with_header(content, name, data[at : at + held])
                    at += held
            if lacking:
                content = with_lacking(content, lacking)
                flags |= len(lacking) << LACKING_FROM
        if at != end:
            raise CorruptBatch(f"batch at offset {base}: a record whose fields do not fill it")
        contents(content)
        times(base_time + time if fixed is None else fixed)
        offsets(base + delta)
        flags_of(flags)
        sizes(total)
    if at != end_of_data:
        raise CorruptBatch(f"batch at offset {base}: {end_of_data - at} bytes after its last record")
