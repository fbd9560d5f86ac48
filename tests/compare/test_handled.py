"""Topics with handlers, on real brokers: validated as the handler makes them, at whatever level, by all readers."""

import random
import uuid
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from pyspark.sql import SparkSession

from kafka_migration.compare.digests import SOURCE
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.reader.handled import Handled
from kafka_migration.compare.reader.log import Log
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality, ValidationResult
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.task import side_of
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.handlers import Handle
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.steps import controls, mirror
from kafka_migration.validation import validate
from kafka_migration.validation.job import read_request, run, write_json
from kafka_migration.validation.pins import Tail
from tests.copy.bench import BRIEF, ThreadRunner, records
from tests.copy.test_changes import Made, made
from tests.copy.test_transactions import interleave
from tests.handlers import altering, by_offset, fails_on_poison, for_all, handled, handler, masked
from tests.kafka_tools import ToSend, produce, read_all, set_topic_config
from tests.wire.made import NOW, made_batch


def planned(function: Handle, **fields: Any) -> dict[str, Any]:
    """A section of a plan."""
    return {"handlers": [{"topics": [".*"], **asdict(handler(function)), **fields}]}


@pytest.fixture
def topic() -> str:
    return f"handled-{uuid.uuid4().hex[:8]}.orders"


@pytest.fixture
def it(source_cluster, target_cluster, topic) -> Iterator[Made]:
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with made(*servers, {topic: 2}, **planned(by_offset)) as found:
        for codec in ("none", "lz4", "zstd"):
            produce(found.bench.source, topic, records(400, 2, seed=1), **{"compression.type": codec})
        interleave(found.bench.source, topic, transactions=10, seed=2)
        yield found


def validated(
    it: Made, spark: SparkSession, folder: Path, level: Level, log: list[str] | None = None
) -> ValidationResult:
    """By real Spark tasks, in this process."""
    clusters = {"source": it.bench.source, "target": it.bench.target}
    jvm = {side: {"bootstrap.servers": servers} for side, servers in clusters.items()}
    wires = {side: {"bootstrap_servers": servers} for side, servers in clusters.items()}

    def answer(asked: Path, path: Path) -> None:
        report = run(spark, read_request(asked), jvm, wires, log=it.told.append)
        write_json(path, report.as_dict())

    tools = validate.Tools(
        run=answer, suite=lambda *_: Expectations(success=True, failed=()), consumers=lambda _ctx: {}
    )
    return validate.apply(it.ctx, reports=folder, level=level, tools=tools).result


def counts(found: ValidationResult) -> tuple[int, int]:
    """How many records were dropped and changed."""
    digests = [partition.source for partition in found.partitions if partition.source is not None]
    return sum(digest.dropped for digest in digests), sum(digest.changed for digest in digests)


def handled_of(it: Made, function: Handle) -> tuple[int, int]:
    """The same, by librdkafka."""
    dropped = changed = 0
    for rows in read_all(it.bench.source, it.topics).values():
        after = handled(rows, function)
        dropped += len(rows) - len(after)
        changed += len(set(after) - set(rows))
    return dropped, changed


@pytest.mark.parametrize("codec", range(5))
def test_records_of_every_format_are_handled_as_they_are_decoded_around_what_was_given_up(codec):
    builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=10**6)
    for n in range(6):
        builder.append(n, timestamp=NOW + n, key=b"k", value=b"v%d" % n)
    data = bytes(builder.build()) + made_batch([b"w%d" % n for n in range(6)], base_offset=6, codec=codec)
    change = Handled(handler(by_offset).load(), 1, 11, ((5, 6),))
    log = Log(data)
    found = log.decoded(np.ones(len(log), np.bool_), change)
    # Of the rest of 1 to 10, 3, 6 and 9 are dropped, and 10 is changed; 5, which was given up, is not looked at.
    assert sorted(found.offsets.tolist()) == [1, 2, 4, 7, 8, 10]
    assert (change.dropped, change.changed) == (3, 1)
    assert dict(zip(found.offsets.tolist(), found.sizes.tolist(), strict=True))[10] == 300


def test_behind_the_pinned_end_of_a_compacted_topic_the_keys_count_and_no_handler_is_asked():
    orders = Orders(level=Level.RECORD, committed=True, seconds=1.0, wires={})
    for keeps_keys in (True, False):
        tile = PartitionRange(
            topic="t",
            partition=0,
            source_start=0,
            source_end=5,
            target_start=0,
            target_end=5,
            runs=Runs(()),
            handler=handler(masked, keeps_keys=keeps_keys),
        )
        sides = [side_of(SOURCE, tile, Mock(), orders, span=span) for span in (None, (5, 9))]
        assert [side.handled is not None for side in sides] == [True, not keeps_keys]


