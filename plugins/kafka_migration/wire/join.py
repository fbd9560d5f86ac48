"""Joining small neighbours: a producer without linger writes batches of one record, and a request for each is slow.

Neighbours of one partition, with the same codec and no gap between them, become one batch. Each record keeps its bytes
but for the two deltas that its batch decides on. Boundaries need not be the same at every attempt: a resume reads the
target's log, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import (
    HEADER_BYTES,
    BatchHeader,
    CorruptBatch,
    assemble,
    parse_header,
    verify_crc,
)
from kafka_migration.wire.records import read_varint, write_varint

SMALL_BYTES = 8 * 1024
"""A batch up to this size may be joined. Re-encoding costs a few microseconds a record, sending a batch of its own some
hundred: larger ones are cheaper as they are."""

Piece = tuple[BatchHeader, memoryview, int]
"""A batch as if the source had stored it so, and how many of the source's batches it holds."""

_TABLE = [write_varint(value) for value in range(1 << 13)]


class _Joint:
    """Neighbours joined so far."""

    def __init__(self, header: BatchHeader, batch: memoryview, most_bytes: int) -> None:
        self.first, self.last, self.most_bytes = header, header, most_bytes
        self._only: memoryview | None = batch
        self._records: list[bytes] = []
        self._size = header.size
        self._count = self.batches = 0
        self._max_timestamp = header.max_timestamp

    def accepts(self, header: BatchHeader) -> bool:
        """Whether this batch goes on where the joint ends, and fits in."""
        return (
            header.base_offset == self.last.next_offset
            and header.codec == self.first.codec
            and self._size + header.size <= self.most_bytes
        )

    def add(self, header: BatchHeader, batch: memoryview) -> None:
        """Join a batch that it accepts. Raises CorruptBatch, and is as it was, if its records cannot be read."""
        if self._only is not None:
            self._encode(self.first, self._only)
            self._only = None
        self._encode(header, batch)
        self.last = header
        self._max_timestamp = max(self._max_timestamp, header.max_timestamp)

    def _encode(self, header: BatchHeader, batch: memoryview) -> None:
        data = codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:]))
        shift = header.base_timestamp - self.first.base_timestamp
        encoded, size = _moved(data, header, shift, self._count)
        self._records += encoded
        self._size = size + (0 if self._only is not None else self._size)
        self._count += header.records
        self.batches += 1

    def piece(self) -> Piece:
        """What was joined, as one batch; a batch that stayed alone as it was."""
        if self._only is not None:
            return self.first, self._only, 1
        joined = assemble(
            attributes=self.first.codec,
            base_timestamp=self.first.base_timestamp,
            max_timestamp=self._max_timestamp,
            count=self._count,
            payload=codecs.compress(self.first.codec, b"".join(self._records)),
            base_offset=self.first.base_offset,
            leader_epoch=self.last.leader_epoch,
        )
        return parse_header(joined), memoryview(joined), self.batches


def joined(batches: Iterable[tuple[BatchHeader, memoryview]], most_bytes: int) -> Iterator[Piece]:
    """The batches in their order, small neighbours joined to at most ``most_bytes`` (before compression); 0 joins none.

    Whatever is out of the ordinary (damaged, of an old format, not to be copied as it is) is passed on as it stands,
    for whoever asks to judge.
    """
    joint: _Joint | None = None
    for header, batch in batches:
        if most_bytes and _is_joinable(header, batch):
            if joint is not None and joint.accepts(header):
                try:
                    joint.add(header, batch)
                    continue
                except CorruptBatch:
                    # Its checksum is right, so this is what was produced: for the target's broker to judge.
                    yield joint.piece()
                    joint = None
                    yield header, batch, 1
                    continue
            if joint is not None:
                yield joint.piece()
            joint = _Joint(header, batch, most_bytes)
            continue
        if joint is not None:
            yield joint.piece()
            joint = None
        yield header, batch, 1
    if joint is not None:
        yield joint.piece()


def _is_joinable(header: BatchHeader, batch: memoryview) -> bool:
    if header.size > SMALL_BYTES or header.magic != 2 or header.records < 1 or header.obstacle() is not None:
        return False
    try:
        verify_crc(header, batch)
    except CorruptBatch:
        return False
    return True


def _moved(data: bytes, header: BatchHeader, shift: int, first: int) -> tuple[list[bytes], int]:
    """The records of ``data`` with ``shift`` ms added to their times, counted from ``first``; and their size."""
    out: list[bytes] = []
    at = size = 0
    end_of_data = len(data)
    table, most = _TABLE, len(_TABLE)
    try:
        for index in range(first, first + header.records):
            # Nearly all varints here have one or two bytes.
            length = data[at]
            at += 1
            if length < 0x80:
                length = (length >> 1) ^ -(length & 1)
            else:
                length, at = read_varint(data, at - 1)
            end = at + length
            timestamp = data[at + 1]
            after = at + 2
            if timestamp < 0x80:
                timestamp = (timestamp >> 1) ^ -(timestamp & 1)
            else:
                timestamp, after = read_varint(data, at + 1)
            while data[after] >= 0x80:
                after += 1
            after += 1
            if length < 0 or end > end_of_data or after > end:
                raise CorruptBatch(f"batch at offset {header.base_offset}: a record of {length} bytes")
            timestamp += shift
            time = table[timestamp] if 0 <= timestamp < most else write_varint(timestamp)
            place = table[index] if index < most else write_varint(index)
            rest = data[after:end]
            length = 1 + len(time) + len(place) + len(rest)
            record = b"".join(
                (
                    table[length] if length < most else write_varint(length),
                    data[at : at + 1],
                    time,
                    place,
                    rest,
                )
            )
            out.append(record)
            size += len(record)
            at = end
    except IndexError as error:
        raise CorruptBatch(f"batch at offset {header.base_offset}: records end early") from error
    if at != end_of_data:
        raise CorruptBatch(f"batch at offset {header.base_offset}: {end_of_data - at} bytes after its last record")
    return out, size
