"""One batch made of several, or of one that a broker would not take as it stands.

Small neighbours are joined, since a producer without linger writes batches of one record, and a request for each is
slow. Compacted batches, and those whose timestamps the source's broker gave (LogAppendTime), are re-encoded:
brokers refuse the former from clients, and take the latter for CreateTime with other timestamps. Each record keeps its
bytes but for the two deltas that its batch decides on. Boundaries need not be the same at every attempt: a resume reads
the target's log, and goes on from there.

This is the one place where Python looks at every record, so it avoids an object for each where nothing is odd.

Hundreds of batches of one record each are joined as arrays (:func:`singles`): the same as :func:`join` makes of them,
for a third of the time, where nothing is odd: no compression, CreateTime, no transaction. In Python itself only that is
done for each batch which numpy does not offer: to find it, its checksum, and the copy. Whatever is odd ends the row,
and is left to the general way.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import crc32c

from kafka_migration.wire import codecs
from kafka_migration.wire.aborted import is_left_out
from kafka_migration.wire.batch import (
    CODEC,
    CRC_FROM,
    HEADER_BYTES,
    LENGTH,
    LENGTH_AT,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    BatchHeader,
    CorruptBatch,
    assemble,
    parse_header,
)
from kafka_migration.wire.records import as_long, encoded, read_varint, records_of, write_varint

SMALL_BYTES = 8 * 1024
"""A batch up to this size may be joined. Re-encoding costs a few microseconds a record, sending a batch of its own some
hundred: larger ones are cheaper as they are."""

_HEADER = struct.Struct(">qiibIHiqq14xi")
"""As HEADER_STRUCT, without the producer."""
_MOST_RAW_BYTES = 8 * 1024 * 1024
_TABLE = [write_varint(value) for value in range(1 << 13)]
FEWEST = 16
"""Below it, arrays cost more than they save."""
_COUNT, _COUNT_AT = struct.Struct(">i"), 57
_HEAD = [
    ("base", ">i8"),
    ("length", ">i4"),
    ("epoch", ">i4"),
    ("magic", "i1"),
    ("crc", ">u4"),
    ("attributes", ">u2"),
    ("last_delta", ">i4"),
    ("time", ">i8"),
    ("latest", ">i8"),
    ("producer", "V14"),
    ("count", ">i4"),
    ("record", "u1", 5),
]
"""A batch's header, and how its record begins: the length (one byte or two, since the batch is small), then attributes
and two deltas, each of them 0."""
_HEAD_BYTES = HEADER_BYTES + 5
_FARTHEST_MS = 1 << 34
"""Half a year: as far from the first one's time as five bytes reach, and thus what is written fits over a header."""


class Run(NamedTuple):
    """Records in a row: ``before`` are in front of them in their batch, the first stands at ``source``, ``epoch`` is
    the source's leader epoch."""

    before: int
    source: int
    epoch: int


class Piece(NamedTuple):
    """A batch to copy, of format v2 and with a record at each of its offsets, ``header`` its own.

    Its first record stands at ``header.base_offset`` of the source. ``runs``, of one or more, are where rows of records
    without a gap (and of one leader epoch) begin in it; none means that it is one row. ``end`` is the source offset
    behind everything that it is made of, ``joined`` how many batches these are. ``batch`` None: nothing is to be copied
    up to ``end``.
    """

    header: BatchHeader
    batch: memoryview | None
    end: int
    joined: int = 1
    runs: tuple[Run, ...] = ()

    @property
    def continues(self) -> int:
        """The source offset that would go on with its last run."""
        last = self.all_runs[-1]
        return last.source + self.header.records - last.before

    @property
    def all_runs(self) -> tuple[Run, ...]:
        """Its runs, also where it is one row."""
        return self.runs or (Run(0, self.header.base_offset, self.header.leader_epoch),)

    @property
    def epoch(self) -> int:
        """The source's leader epoch of its last record."""
        return self.runs[-1].epoch if self.runs else self.header.leader_epoch


