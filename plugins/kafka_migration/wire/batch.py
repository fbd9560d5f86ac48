"""Record batches as the broker stored them: reading their headers, and addressing copies of them to another log.

Layout of a batch of message format v2 (Kafka protocol guide, "Record Batch"), all numbers big-endian::

    0  base offset      int64     21 attributes         int16     51 producer epoch  int16
    8  batch length     int32     23 last offset delta  int32     53 base sequence   int32
    12 leader epoch     int32     27 base timestamp     int64     57 record count    int32
    16 magic            int8      35 max timestamp      int64     61 records
    17 CRC-32C of 21…   uint32    43 producer id        int64

The CRC covers everything from the attributes on, so base offset and leader epoch may change without touching it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

HEADER_STRUCT = struct.Struct(">qiibIhiqqqhii")
OLD_HEADER_STRUCT = struct.Struct(">qiIbb")
"""Of a message of format v0 or v1: offset, length, CRC-32 of what follows, magic, attributes."""
LENGTH, LENGTH_AT = struct.Struct(">i"), 8
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
CRC_FROM = 21
_OFFSET_0, _NO_EPOCH = bytes(8), b"\xff" * 4
LOG_OVERHEAD = 12
_MAGIC_AT = 16
_SMALLEST = {0: 14, 1: 22, 2: HEADER_STRUCT.size - LOG_OVERHEAD}
"""The least that a message of each format can claim as its length, without offset and length themselves."""
HEADER_BYTES = HEADER_STRUCT.size
MAX_SEQUENCE = 2**31  # sequences wrap to 0 after Int.MAX_VALUE

CODEC, LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x07, 0x08, 0x10, 0x20, 0x40
"""Bits of a batch's attributes. Bit 6 (the delete horizon) means that the base timestamp is that of tombstones in it
(KIP-534): the records' timestamps are counted from there then, as from any other base."""
_KEPT_ATTRIBUTES = CODEC
"""What a re-appended batch keeps: its codec. The broker *keeps* a delete-horizon bit that a client sends, and a
tombstone then vanishes early; unknown bits 7-15 mean something to a broker of another version."""


class CorruptBatch(Exception):
    """The bytes of a batch do not describe a batch, or do not match its CRC."""


@dataclass(frozen=True, slots=True)
class BatchHeader:
    """The header of one batch. ``size`` is the whole batch in bytes, ``records`` its record count."""

    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    records: int

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_gapless(self) -> bool:
        """True if every offset of the batch holds a record (compaction has removed none)."""
        return self.records == self.last_offset_delta + 1


def parse_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> BatchHeader:
    """The header of the batch of format v2 that begins at ``at``."""
    base_offset, length, *rest = HEADER_STRUCT.unpack_from(buffer, at)
    return BatchHeader(base_offset, length + LOG_OVERHEAD, *rest)


def _parse_old(buffer: memoryview, at: int, magic: int) -> BatchHeader:
    """A message of format v0 or v1, as far as it is like a batch. A compressed one is a wrapper of messages: its offset
    is that of the last in it."""
    base_offset, length, crc, _, attributes = OLD_HEADER_STRUCT.unpack_from(buffer, at)
    return BatchHeader(base_offset, length + LOG_OVERHEAD, -1, magic, crc, attributes, 0, -1, -1, -1, -1, -1, 1)


def next_batch(view: memoryview, at: int) -> tuple[BatchHeader, memoryview] | None:
    """The batch that begins at ``at``, with its bytes; None if what is left is not a complete one.

    Raises :class:`CorruptBatch` if the bytes cannot be a batch of any format.
    """
    end = len(view)
    # Up to the magic byte all formats are alike, and a message of an old one may be smaller than a header of v2.
    if end - at <= _MAGIC_AT:
        return None
    base_offset, length = struct.unpack_from(">qi", view, at)
    magic = view[at + _MAGIC_AT]
    if magic not in _SMALLEST or length < _SMALLEST[magic]:
        raise CorruptBatch(f"batch at offset {base_offset} claims format v{magic} and {length} bytes")
    size = length + LOG_OVERHEAD
    if at + size > end:
        return None
    header = parse_header(view, at) if magic == 2 else _parse_old(view, at, magic)
    return header, view[at : at + size]


def has_more(view: memoryview, at: int) -> bool:
    """True if more than the batch that begins at ``at`` is left, be it only a part of the next one."""
    if len(view) - at <= LOG_OVERHEAD:
        return False
    (length,) = LENGTH.unpack_from(view, at + LENGTH_AT)
    return bool(at + LOG_OVERHEAD + length < len(view))


def batches(records: bytes | memoryview) -> Iterator[tuple[BatchHeader, memoryview]]:
    """All *complete* batches of a fetched record set, with their bytes.

    A fetch response may begin with a batch that starts before the requested offset, and may end with a partial
    batch: the former is yielded like any other, the latter is left out.
    """
    view, at = memoryview(records), 0
    while (found := next_batch(view, at)) is not None:
        yield found
        at += found[0].size


def verify_crc(header: BatchHeader, batch: memoryview) -> None:
    """Raise :class:`CorruptBatch` unless the batch's bytes match its CRC.

    Checked before a batch gets a new header (a fresh CRC over damaged bytes would launder the damage), and before it
    is left out or refused for what stands in its header. Covers all but base offset and leader epoch; format v2 only.
    """
    actual = crc32c.crc32c(batch[CRC_FROM:])
    if actual != header.crc:
        raise CorruptBatch(
            f"batch at offset {header.base_offset}: CRC-32C is {actual:#010x}, but its header has {header.crc:#010x}"
        )


def readdress(batch: bytes | memoryview, *, producer_id: int, producer_epoch: int, sequence: int) -> bytearray:
    """A copy of ``batch`` that a broker accepts from the producer given, with ``sequence`` as its first.

    Base offset 0 (anything else is refused with error 87), leader epoch -1 as a producer writes it, the records'
    own bytes untouched.
    """
    copy = bytearray(batch)
    copy[:8] = _OFFSET_0
    copy[12:16] = _NO_EPOCH
    copy[21] = 0
    copy[22] &= _KEPT_ATTRIBUTES
    _PRODUCER.pack_into(copy, 43, producer_id, producer_epoch, sequence % MAX_SEQUENCE)
    with memoryview(copy) as view:
        _CRC.pack_into(copy, 17, crc32c.crc32c(view[CRC_FROM:]))
    return copy


def assemble(
    *,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    count: int,
    payload: bytes,
    base_offset: int = 0,
    leader_epoch: int = -1,
) -> bytes:
    """A batch of format v2 around an encoded (and compressed, as by ``attributes``) records section, no producer."""
    body = struct.pack(">hiqqqhii", attributes, count - 1, base_timestamp, max_timestamp, -1, -1, -1, count) + payload
    length = 4 + 1 + 4 + len(body)
    return struct.pack(">qiibI", base_offset, length, leader_epoch, 2, crc32c.crc32c(body)) + body
