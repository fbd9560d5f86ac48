"""Records of both clusters through Spark's own Kafka source, aligned by the offset map, digested by segment.

All of it runs in the JVM: no Python on executors, no shuffle of records. Alignment is a broadcast join of the target's
offsets with the pieces of the offset map. The alternative, a rank within the segment (``row_number``), needs every
record's hash sorted by offset, shifts behind the first missing record, and could not show that the map is wrong.

Rows are counted, never offsets. The source fails rather than skip what it cannot read (``failOnDataLoss``), which
becomes a :class:`ReadFailure` in :mod:`kafka_migration.compare.records.job`. Tried with and without Spark's V2 path for
batch reads: no difference beyond noise, and neither shows options in plans, so its default (V1) stays.

One 64-bit hash is over everything that a record is: key, value, headers in order, timestamp. Spark's ``xxhash64``
chains: the hash of one column is the seed of the next, and the length of bytes is part of their hash, so ("ab", "c")
and ("a", "bc") differ. But it *skips nulls*, in columns as in arrays: (null, "a") would equal ("a", null), and null
would equal absent. So behind the headers come the places of those without a value, and flags go in last: whether key
and value are null, how many headers there are, and how many of them have no value. By these numbers it is known which
link of the chain was what, so that no two records have the same links. Batch level computes the same in Python
(:mod:`kafka_migration.compare.record_digest`; a test holds them equal).

Not in the hash: the timestamp's type, which is the topic's. Records that the source's broker stamped (LogAppendTime)
are copied with these very timestamps as their own (CreateTime), and get the type back with the topic's configs.

The hash finds accidents, not forgers: xxHash is not keyed. A header's name that is not UTF-8 reaches us as the Java
client decodes it: any such bytes become one and the same character. Records with such names are counted
(:func:`is_unclear`), and never called equal by this reader alone.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentDigest, recombine
from kafka_migration.compare.record_digest import HEADERS_FROM, KEY_IS_NULL, LACKING_FROM, VALUE_IS_NULL
from kafka_migration.compare.records.compacted import BEHIND, NOT_MIRRORED, with_compacted
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.segments import Pieces, around, bucket_shift, buckets
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
#: A partition with more is read by several tasks.
_OFFSETS_PER_TASK = 1_000_000

#: Properties of a JVM client, by side. They hold secrets: only ever as options of a Kafka source.
Connections = Mapping[str, Mapping[str, str]]
_UNLIKELY = b"no header has this value"
"""One that has it costs time only."""


def digests(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], connections: Connections
) -> list[SegmentDigest]:
    """Read ``ranges`` on both sides, in one job. Raises what Spark raises if anything could not be read.

    Where they are several of a partition, its rows add up.
    """
    parts: list[DataFrame] = []
    # Keys are looked for in all of a compacted log; of others, what is left out is not even read: it may be damaged.
    for alike in _alike([part for range_ in ranges for part in ((range_,) if range_.by_key else around(range_))]):
        sides = _sides(spark, request, alike, connections)
        if sides and alike[0].by_key:
            sides = [with_compacted(_union(sides), alike, int(time.time() * 1000))]
        # Each side summed before they are joined: a union of records would copy each of their rows once more.
        parts += map(by_segment, sides)
    return [_digest_of(row.asDict()) for row in _union(parts).collect()] if parts else []


def _sides(
    spark: SparkSession, request: ValidationRequest, ranges: Sequence[PartitionRange], connections: Connections
) -> list[DataFrame]:
    """What counts of the records of either side, and of compacted logs what was written behind the pinned ends."""
    found: list[DataFrame] = []
    for side in (SOURCE, TARGET):
        records = aligned_records(spark, request, ranges, side, connections[side])
        if records is not None:
            found.append(hashed(records, side, request.segment_records))
        tails = _tails(spark, request, ranges, side, connections[side]) if ranges[0].by_key else None
        if tails is not None:
            found.append(tails)
    return found


def _digest_of(row: Mapping[str, Any]) -> SegmentDigest:
    same = ("rows", "bytes", "misplaced", "compacted", "unclear")
    digest = Digest(
        **{name: row[name] for name in same},
        total=recombine(row["total_low"], row["total_high"]),
        ordered=recombine(row["ordered_low"], row["ordered_high"]),
    )
    return SegmentDigest(
        side=row["side"], topic=row["topic"], partition=row["partition"], segment=row["segment"], digest=digest
    )


def _alike(ranges: Sequence[PartitionRange]) -> list[list[PartitionRange]]:
    """``ranges`` in groups that one frame can read: compacted or not, and each partition once."""
    groups: dict[tuple[bool, int], list[PartitionRange]] = {}
    seen: Counter[TopicPartition] = Counter()
    for range_ in ranges:
        groups.setdefault((range_.by_key, seen[range_.tp]), []).append(range_)
        seen[range_.tp] += 1
    return list(groups.values())


def aligned_records(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    side: str,
    properties: Mapping[str, str],
) -> DataFrame | None:
    """The records of one side as Spark's Kafka source gives them, with ``source_offset`` and ``in_run`` added.

    On the target, ``source_offset`` is where the map has the record on the source, and ``in_run`` whether
    the map has a record there at all. None if no range of this side holds an offset.
    """
    from pyspark.sql import functions as f

    spans = {
        range_.tp: (range_.source_start, range_.source_end)
        if side == SOURCE
        else (range_.target_start, range_.target_end)
        for range_ in ranges
    }
    frame = _read(spark, request, spans, side, properties)
    if frame is None:
        return None
    if side == SOURCE:
        for range_ in ranges:
            for start, end in range_.left_out:
                here = (f.col("topic") == range_.topic) & (f.col("partition") == range_.partition)
                frame = frame.where(~(here & (f.col("offset") >= start) & (f.col("offset") < end)))
        return frame.withColumns({"source_offset": f.col("offset"), "in_run": f.lit(True)})
    return _aligned(spark, frame, ranges)


def _read(
    spark: SparkSession,
    request: ValidationRequest,
    spans: Mapping[TopicPartition, tuple[int, int]],
    side: str,
    properties: Mapping[str, str],
) -> DataFrame | None:
    """Offsets of each partition from, and up to without. None if there is not one."""
    from pyspark.sql import functions as f

    names = request.names(side)
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    offsets = 0
    for tp, (start, end) in spans.items():
        if start < end:
            topic = names.on_target(tp.topic)
            starts.setdefault(topic, {})[str(tp.partition)] = start
            ends.setdefault(topic, {})[str(tp.partition)] = end
            offsets += end - start
    if not starts:
        return None
    tasks = max(sum(len(parts) for parts in starts.values()), -(-offsets // _OFFSETS_PER_TASK))
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
        .option("minPartitions", tasks)
        .load()
    )
    if names.are_same:
        return frame
    known = chain.from_iterable((f.lit(name), f.lit(names.known_as(name))) for name in starts)
    return frame.withColumn("topic", f.create_map(*known)[f.col("topic")])


def _aligned(spark: SparkSession, frame: DataFrame, ranges: Sequence[PartitionRange]) -> DataFrame:
    import pyarrow
    from pyspark.sql import functions as f

    them = [(range_, Pieces(range_)) for range_ in ranges]
    shift = bucket_shift(found for _, found in them)
    parts = [_table(range_, found, shift) for range_, found in them]
    # From Arrow, so that the JVM builds the table: from Python rows it would need Python on the executors.
    table = spark.createDataFrame(pyarrow.concat_tables(parts))
    found = f.broadcast(table.withColumnsRenamed({"topic": "piece_topic", "partition": "piece_partition"}))
    offset, start = f.col("offset"), f.col("piece_start")
    same = (
        (f.col("topic") == f.col("piece_topic"))
        & (f.col("partition") == f.col("piece_partition"))
        & (f.shiftright(offset, shift) == f.col("bucket"))
        & (offset >= start)
        & (offset < f.col("piece_end"))
    )
    in_run = f.coalesce(f.col("piece_in_run"), f.lit(False))
    # Left: a record that no piece covers must be counted, not dropped. It counts to no segment of the source (-1).
    place = f.when(in_run, f.col("piece_source") + offset - start).otherwise(
        f.coalesce(f.col("piece_source"), f.lit(-1))
    )
    joined = frame.join(found, same, "left")
    return joined.select(*[frame[name] for name in frame.columns], place.alias("source_offset"), in_run.alias("in_run"))


def _table(range_: PartitionRange, found: Pieces, shift: int) -> Any:
    """The pieces of one range as an Arrow table, a row for each bucket that a piece reaches into."""
    import pyarrow

    which, bucket = buckets(found, shift)
    columns = {
        "topic": pyarrow.repeat(pyarrow.scalar(range_.topic), len(which)),
        "partition": pyarrow.repeat(pyarrow.scalar(range_.partition, pyarrow.int32()), len(which)),
        "bucket": bucket,
        "piece_start": found.starts[which],
        "piece_end": found.ends[which],
        "piece_source": found.sources[which],
        "piece_in_run": found.in_run[which],
    }
    return pyarrow.table(columns)


def hashed(records: DataFrame, side: str, segment_records: int) -> DataFrame:
    """What counts of the records of :func:`aligned_records`: segment, place, size, and hashes."""
    from pyspark.sql import functions as f

    return records.select(
        f.lit(side).alias("side"),
        "topic",
        "partition",
        # `div`, since `/` would go through doubles, in which large offsets are not exact.
        f.expr(f"if(source_offset < 0, -1L, source_offset div {segment_records}L)").alias("segment"),
        "source_offset",
        "in_run",
        (_length("key") + _length("value")).alias("size"),
        record_hash().alias("hash"),
        is_unclear().alias("unclear"),
        f.lit(False).alias("compacted"),
        # For compacted logs only; of others they are never computed.
        f.when(f.col("key").isNotNull(), f.xxhash64("key")).alias("key_hash"),
        f.col("value").isNull().alias("is_tombstone"),
        f.unix_millis("timestamp").alias("timestamp_ms"),
        f.lit(False).alias("behind"),
    ).withColumn("ordered", ordered_hash(f.col("hash"), f.col("source_offset")))


def _tails(
    spark: SparkSession,
    request: ValidationRequest,
    ranges: Sequence[PartitionRange],
    side: str,
    properties: Mapping[str, str],
) -> DataFrame | None:
    """The keys of what was written behind the pinned ends, as rows of :func:`hashed` that count nowhere."""
    from pyspark.sql import functions as f

    spans = {
        range_.tp: (range_.source_end, range_.source_tail)
        if side == SOURCE
        else (range_.target_end, range_.target_tail)
        for range_ in ranges
    }
    frame = _read(spark, request, spans, side, properties)
    if frame is None:
        return None
    place = f.lit(BEHIND)
    for range_ in ranges if side == SOURCE else ():
        if range_.source_mirrored < range_.source_tail:
            here = (f.col("topic") == range_.topic) & (f.col("partition") == range_.partition)
            place = f.when(here & (f.col("offset") >= range_.source_mirrored), NOT_MIRRORED).otherwise(place)
    rows = frame.withColumns({"source_offset": place, "in_run": f.lit(False)})
    return hashed(rows, side, request.segment_records).withColumn("behind", f.lit(True))


def by_segment(both: DataFrame) -> DataFrame:
    """One row a side and segment: counts and sums over what :func:`hashed` gives."""
    from pyspark.sql import functions as f

    counts = ~f.col("compacted")

    def total(column: Column) -> Column:
        return f.coalesce(f.sum(f.when(counts, column)), f.lit(0))

    return both.groupBy("side", "topic", "partition", "segment").agg(
        f.count_if(counts).alias("rows"),
        total(f.col("size")).alias("bytes"),
        # A sum of whole hashes overflows, which is an error under ANSI. Halves do not, up to 2^31 records a segment.
        total(_low("hash")).alias("total_low"),
        total(_high("hash")).alias("total_high"),
        total(_low("ordered")).alias("ordered_low"),
        total(_high("ordered")).alias("ordered_high"),
        f.count_if(~f.col("in_run")).alias("misplaced"),
        f.count_if(f.col("compacted")).alias("compacted"),
        f.count_if(counts & f.col("unclear")).alias("unclear"),
    )


def _length(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.coalesce(f.octet_length(f.col(name)), f.lit(0)).cast("long")


def _low(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.col(name).bitwiseAND(f.lit(0xFFFFFFFF))


def _high(name: str) -> Column:
    from pyspark.sql import functions as f

    return f.shiftright(f.col(name), 32)


def _union(parts: Sequence[DataFrame]) -> DataFrame:
    """All parts as one job, so that both clusters are read at the same time."""
    return reduce(lambda one, other: one.unionByName(other), parts)


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
