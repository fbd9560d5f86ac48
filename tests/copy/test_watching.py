"""What the driver sees beside an epoch that could go on for ten minutes: topics and tasks that are gone, no slot."""

import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import MigrationError, StateConflict
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.state.link import LinkState, Wish
from tests.copy.bench import BRIEF, Bench, ThreadRound, ThreadRunner, bench, records
from tests.kafka_tools import delete_topic, produce
from tests.waiting import UNDER_LOAD, wait_until

LONG = Settings(streams=2, epoch_seconds=300, limits=Limits(**BRIEF))
SHORT = Settings(streams=2, epoch_seconds=3, limits=Limits(**BRIEF))


@pytest.fixture
def topics() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"watched-{name}-a", f"watched-{name}-b"


class Running:
    """A mirror in a thread, with what it says."""

    def __init__(self, it: Bench, runner: ThreadRunner, settings: Settings, more: Mapping[str, Any]) -> None:
        self.bench, self.runner, self.settings, self.more = it, runner, settings, more
        self.said: list[str] = []
        self.error: MigrationError | None = None
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        link = LinkState.on_target(self.bench.link.name, {"bootstrap.servers": self.bench.target})
        try:
            extra = {"link": link, "log": self.said.append, **self.more}
            self.bench.mirror(self.runner, settings=self.settings, **extra).run()
        except MigrationError as error:
            self.error = error
        finally:
            link.close()

    def copied(self, topic: str) -> int:
        at = self.bench.link.positions().get(TopicPartition(topic, 0))
        return 0 if at is None else at.source


@contextmanager
def running(it: Bench, settings: Settings, runner: ThreadRunner | None = None, **more: Any) -> Iterator[Running]:
    """A mirror that runs until the block is left. ``more`` goes to the bench's mirror."""
    found = Running(it, runner or ThreadRunner(), settings, more)
    try:
        yield found
    finally:
        with suppress(MigrationError):
            it.link.wish(Wish(desired=Desired.STOP, reason="the test is over", at=""))
        found.thread.join(60)
        assert not found.thread.is_alive()


@pytest.mark.parametrize("settings", [LONG, Settings(streams=2, epoch_seconds=2, limits=Limits(**BRIEF))])
@pytest.mark.parametrize("side", ["source", "target"])
def test_topic_that_is_deleted_while_idle_halts_and_the_others_go_on(
    source_cluster, target_cluster, topics, side, settings
):
    gone, other = topics
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {gone: 1, other: 1}) as it:
        for topic in topics:
            produce(it.source, topic, records(50, 1, 1))
        with running(it, settings) as mirror:
            wait_until(lambda: mirror.copied(gone) == mirror.copied(other) == 50, "all is copied")
            delete_topic(it.source if side == "source" else it.target, gone)
            # Enough to be dealt anew, where epochs are short.
            produce(it.source, other, records(2_000, 1, 2))
            wait_until(lambda: mirror.copied(other) == 2_050, "the other topic goes on")
            # 15 s are documented.
            wait_until(lambda: bool(it.link.halts()), "the deleted one halts", deadline_seconds=UNDER_LOAD * 15)
            halt = it.link.halts()[TopicPartition(gone, 0)]
            assert (halt.reason, halt.source_offset) == (Halt.TOPIC_MISSING, 50)
            produce(it.source, other, records(50, 1, 3))
            wait_until(lambda: mirror.copied(other) == 2_100, "the other topic goes on")
            assert mirror.thread.is_alive()
        assert mirror.error is None
        assert len(it.link.halts()) == 1


class OneSlotRound(ThreadRound):
    """As on one free core: the second task begins when the first has ended."""

    def __init__(self, orders) -> None:
        self._turn, self._begun = threading.Lock(), set[int]()
        super().__init__(orders)

    def _work(self, orders) -> None:
        with self._turn:
            self._begun.add(threading.get_ident())
            super()._work(orders)

    def tasks(self) -> dict[int, bool]:
        return {at: over for at, over in super().tasks().items() if self._threads[at].ident in self._begun}


class OneSlot(ThreadRunner):
    def start(self, orders):
        self.orders.append(orders)
        return OneSlotRound(orders)


def test_task_without_a_slot_gets_its_turn_and_a_word_says_so(source_cluster, target_cluster, topics):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with running(it, SHORT, OneSlot()) as mirror:
            wait_until(lambda: all(mirror.copied(t) == 100 for t in topics), "both are copied")
            assert any("only 1 of 2 tasks run" in text for text in mirror.said)
            assert len(mirror.runner.orders[-1]) == 1
        assert mirror.error is None


def test_known_slots_cap_the_streams_from_the_start(source_cluster, target_cluster, topics):
    runner = ThreadRunner()
    runner.slots = 1
    said: list[str] = []
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(10, 1, 1))
        assert it.mirror(runner, settings=SHORT, log=said.append).run(until_caught_up=True).records == 20
    assert {len(orders) for orders in runner.orders} == {1}
    assert "1 slots for 2 streams" in said[0]


class OneDies(ThreadRound):
    def _work(self, orders):
        if any(a.partition.topic.endswith("-b") for a in orders.assignments):
            raise StateConflict("the state is of another version")
        super()._work(orders)


class Perilous(ThreadRunner):
    def start(self, orders):
        self.orders.append(orders)
        return OneDies(orders)


def test_task_that_dies_ends_the_run_at_once_though_others_would_go_on(source_cluster, target_cluster, topics):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with running(it, LONG, Perilous()) as mirror:
            wait_until(lambda: bool(mirror.runner.orders), "the epoch begins")
            wait_until(lambda: not mirror.thread.is_alive(), "the run ends")
        assert isinstance(mirror.error, StateConflict)
        assert any("ended before its time" in text for text in mirror.said)


class Slack(ThreadRunner):
    """The first epoch's second task does nothing, as one that hangs."""

    def start(self, orders):
        self.orders.append(orders)
        return ThreadRound(orders) if len(self.orders) > 1 else OneHangs(orders)


class OneHangs(ThreadRound):
    def _work(self, orders):
        hangs = any(a.partition.topic.endswith("-b") for a in orders.assignments)
        super()._work(replace(orders, is_paused=hangs))


def test_partition_that_stands_is_shared_out_anew(source_cluster, target_cluster, topics):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with running(it, SHORT, Slack()) as mirror:
            wait_until(lambda: all(mirror.copied(t) == 100 for t in topics), "both are copied")
            assert any("1 partitions do not move" in text and "assigned to tasks again" in text for text in mirror.said)
        assert mirror.error is None
