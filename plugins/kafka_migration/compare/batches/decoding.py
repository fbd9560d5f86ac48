"""The records of a batch, of any format, as rows of a digest.

Batch level decodes only where the bytes of both sides cannot be compared as they are; then this is where its time goes,
so key and value are hashed where they lie, and no object is made for a record.
"""

from __future__ import annotations

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
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, CorruptBatch
from kafka_migration.wire.old_formats import messages_of
from kafka_migration.wire.records import read_varint


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
