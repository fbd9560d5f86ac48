"""The mirror on real brokers: what arrives is what was there, at the offsets that the map says."""

import threading
import uuid
from dataclasses import replace

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as RdTopicPartition

from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.copy.task import intake
from kafka_migration.domain.errors import HaltedPartition, MigrationError, TakenOver
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.state.link import LinkState, Wish
from tests.copy.bench import Bench, ThreadRunner, assert_same, bench, records
from tests.kafka_tools import (
    ToSend,
    create_topics,
    delete_records,
    delete_topic,
    produce,
    read_all,
    set_topic_config,
)
from tests.waiting import UNDER_LOAD, wait_until

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def topic() -> str:
    return f"copy-{uuid.uuid4().hex[:8]}"


@pytest.mark.parametrize("codec", CODECS)
def test_log_that_begins_inside_a_batch_is_copied_exactly(source_cluster, target_cluster, topic, codec):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 3}) as it:
        produce(it.source, topic, records(6_000, 3, seed=1), **{"compression.type": codec, "batch.size": 30_000})
        delete_records(it.source, {TopicPartition(topic, p): 37 + 100 * p for p in range(3)})
        outcome = it.mirror().run(until_caught_up=True)
        assert outcome.reason == "caught_up"
        assert outcome.halted == ()
        assert assert_same(it) == 6_000 - 37 - 137 - 237 == outcome.records


@pytest.mark.parametrize("codec", CODECS)
def test_one_record_batches_of_several_partitions_arrive_in_order_and_joined(
    source_cluster, target_cluster, topic, codec
):
    # Answers that come back faster than a coroutine starts once overtook earlier ones, and halted the partition.
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 3}) as it:
        small = {"linger.ms": 0, "batch.num.messages": 1, "compression.type": codec}
        produce(it.source, topic, records(3_000, 3, seed=2), **small)
        outcome = it.mirror(settings=Settings(streams=2, epoch_seconds=2)).run(until_caught_up=True)
        assert outcome.halted == ()
        assert outcome.fences == 1
        assert outcome.batches < 300
        assert assert_same(it) == 3_000


