"""The record hash in Python and the one in the JVM: the same value for the same record, whatever is in it."""

import datetime
import random
import struct

import numpy as np
import pytest
from pyspark.sql import functions as f
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from kafka_migration.compare.decode.columns import columns_of
from kafka_migration.compare.record_digest import ordered_hashes, record_hashes
from kafka_migration.compare.records.spark_source import record_hash

_SCHEMA = StructType(
    [
        StructField("n", IntegerType()),
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("timestamp", TimestampType()),
        StructField("source_offset", LongType()),
        StructField(
            "headers",
            ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
        ),
    ]
)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


def _some(chance: random.Random) -> bytes | None:
    number = struct.pack("<i", chance.randrange(3))  # as places of headers are hashed
    return chance.choice((None, b"", number, chance.randbytes(chance.choice((1, 4, 8, 31, 32, 33, 700)))))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([(b"a", None)], [(b"a", b"\0\0\0\0")]),
        ([(b"a", None), (b"b", b"v")], [(b"a", b"b"), (b"v", b"\0\0\0\0")]),
        ([(b"a", b"x"), (b"b", None)], [(b"a", b"x"), (b"b", b"\1\0\0\0")]),
        ([(b"a", b"\0\0\0\0"), (b"\0\0\0\0", None)], [(b"a", None), (b"\0\0\0\0", None)]),
        ([(b"a", None), (b"b", b"")], [(b"a", b""), (b"b", None)]),
    ],
)
def test_links_of_the_chain_are_not_taken_for_one_another(one, other):
    first, second = columns_of((0, 0, b"k", b"v", headers) for headers in (one, other)).hashes.tolist()
    assert first != second


def test_times_that_differ_in_their_highest_bits_hash_apart():
    times = np.array([5, 5 + 2**61, 5 - 2**62], np.int64)
    assert len(set(record_hashes(np.zeros(3, np.uint64), times, np.zeros(3, np.int64)).tolist())) == 3


def test_hashes_of_python_and_of_spark_are_the_same(spark):
    chance, rows, lines = random.Random(7), [], []
    for n in range(400):
        count = chance.choice((0, 0, 1, 3))
        headers = [(chance.choice(("", "a", "größe", "x" * 40)), _some(chance)) for _ in range(count)]
        key, value, offset = _some(chance), _some(chance), chance.choice((-1, 0, n, 2**40 + n))
        ms = chance.choice((0, -1, 1_700_000_000_123, -62_000_000_000_000, chance.randrange(4 * 10**12)))
        rows.append((offset, ms, key, value, [(name.encode(), held) for name, held in headers]))
        when = _EPOCH + datetime.timedelta(milliseconds=ms)
        lines.append((n, key, value, when, offset, headers if headers or chance.random() < 0.5 else None))
    frame = spark.createDataFrame(lines, _SCHEMA).select("n", "source_offset", record_hash().alias("hash"))
    ordered = f.xxhash64(f.col("hash"), f.col("source_offset"))
    found = frame.withColumn("ordered", ordered).orderBy("n").collect()
    columns = columns_of(rows)
    hashes = columns.hashes
    assert [one.hash % 2**64 for one in found] == hashes.tolist()
    assert [one.ordered % 2**64 for one in found] == ordered_hashes(hashes, columns.offsets).tolist()
    different = {(line[1], line[2], line[3], tuple(line[5] or ())) for line in lines}
    assert len(set(hashes.tolist())) == len(different) > 300
