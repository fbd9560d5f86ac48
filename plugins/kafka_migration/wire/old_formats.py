"""Messages of formats v0 and v1 (Kafka 0.7 to 0.10), made into batches of v2.

Layout, numbers big-endian (Kafka protocol guide, "Message sets")::

    0  offset  int64     12 CRC-32 of 16…  uint32     17 attributes  int8     (v1) 18 timestamp  int64
    8  length  int32     16 magic          int8       then key and value, each with a length, int32, -1 for null

Attributes: compression in bits 0 to 2, in v1 the timestamp type in bit 3. A compressed message is a *wrapper*: its
value is a message set, its offset that of the last message in it. Messages in a wrapper have absolute offsets in v0; in
v1 relative ones, of which the last belongs to the wrapper's own offset (KIP-31). With LogAppendTime the wrapper's
timestamp is that of all in it (KIP-32). A message of v0 has no timestamp, which v2 writes as -1.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import (
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    OLD_HEADER_STRUCT,
    BatchHeader,
    CorruptBatch,
    assemble,
    next_batch,
    parse_header,
)
from kafka_migration.wire.join import Piece, Run
from kafka_migration.wire.records import as_long, encoded, new_record

_MAGIC_AT, _FIELDS_AT = 16, 18
_NO_TIMESTAMP = -1
_MOST_RAW_BYTES = 8 * 1024 * 1024
_HC_AT = 6
_CONTENT_SIZE, _CONTENT_SIZE_BYTES = 0x08, 8


class _Message(NamedTuple):
    offset: int
    timestamp: int
    key: memoryview | None
    value: memoryview | None

    @property
    def payload_bytes(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


def old_messages(view: memoryview, at: int, since: int, most_bytes: int) -> tuple[Piece, int]:
    """Messages of v0 or v1 at byte ``at``, as one batch of at most about ``most_bytes`` (one wrapper, or message, at
    the least), without those below offset ``since``; and the byte behind them.

    Raises CorruptBatch where checksum or contents are wrong, as soon as it stands first.
    """
    found: list[_Message] = []
    headers: list[BatchHeader] = []
    raw_bytes = 0
    for header, messages in _row(view, at, most_bytes):
        new = [message for message in messages if message.offset >= since]
        if found and new and new[0].offset <= found[-1].offset:
            break
        found += new
        headers.append(header)
        at += header.size
        raw_bytes += sum(message.payload_bytes for message in new)
        if raw_bytes > _MOST_RAW_BYTES:
            break
    if not headers:
        raise ValueError(f"no message of an old format at byte {at}")
    end = headers[-1].next_offset
    if not found:
        return Piece(headers[-1], None, end), at
    return _as_batch(found, headers[0].codec, end, len(headers)), at


def _row(view: memoryview, at: int, most_bytes: int) -> Iterator[tuple[BatchHeader, list[_Message]]]:
    """Messages of v0 or v1 from byte ``at`` on, each with those in it: of one codec, and of ``most_bytes`` together
    unless the first is larger. Ends before a damaged one; raises CorruptBatch where that stands first."""
    begin = at
    codec: int | None = None
    while True:
        try:
            if (entry := next_batch(view, at)) is None or entry[0].magic == 2:
                return
            header, message = entry
            if codec is not None and (header.codec != codec or at + header.size - begin > most_bytes):
                return
            messages = messages_of(header, message)
        except CorruptBatch:
            if codec is None:
                raise
            return
        yield header, messages
        codec = header.codec
        at += header.size


def _verify(header: BatchHeader, message: memoryview) -> None:
    actual = zlib.crc32(message[_MAGIC_AT:])
    if actual != header.crc:
        raise CorruptBatch(
            f"message at offset {header.base_offset}: CRC-32 is {actual:#010x}, but its header has {header.crc:#010x}"
        )


def messages_of(header: BatchHeader, message: memoryview) -> list[_Message]:
    """The message at hand, or those in it, its checksum verified. Raises CorruptBatch if it cannot be read."""
    _verify(header, message)
    return _messages(header, message)


def _messages(header: BatchHeader, message: memoryview) -> list[_Message]:
    """The message itself, or those in it."""
    outer = _parsed(header.magic, header.base_offset, message)
    if not header.codec:
        return [outer]
    if outer.value is None:
        raise CorruptBatch(f"message at offset {header.base_offset} is compressed, and null")
    inner = list(_inner(header, _decompressed(header, bytes(outer.value))))
    if not inner:
        raise CorruptBatch(f"message at offset {header.base_offset} holds none")
    if header.magic == 1:
        inner = _absolute(header, outer, inner)
    offsets = [message.offset for message in inner]
    if offsets[0] < 0 or offsets[-1] > header.base_offset or any(b <= a for a, b in pairwise(offsets)):
        raise CorruptBatch(f"message at offset {header.base_offset} holds offsets out of order")
    return inner


def _absolute(header: BatchHeader, wrapper: _Message, inner: list[_Message]) -> list[_Message]:
    """Messages of v1 with the offsets that they stand at, and with the wrapper's timestamp if the broker gave it."""
    shift = header.base_offset - inner[-1].offset
    inner = [message._replace(offset=message.offset + shift) for message in inner]
    if not header.attributes & LOG_APPEND_TIME:
        return inner
    return [message._replace(timestamp=wrapper.timestamp) for message in inner]