_Member = tuple[int, int, int, int, int, int, BatchHeader | None]
"""A batch to join: where its records begin and end in the buffer, base offset, base timestamp, count, leader epoch; and
its header, if its records need a closer look."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbours:
    """Small neighbours in a buffer, up to byte ``stop``, their checksums verified. ``end``: their source offsets'."""

    codec: int
    max_timestamp: int
    end: int
    stop: int
    members: list[_Member]


def small_neighbours(view: memoryview, at: int, most_bytes: int, aborted: frozenset[int]) -> Neighbours | None:
    """Two or more batches at ``at`` that can be one; None if there are none.

    What is left out (see :func:`is_left_out`; ``aborted`` by base offset) may stand between them.
    """
    members: list[_Member] = []
    unpack, checksum, last = _HEADER.unpack_from, crc32c.crc32c, len(view) - HEADER_BYTES
    begin, total = at, len(view)
    codec = expected = stop = 0
    max_timestamp = -1
    while at <= last:
        base, length, epoch, magic, crc, flags, delta, time, latest, count = unpack(view, at)
        end = at + LOG_OVERHEAD + length
        if (
            length > SMALL_BYTES
            or magic != 2
            or end > total
            or end < at + HEADER_BYTES
            or end - begin > most_bytes
            or checksum(view[at + CRC_FROM : end]) != crc
        ):
            break
        odd = None
        if flags > codecs.ZSTD or count != delta + 1:
            header = parse_header(view, at)
            if is_left_out(header, aborted):
                if not members:
                    # Or a long row of them would be gone through once for each.
                    return None
                at = end
                continue
            if flags & LOG_APPEND_TIME or count != delta + 1:
                odd = header
            flags &= CODEC
        if not members:
            codec = flags
        elif flags != codec or base < expected:
            break
        members.append((at + HEADER_BYTES, end, base, time, count, epoch, odd))
        if latest > max_timestamp:
            max_timestamp = latest
        expected = base + delta + 1
        at = stop = end
    if len(members) < 2:
        return None
    return Neighbours(codec=codec, max_timestamp=max_timestamp, end=expected, stop=stop, members=members)


def join(view: memoryview, them: Neighbours) -> Piece:
    """``them`` as one batch. Raises CorruptBatch if the records of a member cannot be read, or are so far apart in time
    that no delta holds the difference."""
    _, _, first, base_timestamp, *_ = them.members[0]
    made = _Made(base_timestamp)
    out, runs = made.out, made.runs
    raw_bytes = 0
    for start, stop, base, time, count, epoch, odd in them.members:
        data = codecs.decompress(them.codec, bytes(view[start:stop]), most=_MOST_RAW_BYTES - raw_bytes)
        raw_bytes += len(data)
        if raw_bytes > _MOST_RAW_BYTES:
            raise CorruptBatch(f"batches from offset {first} on are too large to be joined")
        if odd is not None:
            made.add_odd(odd, data, base)
            continue
        if base != made.continues or epoch != made.epoch:
            runs.append(Run(made.count, base, epoch))
            made.epoch = epoch
        _move(data, count, time - base_timestamp, made.count, out)
        made.count += count
        made.continues = base + count
    return made.piece(them.codec, them.max_timestamp, them.end, len(them.members))


def reencoded(header: BatchHeader, batch: bytes | memoryview, since: int) -> Piece:
    """The records of one batch from offset ``since`` on, as a batch without gaps, with CreateTime, in the same codec.

    A log start offset moved by DeleteRecords may lie inside a batch: what is before it was deleted by its owner and
    must not come alive on the target. Raises CorruptBatch if the records cannot be read.
    """
    made = _Made(header.max_timestamp if header.is_log_append_time else header.base_timestamp)
    latest = made.add_odd(header, codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:])), since)
    if not made.count:
        return Piece(header, None, header.next_offset)
    return made.piece(header.codec, latest, header.next_offset, 1)


