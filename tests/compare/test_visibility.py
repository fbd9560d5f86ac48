"""Equal records that a consumer of committed records does not see, or that would vanish early, are not equal: on real
brokers, at every level."""

import struct
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import confluent_kafka
import crc32c
import pytest
from pyspark.sql import SparkSession

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality
from kafka_migration.compare.verdict import judge
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.validation.job import run
from tests.compare.lab import FIRST_TIMESTAMP, Copied, Lab, request_of
from tests.kafka_tools import ToSend, create_topics, produce, stable_ends
from tests.mutation.validator import validator
from tests.waiting import wait_until
from tests.wire.made import wired

COUNT = 12
_BITS = {"delete horizon": 0x40, "unknown bit 7": 0x80, "unknown bit 12": 0x1000}
_RECORDS = [ToSend(b"value %d" % n, b"key %d" % n, 0, FIRST_TIMESTAMP + n) for n in range(COUNT)]


def _topic(lab: Lab, name: str) -> str:
    """Its source's side: the records, as any producer would send them."""
    topic = f"visibility-{name.replace(' ', '-')}-{uuid.uuid4().hex[:6]}"
    for servers in lab.servers.values():
        create_topics(servers, {topic: 1}, {"retention.ms": "-1"})
    produce(lab.servers[SOURCE], topic, _RECORDS)
    return topic


def _copied(lab: Lab, topic: str, attributes: int) -> None:
    """The source's batches with other attributes, which the broker takes as they are."""
    tp = TopicPartition(topic, 0)
    with wired(lab.servers[SOURCE], topic) as wire:
        stored = [batch for _, batch in wire.stored(tp)]
    with wired(lab.servers[TARGET], topic) as wire:
        for batch in stored:
            made = bytearray(batch)
            struct.pack_into(">q", made, 0, 0)
            struct.pack_into(">h", made, 21, attributes)
            struct.pack_into(">qhi", made, 43, -1, -1, -1)
            struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
            ((answer,),) = [wire.append({tp: bytes(made)})]
            assert answer[0].error == 0


@contextmanager
def _transaction(lab: Lab, topic: str) -> Iterator[confluent_kafka.Producer]:
    producer = confluent_kafka.Producer({"bootstrap.servers": lab.servers[TARGET], "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    for one in _RECORDS:
        producer.produce(topic, one.value, one.key, partition=0, timestamp=one.timestamp or 0)
    assert producer.flush(60) == 0
    yield producer


def _range(topic: str) -> PartitionRange:
    ends = PartitionEnds(start=0, end=COUNT)
    found = OffsetMap([Run(0, 0, COUNT)], source_end=COUNT, target_end=COUNT)
    return PartitionRange.pinned(TopicPartition(topic, 0), found, source=ends, target=ends)


@pytest.fixture(scope="module")
def topics(lab: Lab) -> dict[str, str]:
    """A topic for every way in which the target may hide its records, and one that hides none."""
    found = {name: _topic(lab, name) for name in ("none", "committed", "aborted", *_BITS)}
    _copied(lab, found["none"], 0)
    for name, bit in _BITS.items():
        _copied(lab, found[name], bit)
    for name, ends in (("committed", "commit_transaction"), ("aborted", "abort_transaction")):
        with _transaction(lab, found[name]) as producer:
            getattr(producer, ends)(60)
        tp = TopicPartition(found[name], 0)
        wait_until(
            lambda tp=tp: stable_ends(lab.servers[TARGET], {tp.topic: 1})[tp] == COUNT + 1,
            "the marker",
        )
    return found


@pytest.mark.parametrize("level", Level)
def test_records_in_batches_that_consumers_see_otherwise_are_different(
    lab: Lab, spark: SparkSession, topics: dict[str, str], level: Level
) -> None:
    request = replace(request_of(map(_range, topics.values())), level=level)
    report = run(spark, request, lab.connections, lab.wires)
    results = {one.topic: one for one in judge(request, report, {})}
    assert {name: results[topic].verdict for name, topic in topics.items()} == {
        name: Equality.EQUAL if name == "none" else Equality.DIFFERENT for name in topics
    }
    for name, topic in topics.items():
        if name != "none":
            said = name if name in _BITS else "transactional"
            assert f"attributes that the mirror never writes ({said}" in results[topic].detail


@pytest.mark.parametrize("level", Level)
def test_drill_names_the_batch_and_its_attributes(
    lab: Lab, spark: SparkSession, topics: dict[str, str], level: Level
) -> None:
    ranges = {name: _range(topics[name]) for name in ("none", "aborted", "unknown bit 7")}
    link = Copied(
        {range_.tp: OffsetMap([Run(0, 0, COUNT)], source_end=COUNT, target_end=COUNT) for range_ in ranges.values()}
    )
    with validator(lab.servers[SOURCE], lab.servers[TARGET], session=spark) as it:
        found = it.validate(link, {r.topic: 1 for r in ranges.values()}, segment_records=1_000, level=level).result
    by_topic = {partition.topic: partition for partition in found.partitions}
    assert by_topic[topics["none"]].drilled is None
    for name, names in (("aborted", "transactional"), ("unknown bit 7", "unknown bit 7")):
        drilled = by_topic[topics[name]].drilled
        assert drilled is not None
        assert drilled.counts == {Fault.VISIBILITY: COUNT}
        assert drilled.first is not None
        assert (drilled.first.source_offset, drilled.first.target_offset) == (0, 0)
        assert drilled.first.detail.endswith(names)


def test_open_transaction_before_the_pinned_end_is_not_equal(lab: Lab, spark: SparkSession) -> None:
    topic = _topic(lab, "open")
    _copied(lab, topic, 0)
    more = [replace(one, timestamp=FIRST_TIMESTAMP + 100 + n) for n, one in enumerate(_RECORDS)]
    tp = TopicPartition(topic, 0)
    with (
        validator(lab.servers[SOURCE], lab.servers[TARGET], session=spark) as it,
        _transaction(lab, topic) as producer,
    ):
        # What the mirror writes behind it is as the source's, and yet consumers of committed records wait.
        produce(lab.servers[SOURCE], topic, more)
        produce(lab.servers[TARGET], topic, more)
        runs = [Run(0, 0, COUNT), Run(COUNT, 2 * COUNT, COUNT)]
        link = Copied({tp: OffsetMap(runs, source_end=2 * COUNT, target_end=3 * COUNT)})
        found = it.validate(link, {topic: 1}, segment_records=1_000)
        (result,) = found.result.partitions
        assert (result.unstable, found.verdict) == (2 * COUNT, Equality.DIFFERENT)
        assert f"last stable offset is {COUNT}, before the pinned end {3 * COUNT}" in result.detail
        assert not found.expectations.success
        producer.abort_transaction(60)
