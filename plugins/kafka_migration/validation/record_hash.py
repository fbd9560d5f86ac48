"""One 64-bit hash over everything that a record is: key, value, headers in order, timestamp.

Spark's ``xxhash64`` chains: the hash of one column is the seed of the next, and the length of bytes is part of their
hash, so ("ab", "c") and ("a", "bc") differ. But it *skips nulls*, in columns as in arrays: (null, "a") would equal
("a", null), and null would equal absent. So flags go in last, which say what is null, and how many headers there are;
before the timestamp come the places of headers without a value.

Batch level computes the same in Python (:mod:`kafka_migration.validation.record_digest`; a test holds them equal).

Not in it: the timestamp's type, which is the topic's. Records that the source's broker stamped (LogAppendTime) are
copied with these very timestamps as their own (CreateTime), and get the type back with the topic's settings.

The hash finds accidents, not forgers: xxHash is not keyed. A header's name that is not UTF-8 reaches us as the Java
client decodes it, on both sides alike.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column

_UNLIKELY = b"no header has this value"
"""One that has it costs time only."""


def record_hash() -> Column:
    """The hash of a row of Spark's Kafka source, read with ``includeHeaders``. Neither partition nor offset is in it,
    so that a record hashes alike wherever it stands."""
    from pyspark.sql import functions as f

    key, value, headers = f.col("key"), f.col("value"), f.col("headers")
    # The source gives null for no headers. Without ANSI, size(null) is -1, with it null.
    count = f.when(headers.isNull(), f.lit(0)).otherwise(f.size(headers))
    flags = count.cast("long") * 4 + value.isNull().cast("long") * 2 + key.isNull().cast("long")
    return f.xxhash64(key, value, headers, _headers_without_value(headers), f.col("timestamp"), flags)


def _headers_without_value(headers: Column) -> Column:
    """The places of those among ``headers``, as an array with nulls at all others; null where it is certain that there
    are none.

    Lambdas are interpreted row by row, for a quarter of the time of all else. What is not in an array with nulls *may*
    be in it, says SQL, so a search whose answer is null tells these arrays from others; and that is compiled.
    """
    from pyspark.sql import functions as f

    has_none = f.coalesce(~f.array_contains(headers["value"], f.lit(_UNLIKELY)), f.lit(False))
    places = f.transform(headers, lambda it, place: f.when(it["value"].isNull(), place))
    return f.when(headers.isNotNull() & ~has_none, places)


def ordered_hash(record: Column, source_offset: Column) -> Column:
    """The hash of a record together with its place: the source offset, of which each partition has one a record."""
    from pyspark.sql import functions as f

    return f.xxhash64(record, source_offset)