class _Made:
    """A batch in the making: its records so far, the runs they stand in, and the source offset that would go on."""

    __slots__ = ("base_timestamp", "continues", "count", "epoch", "out", "runs")

    def __init__(self, base_timestamp: int) -> None:
        self.base_timestamp = base_timestamp
        self.out: list[bytes | memoryview] = []
        self.runs: list[Run] = []
        self.count, self.continues, self.epoch = 0, -1, -1

    def add_odd(self, header: BatchHeader, data: bytes, since: int) -> int:
        """The records of a batch with gaps, or with the broker's timestamps, from offset ``since`` on; the latest
        timestamp of these."""
        before, latest, epoch = header.base_offset - 1, -1, header.leader_epoch
        for record in records_of(header, data):
            offset = header.base_offset + record.offset_delta
            if not before < offset < header.next_offset:
                raise CorruptBatch(f"batch at offset {header.base_offset}: a record claims offset {offset}")
            before = offset
            if offset < since:
                continue
            # All of such a batch were appended at its latest timestamp, whatever their deltas are (KIP-32).
            fixed = header.is_log_append_time
            time = header.max_timestamp if fixed else as_long(header.base_timestamp + record.timestamp_delta)
            if offset != self.continues or epoch != self.epoch:
                self.runs.append(Run(self.count, offset, epoch))
                self.epoch = epoch
            self.out += encoded(record, as_long(time - self.base_timestamp), self.count)
            latest = max(latest, time)
            self.count += 1
            self.continues = offset + 1
        return latest

    def piece(self, codec: int, max_timestamp: int, end: int, joined: int) -> Piece:
        """What has become of ``joined`` batches that reach to source offset ``end``. Holds a record at the least."""
        times = (self.base_timestamp, max_timestamp)
        return as_piece(codec, times, b"".join(self.out), self.count, self.runs, end, joined)


def as_piece(
    codec: int, times: tuple[int, int], section: bytes, count: int, runs: Sequence[Run], end: int, joined: int
) -> Piece:
    """``count`` records, encoded as ``section``, as one batch. ``times``: from which timestamp theirs are counted, and
    the latest one."""
    batch = assemble(
        attributes=codec,
        base_timestamp=times[0],
        max_timestamp=times[1],
        count=count,
        payload=codecs.compress(codec, section),
        base_offset=runs[0].source,
        leader_epoch=runs[0].epoch,
    )
    return Piece(parse_header(batch), memoryview(batch), end, joined, tuple(runs) if len(runs) > 1 else ())


def _move(data: bytes, count: int, shift: int, first: int, out: list[bytes | memoryview]) -> None:
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


def singles(view: memoryview, at: int, most_bytes: int) -> tuple[Piece, int] | None:
    """Batches at ``at`` as one, and the byte behind them; None unless there are :data:`FEWEST` such in a row."""
    if len(view) - at < _HEAD_BYTES or _COUNT.unpack_from(view, at + _COUNT_AT) != (1,):
        return None
    bounds = _bounds(view, at, most_bytes)
    if len(bounds) <= FEWEST:
        return None
    import numpy as np  # only who meets such batches pays for it

    whole = np.frombuffer(view, np.uint8)
    starts = np.array(bounds)
    every = np.lib.stride_tricks.as_strided(whole, (len(whole) - _HEAD_BYTES + 1, _HEAD_BYTES), (1, 1), writeable=False)
    heads = every[starts[:-1]].view(np.dtype(_HEAD))[:, 0]
    rests = _rests(np, heads, starts)
    count = _first_odd(np, heads, rests)
    if count >= FEWEST:
        checksum = crc32c.crc32c
        found = [checksum(view[a + CRC_FROM : b]) for a, b in pairwise(bounds[: count + 1])]
        right = heads["crc"][:count] == np.array(found, np.uint32)
        count = count if right.all() else int(right.argmin())
    if count < FEWEST:
        return None
    heads = heads[:count]
    batch = assemble(
        attributes=0,
        base_timestamp=int(heads["time"][0]),
        max_timestamp=int(heads["latest"].max()),
        count=count,
        payload=_joined(np, whole[at : bounds[count]], heads, rests[:count] - at, starts[1 : count + 1] - at),
        base_offset=int(heads["base"][0]),
        leader_epoch=int(heads["epoch"][0]),
    )
    end = int(heads["base"][-1]) + 1
    return Piece(parse_header(batch), memoryview(batch), end, count, _runs(np, heads)), bounds[count]


