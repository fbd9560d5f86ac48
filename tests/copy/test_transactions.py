"""Transactions on real brokers: what was committed arrives, what was aborted never does, what is open is waited for."""

import random
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.driver.runner import Ended
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import Halt, TopicPartition
from tests.copy.bench import BRIEF, SHORT, Bench, ThreadRound, ThreadRunner, bench, records
from tests.copy.everywhere import assert_same_everywhere, running, until_caught_up
from tests.copy.test_watching import LONG
from tests.copy.test_watching import running as watched
from tests.kafka_tools import delete_records, produce, read_all, stable_ends
from tests.waiting import wait_until
from tests.wire.made import NOW

JOINED = Settings(streams=2, epoch_seconds=5, limits=Limits(**BRIEF))
ALONE = Settings(streams=1, epoch_seconds=5, limits=Limits(**SHORT))


@pytest.fixture
def topic() -> str:
    return f"transactions-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def both(source_cluster, target_cluster, topic) -> Iterator[Bench]:
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        yield it


class Writer:
    """A transactional producer; records of it are named after it and counted."""

    def __init__(self, servers: str, topic: str, **config: object) -> None:
        self.name, self.topic, self.count = f"w-{uuid.uuid4().hex[:6]}", topic, 0
        self.producer = Producer(
            {"bootstrap.servers": servers, "transactional.id": self.name, "linger.ms": 0, **config}
        )
        self.producer.init_transactions(30)
        self.is_open = False

    def write(self, count: int, partition: int = 0, size: int = 10) -> None:
        """Write records that stand in the log when this returns, in a transaction that stays open."""
        if not self.is_open:
            self.producer.begin_transaction()
            self.is_open = True
        for _ in range(count):
            self.count += 1
            value = f"{self.name}:{self.count}".encode() + b"x" * size
            self.producer.produce(self.topic, value, partition=partition, timestamp=NOW + self.count)
        assert self.producer.flush(30) == 0

    def end(self, *, commit: bool) -> None:
        (self.producer.commit_transaction if commit else self.producer.abort_transaction)(30)
        self.is_open = False


def interleave(servers: str, topic: str, *, transactions: int, seed: int) -> None:
    """Four producers that write both partitions in transactions at the same time, 30% of them aborted, and one that
    writes without."""
    chance = random.Random(seed)
    writers = [Writer(servers, topic, **{"compression.type": codec}) for codec in ("none", "lz4", "zstd", "gzip")]
    ended = 0
    while ended < transactions:
        writer = chance.choice(writers)
        if writer.is_open and chance.random() < 0.4:
            writer.end(commit=chance.random() < 0.7)
            ended += 1
        elif chance.random() < 0.1:
            produce(servers, topic, records(chance.randrange(1, 9), 2, seed), **{"linger.ms": 0})
        else:
            # Small ones, which are joined, and large ones, which are copied as they are.
            count, size = chance.choice(((1, 10), (1, 10), (3, 50), (40, 400)))
            writer.write(count, chance.randrange(2), size)
    for writer in writers:
        if writer.is_open:
            writer.end(commit=chance.random() < 0.7)


@pytest.mark.parametrize("settings", [JOINED, ALONE], ids=["joined", "alone"])
def test_interleaved_transactions_arrive_exactly_as_committed_also_while_they_are_written(both, topic, settings):
    interleave(both.source, topic, transactions=40, seed=1)
    outcome = both.mirror(settings=settings).run(until_caught_up=True)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    first = assert_same_everywhere(both)
    with running(both, settings) as ends:
        interleave(both.source, topic, transactions=40, seed=2)
        until_caught_up(both)
    assert ends[0].halted == ()
    assert assert_same_everywhere(both) > first > 0


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_open_transaction_holds_its_partition_back_until_it_is_decided_also_over_a_restart(both, topic, commit):
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    hanging, busy = Writer(both.source, topic), Writer(both.source, topic)
    busy.write(5)
    busy.end(commit=True)
    # The marker comes after the answer.
    wait_until(lambda: stable_ends(both.source, both.topics)[tp] == 6, "the marker is there")
    hanging.write(3)
    for _ in range(4):
        busy.write(2)
        busy.end(commit=True)
        produce(both.source, topic, records(10, 2, seed=7))
    for _ in range(2):
        outcome = both.mirror().run(until_caught_up=True)
        assert (outcome.reason, outcome.halted) == ("caught_up", ()), "what may be read is copied"
        assert both.link.positions()[tp].source == stable_ends(both.source, both.topics)[tp] == 6
        assert len(read_all(both.target, both.topics)[tp]) == 5
        assert assert_same_everywhere(both) == 5 + 20
    with running(both, JOINED):
        produce(both.source, topic, records(10, 2, seed=8))
        wait_until(lambda: both.link.positions()[other].source == 25, "the other partition goes on")
        # After its fence it is told behind the last record, until the marker there has been passed over again.
        wait_until(lambda: both.link.positions()[tp].source == 6, "the held partition stands again")
        hanging.end(commit=commit)
        until_caught_up(both)
    assert assert_same_everywhere(both) == 5 + (3 if commit else 0) + 8 + 50
    assert both.mirror().run(until_caught_up=True).records == 0


