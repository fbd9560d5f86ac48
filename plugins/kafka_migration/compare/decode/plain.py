"""Records sections decoded in Python: for where numba is not installed, and the measure of the compiled kernel.

Layout of a record, numbers as zigzag varints (Kafka protocol guide, "Record")::

    length, attributes (int8, none used), timestamp delta, offset delta, key, value, number of headers, headers

Key and value are a length, -1 for null, and so many bytes; a header is a name and a value likewise.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_migration.compare.decode.columns import (
    NO_STAMP,
    Bytes,
    Columns,
    Damaged,
    Facts,
    Record,
    Section,
    columns_of,
)
from kafka_migration.compare.record_digest import ordered_hashes


def decode(data: Any, ends: Any, facts: Facts) -> Columns:
    """As :func:`kafka_migration.compare.decode.columns.decode`."""
    return columns_of(records(data, ends, facts))


def records(data: Any, ends: Any, facts: Facts) -> Iterator[Record]:
    """The records of such sections, one by one. Raises Damaged."""
    view, ends = memoryview(data), ends.tolist()
    for start, end, known in zip([0, *ends[:-1]], ends, facts.tolist(), strict=True) if ends else ():
        yield from _records(Section(view[start:end], *known))


def ordered_sum(hashes: Any, places: Any) -> int:
    """As :func:`kafka_migration.compare.decode.columns.ordered_sum`."""
    return int(ordered_hashes(hashes, places).sum())


def _records(section: Section) -> Iterator[Record]:
    data, at, before = memoryview(section.data), 0, -1
    for _ in range(section.records):
        try:
            size, at = varint(data, at)
            end = at + size
            time, at = varint(data, at + 1)
            delta, at = varint(data, at)
            if size < 0 or end > len(data) or not before < delta <= section.last_delta:
                raise Damaged(
                    f"batch at offset {section.offset}: a record of {size} bytes at offset {section.offset + delta}"
                )
            before = delta
            key, at = _field(data, at, end)
            value, at = _field(data, at, end)
            count, at = varint(data, at)
            headers: list[tuple[Bytes, Bytes | None]] = []
            for _ in range(count):
                name, at = _field(data, at, end)
                if name is None:
                    raise IndexError
                held, at = _field(data, at, end)
                headers.append((name, held))
        except IndexError as error:
            raise Damaged(f"batch at offset {section.offset}: a record that ends early") from error
        if at != end or count < 0:
            raise Damaged(f"batch at offset {section.offset}: a record whose fields do not fill it")
        # As brokers and the Java client have it, times beyond 64 bits wrap.
        stamp = (section.timestamp + time + 2**63) % 2**64 - 2**63 if section.stamp == NO_STAMP else section.stamp
        yield section.offset + delta, stamp, key, value, headers
    if at != len(data):
        raise Damaged(f"batch at offset {section.offset}: bytes after its last record")


def varint(data: Bytes, at: int) -> tuple[int, int]:
    """The number at byte ``at``, and the byte behind it. Raises IndexError where the data end first."""
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            raise IndexError


def unsigned(data: Bytes, at: int) -> tuple[int, int]:
    """As :func:`varint`, of a number without a sign."""
    number, at = varint(data, at)
    return (2 * number if number >= 0 else -2 * number - 1), at


def _field(data: memoryview, at: int, end: int) -> tuple[memoryview | None, int]:
    size, at = varint(data, at)
    if size < 0:
        return None, at
    if at + size > end:
        raise IndexError
    return data[at : at + size], at + size
