"""Joining small neighbours: a producer without linger writes batches of one record, and a request for each is slow.

Neighbours of one partition, with the same codec and no gap between them, become one batch. Each record keeps its bytes
but for the two deltas that its batch decides on. Boundaries need not be the same at every attempt: a resume reads the
target's log, and goes on from there.

This is the one place where Python looks at every record, so it avoids an object for each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import crc32c

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import (
    HEADER_BYTES,
    HEADER_STRUCT,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    assemble,
    next_batch,
    parse_header,
)
from kafka_migration.wire.records import read_varint, write_varint

SMALL_BYTES = 8 * 1024
"""A batch up to this size may be joined. Re-encoding costs a few microseconds a record, sending a batch of its own some
hundred: larger ones are cheaper as they are."""

_MOST_RAW_BYTES = 8 * 1024 * 1024
_CRC_FROM = 21
_TABLE = [write_varint(value) for value in range(1 << 13)]

Piece = tuple[BatchHeader, memoryview, int]
"""A batch as if the source had stored it so, and how many of the source's batches it holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """Small neighbours in a buffer. ``members``: where each one's records begin and end, its base time, its count."""

    base_offset: int
    codec: int
    base_timestamp: int
    max_timestamp: int
    leader_epoch: int
    end: int
    members: list[tuple[int, int, int, int]]


def joined(records: bytes | memoryview, most_bytes: int) -> Iterator[Piece]:
    """All complete batches of a fetched record set, small neighbours joined to at most ``most_bytes``; 0 joins none.

    Whatever is out of the ordinary (damaged, of an old format, not to be copied as it is) is passed on as it stands,
    for whoever asks to judge. Raises CorruptBatch where no batch can be made out.
    """
    view = memoryview(records)
    at = unjoinable_to = 0
    while True:
        run = _small_run(view, at, most_bytes) if most_bytes and at >= unjoinable_to else None
        if run is not None:
            try:
                batch = _encode(view, run)
            except CorruptBatch:
                # Their checksums are right, so this is what was produced: for the target's broker to judge.
                unjoinable_to = run.end
                continue
            yield parse_header(batch), memoryview(batch), len(run.members)
            at = run.end
            continue
        found = next_batch(view, at)
        if found is None:
            return
        yield *found, 1
        at += found[0].size


def _small_run(view: memoryview, at: int, most_bytes: int) -> _Run | None:
    """Two or more neighbours at ``at`` that can be one batch, checksums verified; None if there are none."""
    members: list[tuple[int, int, int, int]] = []
    unpack, checksum, last = HEADER_STRUCT.unpack_from, crc32c.crc32c, len(view) - HEADER_BYTES
    begin, total = at, len(view)
    base_offset = base_timestamp = attributes = expected = epoch = 0
    max_timestamp = -1
    while at <= last:
        base, length, new_epoch, magic, crc, flags, delta, time, latest, _, _, _, count = unpack(view, at)
        end = at + LOG_OVERHEAD + length
        if (
            length > SMALL_BYTES
            or magic != 2
            or count != delta + 1
            or count < 1
            or end > total
            or end < at + HEADER_BYTES
            or end - begin > most_bytes
        ):
            break
        if not members:
            # No flag at all: neither a timestamp type nor a transaction nor a marker.
            if flags > codecs.ZSTD:
                break
            base_offset, base_timestamp, attributes = base, time, flags
        elif base != expected or flags != attributes:
            break
        if checksum(view[at + _CRC_FROM : end]) != crc:
            break
        members.append((at + HEADER_BYTES, end, time, count))
        if latest > max_timestamp:
            max_timestamp = latest
        expected, epoch, at = base + count, new_epoch, end
    if len(members) < 2:
        return None
    return _Run(
        base_offset=base_offset,
        codec=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        leader_epoch=epoch,
        end=at,
        members=members,
    )


def _encode(view: memoryview, run: _Run) -> bytes:
    """The run as one batch. Raises CorruptBatch if the records of a member cannot be read."""
    out: list[bytes] = []
    index = raw_bytes = 0
    for start, end, time, count in run.members:
        data = codecs.decompress(run.codec, bytes(view[start:end]), most=_MOST_RAW_BYTES - raw_bytes)
        raw_bytes += len(data)
        if raw_bytes > _MOST_RAW_BYTES:
            raise CorruptBatch(f"batches from offset {run.base_offset} on are too large to be joined")
        _move(data, count, time - run.base_timestamp, index, out)
        index += count
    return assemble(
        attributes=run.codec,
        base_timestamp=run.base_timestamp,
        max_timestamp=run.max_timestamp,
        count=index,
        payload=codecs.compress(run.codec, b"".join(out)),
        base_offset=run.base_offset,
        leader_epoch=run.leader_epoch,
    )


def _move(data: bytes, count: int, shift: int, first: int, out: list[bytes]) -> None:
    """Append the records of ``data`` to ``out``, ``shift`` ms added to their times, counted from ``first``."""
    table, most = _TABLE, len(_TABLE)
    at, size = 0, len(data)
    try:
        for index in range(first, first + count):
            # Nearly all varints here have one or two bytes.
            length = data[at]
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
                at += 1
            elif data[at + 1] < 0x80:
                length = (length & 0x7F) | (data[at + 1] << 7)
                length = (length >> 1) ^ -(length & 1)
                at += 2
            else:
                length, at = read_varint(data, at)
            end = at + length
            time = data[at + 1]
            after = at + 2
            if time < 0x80:
                time = (time >> 1) ^ -(time & 1)
            else:
                time, after = read_varint(data, at + 1)
            while data[after] >= 0x80:
                after += 1
            after += 1
            if length < 0 or end > size or after > end:
                raise CorruptBatch(f"a record of {length} bytes does not fit its batch")
            time += shift
            when = table[time] if 0 <= time < most else write_varint(time)
            place = table[index] if index < most else write_varint(index)
            length = 1 + len(when) + len(place) + end - after
            out += (
                table[length] if length < most else write_varint(length),
                data[at : at + 1],
                when,
                place,
                data[after:end],
            )
            at = end
    except IndexError as error:
        raise CorruptBatch("the records of a batch end early") from error
    if at != size:
        raise CorruptBatch(f"{size - at} bytes after the last record of a batch")
