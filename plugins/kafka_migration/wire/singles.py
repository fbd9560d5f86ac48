"""Hundreds of batches of one record each, joined as arrays: what a producer without linger leaves behind.

The same as :mod:`kafka_migration.wire.join` makes of them, for a third of the time, where nothing is odd: no
compression, CreateTime, no transaction. In Python itself only that is done for each batch which numpy does not offer:
to find it, its checksum, and the copy. Whatever is odd ends the row, and is left to the general way.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from typing import Any

import crc32c

from kafka_migration.wire.batch import (
    CRC_FROM,
    HEADER_BYTES,
    LENGTH,
    LENGTH_AT,
    LOG_OVERHEAD,
    assemble,
    parse_header,
)
from kafka_migration.wire.join import SMALL_BYTES, Piece, Run

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
