"""One 64-bit hash over everything that a record is: key, value, headers in order, timestamp. And one with its place.

A chain of xxHash64, as Spark's ``xxhash64`` makes it of columns: the hash of one field, seeded with 42 at first, is the
seed of the next, and a number is hashed as its eight bytes (little-endian). The length of bytes is part of their hash,
so ("ab", "c") and ("a", "bc") differ. But the chain *skips nulls*: (null, "a") would equal ("a", null), and null would
equal absent. So behind the headers come the places of those without a value, and flags go in last: whether key and
value are null, how many headers there are, and how many of them have no value. By these numbers it is known which link
of the chain was what, so that no two records have the same links.

Not in the hash: the timestamp's type, which is the topic's. Records that the source's broker stamped (LogAppendTime)
are copied with these very timestamps as their own (CreateTime), and get the type back with the topic's configs. The
hash finds accidents, not forgers: xxHash is not keyed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import xxhash

SEED = 42
KEY_IS_NULL, VALUE_IS_NULL, HEADERS_FROM, LACKING_FROM = 1, 2, 2, 34
"""Bits of a record's flags; the count of headers stands from bit 2 on, and of those without a value from bit 34 on."""
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PLACE, _LONG = struct.Struct("<i"), struct.Struct("<q")

xxh64 = xxhash.xxh64_intdigest


def key_hash(key: bytes | memoryview | None) -> int:
    """The chain's first link, over a record's key."""
    return SEED if key is None else int(xxh64(key, SEED))


def content_hash(
    key: bytes | memoryview | None,
    value: bytes | memoryview | None,
    headers: Iterable[tuple[bytes | memoryview, bytes | memoryview | None]],
) -> tuple[int, int]:
    """The chain over a record's key, value and headers, and its flags."""
    content = key_hash(key)
    content = content if value is None else xxh64(value, content)
    flags = (KEY_IS_NULL if key is None else 0) | (VALUE_IS_NULL if value is None else 0)
    lacking: list[int] = []
    for place, (name, held) in enumerate(headers):
        content = xxh64(name, content)
        flags += 1 << HEADERS_FROM
        if held is None:
            lacking.append(place)
        else:
            content = xxh64(held, content)
    for place in lacking:
        content = xxh64(_PLACE.pack(place), content)
    return content, flags + (len(lacking) << LACKING_FROM)


def record_hash(time: int, content: int, flags: int) -> int:
    """The hash of one record: its timestamp (ms), and what :func:`content_hash` makes of it."""
    return int(xxh64(_LONG.pack(flags), xxh64(_LONG.pack(time), content)))


def record_hashes(contents: Any, times: Any, flags: Any) -> Any:
    """Hashes of records: arrays of uint64 contents, int64 times (ms) and flags, of one length."""
    import numpy as np

    return _hash_longs(flags.astype(np.uint64), _hash_longs(times.astype(np.int64).view(np.uint64), contents))


def ordered_hashes(hashes: Any, places: Any) -> Any:
    """Hashes of records together with their places, the source offsets (int64; -1 where there is none)."""
    import numpy as np

    first = _hash_longs(hashes, np.full(len(hashes), SEED, np.uint64))
    return _hash_longs(places.astype(np.int64).view(np.uint64), first)


def _hash_longs(values: Any, seeds: Any) -> Any:
    """xxHash64 of each of ``values`` as eight bytes, each with a seed of its own; arrays of uint64, which wrap."""
    import numpy as np

    def u(number: int) -> Any:
        return np.uint64(number)

    lanes = values * u(P2)
    lanes = ((lanes << u(31)) | (lanes >> u(33))) * u(P1)
    out = (seeds + u((P5 + 8) & (2**64 - 1))) ^ lanes
    out = ((out << u(27)) | (out >> u(37))) * u(P1) + u(P4)
    out = (out ^ (out >> u(33))) * u(P2)
    out = (out ^ (out >> u(29))) * u(P3)
    return out ^ (out >> u(32))