def _bounds(view: memoryview, at: int, most_bytes: int) -> list[int]:
    """Where batches begin that are small and complete, and where the last one ends."""
    unpack, bounds = LENGTH.unpack_from, [at]
    last, end = len(view) - _HEAD_BYTES, min(len(view), at + most_bytes)
    while at <= last:
        (length,) = unpack(view, at + LENGTH_AT)
        at += LOG_OVERHEAD + length
        if at > end or not 0 <= length <= SMALL_BYTES:
            break
        bounds.append(at)
    return bounds


def _rests(np: Any, heads: Any, starts: Any) -> Any:
    """Where what follows the deltas begins (key, value, headers), for each; -1 if its record is odd."""
    record = heads["record"].astype(np.int64)
    is_short = record[:, 0] < 0x80
    length = np.where(is_short, record[:, 0], (record[:, 0] & 0x7F) | record[:, 1] << 7)
    body = starts[:-1] + HEADER_BYTES + np.where(is_short, 1, 2)
    zeros = np.where(is_short, record[:, 1] | record[:, 2] | record[:, 3], record[:, 2] | record[:, 3] | record[:, 4])
    is_plain = (zeros == 0) & (length == (starts[1:] - body) << 1) & (starts[1:] - body >= 3)
    return np.where(is_plain, body + 3, -1)


def _first_odd(np: Any, heads: Any, rests: Any) -> int:
    """How many in front are as nearly all are."""
    base, shift = heads["base"], heads["time"] - heads["time"][0]
    plain = (heads["magic"] == 2) & (heads["attributes"] == 0) & (heads["count"] == 1) & (heads["last_delta"] == 0)
    plain &= (rests >= 0) & (shift >= -_FARTHEST_MS) & (shift < _FARTHEST_MS)
    plain[1:] &= base[1:] > base[:-1]
    return len(plain) if plain.all() else int(plain.argmin())


def _joined(np: Any, section: Any, heads: Any, rests: Any, stops: Any) -> bytes:
    """The records one after the other, with deltas of their new batch. Lengths and deltas are written over the end of
    each one's header, in a copy of ``section``: thus each record is one slice of it."""
    out, index = section.copy(), np.arange(len(rests), dtype=np.int64)
    shift = (heads["time"] - heads["time"][0]).astype(np.int64)
    time, place = (shift << 1) ^ (shift >> 63), index << 1
    time_bytes, place_bytes = _widths(time), _widths(place)
    length = (stops - rests + 1 + time_bytes + place_bytes) << 1
    at = rests - place_bytes
    _write(out, at, place, place_bytes)
    at = at - time_bytes
    _write(out, at, time, time_bytes)
    at = at - 1
    out[at] = 0
    length_bytes = _widths(length)
    at = at - length_bytes
    _write(out, at, length, length_bytes)
    with memoryview(out) as view:
        return b"".join([view[a:b] for a, b in zip(at.tolist(), stops.tolist(), strict=True)])


def _widths(values: Any) -> Any:
    """Bytes of each as a varint."""
    return 1 + sum((values >= 1 << bits).astype("i8") for bits in (7, 14, 21, 28))


def _write(out: Any, at: Any, values: Any, widths: Any) -> None:
    """Each as a varint of ``widths`` bytes, from byte ``at`` on."""
    for byte in range(int(widths.max())):
        has = widths > byte
        goes_on = (widths[has] > byte + 1).astype("u1") << 7
        out[at[has] + byte] = (values[has] >> 7 * byte) & 0x7F | goes_on


def _runs(np: Any, heads: Any) -> tuple[Run, ...]:
    base, epoch = heads["base"], heads["epoch"]
    begins = np.flatnonzero((base[1:] - base[:-1] != 1) | (epoch[1:] != epoch[:-1])) + 1
    if not len(begins):
        return ()
    return tuple(Run(index, int(base[index]), int(epoch[index])) for index in (0, *begins.tolist()))
