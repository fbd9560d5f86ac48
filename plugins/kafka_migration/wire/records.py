"""Records inside a batch: reading and writing them.

A record is ``length, attributes, timestamp delta, offset delta, key, value, headers`` with zigzag varints (Kafka
protocol guide, "Record").
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch, assemble, parse_header

Header = tuple[bytes, bytes | None]
_HALF = 1 << 63
#: Zigzag varints of one byte, by their value: of 0 to 63, and, counted from the end, of -1 to -64.
_ONE_BYTE = [bytes([(value << 1) ^ (value >> 63)]) for value in (*range(64), *range(-64, 0))]


def as_long(value: int) -> int:
    """``value`` as Java's ``long`` has it: past either end it wraps. Java's client adds a record's timestamp delta to
    its batch's base timestamp so, and brokers take such batches from other clients."""
    return (value + _HALF) % (2 * _HALF) - _HALF


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    """A zigzag varint at ``at``: its value and the position after it."""
    shift = value = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
        if shift > 63:
            raise CorruptBatch("a varint of more than ten bytes")


def write_varint(value: int) -> bytes:
    """``value`` (64 bits, signed) as a zigzag varint. Raises :class:`CorruptBatch` for one that has more."""
    if -64 <= value < 64:
        return _ONE_BYTE[value]
    if not -_HALF <= value < _HALF:
        raise CorruptBatch(f"{value} has more than 64 bits")
    return write_unsigned(((value << 1) ^ (value >> 63)) & 0xFFFFFFFFFFFFFFFF)


def write_unsigned(value: int) -> bytes:
    """``value``, not negative, as a varint."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class RawRecord(NamedTuple):
    """A record's place and time in its batch, and ``rest``: key, value and headers as encoded."""

    timestamp_delta: int
    offset_delta: int
    attributes: int
    rest: bytes


def raw_records(header: BatchHeader, batch: bytes | memoryview) -> Iterator[RawRecord]:
    """The records of a batch, decompressed, in order. Raises :class:`CorruptBatch` on malformed bytes."""
    return records_of(header, codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:])))


def records_of(header: BatchHeader, data: bytes) -> Iterator[RawRecord]:
    """As :func:`raw_records`, of a records section that is decompressed already."""
    at = 0
    if header.records < 0:
        raise CorruptBatch(f"batch at offset {header.base_offset} claims {header.records} records")
    try:
        for _ in range(header.records):
            length, at = read_varint(data, at)
            end = at + length
            timestamp_delta, after = read_varint(data, at + 1)
            offset_delta, after = read_varint(data, after)
            if length < 0 or end > len(data) or after > end:
                raise CorruptBatch(f"batch at offset {header.base_offset}: a record of {length} bytes")
            yield RawRecord(timestamp_delta, offset_delta, data[at], data[after:end])
            at = end
    except IndexError as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: records end early") from error
    if at != len(data):
        raise CorruptBatch(f"batch at offset {header.base_offset}: {len(data) - at} bytes after its last record")


def new_record(key: bytes | memoryview | None, value: bytes | memoryview | None) -> RawRecord:
    """A record without headers, whose deltas are 0."""
    return RawRecord(0, 0, 0, encode_contents(key, value, ()))


def encode_contents(
    key: bytes | memoryview | None, value: bytes | memoryview | None, headers: Collection[Header]
) -> bytes:
    """Key, value and headers, as they stand in a record."""
    parts = [_field(key), _field(value), write_varint(len(headers))]
    parts += (_field(part) for header in headers for part in header)
    return b"".join(parts)


def contents(rest: bytes) -> tuple[bytes | None, bytes | None, list[Header]]:
    """The inverse: key, value and headers of a record. Raises :class:`CorruptBatch` if they cannot be read."""
    headers: list[Header] = []
    try:
        key, at = _sized(rest, 0)
        value, at = _sized(rest, at)
        count, at = read_varint(rest, at)
        for _ in range(count):
            name, at = _sized(rest, at)
            held, at = _sized(rest, at)
            if name is None:
                raise CorruptBatch("a header without a name")
            headers.append((name, held))
    except IndexError as error:
        raise CorruptBatch("a record whose fields end early") from error
    if count < 0 or at != len(rest):
        raise CorruptBatch("a record whose fields do not fill it")
    return key, value, headers


def encoded(record: RawRecord, timestamp_delta: int, offset_delta: int) -> tuple[bytes, bytes]:
    """A record with other deltas, as its length and the rest."""
    place = write_varint(timestamp_delta) + write_varint(offset_delta)
    body = bytes((record.attributes,)) + place + record.rest
    return write_varint(len(body)), body


def encode_records(records: Iterable[RawRecord]) -> bytes:
    """Records as a (not compressed) records section, offset deltas counted from 0."""
    out: list[bytes] = []
    for index, record in enumerate(records):
        out += encoded(record, record.timestamp_delta, index)
    return b"".join(out)


def key_value(record: RawRecord) -> tuple[bytes | None, bytes | None]:
    """Key and value of a record; None is null, not empty. Raises :class:`CorruptBatch` if they cannot be read."""
    try:
        key, at = _sized(record.rest, 0)
        value, _ = _sized(record.rest, at)
    except IndexError as error:
        raise CorruptBatch("key and value of a record end early") from error
    return key, value


def keyed_batch(entries: Iterable[tuple[bytes, bytes | None]], *, timestamp: int) -> bytes:
    """A plain batch of keyed records, as our internal topics hold them. ``timestamp`` is ms since the epoch."""
    records = [new_record(key, value) for key, value in entries]
    if not records:
        raise ValueError("a batch needs a record")
    return assemble(
        attributes=codecs.NONE,
        base_timestamp=timestamp,
        max_timestamp=timestamp,
        count=len(records),
        payload=encode_records(records),
    )


def keyed_records(batch: memoryview, *, since: int = 0) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Keys and values of a batch of an internal topic, from offset ``since`` on."""
    header = parse_header(batch)
    for record in raw_records(header, batch):
        if header.base_offset + record.offset_delta >= since:
            yield key_value(record)


def _sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = read_varint(data, at)
    if at + size > len(data):
        raise IndexError
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def _field(value: bytes | memoryview | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value