def test_topic_that_takes_less_than_what_is_joined_gets_smaller_batches(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        set_topic_config(it.target, topic, {"max.message.bytes": "2000"})
        produce(it.source, topic, records(500, 1, seed=4), **{"linger.ms": 0, "batch.num.messages": 1})
        outcome = it.mirror(settings=Settings(streams=1, epoch_seconds=2)).run(until_caught_up=True)
        assert outcome.halted == ()
        assert 1 < outcome.fences < 8
        assert assert_same(it) == 500


def test_second_run_goes_on_where_the_first_stood_and_offsets_still_translate(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        for seed in range(3):
            produce(it.source, topic, records(1_000, 2, seed), **{"compression.type": "lz4"})
            assert it.mirror().run(until_caught_up=True).records == 1_000
        maps = it.link.offset_maps()
        assert assert_same(it) == 3_000
        assert {len(m) for m in maps.values()} == {3}, "one run per fence, and no more"


def test_source_end_and_offsets_below_the_log_start_translate(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(500, 1, 3))
        delete_records(it.source, {TopicPartition(topic, 0): 100})
        it.mirror().run(until_caught_up=True)
        found = it.link.offset_maps()[TopicPartition(topic, 0)]
        first = read_all(it.target, {topic: 1})[TopicPartition(topic, 0)][0]
        assert found.to_target(7) == first.offset
        assert found.to_target(100) == first.offset
        assert found.to_target(500) == first.offset + 400


def test_group_that_committed_before_the_first_record_reads_from_it_where_the_target_was_emptied(
    source_cluster, target_cluster, topic
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        tp = TopicPartition(topic, 0)
        produce(it.target, topic, records(50, 1, 7))
        delete_records(it.target, {tp: 50})
        produce(it.source, topic, records(200, 1, 6))
        delete_records(it.source, {tp: 100})
        it.mirror().run(until_caught_up=True)
        assert assert_same(it) == 100
        # As many a consumer is set up, that would skip everything from a place that is not there.
        settings = {"bootstrap.servers": it.target, "group.id": topic, "auto.offset.reset": "latest"}
        consumer = Consumer(settings)
        consumer.assign([RdTopicPartition(topic, 0, it.link.offset_maps()[tp].to_target(40))])
        seen = [message.value() for message in consumer.consume(100, 20)]
        consumer.close()
        assert seen == [row.value for row in read_all(it.source, it.topics)[tp]]


def test_empty_topics_are_caught_up_at_once(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 4}) as it:
        outcome = it.mirror().run(until_caught_up=True)
        assert (outcome.reason, outcome.records) == ("caught_up", 0)
        assert it.link.offset_maps()[TopicPartition(topic, 0)].to_target(0) == 1, "after the fence's marker"


def test_wish_to_stop_ends_a_running_mirror_within_two_seconds(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        outcomes: list[MirrorEnd] = []
        mirror = it.mirror(settings=Settings(streams=1, epoch_seconds=60))
        thread = threading.Thread(target=lambda: outcomes.append(mirror.run()))
        thread.start()
        produce(it.source, topic, records(100, 1, 4))
        other = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
        tp = TopicPartition(topic, 0)
        wait_until(lambda: tp in other.positions() and other.positions()[tp].source == 100, "100 records copied")
        other.wish(Wish(desired=Desired.STOP, reason="test", at="now"))
        # Of an epoch of a minute.
        thread.join(UNDER_LOAD * 2.0)
        assert not thread.is_alive()
        other.close()
        assert outcomes[0].reason == "stopped"
        assert assert_same(it) == 100


def test_wish_to_drain_copies_up_to_the_given_ends_and_ends(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(2_000, 2, 5))
        ends = {TopicPartition(topic, p): 1_000 for p in range(2)}
        it.link.wish(Wish(desired=Desired.DRAIN, ends=ends, reason="test", at="now"))
        assert it.mirror().run().reason == "drained"
        assert assert_same(it) == 2_000


def test_foreign_record_between_two_runs_halts_its_partition_only(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(200, 2, 7))
        it.mirror().run(until_caught_up=True)
        produce(it.target, topic, [ToSend(b"foreign")])
        produce(it.source, topic, records(200, 2, 8))
        outcome = it.mirror().run(until_caught_up=True)
        assert outcome.halted == (TopicPartition(topic, 0),)
        assert it.link.halts()[TopicPartition(topic, 0)].reason == Halt.FOREIGN_WRITER
        assert outcome.records == 100, "the other partition goes on"


def test_foreign_record_while_the_mirror_runs_halts_the_partition(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(100, 1, 7))

        class Meddler(ThreadRunner):
            def start(self, orders):
                produce(it.target, topic, [ToSend(b"foreign")])
                return super().start(orders)

        with pytest.raises(HaltedPartition, match="nothing is left to copy"):
            it.mirror(Meddler()).run()
        halt = it.link.halts()[TopicPartition(topic, 0)]
        assert halt.reason == Halt.FOREIGN_WRITER
        assert "belongs at" in halt.detail


def test_source_topic_that_was_deleted_and_created_again_is_recognised(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(50, 1, 9))
        it.mirror().run(until_caught_up=True)
        delete_topic(it.source, topic)
        create_topics(it.source, {topic: 1})
        produce(it.source, topic, records(80, 1, 10))
        with pytest.raises(HaltedPartition):
            it.mirror().run(until_caught_up=True)
        assert it.link.halts()[TopicPartition(topic, 0)].reason == Halt.RECREATED
        assert len(read_all(it.target, {topic: 1})[TopicPartition(topic, 0)]) == 50


def test_retention_that_overtakes_the_position_halts_with_data_loss(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(50, 1, 11))
        it.mirror().run(until_caught_up=True)
        produce(it.source, topic, records(50, 1, 12))
        delete_records(it.source, {TopicPartition(topic, 0): 70})
        with pytest.raises(HaltedPartition):
            it.mirror().run(until_caught_up=True)
        halt = it.link.halts()[TopicPartition(topic, 0)]
        assert halt.reason == Halt.DATA_LOSS
        assert "starts at 70" in halt.detail


def test_second_mirror_takes_over_and_the_first_says_so(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        ends: list[BaseException] = []

        def first() -> None:
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            try:
                Bench(link, it.topics, it.source, it.target).mirror().run()
            except MigrationError as error:
                ends.append(error)
            finally:
                link.close()

        thread = threading.Thread(target=first)
        thread.start()
        produce(it.source, topic, records(100, 1, 13))
        tp = TopicPartition(topic, 0)
        wait_until(lambda: tp in it.link.positions() and it.link.positions()[tp].source == 100, "100 records copied")
        assert it.mirror().run(until_caught_up=True).records == 0
        produce(it.source, topic, records(100, 1, 14))
        thread.join(30)
        assert isinstance(ends[0], TakenOver)
        assert ends[0].exit_code == 3
        it.mirror().run(until_caught_up=True)
        assert assert_same(it) == 200


def test_source_that_does_not_know_what_stood_before_the_position_halts(
    source_cluster, target_cluster, topic, monkeypatch
):
    monkeypatch.setattr(intake, "_TROUBLE_SECONDS", 1.0)

    class Misled(ThreadRunner):
        def start(self, orders):
            return super().start(
                [replace(o, assignments=tuple(replace(a, source_epoch=99) for a in o.assignments)) for o in orders]
            )

    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, records(50, 1, 15))
        it.mirror().run(until_caught_up=True)
        produce(it.source, topic, records(50, 1, 16))
        with pytest.raises(HaltedPartition):
            it.mirror(Misled()).run()
        halt = it.link.halts()[TopicPartition(topic, 0)]
        assert (halt.reason, halt.source_offset) == (Halt.TRUNCATED, 50)
        assert "0 to 100" in halt.detail
