"""What is decoded, and into what."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from kafka_migration.compare.record_digest import content_hash, key_hash, record_hashes

KERNEL_VARIABLE = "KAFKA_MIGRATION_KERNEL"
COMPILED, PLAIN = "numba", "python"
#: Of a section whose records have timestamps of their own.
NO_STAMP = -(2**63)
#: Behind the last section so many bytes may be read, whatever is in them: a load of eight leaves no buffer.
SPARE = 8

Bytes = bytes | memoryview


class Damaged(ValueError):
    """A records section that cannot be decoded."""


class Section(NamedTuple):
    """The records section of a batch of format v2, decompressed, and its :data:`Facts`."""

    data: Bytes
    records: int
    offset: int
    last_delta: int
    timestamp: int
    stamp: int = NO_STAMP


#: What the headers of batches have of their records, as int64 rows of how many there are, the first offset, the last
#: one's distance from it, the base of their timestamps (ms), and what takes the place of all of these (LogAppendTime),
#: unless it is :data:`NO_STAMP`.
Facts = Any
FACTS = 5


@dataclass(slots=True)
class Columns:
    """Records, as numpy arrays of one length.

    ``offsets`` are those of the log that the records stand in; ``hashes`` those of
    :mod:`kafka_migration.compare.record_digest`; ``sizes`` bytes of key and value; ``times`` ms since the epoch;
    ``flags`` those of the hash; ``keys`` hashes of the keys alone (of those that are null it means nothing).
    """

    offsets: Any
    hashes: Any
    sizes: Any
    times: Any
    flags: Any
    keys: Any

    def __len__(self) -> int:
        return len(self.offsets)

    def where(self, mask: Any) -> Columns:
        """Those that ``mask`` has."""
        return self if mask.all() else Columns(*(getattr(self, one.name)[mask] for one in fields(self)))

    def slice(self, start: int, stop: int) -> Columns:
        """Those from one place up to, and without, another."""
        return Columns(*(getattr(self, one.name)[start:stop] for one in fields(self)))

    def between(self, start: int, end: int, left_out: Iterable[tuple[int, int]] = ()) -> Columns:
        """Those at offsets from ``start`` up to, and without, ``end``, but for the spans of ``left_out``."""
        mine = (self.offsets >= start) & (self.offsets < end)
        for low, high in left_out:
            mine &= (self.offsets < low) | (self.offsets >= high)
        return self.where(mine)

    @classmethod
    def joined(cls, parts: Sequence[Columns]) -> Columns:
        """All of ``parts``, of which there is one at least, one behind the other."""
        import numpy as np  # only who compares pays for it

        return cls(*(np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)))


#: A record: offset, timestamp (ms), key, value, headers.
Record = tuple[int, int, Bytes | None, Bytes | None, Iterable[tuple[Bytes, Bytes | None]]]


#: What makes other records of them, or fewer.
Change = Callable[[Iterable[Record]], Iterable[Record]]


def columns_of(records: Iterable[Record]) -> Columns:
    """Columns of single records."""
    import numpy as np  # only who compares pays for it

    rows: list[tuple[int, int, int, int, int, int]] = []
    for offset, time, key, value, headers in records:
        content, flags = content_hash(key, value, headers)
        size = (0 if key is None else len(key)) + (0 if value is None else len(value))
        rows.append((offset, content, size, time, flags, key_hash(key)))
    columns = list(zip(*rows, strict=True)) or [()] * 6
    kinds = (np.int64, np.uint64, np.int64, np.int64, np.int64, np.uint64)
    offsets, contents, sizes, times, flags_, keys = map(np.array, columns, kinds)
    return Columns(offsets, record_hashes(contents, times, flags_), sizes, times, flags_, keys)


@cache
def kernel() -> str:
    """What decodes: :data:`COMPILED` where numba is installed and may keep what it compiles, unless
    KAFKA_MIGRATION_KERNEL asks for either."""
    wanted = os.environ.get(KERNEL_VARIABLE)
    if not wanted:
        try:
            return COMPILED if find_spec("numba") and _decoder(COMPILED) else PLAIN
        except RuntimeError:
            # Nowhere may this user keep what numba has compiled.
            return PLAIN
    if wanted not in (COMPILED, PLAIN):
        raise ValueError(f"{KERNEL_VARIABLE} is {wanted!r}: set {COMPILED} or {PLAIN}, or nothing")
    return wanted


def decode(data: Any, ends: Any, facts: Facts, change: Change | None = None) -> Columns:
    """The records of sections that lie one behind the other in ``data`` (uint8, :data:`SPARE` bytes longer), each up to
    its place in ``ends`` (int64); or what ``change`` makes of them. Raises Damaged."""
    if change is not None:
        return columns_of(change(_decoder(PLAIN).records(data, ends, facts)))
    found: Columns = _decoder(kernel()).decode(data, ends, facts)
    return found


def ordered_sum(hashes: Any, places: Any) -> int:
    """The sum, modulo 2**64, of the hashes of records together with their places
    (:func:`kafka_migration.compare.record_digest.ordered_hashes`)."""
    found: int = _decoder(kernel()).ordered_sum(hashes, places)
    return found


@cache
def _decoder(name: str) -> Any:
    return import_module(f"kafka_migration.compare.decode.{'compiled' if name == COMPILED else 'plain'}")
