"""The record hash of :mod:`kafka_migration.compare.records.reader` in Python: the same value for the same record.

Spark's ``xxhash64`` of bytes is xxHash64 itself, seeded with 42 or with the hash before, and that of a number is
xxHash64 of its eight bytes (little-endian). So the chain over key, value and headers is one call of the C library a
field, and what all records have (timestamp, flags, place) is hashed for thousands at once, as arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import xxhash

SEED = 42
KEY_IS_NULL, VALUE_IS_NULL, HEADERS_FROM, LACKING_FROM = 1, 2, 2, 34
"""Bits of a record's flags; the count of headers stands from bit 2 on, and of those without a value from bit 34 on."""
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_PLACE = struct.Struct("<i")

xxh64 = xxhash.xxh64_intdigest


@dataclass(slots=True)
class Rows:
    """Records on their way into a digest, a list for each of their properties.

    ``contents`` are hashes of key, value and headers; ``times`` ms since the epoch; ``offsets`` those of the log that
    the records stand in; ``sizes`` bytes of key and value.
    """

    contents: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)
    flags: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.contents)

    def add(
        self,
        offset: int,
        time: int,
        key: bytes | memoryview | None,
        value: bytes | memoryview | None,
        headers: Iterable[tuple[bytes, bytes | None]] = (),
    ) -> None:
        content = hash_of(key, value)
        flags = (KEY_IS_NULL if key is None else 0) | (VALUE_IS_NULL if value is None else 0)
        lacking: list[int] = []
        for place, (name, header_value) in enumerate(headers):
            content = with_header(content, name, header_value)
            flags += 1 << HEADERS_FROM
            if header_value is None:
                lacking.append(place)
        flags += len(lacking) << LACKING_FROM
        self.contents.append(with_lacking(content, lacking))
        self.times.append(time)
        self.offsets.append(offset)
        self.flags.append(flags)
        self.sizes.append(len(key or b"") + len(value or b""))

    def clear(self) -> None:
        for column in (self.contents, self.times, self.offsets, self.flags, self.sizes):
            column.clear()


def hash_of(key: bytes | memoryview | None, value: bytes | memoryview | None) -> int:
    """The first part of the chain."""
    content = SEED if key is None else xxh64(key, SEED)
    return content if value is None else xxh64(value, content)


def with_header(content: int, name: bytes | memoryview, value: bytes | memoryview | None) -> int:
    """The chain, continued by a header."""
    content = xxh64(name, content)
    return content if value is None else xxh64(value, content)


def with_lacking(content: int, places: Iterable[int]) -> int:
    """The chain, continued by the places of headers without a value, behind all headers."""
    for place in places:
        content = xxh64(_PLACE.pack(place), content)
    return content


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

    lanes = values * u(_P2)
    lanes = ((lanes << u(31)) | (lanes >> u(33))) * u(_P1)
    out = (seeds + u((_P5 + 8) & (2**64 - 1))) ^ lanes
    out = ((out << u(27)) | (out >> u(37))) * u(_P1) + u(_P4)
    out = (out ^ (out >> u(33))) * u(_P2)
    out = (out ^ (out >> u(29))) * u(_P3)
    return out ^ (out >> u(32))
