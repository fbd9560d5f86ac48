"""One 64-bit hash over everything that a record is: key, value, headers in order, timestamp.

Spark's ``xxhash64`` chains: the hash of one column is the seed of the next, and the length of bytes is part of their
hash, so ("ab", "c") and ("a", "bc") differ. But it *skips nulls*, in columns as in arrays: (null, "a") would equal
("a", null), and null would equal absent. So behind the headers come the places of those without a value, and flags go
in last: whether key and value are null, how many headers there are, and how many of them have no value. By these
numbers it is known which link of the chain was what, so that no two records have the same links.

Batch level computes the same in Python (:mod:`kafka_migration.compare.record_digest`; a test holds them equal).

Not in it: the timestamp's type, which is the topic's. Records that the source's broker stamped (LogAppendTime) are
copied with these very timestamps as their own (CreateTime), and get the type back with the topic's configs.

The hash finds accidents, not forgers: xxHash is not keyed. A header's name that is not UTF-8 reaches us as the Java
client decodes it: any such bytes become one and the same character. Records with such names are counted
(:func:`is_unclear`), and never called equal by this reader alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.compare.record_digest import HEADERS_FROM, KEY_IS_NULL, LACKING_FROM, VALUE_IS_NULL

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
    # Lambdas are interpreted row by row, for a quarter of the time of all else. What is not in an array with nulls
    # *may* be in it, by SQL's rules, so such arrays are those of which a search answers null; and that is compiled.
    has_value = f.coalesce(~f.array_contains(headers["value"], f.lit(_UNLIKELY)), f.lit(False))
    may_lack_one = headers.isNotNull() & ~has_value
    lacking = f.transform(headers, lambda header, place: f.when(header["value"].isNull(), place))
    flags = (
        f.when(may_lack_one, f.size(f.array_compact(lacking))).otherwise(0).cast("long") * (1 << LACKING_FROM)
        + count.cast("long") * (1 << HEADERS_FROM)
        + value.isNull().cast("long") * VALUE_IS_NULL
        + key.isNull().cast("long") * KEY_IS_NULL
    )
    places = f.when(may_lack_one, lacking)
    return f.xxhash64(key, value, headers, places, f.unix_millis(f.col("timestamp")), flags)


def is_unclear() -> Column:
    """Whether a header's name holds what the Java client puts in place of any bytes that are not UTF-8."""
    from pyspark.sql import functions as f

    names = f.concat_ws("", f.col("headers")["key"])
    return f.col("headers").isNotNull() & names.contains("\ufffd")


def ordered_hash(record: Column, source_offset: Column) -> Column:
    """The hash of a record together with its place: the source offset, of which each partition has one a record."""
    from pyspark.sql import functions as f

    return f.xxhash64(record, source_offset)
