"""Heavy partitions and many small ones in one task, on real brokers: nobody waits for the heavy ones to be done."""

import threading
import uuid

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.controls import Throttle
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.state.link import LinkState, Wish
from tests.copy.bench import assert_same, bench
from tests.kafka_tools import ToSend, produce
from tests.waiting import wait_until

SMALL, RECORDS, SIZE = 20, 20, 1_000


@pytest.mark.parametrize("heavy", [1, 6])
def test_small_partitions_are_copied_while_heavy_ones_are_not_half_done(source_cluster, target_cluster, heavy):
    name = f"fair-{uuid.uuid4().hex[:8]}"
    topics = {f"{name}-heavy": heavy} | {f"{name}-small-{n:02}": 1 for n in range(SMALL)}
    total = 6_000
    # Two partitions fill a response, so the order in which they are asked for decides.
    limits = Limits(fetch_bytes=64 * 1024, partition_fetch_bytes=32 * 1024, progress_seconds=0.1)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, topics) as it:
        backlog = [ToSend(b"x" * SIZE, partition=n % heavy) for n in range(total)]
        produce(it.source, f"{name}-heavy", backlog, **{"batch.size": 16_000})
        for topic in list(topics)[1:]:
            produce(it.source, topic, [ToSend(b"y" * SIZE)] * RECORDS)
        it.link.throttle(Throttle(bytes_per_second=2_000_000, by="test", at="now"))
        link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
        mirror = it.mirror(settings=Settings(streams=1, epoch_seconds=60, limits=limits), link=link)
        thread = threading.Thread(target=lambda: mirror.run(until_caught_up=True), daemon=True)
        thread.start()
        found: dict[TopicPartition, int] = {}

        def small_ones_are_done() -> bool:
            found.update({tp: position.records for tp, (position, _) in it.link.progress().items()})
            return all(found.get(TopicPartition(topic, 0)) == RECORDS for topic in list(topics)[1:])

        wait_until(small_ones_are_done, "all small partitions are copied")
        copied = [found.get(TopicPartition(f"{name}-heavy", p), 0) for p in range(heavy)]
        assert sum(copied) < total / 2
        it.link.throttle(Throttle(bytes_per_second=None, by="test", at="now"))
        thread.join(60)
        link.close()
        assert assert_same(it) == total + SMALL * RECORDS


def test_task_that_holds_enough_still_fetches_for_whoever_has_nothing(source_cluster, target_cluster):
    name = f"full-{uuid.uuid4().hex[:8]}"
    topics = {f"{name}-heavy": 2, f"{name}-late": 1}
    limits = Limits(task_queue_bytes=200_000, partition_fetch_bytes=100_000, progress_seconds=0.1)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, topics) as it:
        heavy = [ToSend(b"x" * SIZE, partition=n % 2) for n in range(4_000)]
        produce(it.source, f"{name}-heavy", heavy, **{"batch.size": 16_000})
        it.link.throttle(Throttle(bytes_per_second=200_000, by="test", at="now"))
        link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
        mirror = it.mirror(settings=Settings(streams=1, epoch_seconds=60, limits=limits), link=link)
        thread = threading.Thread(target=mirror.run, daemon=True)
        thread.start()
        first = TopicPartition(f"{name}-heavy", 0)
        wait_until(lambda: first in it.link.progress(), "the heavy ones are copied")
        produce(it.source, f"{name}-late", [ToSend(b"y")] * 10)
        late = TopicPartition(f"{name}-late", 0)
        wait_until(lambda: late in it.link.progress() and it.link.progress()[late][0].records == 10, "the late one")
        assert it.link.progress()[first][0].records < 2_000
        it.link.throttle(Throttle(bytes_per_second=None, by="test", at="now"))
        wait_until(lambda: it.link.progress()[first][0].records == 2_000, "all is copied")
        it.link.wish(Wish(desired=Desired.STOP, at="now"))
        thread.join(60)
        link.close()
        assert assert_same(it) == 4_010
