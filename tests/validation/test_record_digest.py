"""The record hash in Python and the one in the JVM: the same value for the same record, whatever is in it."""

import datetime
import random

import numpy as np
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

from kafka_migration.validation.record_digest import Rows, ordered_hashes, record_hashes
from kafka_migration.validation.record_hash import ordered_hash, record_hash

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
    return chance.choice((None, b"", chance.randbytes(chance.choice((1, 4, 8, 31, 32, 33, 700)))))


def test_hashes_of_python_and_of_spark_are_the_same(spark):
    chance, rows, lines = random.Random(7), Rows(), []
    for n in range(400):
        count = chance.choice((0, 0, 1, 3))
        headers = [(chance.choice(("", "a", "größe", "x" * 40)), _some(chance)) for _ in range(count)]
        key, value, offset = _some(chance), _some(chance), chance.choice((-1, 0, n, 2**40 + n))
        ms = chance.choice((0, -1, 1_700_000_000_123, -62_000_000_000_000, chance.randrange(4 * 10**12)))
        rows.add(offset, ms, key, value, [(name.encode(), held) for name, held in headers])
        when = _EPOCH + datetime.timedelta(milliseconds=ms)
        lines.append((n, key, value, when, offset, headers or chance.choice((None, []))))
    frame = spark.createDataFrame(lines, _SCHEMA).select("n", "source_offset", record_hash().alias("hash"))
    found = frame.withColumn("ordered", ordered_hash(f.col("hash"), f.col("source_offset"))).orderBy("n").collect()
    hashes = record_hashes(
        np.array(rows.contents, np.uint64), np.array(rows.times, np.int64), np.array(rows.flags, np.int64)
    )
    ordered = ordered_hashes(hashes, np.array(rows.offsets, np.int64))
    assert [it.hash % 2**64 for it in found] == hashes.tolist()
    assert [it.ordered % 2**64 for it in found] == ordered.tolist()
    different = {(line[1], line[2], line[3], tuple(line[5] or ())) for line in lines}
    assert len(set(hashes.tolist())) == len(different) > 300
