"""Logs of every kind, copied by the mirror itself and read by Spark: equal where they are, and different where not."""

import dataclasses
import uuid
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from kafka_migration.compare.digests import SOURCE
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.records.compacted import outcomes
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.verdict import judge
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.validation.job import run as at_level
from kafka_migration.wire.records import RawRecord, write_varint
from tests.compare.lab import FIRST_TIMESTAMP, Lab, Wanted, request_of, run_at_record_level
from tests.copy.bench import bench, records
from tests.copy.test_compaction import COMPACTED, rows, write
from tests.kafka_tools import ToSend, create_topics, produce, read_all, set_topic_config, stable_ends
from tests.waiting import wait_until
from tests.wire.logs import batch_of
from tests.wire.made import NOW, field, wired

EQUAL, DIFFERENT = Equality.EQUAL, Equality.DIFFERENT


def _ranges(it, *, compacted: bool = False) -> list[PartitionRange]:
    """Pinned as the phase pins them: at the source's last stable offsets."""
    stable, found = stable_ends(it.source, it.topics), it.link.offset_maps()
    return [
        PartitionRange.pinned(
            tp,
            found[tp],
            source=PartitionEnds(start=0, end=end),
            target=PartitionEnds(start=0, end=found[tp].target_end),
            compacted=compacted,
        )
        for tp, end in stable.items()
    ]


def _judged(spark, it, ranges):
    request, lab = request_of(ranges, segment_records=100), Lab(it.source, it.target)
    report = run_at_record_level(spark, request, lab)
    assert not any(one.failure for one in report.outcomes)
    results: list[Any] = judge(request, report, {})
    by_batch = dataclasses.replace(request, level=Level.BATCH)
    others: list[Any] = judge(by_batch, at_level(spark, by_batch, lab.connections, lab.wires), {})
    for one, other in zip(results, others, strict=True):
        # Both levels see the same, however differently they read it.
        assert (other.verdict, other.source.rows, other.target.rows) == (one.verdict, one.source.rows, one.target.rows)
    return results


def test_transactions_are_compared_as_a_consumer_of_committed_records_sees_them(source_cluster, target_cluster, spark):
    topic = f"kinds-{uuid.uuid4().hex[:8]}"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        # Open until the validation is over, which a minute (the default) may not be enough for.
        timeout = {"transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": it.source, "transactional.id": topic, **timeout})
        producer.init_transactions(30)
        for n in range(9):
            producer.begin_transaction()
            for at in range(20):
                producer.produce(topic, b"%d of %d" % (at, n), partition=at % 2, timestamp=NOW + at)
            assert producer.flush(30) == 0
            (producer.abort_transaction if n % 3 == 2 else producer.commit_transaction)(30)
            produce(it.source, topic, records(10, 2, n))
        producer.begin_transaction()
        producer.produce(topic, b"never decided", partition=0)
        assert producer.flush(30) == 0
        produce(it.source, topic, records(10, 1, 99))
        assert it.mirror().run(until_caught_up=True).halted == ()
        results = _judged(spark, it, _ranges(it))
        assert [(r.verdict, r.detail) for r in results] == [(EQUAL, "equal")] * 2
        assert sum(r.source.rows for r in results) == 6 * 20 + 9 * 10
        # What an open transaction holds back is not on the target, and nobody misses it.
        producer.abort_transaction(30)


def test_aborted_record_on_the_target_would_be_found(source_cluster, target_cluster, spark):
    topic = f"kinds-{uuid.uuid4().hex[:8]}"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(30, 1, 5))
        it.mirror().run(until_caught_up=True)
        ranges = _ranges(it)
        produce(it.target, topic, [ToSend(b"aborted on the source")])
        (end,) = (row.offset + 1 for row in read_all(it.target, it.topics)[TopicPartition(topic, 0)][-1:])
        (result,) = _judged(spark, it, [dataclasses.replace(r, target_end=end) for r in ranges])
        assert (result.verdict, result.target.misplaced) == (DIFFERENT, 1)


