"""The third reader: Spark's own Kafka source, on a small share of what record level has read.

The Java client fetches and decodes; what comes out is hashed record by record, without the compiled kernel. It is too
slow to read everything, and so it reads some stretches of every kind of batch; where it finds another digest than
record level's own reader does, one of the two is wrong, and nobody knows which.

A header's name that is not UTF-8 reaches us as the Java client decodes it: any such bytes become one and the same
character. Records with such names are counted (``unclear``), and their hashes not compared.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.decode.columns import Record, columns_of
from kafka_migration.compare.digests import SOURCE, TARGET, Digest
from kafka_migration.compare.placing import SourceSums, TargetSums
from kafka_migration.compare.reader.handled import Handled
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
_SUMS = {SOURCE: SourceSums, TARGET: TargetSums}


def digests(
    spark: SparkSession, request: ValidationRequest, stretches: Sequence[PartitionRange], connections: Connections
) -> dict[tuple[TopicPartition, str], Digest]:
    """Of each of ``stretches``, one a partition, both sides: everything that stands there, by (partition, side). One
    job. Raises what Spark raises if anything could not be read."""
    frames = [
        frame.mapInArrow(_summed(side, {range_.tp: range_ for range_ in stretches}), "answer string")
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
    if not names.are_same:
        known = chain.from_iterable((f.lit(name), f.lit(names.known_as(name))) for name in starts)
        frame = frame.withColumn("topic", f.create_map(*known)[f.col("topic")])
    return frame.select(
        "topic", "partition", "offset", f.unix_millis("timestamp").alias("time"), "key", "value", "headers"
    )


def _summed(side: str, stretches: Mapping[TopicPartition, PartitionRange]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def work(found: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        sums: dict[TopicPartition, Any] = {}
        unclear: dict[TopicPartition, int] = {}
        handled: dict[TopicPartition, Handled | None] = {}
        for rows in found:
            names = ("topic", "partition", "offset", "time", "key", "value", "headers")
            read: dict[TopicPartition, list[Record]] = {}
            for topic, partition, *record, headers in zip(*(rows.column(n).to_pylist() for n in names), strict=True):
                tp = TopicPartition(topic, partition)
                if tp not in sums:
                    range_ = stretches[tp]
                    sums[tp], unclear[tp] = _SUMS[side](range_), 0
                    span = (range_.source_start, range_.source_end)
                    handled[tp] = Handled.of(range_, *span, range_.left_out) if side == SOURCE else None
                named, is_unclear = _headers(headers)
                unclear[tp] += is_unclear
                read.setdefault(tp, []).append((*record, named))
            for tp, records in read.items():
                sums[tp].add(columns_of(change(records) if (change := handled[tp]) else records))
        answers = [
            json.dumps([side, *tp, {**asdict(counted.digest()), "unclear": unclear[tp]}])
            for tp, counted in sums.items()
        ]
        yield pyarrow.record_batch({"answer": answers})

    return work


def _headers(given: Sequence[Mapping[str, Any]] | None) -> tuple[list[tuple[bytes, bytes | None]], bool]:
    """Names and values, and whether the Java client has put something in place of a name's bytes."""
    names = [one["key"] for one in given or ()]
    values = [one["value"] for one in given or ()]
    return list(zip((name.encode() for name in names), values, strict=True)), any("\ufffd" in name for name in names)
