"""A record as a log holds it; and of two, which part differs, and in which bytes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from kafka_migration.compare.explain.result import Altered, Part
from kafka_migration.compare.record_digest import content_hash, record_hash

#: Of a payload, so many bytes are shown: from the first that differs on.
_SHOWN_BYTES = 32

Header = tuple[bytes, bytes | None]


class Record(NamedTuple):
    """A record as a log holds it. ``timestamp`` is in ms since the epoch; a value that is null marks a deletion on
    compacted topics."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...]

    @classmethod
    def of(cls, offset: int, timestamp: int, key: Any, value: Any, headers: Any) -> Record:
        """A record of views into a batch, with bytes of its own."""
        named = tuple((bytes(name), _own(held)) for name, held in headers)
        return cls(offset, timestamp, _own(key), _own(value), named)

    @property
    def content(self) -> tuple[Any, ...]:
        """Everything but its place: equal records have equal ones."""
        return self[1:]

    @property
    def digest(self) -> int:
        """A hash of everything but its place, the same as in columns. It finds accidents, not forgers."""
        return record_hash(self.timestamp, *content_hash(self.key, self.value, self.headers))

    @property
    def size(self) -> int:
        """Its bytes."""
        parts = (self.key, self.value, *(part for header in self.headers for part in header))
        return sum(len(part or b"") for part in parts)


def altered(source: Record, target: Record, *, private: bool) -> tuple[Altered, ...]:
    """The parts that differ: timestamp, key, value, headers."""
    found = []
    if source.timestamp != target.timestamp:
        # A time is no payload.
        found.append(Altered(part=Part.TIMESTAMP, source=str(source.timestamp), target=str(target.timestamp)))
    if source.key != target.key:
        found.append(_bytes(Part.KEY, source.key, target.key, private))
    if source.value != target.value:
        found.append(_bytes(Part.VALUE, source.value, target.value, private))
    return (*found, *_altered_headers(source.headers, target.headers, private))


def is_likely_the_same(source: Record, target: Record) -> bool:
    """Whether one may be the other, altered: at most one of key, value, headers and timestamp differs, or two of them
    and what is left is not empty. Otherwise one was lost, and the other is foreign."""
    equal = [source.key == target.key, source.value == target.value, source.headers == target.headers]
    equal.append(source.timestamp == target.timestamp)
    if sum(equal) >= 3:
        return True
    # Nulls and records without headers are alike in every log, and prove nothing.
    parts = zip(equal, (source.key, source.value, source.headers, True), strict=True)
    return sum(equal) == 2 and any(is_equal and bool(part) for is_equal, part in parts)


def shown(payload: bytes | None, *, private: bool) -> str | None:
    """The first bytes of ``payload`` in hexadecimal; None if it is null or private."""
    if payload is None or private:
        return None
    return payload[:_SHOWN_BYTES].hex() + ("…" if len(payload) > _SHOWN_BYTES else "")


def _altered_headers(mine: Sequence[Header], theirs: Sequence[Header], private: bool) -> Iterator[Altered]:
    if mine == theirs:
        return
    if len(mine) != len(theirs):
        yield Altered(part=Part.HEADERS, source_bytes=len(mine), target_bytes=len(theirs))
    elif _sorted(mine) == _sorted(theirs):
        first = next(n for n, (one, other) in enumerate(zip(mine, theirs, strict=True)) if one != other)
        yield Altered(part=Part.HEADER_ORDER, which=first, source_bytes=len(mine), target_bytes=len(theirs))
    else:
        for n, (one, other) in enumerate(zip(mine, theirs, strict=True)):
            if one[0] != other[0]:
                yield _bytes(Part.HEADER_NAME, one[0], other[0], private, which=n)
            if one[1] != other[1]:
                yield _bytes(Part.HEADER_VALUE, one[1], other[1], private, which=n)


def _bytes(part: Part, source: bytes | None, target: bytes | None, private: bool, which: int | None = None) -> Altered:
    mine, theirs = source or b"", target or b""
    at = next((n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b), min(len(mine), len(theirs)))

    def cut(payload: bytes | None) -> str | None:
        if private:
            return None
        return "null" if payload is None else payload[at : at + _SHOWN_BYTES].hex()

    return Altered(
        part=part,
        at=at,
        source=cut(source),
        target=cut(target),
        source_bytes=None if source is None else len(source),
        target_bytes=None if target is None else len(target),
        which=which,
    )


def _sorted(headers: Sequence[Header]) -> list[tuple[bytes, bool, bytes]]:
    return sorted((name, value is None, value or b"") for name, value in headers)


def _own(held: Any) -> bytes | None:
    return None if held is None else bytes(held)
