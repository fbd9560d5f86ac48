"""The third reader: Spark's own Kafka source, on a small share of what record level has read.

Nothing of ours is in it but the offset map: the Java client fetches and decodes, the JVM hashes
(:mod:`kafka_migration.compare.record_digest` says what the hash is). It is too slow to read everything, and so it reads
some stretches of every kind of batch; where it finds another digest than record level's own reader does, one of the two
is wrong, and nobody knows which.

A header's name that is not UTF-8 reaches us as the Java client decodes it: any such bytes become one and the same
character. Records with such names are counted (:func:`is_unclear`), and their hashes not compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.decode.columns import Columns
from kafka_migration.compare.digests import SOURCE, TARGET, Digest
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.record_digest import HEADERS_FROM, KEY_IS_NULL, LACKING_FROM, VALUE_IS_NULL
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Spark's default of 500 records a poll halves the speed. Larger ones than this only cost memory.
_TUNING = {
    "kafka.max.poll.records": "10000",
    "kafka.max.partition.fetch.bytes": str(8 << 20),
    "kafka.fetch.max.bytes": str(64 << 20),
    "kafka.receive.buffer.bytes": str(1 << 20),
    # A broken batch must fail the read, not enter a digest.
    "kafka.check.crcs": "true",
    "kafkaConsumer.pollTimeoutMs": "60000",
}
#: Properties of a JVM client, by side. They hold secrets: only ever as options of a Kafka source.
Connections = Mapping[str, Mapping[str, str]]
_UNLIKELY = b"no header has this value"
"""One that has it costs time only."""
_SUMS = {SOURCE: SourceSums, TARGET: TargetSums}


def digests(
    spark: SparkSession, request: ValidationRequest, stretches: Sequence[PartitionRange], connections: Connections
) -> dict[tuple[TopicPartition, str], Digest]:
    """Of each of ``stretches``, one a partition, both sides: everything that stands there, by (partition, side). One
    job. Raises what Spark raises if anything could not be read."""
    frames = [
        hashed(frame).mapInArrow(_summed(side, {range_.tp: range_ for range_ in stretches}), "answer string")
        for side in (SOURCE, TARGET)
        if (frame := _read(spark, request, spans(stretches, side), side, connections[side])) is not None
    ]
    found = {(range_.tp, side): Digest() for range_ in stretches for side in (SOURCE, TARGET)}
    if frames:
        for row in reduce(lambda one, other: one.unionByName(other), frames).collect():
            side, topic, partition, digest = json.loads(row.answer)
            found[TopicPartition(topic, partition), side] += Digest(**digest)
    return found


def spans(ranges: Sequence[PartitionRange], side: str) -> dict[TopicPartition, tuple[int, int]]:
    """Offsets of each partition on ``side``, from, and up to without."""
    return {
        one.tp: (one.source_start, one.source_end) if side == SOURCE else (one.target_start, one.target_end)
        for one in ranges
    }


def _read(
    spark: SparkSession,
    request: ValidationRequest,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    side: str,
    properties: Mapping[str, str],
) -> DataFrame | None:
    """Offsets of each partition from, and up to without. None if there is not one."""
    from pyspark.sql import functions as f

    names = request.names(side)
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for tp, (start, end) in wanted.items():
        if start < end:
            topic = names.on_target(tp.topic)
            starts.setdefault(topic, {})[str(tp.partition)] = start
            ends.setdefault(topic, {})[str(tp.partition)] = end
    if not starts:
        return None
    assigned = {topic: [int(partition) for partition in parts] for topic, parts in starts.items()}
    frame = (
        spark.read.format("kafka")
        .options(**{f"kafka.{name}": value for name, value in properties.items()})
        .options(**_TUNING)
        .option("kafka.isolation.level", request.isolation if side == SOURCE else "read_uncommitted")
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(starts))
        .option("endingOffsets", json.dumps(ends))
        .option("includeHeaders", "true")
        .option("failOnDataLoss", "true")
        .option("groupIdPrefix", "kafka-migration-validation")
        .load()
    )
    if names.are_same:
        return frame
    known = chain.from_iterable((f.lit(name), f.lit(names.known_as(name))) for name in starts)
    return frame.withColumn("topic", f.create_map(*known)[f.col("topic")])


def hashed(records: DataFrame) -> DataFrame:
    """What counts of the records of Spark's Kafka source: where they stand, their size, and their hash."""

    return records.select(
        "topic",
        "partition",
        "offset",
        record_hash().alias("hash"),
        (_length("key") + _length("value")).alias("size"),
        is_unclear().alias("unclear"),
    )


def _summed(side: str, stretches: Mapping[TopicPartition, PartitionRange]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def work(found: Iterator[Any]) -> Iterator[Any]:
        import numpy as np
        import pyarrow
        import pyarrow.compute as pc

        sums: dict[TopicPartition, Any] = {}
        unclear: dict[TopicPartition, int] = {}
        for rows in found:
            left = rows
            while len(left):
                topic, partition = left.column("topic"), left.column("partition")
                tp = TopicPartition(topic[0].as_py(), partition[0].as_py())
                here = pc.and_(pc.equal(topic, tp.topic), pc.equal(partition, tp.partition))
                mine, left = left.filter(here), left.filter(pc.invert(here))
                numbers = {name: mine.column(name).to_numpy() for name in ("offset", "hash", "size")}
                nothing = np.zeros(len(mine), np.int64)
                counted = sums.setdefault(tp, _SUMS[side](stretches[tp]))
                counted.add(
                    Columns(
                        numbers["offset"], numbers["hash"].view(np.uint64), numbers["size"], nothing, nothing, nothing
                    )
                )
                unclear[tp] = unclear.get(tp, 0) + mine.column("unclear").to_numpy(zero_copy_only=False).sum()
        texts = []
        for tp, counted in sums.items():
            digest = counted.digest()
            values = {one.name: getattr(digest, one.name) for one in fields(digest)}
            texts.append(json.dumps([side, *tp, {**values, "unclear": int(unclear[tp])}]))
        yield pyarrow.record_batch({"answer": pyarrow.array(texts, pyarrow.string())})

    return work


def _length(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.octet_length(f.col(name)), f.lit(0)).cast("long")


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