def test_transaction_larger_than_an_answer_is_copied_or_left_out_as_a_whole(both, topic):
    writer, other = Writer(both.source, topic), Writer(both.source, topic)
    small = Settings(
        streams=1,
        epoch_seconds=5,
        limits=Limits(**BRIEF, partition_fetch_bytes=20_000, partition_queue_bytes=30_000, fetch_bytes=40_000),
    )
    for commit in (True, False, True):
        for _ in range(8):
            writer.write(30, size=900)
            other.write(1)
        writer.end(commit=commit)
        other.end(commit=not commit)
    assert both.mirror(settings=small).run(until_caught_up=True).halted == ()
    assert assert_same_everywhere(both) == 2 * 240 + 8


def test_source_of_nothing_but_aborted_transactions_is_caught_up_with_an_empty_target(both, topic):
    writer = Writer(both.source, topic)
    for _ in range(3):
        writer.write(4)
        writer.end(commit=False)
    outcome = both.mirror().run(until_caught_up=True)
    assert (outcome.reason, outcome.records) == ("caught_up", 0)
    assert both.link.positions()[TopicPartition(topic, 0)].source == 15, "markers and all"
    assert assert_same_everywhere(both) == 0
    produce(both.source, topic, records(4, 1, seed=3))
    assert both.mirror().run(until_caught_up=True).records == 4
    assert assert_same_everywhere(both) == 4
    found = both.link.offset_maps()[TopicPartition(topic, 0)]
    assert found.to_target(15) == read_all(both.target, both.topics)[TopicPartition(topic, 0)][0].offset


def test_aborted_records_and_markers_that_retention_takes_are_no_loss(both, topic):
    tp, writer = TopicPartition(topic, 0), Writer(both.source, topic)
    produce(both.source, topic, records(5, 1, seed=1))
    for _ in range(3):
        writer.write(4)
        writer.end(commit=False)
    assert both.mirror().run(until_caught_up=True).records == 5
    delete_records(both.source, {tp: 13})
    outcome = both.mirror().run(until_caught_up=True)
    assert (outcome.reason, outcome.halted) == ("caught_up", ())
    produce(both.source, topic, records(5, 1, seed=2))
    delete_records(both.source, {tp: 21})
    outcome = both.mirror().run(until_caught_up=True)
    assert outcome.halted == (tp,), "a record is one"
    assert both.link.halts()[tp].reason == Halt.DATA_LOSS


class FirstIsLost(ThreadRunner):
    """The first epoch ends in order, but what its tasks say of it is lost, as with a worker that dies."""

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        self.orders.append(orders)
        return ThreadRound(orders) if len(self.orders) > 1 else Lost(orders)


class Lost(ThreadRound):
    def ended(self) -> Ended:
        super().ended()
        return Ended(failed=dict.fromkeys(range(len(self._threads)), CouldNotFindOut("the worker died")))


@pytest.mark.parametrize("commit", [True, False], ids=["committed", "aborted"])
def test_markers_that_retention_takes_while_the_mirror_runs_are_no_loss_behind_its_next_fence(both, topic, commit):
    """The log began at the first record when the run did; at the fence it begins behind the last one."""
    tp, writer = TopicPartition(topic, 0), Writer(both.source, topic)
    produce(both.source, topic, records(5, 1, seed=1))
    writer.write(4)
    writer.end(commit=commit)
    with watched(both, LONG, FirstIsLost()) as mirror:
        wait_until(lambda: mirror.copied(topic) == 10, "all is copied, and the marker passed over")
        delete_records(both.source, {tp: 10})
        both.link.recall(mirror.runner.orders[0][0].round_id)
        wait_until(lambda: len(mirror.runner.orders) == 2, "it fences, and goes on")
        produce(both.source, topic, records(5, 1, seed=2))
        wait_until(lambda: mirror.copied(topic) == 15 or both.link.halts(), "it goes on")
    assert (mirror.error, both.link.halts()) == (None, {})
    assert any("tasks died" in text for text in mirror.said)
    assert len(read_all(both.target, both.topics)[tp]) == (14 if commit else 10)


@pytest.mark.parametrize("is_urgent", [False, True])
def test_backlog_of_transactions_takes_no_fence_at_the_end_of_each_epoch_but_where_others_wait(both, topic, is_urgent):
    """A producer has 32,766 epochs: with a fence every fifteen seconds those are used up within a week."""
    # Enough for three epochs on a machine that is slow to look: with sixty all was copied by then, once in a while.
    interleave(both.source, topic, transactions=100, seed=5)
    slow = {"throttle_bytes_per_second": 10_000, "partition_fetch_bytes": 4_000, "partition_queue_bytes": 4_000}
    # What is queued takes more than a second, and has a minute: on a machine that stands still for seconds, too.
    limits = Limits(**(SHORT | slow | {"lease_seconds": 60, "flush_seconds": 60}))
    with watched(both, Settings(streams=1, epoch_seconds=300, limits=limits)) as mirror:
        for epoch in (1, 2, 3):
            wait_until(lambda at=epoch: len(mirror.runner.orders) == at, "an epoch begins")
            # Now, and not before: what the one before still sends is no sign that this one has looked for commands.
            stood = mirror.copied(topic)
            wait_until(lambda at=stood: mirror.copied(topic) > at, "it copies")
            assert mirror.copied(topic) < stable_ends(both.source, both.topics)[TopicPartition(topic, 0)]
            both.link.recall(mirror.runner.orders[-1][0].round_id, is_urgent=is_urgent)
        wait_until(lambda: len(mirror.runner.orders) == 4, "an epoch follows the last that was recalled")
        until_caught_up(both)
    assert (mirror.error, both.link.halts()) == (None, {})
    assert (sum(text.startswith("fence ") for text in mirror.said) > 1) == is_urgent
    assert assert_same_everywhere(both) > 0
