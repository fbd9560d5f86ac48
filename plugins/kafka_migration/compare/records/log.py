"""What a fetch answers, taken apart: batches of every format, without what consumers do not see.

Written after the protocol guide ("Record Batch", "Message sets"), and shares no code with the mirror's wire layer: an
error in either would not be in the other. Codecs go through other bindings than the mirror's, and messages of the old
formats through kafka-python's own reader of them.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import cramjam
import crc32c
import pyarrow
import zstandard
from kafka.errors import KafkaError
from kafka.record.legacy_records import LegacyRecordBatch

from kafka_migration.compare.decode.columns import NO_STAMP, Damaged, Record, Section
from kafka_migration.compare.decode.plain import varint

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
_CODEC, _STAMPED, _TRANSACTIONAL, _CONTROL = 0x07, 0x08, 0x10, 0x20
#: Offset, length, leader epoch, magic, CRC, attributes, last offset delta, base and largest timestamp, producer, its
#: epoch, first sequence number, count of records.
_BATCH = struct.Struct(">qiibIhiqqqhii")
_OLD = struct.Struct(">qiIbb")
_OVERHEAD, _MAGIC_AT, _CRC_FROM = 12, 16, 21
_NO_TIMESTAMP = -1
_MARKER = struct.Struct(">hh")
_ABORT = 0
_XERIAL, _XERIAL_BYTES = b"\x82SNAPPY\x00", 16


class Batch(NamedTuple):
    """A batch, or a message of an old format (``magic`` below 2), not decoded: what of its header counts, and all of
    its bytes. Its records stand below ``next_offset``."""

    offset: int
    next_offset: int
    magic: int
    attributes: int
    crc: int
    last_delta: int
    timestamp: int
    largest: int
    producer: int
    records: int
    view: memoryview

    @property
    def codec(self) -> int:
        return self.attributes & _CODEC

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return self.magic == 2 and bool(self.attributes & _CONTROL)

    @property
    def is_stamped(self) -> bool:
        """Whether the broker gave the timestamps (LogAppendTime, KIP-32): then the largest one is that of all."""
        return self.magic > 0 and bool(self.attributes & _STAMPED)


def batches(records: bytes | memoryview) -> Iterator[Batch]:
    """Those that are whole: brokers cut the last one off where an answer is full. Raises Damaged."""
    view, at = memoryview(records), 0
    while len(view) - at > _MAGIC_AT:
        (length,) = struct.unpack_from(">i", view, at + 8)
        magic, end = view[at + _MAGIC_AT], at + _OVERHEAD + length
        least = _BATCH.size if magic == 2 else _OLD.size
        if magic > 2 or length < least - _OVERHEAD:
            (offset,) = struct.unpack_from(">q", view, at)
            raise Damaged(f"batch at offset {offset}: format {magic}, of {length} bytes")
        if end > len(view):
            return
        part = view[at:end]
        if magic == 2:
            offset, _, _, _, crc, attributes, delta, first, largest, producer, _, _, count = _BATCH.unpack_from(part)
            yield Batch(
                offset, offset + delta + 1, 2, attributes & 0xFFFF, crc, delta, first, largest, producer, count, part
            )
        else:
            offset, _, crc, _, attributes = _OLD.unpack_from(part)
            yield Batch(offset, offset + 1, magic, attributes & 0xFF, crc, 0, 0, 0, -1, 1, part)
        at = end


class Transactions:
    """Which batches of one answer no consumer of committed records sees (KIP-98): markers, and what was aborted. The
    broker names the aborted transactions of an answer by producer and first offset; each ends with its marker."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        self._coming = sorted(((first, producer) for producer, first in aborted), reverse=True)
        self._aborted: set[int] = set()

    def hide(self, batch: Batch) -> bool:
        """Asked of every batch in order. Raises Damaged for a marker that cannot be read."""
        while self._coming and self._coming[-1][0] < batch.next_offset:
            self._aborted.add(self._coming.pop()[1])
        if batch.is_control:
            if batch.producer in self._aborted and _kind_of_marker(batch) == _ABORT:
                self._aborted.discard(batch.producer)
            return True
        return batch.is_transactional and batch.producer in self._aborted


def _kind_of_marker(batch: Batch) -> int:
    verify(batch)
    try:
        data, at = batch.view[_BATCH.size :], 0
        _, at = varint(data, at)
        _, at = varint(data, at + 1)
        _, at = varint(data, at)
        size, at = varint(data, at)
        return int(_MARKER.unpack_from(data[at : at + size])[1])
    except (IndexError, struct.error) as error:
        raise Damaged(f"batch at offset {batch.offset}: a marker that cannot be read") from error


def verify(batch: Batch) -> None:
    """Raise Damaged where the checksum is not the batch's."""
    found = crc32c.crc32c(batch.view[_CRC_FROM:]) if batch.magic == 2 else zlib.crc32(batch.view[_MAGIC_AT:])
    if found != batch.crc:
        raise Damaged(f"batch at offset {batch.offset}: its checksum is {found:08x}, in its header {batch.crc:08x}")


def section(batch: Batch) -> Section:
    """The records of a batch of format v2. Raises Damaged."""
    verify(batch)
    packed = batch.view[_BATCH.size :]
    try:
        data = packed if batch.codec == NONE else _DECOMPRESS[batch.codec](packed)
    except KeyError:
        raise Damaged(f"batch at offset {batch.offset}: codec {batch.codec} is unknown") from None
    except (cramjam.DecompressionError, zstandard.ZstdError, pyarrow.ArrowException, OSError, IndexError) as error:
        raise Damaged(f"batch at offset {batch.offset} cannot be decompressed: {error}") from error
    stamp = batch.largest if batch.is_stamped else NO_STAMP
    return Section(data, batch.records, batch.offset, batch.last_delta, batch.timestamp, stamp)


def old_records(batch: Batch) -> list[Record]:
    """The records of a message of an old format. Raises Damaged."""
    verify(batch)
    try:
        return [
            (
                record.offset,
                _NO_TIMESTAMP if record.timestamp is None else record.timestamp,
                record.key,
                record.value,
                (),
            )
            for record in LegacyRecordBatch(batch.view, batch.magic)
        ]
    except (KafkaError, AssertionError, IndexError, struct.error, RuntimeError, OSError, zlib.error) as error:
        raise Damaged(f"message at offset {batch.offset} cannot be read: {error}") from error


def _snappy(data: memoryview) -> bytes:
    """As Java writes it: blocks of raw snappy behind their lengths; librdkafka's is one raw block."""
    if data[: len(_XERIAL)] != _XERIAL:
        return _raw_snappy(data)
    out, at = [], _XERIAL_BYTES
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise IndexError("a block of snappy that ends early")
        out.append(_raw_snappy(data[at : at + size]))
        at += size
    return b"".join(out)


def _raw_snappy(data: memoryview) -> bytes:
    # The size stands in front, as a varint without a sign.
    size = shift = at = 0
    while True:
        byte = data[at]
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    found: bytes = pyarrow.decompress(data, decompressed_size=size, codec="snappy", asbytes=True)
    return found


def _zstd(data: memoryview) -> bytes:
    found: bytes = zstandard.ZstdDecompressor().decompressobj(read_across_frames=True).decompress(data)
    return found


_DECOMPRESS: dict[int, Callable[[memoryview], bytes | memoryview]] = {
    GZIP: lambda data: memoryview(cramjam.gzip.decompress(data)),
    SNAPPY: _snappy,
    LZ4: lambda data: memoryview(cramjam.lz4.decompress(data)),
    ZSTD: _zstd,
}
"""Other libraries than those of the mirror's wire layer."""
