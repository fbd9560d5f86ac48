"""Handlers of tests, and what should become of a record on the target: by librdkafka's eyes, or by the bytes."""

import time
from dataclasses import replace
from functools import cache

from kafka_migration.domain.handlers import Handle, Handler, HandlerOf, Record, decoded, encoded, source_digest
from kafka_migration.wire.records import contents, encode_contents
from tests.kafka_tools import Row
from tests.wire.logs import Row as RawRow


def by_offset(record: Record) -> Record | None:
    """Drops every third record, and changes every fifth."""
    if record.offset % 3 == 0:
        return None
    if record.offset % 5 == 0:
        headers = (*record.headers, ("ü", None))
        return record._replace(key=b"", value=b"*" * 300, headers=headers, timestamp=record.timestamp + 7)
    return record


def altering(record: Record) -> Record | None:
    """The same, but for one record."""
    after = by_offset(record)
    return after._replace(value=b"altered") if after is not None and record.offset == 40 else after


def masked(record: Record) -> Record | None:
    """Hides all values but tombstones, and keeps keys."""
    return record if record.value is None else record._replace(value=b"*", headers=(("masked", b"yes"),))


def as_is(record: Record) -> Record | None:
    """Changes nothing."""
    return record


def nothing(_record: Record) -> Record | None:
    """Drops everything."""
    return None


def slow(record: Record) -> Record | None:
    """Takes its time."""
    time.sleep(0.05)
    return record


def fails_on_poison(record: Record) -> Record | None:
    """Cannot handle one value."""
    if record.value == b"poison":
        raise ValueError(record.value)
    return by_offset(record)


def grows(record: Record) -> Record | None:
    """Makes one value larger than topics of tests take."""
    return record._replace(value=bytes(range(256)) * 40) if record.value == b"grow" else record


@cache
def handler(function: Handle, *, keeps_keys: bool = False) -> Handler:
    """As a plan names ``function`` of this module."""
    name = f"{__name__}:{function.__name__}"
    return Handler(function=name, sha256=source_digest(name), keeps_keys=keeps_keys)


def for_all(function: Handle) -> HandlerOf:
    """``function`` for every topic."""
    return lambda _topic: handler(function)


def handled(rows: list[Row], function: Handle) -> list[Row]:
    """What a consumer of the target should see of the source's ``rows``, at the source's offsets."""
    found = []
    for row in rows:
        after = function(Record(row.key, row.value, row.headers, row.timestamp, row.offset))
        if after is not None:
            key, value, headers, timestamp, _ = after
            found.append(replace(row, key=key, value=value, headers=tuple(headers), timestamp=timestamp))
    return found


def handled_raw(rows: list[RawRow], function: Handle) -> list[RawRow]:
    """The same of records by their bytes."""
    found = []
    for row in rows:
        key, value, headers = contents(row.rest)
        after = function(
            Record(key, value, tuple((decoded(n), held) for n, held in headers), row.timestamp, row.offset)
        )
        if after is not None:
            rest = encode_contents(after.key, after.value, [(encoded(n), held) for n, held in after.headers])
            found.append(RawRow(row.offset, after.timestamp, rest))
    return found
