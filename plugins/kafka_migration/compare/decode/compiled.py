"""Records sections decoded by code that numba compiles: parse and hash where the bytes are, an object for no record.

About 60 ns for a record of 500 bytes, and a second to compile, once for a machine: numba keeps what it compiled. The
algorithm of the hash is xxHash64's specification; :mod:`.plain` has the layout of a record.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from numba import njit, types
from numba.extending import intrinsic

from kafka_migration.compare.decode.columns import NO_STAMP, Columns, Damaged, Facts
from kafka_migration.compare.record_digest import (
    HEADERS_FROM,
    KEY_IS_NULL,
    LACKING_FROM,
    P1,
    P2,
    P3,
    P4,
    P5,
    SEED,
    VALUE_IS_NULL,
)

#: Without types of its own.
_ir: Any = import_module("llvmlite.ir")
_P1, _P2, _P3, _P4, _P5 = map(np.uint64, (P1, P2, P3, P4, P5))
_SEED, _ZERO = np.uint64(SEED), np.uint64(0)
#: Length, attributes, timestamp, offset, key, value, headers: a byte each.
_LEAST_RECORD = 7
_FINE, _EARLY, _UNFIT, _UNFILLED, _REST = range(5)
_PROBLEMS = {
    _EARLY: "a record that ends early",
    _UNFIT: "a record whose size or offset does not fit the batch",
    _UNFILLED: "a record whose fields do not fill it",
    _REST: "bytes after its last record",
}


def decode(data: Any, ends: Any, facts: Facts) -> Columns:
    """As :func:`kafka_migration.compare.decode.columns.decode`."""
    counts = np.maximum(facts[:, 0], 0)
    if (impossible := np.flatnonzero(counts > np.diff(ends, prepend=0) // _LEAST_RECORD)).size:
        raise Damaged(f"batch at offset {facts[impossible[0], 1]}: {_PROBLEMS[_EARLY]}")
    rows = int(counts.sum())
    numbers, hashes = np.empty((4, rows), np.int64), np.empty((2, rows), np.uint64)
    which, problem = _decode(data, ends, facts, numbers, hashes)
    if problem:
        raise Damaged(f"batch at offset {facts[which, 1]}: {_PROBLEMS[problem]}")
    offsets, lengths, times, flags = numbers
    return Columns(offsets, hashes[0], lengths, times, flags, hashes[1])


def ordered_sum(hashes: Any, places: Any) -> int:
    """As :func:`kafka_migration.compare.decode.columns.ordered_sum`."""
    return int(_ordered_sum(hashes, places))


def _eight_bytes(_typing: Any, array: Any, _at: Any) -> Any:
    """Eight bytes as they lie, wherever: as one instruction, which eight loads and shifts do not become."""

    def code(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array, at = arguments
        start = context.make_array(signature.args[0])(context, builder, array).data
        return builder.load(builder.bitcast(builder.gep(start, [at]), _ir.IntType(64).as_pointer()), align=1)

    return types.uint64(array, types.int64), code


_load64: Any = intrinsic(_eight_bytes)


@njit
def _rotated(value, bits):  # type: ignore[no-untyped-def]
    return (value << np.uint64(bits)) | (value >> np.uint64(64 - bits))


@njit
def _round(sum_, lane):  # type: ignore[no-untyped-def]
    return _rotated(sum_ + lane * _P2, 31) * _P1


@njit
def _finished(value):  # type: ignore[no-untyped-def]
    value = (value ^ (value >> np.uint64(33))) * _P2
    value = (value ^ (value >> np.uint64(29))) * _P3
    return value ^ (value >> np.uint64(32))


@njit
def _hash_word(word, size, seed):  # type: ignore[no-untyped-def]
    """Of a number of eight or four bytes."""
    value = seed + _P5 + np.uint64(size)
    if size == 8:
        value = _rotated(value ^ _round(_ZERO, word), 27) * _P1 + _P4
    else:
        value = _rotated(value ^ (word * _P1), 23) * _P2 + _P3
    return _finished(value)


@njit(nogil=True, cache=True)
def _ordered_sum(hashes, places):  # type: ignore[no-untyped-def]
    total = _ZERO
    for row in range(len(hashes)):
        total += _hash_word(np.uint64(places[row]), 8, _hash_word(hashes[row], 8, _SEED))
    return total


@njit(nogil=True, cache=True)
def _hash(data, at, size, seed):  # type: ignore[no-untyped-def]
    end = at + size
    if size >= 32:
        one, two, three, four = seed + _P1 + _P2, seed + _P2, seed, seed - _P1
        while at + 32 <= end:
            one, two = _round(one, _load64(data, at)), _round(two, _load64(data, at + 8))
            three, four = _round(three, _load64(data, at + 16)), _round(four, _load64(data, at + 24))
            at += 32
        value = _rotated(one, 1) + _rotated(two, 7) + _rotated(three, 12) + _rotated(four, 18)
        for lane in (one, two, three, four):
            value = (value ^ _round(_ZERO, lane)) * _P1 + _P4
    else:
        value = seed + _P5
    value += np.uint64(size)
    while at + 8 <= end:
        value = _rotated(value ^ _round(_ZERO, _load64(data, at)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= end:
        value = _rotated(value ^ ((_load64(data, at) & np.uint64(0xFFFFFFFF)) * _P1), 23) * _P2 + _P3
        at += 4
    while at < end:
        value = _rotated(value ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    return _finished(value)


@njit
def _varint(data, at, end):  # type: ignore[no-untyped-def]
    """The number at byte ``at``, and the byte behind it; ``end + 1`` for that where the data end first."""
    number, shift = _ZERO, 0
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        number |= np.uint64(byte & 0x7F) << np.uint64(shift)
        if byte < 0x80:
            return np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1)), at
        shift += 7
    return np.int64(0), end + 1


@njit
def _field(data, at, end, content):  # type: ignore[no-untyped-def]
    """The size of the field at byte ``at``, below 0 for null, the byte behind it, and ``content`` continued by it;
    ``end + 1`` for the byte where the data end first."""
    size, at = _varint(data, at, end)
    if size < 0:
        return size, at, content
    if size > end - at:
        return size, end + 1, content
    return size, at + size, _hash(data, at, size, content)


@njit(nogil=True, cache=True)
def _decode(data, ends, facts, numbers, hashes):  # type: ignore[no-untyped-def]
    """Which section is damaged, and how; fills ``numbers`` and ``hashes``, rows of :class:`.Columns`."""
    row, at = 0, np.int64(0)
    for which in range(len(ends)):
        last = ends[which]
        count, base, last_delta, base_time, stamp = facts[which]
        before = np.int64(-1)
        for _ in range(count):
            size, at = _varint(data, at, last)
            end = at + size
            if at > last or size < 1:
                return which, _EARLY
            if end > last:
                return which, _UNFIT
            time, at = _varint(data, at + 1, end)
            delta, at = _varint(data, at, end)
            if at > end:
                return which, _EARLY
            if delta <= before or delta > last_delta:
                return which, _UNFIT
            before = delta
            flags, total, content = np.int64(0), np.int64(0), _SEED
            size, at, content = _field(data, at, end, content)
            if size < 0:
                flags |= KEY_IS_NULL
            total += max(size, 0)
            hashes[1, row] = content
            size, at, content = _field(data, at, end, content)
            if size < 0:
                flags |= VALUE_IS_NULL
            total += max(size, 0)
            headers, at = _varint(data, at, end)
            if at > end:
                return which, _EARLY
            if headers < 0:
                return which, _UNFILLED
            if headers > 0:
                first, lacking = at, 0
                for _ in range(headers):
                    size, at, content = _field(data, at, end, content)
                    if size < 0 or at > end:
                        return which, _EARLY
                    size, at, content = _field(data, at, end, content)
                    if at > end:
                        return which, _EARLY
                    lacking += size < 0
                if lacking:
                    # Their places stand behind all headers in the hash, so they are gone through once more.
                    again = first
                    for place in range(headers):
                        size, again = _varint(data, again, end)
                        size, again = _varint(data, again + size, end)
                        if size < 0:
                            content = _hash_word(np.uint64(place), 4, content)
                        else:
                            again += size
                flags += (headers << HEADERS_FROM) + (np.int64(lacking) << LACKING_FROM)
            if at != end:
                return which, _UNFILLED
            if stamp != NO_STAMP:
                time = stamp
            else:
                time += base_time
            numbers[0, row] = base + delta
            numbers[1, row] = total
            numbers[2, row] = time
            numbers[3, row] = flags
            hashes[0, row] = _hash_word(np.uint64(flags), 8, _hash_word(np.uint64(time), 8, content))
            row += 1
        if at != last:
            return which, _REST
    return 0, _FINE