def test_timestamps_that_the_source_gave_are_equal_as_the_targets_own(source_cluster, target_cluster, spark):
    topic = f"kinds-{uuid.uuid4().hex[:8]}"
    stamped = {"message.timestamp.type": "LogAppendTime"}
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=stamped) as it:
        produce(it.source, topic, records(300, 1, 6))
        set_topic_config(it.source, topic, {"message.timestamp.type": "CreateTime"})
        produce(it.source, topic, records(50, 1, 7))
        assert it.mirror().run(until_caught_up=True).records == 350
        (result,) = _judged(spark, it, _ranges(it))
        assert (result.verdict, result.source.rows) == (EQUAL, 350)


def test_what_compaction_took_since_it_was_copied_is_no_difference_and_all_else_is(compacting, target_cluster, spark):
    topic = f"kinds-{uuid.uuid4().hex[:8]}"
    with bench(compacting.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=COMPACTED) as it:
        write(it, topic, 150, first=0, seed=21)
        it.mirror().run(until_caught_up=True)
        copied = len(rows(it.target, topic))
        write(it, topic, 150, first=150, seed=22)
        wait_until(lambda: len(rows(it.source, topic)) < 120, "a compaction pass")
        it.mirror().run(until_caught_up=True)
        set_topic_config(it.source, topic, {"cleanup.policy": "delete"})
        left, there = len(rows(it.source, topic)), len(rows(it.target, topic))
        assert left < there
        (result,) = _judged(spark, it, _ranges(it, compacted=True))
        assert (result.verdict, result.source.rows, result.target.rows) == (EQUAL, left, left)
        assert result.target.compacted == there - left > 0
        assert f"{there - left} records were compacted away" in result.detail
        assert result.expected == left
        assert copied > 0


@pytest.mark.parametrize("compacted", [False, True])
def test_record_that_the_target_lacks_is_missed_on_compacted_topics_too(lab, spark, compacted):
    def drop(partitions):
        del partitions[0][15]

    copies = lab.copies({"equal": Wanted(), "dropped": Wanted(damage=drop)})
    request = lab.request(*copies.values())
    ranges = [dataclasses.replace(range_, compacted=compacted) for range_ in request.ranges]
    asked = request_of(ranges)
    report = run_at_record_level(spark, asked, lab)
    found = {one.topic: one.verdict for one in judge(asked, report, {})}
    assert found == {copies["equal"].topic: EQUAL, copies["dropped"].topic: DIFFERENT}


def test_compacted_partition_that_cannot_be_read_keeps_none_of_the_others_from_being_compared(lab, spark):
    copies = lab.copies({name: Wanted() for name in ("first", "broken", "last")})
    ranges = []
    for name, copy in copies.items():
        for range_ in lab.request(copy).ranges:
            shift = 10**6 if name == "broken" else 0
            runs = Runs(dataclasses.replace(run, target=run.target + shift) for run in range_.runs)
            ends = {"target_start": range_.target_start + shift, "target_end": range_.target_end + shift}
            ranges.append(dataclasses.replace(range_, **ends, runs=runs, compacted=True))
    asked, lines = request_of(ranges), list[str]()
    orders = Orders(level=Level.RECORD, committed=True, seconds=1.0, wires=lab.wires)
    found = outcomes(spark, asked, ranges, orders, log=lines.append)
    assert {(one.topic, one.is_same, bool(one.source.rows), one.failure) for one in found} == {
        (copies["first"].topic, True, True, ""),
        (copies["last"].topic, True, True, ""),
        (copies["broken"].topic, False, False, found[-1].failure),
    }
    assert "the log holds no such offset by now" in found[-1].failure
    assert lines == []