@pytest.mark.long
@pytest.mark.parametrize("level", Level)
def test_copy_is_equal_to_what_the_handler_makes_of_the_source(it, spark, tmp_path, level):
    mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True)
    found = validated(it, spark, tmp_path, level)
    assert (found.verdict, found.exit_code) == (Equality.EQUAL, 0)
    assert {segment.level for partition in found.partitions for segment in partition.segments} == {"record"}
    assert counts(found) == handled_of(it, by_offset)
    assert any("Spark's Kafka source: it agrees" in line for line in it.told)
    # Kept, as long as the handler is the same.
    again = validated(it, spark, tmp_path, level)
    assert all(segment.kept for partition in again.partitions for segment in partition.segments)
    assert counts(again) == counts(found)


@pytest.mark.long
def test_record_that_is_altered_on_the_target_is_found_and_named(it, spark, tmp_path, topic):
    settings = Settings(streams=1, epoch_seconds=5, handler_of=for_all(altering), limits=Limits(**BRIEF))
    it.bench.mirror(settings=settings).run(until_caught_up=True)
    for level in Level:
        found = validated(it, spark, tmp_path, level)
        assert found.verdict is Equality.DIFFERENT
        for partition in found.partitions:
            assert partition.drilled is not None
            assert partition.drilled.counts == {Fault.MUTATION: 1}
            (example,) = partition.drilled.examples
            assert example.source_offset == 40


@pytest.mark.long
def test_what_was_compared_by_another_handler_is_read_again(it, spark, tmp_path):
    mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True)
    assert validated(it, spark, tmp_path, Level.RECORD).verdict is Equality.EQUAL
    it.ctx.plan = it.ctx.plan.model_copy(update={"handlers": None})
    assert validated(it, spark, tmp_path, Level.RECORD).verdict is Equality.DIFFERENT


@pytest.mark.long
def test_record_that_was_given_up_since_the_handler_fails_on_it_is_not_compared(
    source_cluster, target_cluster, spark, tmp_path, topic
):
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with made(*servers, {topic: 2}, **planned(fails_on_poison)) as it:
        produce(it.bench.source, topic, records(40, 2, seed=4))
        produce(it.bench.source, topic, [ToSend(b"before"), ToSend(b"poison"), ToSend(b"behind"), ToSend(b"last")])
        bad = TopicPartition(topic, 0)
        assert mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True).halted == (bad,)
        assert it.ctx.link.halts()[bad].source_offset == 21
        controls.resume_halted(it.ctx, at=[(bad, 22)], by="ada")
        assert mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True).halted == ()
        found = validated(it, spark, tmp_path, Level.RECORD)
        assert found.verdict is Equality.EQUAL
        (detail,) = [partition.detail for partition in found.partitions if partition.tp == bad]
        assert "source offsets 21..22 were given up" in detail


@pytest.mark.long
def test_compacted_topic_is_compared_by_its_keys_as_its_values_are_masked(
    compacting, target_cluster, spark, tmp_path, topic
):
    servers = compacting.bootstrap_servers, target_cluster.bootstrap_servers
    with made(*servers, {topic: 1}, **planned(masked, keeps_keys=True)) as it:
        set_topic_config(it.bench.source, topic, {"cleanup.policy": "compact"})
        chance = random.Random(1)
        for n in range(300):
            value = None if chance.random() < 0.1 else b"%d" % n
            produce(it.bench.source, topic, [ToSend(value, b"k%d" % chance.randrange(30), timestamp=1_700_000_000_000)])
        mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True)
        assert validated(it, spark, tmp_path, Level.RECORD).verdict is Equality.EQUAL
        values = {row.value for rows in read_all(it.bench.target, it.topics).values() for row in rows}
        assert values == {None, b"*"}


def test_tail_is_compared_as_the_handler_makes_it(it, topic):
    mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True)
    tail = Tail(it.ctx)
    produce(it.bench.source, topic, records(60, 2, seed=3))
    mirror.apply(it.ctx, ThreadRunner(), until_caught_up=True)
    tail.begin({tp: position.source for tp, position in it.ctx.link.positions().items()})
    assert "40 records of 2 partitions were copied since, and are equal" in tail.equal(60)