def _inner(header: BatchHeader, data: bytes) -> Iterator[_Message]:
    view, at = memoryview(data), 0
    while at < len(view):
        if len(view) - at < OLD_HEADER_STRUCT.size:
            raise CorruptBatch(f"message at offset {header.base_offset}: the messages in it end early")
        offset, length, _, magic, attributes = OLD_HEADER_STRUCT.unpack_from(view, at)
        end = at + LOG_OVERHEAD + length
        if magic != header.magic or attributes & 7 or not at + OLD_HEADER_STRUCT.size <= end <= len(view):
            raise CorruptBatch(f"message at offset {header.base_offset}: what is in it is not of its format")
        yield _parsed(magic, offset, view[at:end])
        at = end


def _parsed(magic: int, offset: int, message: memoryview) -> _Message:
    try:
        timestamp, at = _NO_TIMESTAMP, _FIELDS_AT
        if magic == 1:
            (timestamp,) = struct.unpack_from(">q", message, at)
            at += 8
        key, at = _field(message, at)
        value, at = _field(message, at)
    except struct.error as error:
        raise CorruptBatch(f"message at offset {offset} ends early") from error
    if at != len(message):
        raise CorruptBatch(f"message at offset {offset}: its key and value do not fill it")
    return _Message(offset, timestamp, key, value)


def _field(message: memoryview, at: int) -> tuple[memoryview | None, int]:
    (size,) = struct.unpack_from(">i", message, at)
    at += 4
    return (None, at) if size < 0 else (message[at : at + size], at + size)


def _decompressed(header: BatchHeader, data: bytes) -> bytes:
    if header.magic == 0 and header.codec == codecs.LZ4:
        data = _repaired(data)
    return codecs.decompress(header.codec, data)


def _repaired(frame: bytes) -> bytes:
    """An LZ4 frame with the checksum of its header as it should be.

    Kafka before 0.10 took the checksum over the frame's magic number as well, which LZ4 itself refuses (KAFKA-3160).
    """
    if len(frame) <= _HC_AT:
        raise CorruptBatch("an lz4 frame ends early")
    at = _HC_AT + (_CONTENT_SIZE_BYTES if frame[4] & _CONTENT_SIZE else 0)
    return frame[:at] + bytes(((_xxh32(frame[4:at]) >> 8) & 0xFF,)) + frame[at + 1 :]


def _xxh32(data: bytes) -> int:
    """XXH32, seed 0, of fewer than 16 bytes (the xxHash specification's steps without its stripes)."""
    mask, prime = 0xFFFFFFFF, (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    value, whole = prime[4] + len(data), len(data) // 4 * 4
    for (lane,) in struct.iter_unpack("<I", data[:whole]):
        value = (value + lane * prime[2]) & mask
        value = ((value << 17 | value >> 15) & mask) * prime[3]
    for byte in data[whole:]:
        value = (value + byte * prime[4]) & mask
        value = ((value << 11 | value >> 21) & mask) * prime[0]
    value &= mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return value ^ value >> 16


def _as_batch(found: list[_Message], codec: int, end: int, joined: int) -> Piece:
    base, out, runs, expected = found[0].timestamp, list[bytes](), list[Run](), -1
    for index, message in enumerate(found):
        if message.offset != expected:
            runs.append(Run(index, message.offset, -1))
        expected = message.offset + 1
        out += encoded(new_record(message.key, message.value), as_long(message.timestamp - base), index)
    batch = assemble(
        attributes=codec,
        base_timestamp=base,
        max_timestamp=max(message.timestamp for message in found),
        count=len(found),
        payload=codecs.compress(codec, b"".join(out)),
        base_offset=found[0].offset,
    )
    return Piece(parse_header(batch), memoryview(batch), end, joined, tuple(runs) if len(runs) > 1 else ())