def test_loss_on_a_compacted_target_is_not_excused_by_what_only_the_source_has(lab, spark):
    def lose_the_last(partitions):
        partitions[0].pop()

    last = ToSend(b"of the key", b"of its own", 0, FIRST_TIMESTAMP)
    copy = lab.copies({"": Wanted(special={29: last}, damage=lose_the_last)})[""]
    (pinned,) = lab.request(copy).ranges
    produce(lab.servers[SOURCE], copy.topic, [dataclasses.replace(last, value=b"once more")])
    tail = lab.ends(SOURCE, copy.maps)[pinned.tp].end
    assert tail > pinned.source_end
    by_key = dataclasses.replace(pinned, target_compacted=True, source_tail=tail, target_tail=pinned.target_end)
    found = []
    for mirrored in (pinned.source_end, tail):
        asked = request_of([dataclasses.replace(by_key, source_mirrored=mirrored)])
        (result,) = judge(asked, run_at_record_level(spark, asked, lab), {})
        assert result.source is not None
        found.append((result.verdict, result.source.compacted))
    # A cleaner that had the newer record may have taken the older one, and that is all that is left to look for.
    assert found == [(DIFFERENT, 0), (EQUAL, 1)]


def test_time_beyond_what_spark_counts_is_inconclusive_and_times_before_1970_are_compared(lab, spark):
    def log(servers: str, topic: str, times: list[int]) -> None:
        create_topics(servers, {topic: 1}, {"message.timestamp.after.max.ms": str(2**63 - 1), "retention.ms": "-1"})
        with wired(servers, topic) as wire:
            for time in times:
                record = RawRecord(0, 0, 0, field(b"k") + field(b"v") + write_varint(0))
                made = batch_of([record], base_offset=0, last_delta=0, base_timestamp=time, max_timestamp=time)
                (answers,) = wire.append({TopicPartition(topic, 0): made})
                assert answers[0].error == 0

    found = dict[str, Any]()
    for name, times in (("past", [-1, 0, -5, 1, -(10**13)]), ("far", [2**63 - 1])):
        topic = f"kinds-{uuid.uuid4().hex[:8]}"
        for servers in lab.servers.values():
            log(servers, topic, times)
        ends = PartitionEnds(start=0, end=len(times))
        run_of = OffsetMap([Run(0, 0, len(times))], source_end=len(times), target_end=len(times))
        request = request_of([PartitionRange.pinned(TopicPartition(topic, 0), run_of, source=ends, target=ends)])
        (found[name],) = judge(request, run_at_record_level(spark, request, lab), {})
    assert (found["past"].verdict, found["past"].source.rows) == (EQUAL, 5)
    assert found["far"].verdict is Equality.INCONCLUSIVE


def test_names_of_headers_that_are_not_utf_8_are_told_apart_at_every_level(lab: Lab, spark: SparkSession) -> None:
    def log(servers: str, topic: str, name: bytes) -> None:
        create_topics(servers, {topic: 1}, {"retention.ms": "-1"})
        with wired(servers, topic) as wire:
            rest = field(b"k") + field(b"v") + write_varint(1) + field(name) + field(b"x")
            made = batch_of(
                [RawRecord(0, 0, 0, rest)],
                base_offset=0,
                last_delta=0,
                base_timestamp=FIRST_TIMESTAMP,
                max_timestamp=FIRST_TIMESTAMP,
            )
            (answers,) = wire.append({TopicPartition(topic, 0): made})
            assert answers[0].error == 0

    names = {"same": (b"\xff", b"\xff"), "other": (b"\xff", b"\xfe"), "plain": (b"h", b"h")}
    topics = {name: f"kinds-{name}-{uuid.uuid4().hex[:8]}" for name in names}
    for name, topic in topics.items():
        for servers, header in zip(lab.servers.values(), names[name], strict=True):
            log(servers, topic, header)
    ends, found = PartitionEnds(start=0, end=1), OffsetMap([Run(0, 0, 1)], source_end=1, target_end=1)
    ranges = [PartitionRange.pinned(TopicPartition(t, 0), found, source=ends, target=ends) for t in topics.values()]
    found_at = {}
    for level in Level:
        request = dataclasses.replace(request_of(ranges), level=level)
        results = {one.topic: one for one in judge(request, at_level(spark, request, lab.connections, lab.wires), {})}
        found_at[level] = {name: results[topic].verdict for name, topic in topics.items()}
    # Spark's source, which reads some of it again, cannot tell such names apart, and contradicts nobody.
    assert found_at == {level: {"same": EQUAL, "other": DIFFERENT, "plain": EQUAL} for level in Level}
