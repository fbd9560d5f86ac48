"""What the driver makes of an epoch's receipts: who is fenced again, who is held, and what ends the run.

The state of the link is real, in memory; clusters, fences and tasks are not.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from kafka.future import Future

from kafka_migration.copy.driver import health, mirror
from kafka_migration.copy.driver.fencing import FenceUnderWay, Outcome
from kafka_migration.copy.driver.mirror import Mirror, MirrorEnd, Settings
from kafka_migration.copy.driver.newcomers import Newcomers, NoGrowth
from kafka_migration.copy.driver.takeover import Resumed, Stopped
from kafka_migration.copy.orders import Assignment, Limits, TaskOrders
from kafka_migration.copy.task.partition import Stand
from kafka_migration.domain.errors import MigrationError, Refused, TakenOver
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Halt, Identity, Position, Receipt, TopicPartition
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from kafka_migration.wire.cluster import Leader, Replicas, WireCluster
from kafka_migration.wire.selector import Selector
from tests.copy import bench
from tests.copy.bench import ThreadRunner
from tests.waiting import wait_until

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = LinkTopic(name="t", source_id=uuid.UUID(int=1), target_id=uuid.UUID(int=2))
#: So long that no test outlasts them.
LONG, LONGER = 1_000.0, 5_000.0
LIMITS = Limits(lease_seconds=LONGER, closed_seconds=LONG)

Work = Callable[[TaskOrders], list[Receipt]]


class Cluster(WireCluster):
    """A cluster with two partitions. ``grown`` are records on the target that nobody wrote, ``silent`` partitions whose
    leader does not answer, on the sides ``mute``."""

    grown: dict[TopicPartition, int] = {}  # noqa: RUF012
    silent: set[TopicPartition] = set()  # noqa: RUF012
    mute: tuple[str, ...] = ("source", "target")

    def connect(self, *_: Any, **__: Any) -> None:
        """Done."""

    async def refresh(self, topics: Iterable[str], **_: Any) -> dict[str, int]:
        for name in topics:
            self.topic_ids[name] = self.pinned.get(name, uuid.UUID(int=9))
            self.partitions[name] = frozenset({0, 1})
            for partition in (0, 1):
                self.leaders[TopicPartition(name, partition)] = Leader(1, 0)
                self.replicas[TopicPartition(name, partition)] = Replicas(1, 1)
        return {}

    async def list_offsets(self, partitions: Iterable[TopicPartition], when: int, **_: Any) -> dict[Any, int]:
        end = 0 if when == -2 else 1_000 if self.role == "source" else 0
        return {tp: end + (self.grown.get(tp, 0) if self.role == "target" else 0) for tp in partitions}

    async def offsets_in_reach(self, partitions: Iterable[TopicPartition], when: int, **_: Any) -> dict[Any, int]:
        silent = self.silent if self.role in self.mute else set()
        return await self.list_offsets(set(partitions) - silent, when)


class Fences:
    """Fences that always succeed. ``made`` are the partitions of each."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.made: list[set[TopicPartition]] = []
        self.stopped: dict[TopicPartition, Stopped] = {}
        self.stale = False

    @property
    def count(self) -> int:
        return len(self.made)

    def begin(
        self,
        partitions: Iterable[TopicPartition],
        *,
        positions: Mapping[TopicPartition, Position],
        source_starts: Mapping[TopicPartition, int],
    ) -> FenceUnderWay:
        self.made.append(set(partitions))
        return FenceUnderWay(set(partitions), positions, source_starts, Future())

    def is_over(self, _it: FenceUnderWay, _seconds: float | None) -> bool:
        return True

    def result(self, it: FenceUnderWay) -> tuple[Identity, Outcome]:
        return Identity(77, self.count), {
            tp: self.stopped.get(tp) or self._behind(tp, it.positions, it.source_starts) for tp in it.wanted
        }

    def _behind(
        self, tp: TopicPartition, positions: Mapping[TopicPartition, Position], starts: Mapping[TopicPartition, int]
    ) -> Resumed:
        source = positions[tp].source if tp in positions else starts[tp]
        target = 1 + (positions[tp].target if tp in positions else 0)
        opening = RunOpening(fence=self.count, records=0, source=source, target=target, closes=0, epoch=3)
        at = Position(source=source, target=target, fence=self.count, records=0)
        return Resumed(position=at, opening=opening)

    def keep_alive(self) -> None:
        if self.stale:
            self.stale = False
            raise TakenOver("link shop")


class Book(LinkState):
    """The link's state, and which epochs were recalled."""

    def __init__(self) -> None:
        super().__init__("shop", MemoryStore(), None, None)
        self.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at="")
        self.recalled: list[int] = []

    def recall(self, epoch: int, *, is_urgent: bool = False) -> None:
        self.recalled.append(epoch)
        super().recall(epoch, is_urgent=is_urgent)


class Run(ThreadRunner):
    """A run of the mirror whose epochs do what the test says, one after the other; then it is to stop."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.link, self.fences = Book(), Fences()
        self.told: list[str] = []
        self._epochs: list[Work] = []
        monkeypatch.setattr(bench, "run_task", self._task)
        monkeypatch.setattr(mirror, "WireCluster", Cluster)
        monkeypatch.setattr(mirror, "Fences", lambda *_, **__: self.fences)
        monkeypatch.setattr(Cluster, "grown", {})
        monkeypatch.setattr(Cluster, "silent", set())

    def _task(self, orders: TaskOrders) -> list[Receipt]:
        return self._epochs.pop(0)(orders)

    def mirror(self, *works: Work) -> MirrorEnd:
        self._epochs = list(works)
        return Mirror(
            link=self.link,
            source={"bootstrap_servers": "127.0.0.1:9"},
            target={"bootstrap_servers": "127.0.0.1:9"},
            runner=self,
            settings=Settings(streams=1, limits=LIMITS),
            log=self.told.append,
            interrupted=lambda: not self._epochs,
        ).run()

    def assignments(self, epoch: int) -> dict[TopicPartition, Assignment]:
        return {it.partition: it for share in self.orders[epoch] for it in share.assignments}


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(monkeypatch)


def copied(**stands: Stand) -> Work:
    """One record of each partition; ``first`` is how the first one stands in the end, ``other`` the second one."""

    def work(orders: TaskOrders) -> list[Receipt]:
        named = {TP: stands.get("first", Stand.RUN), OTHER: stands.get("other", Stand.RUN)}
        return [_receipt(a, named[a.partition]) for a in orders.assignments]

    return work


def _receipt(a: Assignment, stand: Stand) -> Receipt:
    at, halt = a.position, str(Halt.FOREIGN_WRITER) if stand is Stand.HALTED else ""
    return Receipt(
        topic=a.partition.topic,
        partition=a.partition.partition,
        fence=at.fence,
        source_start=at.source,
        source_end=at.source + 1,
        continues=at.source + 1,
        target_start=at.target,
        target_end=at.target + 1,
        records=1,
        bytes=10,
        batches=1,
        source_epoch=3,
        join_bytes=a.join_bytes,
        stand=str(stand),
        halt=halt,
        detail="why",
        lands_seconds=7.0 if stand is Stand.UNSETTLED else 0.0,
    )


def answered(orders: TaskOrders) -> list[Receipt]:
    """All that was sent of the first partition was answered, and yet it takes a fence."""
    return [replace(receipt, lands_seconds=0.0) for receipt in copied(first=Stand.UNSETTLED)(orders)]


def silent(orders: TaskOrders) -> list[Receipt]:
    """Nothing is said of the first partition."""
    return [it for it in copied()(orders) if it.partition == OTHER.partition]


def dies(_orders: TaskOrders) -> list[Receipt]:
    raise RuntimeError("the worker is gone")


def test_epoch_with_clear_answers_goes_on_where_it_ended_without_a_fence(run: Run) -> None:
    end = run.mirror(copied(), copied())
    assert run.fences.made == [{TP, OTHER}]
    assert {tp: it.position.source for tp, it in run.assignments(1).items()} == {TP: 1, OTHER: 1}
    assert (end.reason, end.rounds, end.fences, end.records, end.bytes, end.batches) == ("stopped", 2, 1, 4, 40, 4)
    assert set(run.link.attempts().values()) == {False}, "the next run need not wait for this one"


@pytest.mark.parametrize("epoch", [copied(first=Stand.UNSETTLED), silent], ids=["no clear answer", "no receipt"])
def test_partition_of_which_not_all_is_known_is_fenced_alone_and_held_while_it_may_still_land(
    run: Run, epoch: Work
) -> None:
    run.mirror(epoch, copied())
    assert run.fences.made == [{TP, OTHER}, {TP}]
    held = {tp: it.hold_seconds for tp, it in run.assignments(1).items()}
    assert 0 < held[TP] <= LIMITS.landing_seconds(LIMITS.in_flight_requests)
    assert held[OTHER] == 0
    assert set(run.link.attempts().values()) == {True}, "the next run has to wait as well"


def test_partition_of_which_all_was_answered_is_fenced_alone_and_held_no_longer(run: Run) -> None:
    run.mirror(answered, copied())
    assert run.fences.made == [{TP, OTHER}, {TP}]
    assert {it.hold_seconds for it in run.assignments(1).values()} == {0}
    assert set(run.link.attempts().values()) == {False}


def test_partition_whose_broker_answers_again_is_held_since_it_may_take_only_now_what_it_was_sent(run: Run) -> None:
    Cluster.silent.add(OTHER)

    def back(orders: TaskOrders) -> list[Receipt]:
        Cluster.silent.clear()
        wait_until(lambda: run.fences.count == 2, "it is fenced while the other one is copied")
        return copied()(orders)

    run.mirror(back, copied())
    assert (set(run.assignments(0)), run.fences.made) == ({TP}, [{TP}, {OTHER}])
    held = {tp: it.hold_seconds for tp, it in run.assignments(1).items()}
    assert (held[TP], 0 < held[OTHER] <= LONG) == (0, True)


def test_reason_to_wait_that_becomes_another_one_is_noted_while_the_epoch_runs(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def noted(why: str) -> bool:
        return why in (run.link.run() or {})["waiting"]

    def changes(orders: TaskOrders) -> list[Receipt]:
        assert noted("the target has no leader")
        monkeypatch.setattr(Cluster, "mute", ("source",))
        # An epoch notes it at the latest after 15 s.
        wait_until(lambda: noted("the source has no leader"), "it is noted")
        return copied()(orders)

    Cluster.silent.add(OTHER)
    run.mirror(changes, copied())
    assert run.fences.made == [{TP}]


def test_how_much_was_copied_is_shown_again_once_it_is_more(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_SHOWN_SECONDS", 0.0)
    at, looks = [0], [0]

    def progress() -> health.Progress:
        looks[0] += 1
        return {TP: (Position(source=at[0], target=1, fence=1, records=at[0]), {"x": "run", "b": 0, "at": 0})}

    def copies(orders: TaskOrders) -> list[Receipt]:
        for at[0] in (0, 5, 7):
            seen = looks[0]
            wait_until(lambda: looks[0] > seen + 3, "it was looked at")  # noqa: B023 - it is waited for here
        return copied()(orders)

    monkeypatch.setattr(run.link, "progress", progress)
    run.mirror(copies, copied())
    assert [line for line in run.told if "source offsets copied" in line] == [
        "round 1: 5 source offsets copied",
        "round 1: 7 source offsets copied",
    ]


def test_partition_that_its_task_halted_is_noted_as_halted_and_the_other_goes_on(run: Run) -> None:
    end = run.mirror(copied(first=Stand.HALTED), copied())
    assert run.link.halts()[TP].reason == Halt.FOREIGN_WRITER
    assert (end.halted, set(run.assignments(1)), run.fences.count) == ((TP,), {OTHER}, 1)


def test_partition_in_which_somebody_else_may_have_written_is_fenced_although_its_answers_were_clear(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "_ENDS_EVERY_SECONDS", 0.0)
    Cluster.grown[OTHER] = 100

    def until_recalled(orders: TaskOrders) -> list[Receipt]:
        wait_until(lambda: run.link.recalled, "the epoch is recalled")
        return copied()(orders)

    run.mirror(until_recalled, copied())
    assert run.fences.made[:2] == [{TP, OTHER}, {OTHER}]
    assert any("first t-1" in text for text in run.told)


def test_epoch_that_was_taken_over_ends_the_run_and_fences_nothing(run: Run) -> None:
    with pytest.raises(TakenOver):
        run.mirror(copied(other=Stand.TAKEN_OVER), copied())
    assert (len(run.orders), run.fences.count) == (1, 1)
    assert set(run.link.attempts().values()) == {True}


def test_epoch_that_a_seal_ended_says_so(run: Run) -> None:
    def sealed(orders: TaskOrders) -> list[Receipt]:
        run.link.record_seal(Seal(at="noon", ends={}))
        return copied(first=Stand.TAKEN_OVER)(orders)

    with pytest.raises(Refused, match="sealed at noon"):
        run.mirror(sealed)


def test_lost_epoch_is_recalled_fenced_and_held_for_as_long_as_its_tasks_may_be_alive(run: Run) -> None:
    run.mirror(dies, copied())
    assert run.fences.made == [{TP, OTHER}] * 2
    assert run.link.recalled[0] == run.orders[0][0].round_id
    assert all(it.hold_seconds > LONG for it in run.assignments(1).values()), "longer than behind closed connections"
    assert any("RuntimeError: the worker is gone" in text for text in run.told)


def test_epochs_that_keep_dying_end_the_run_and_those_with_one_that_copied_between_do_not(run: Run) -> None:
    run.mirror(*[dies] * 4, copied(), *[dies] * 4)
    with pytest.raises(MigrationError, match="the worker is gone"):
        run.mirror(*[dies] * 5, copied())


def test_run_that_ended_while_its_tasks_may_be_alive_does_not_say_that_it_has_ended(run: Run) -> None:
    def refused(_orders: TaskOrders) -> list[Receipt]:
        raise Refused("no")

    with pytest.raises(Refused):
        run.mirror(refused)
    assert set(run.link.attempts().values()) == {True}


def test_transactional_id_that_has_another_epoch_although_nobody_claimed_the_link_is_fenced_again(run: Run) -> None:
    def forgotten(orders: TaskOrders) -> list[Receipt]:
        run.fences.stale = True
        return copied()(orders)

    run.mirror(forgotten, copied())
    assert run.fences.made == [{TP, OTHER}] * 2
    assert {tp: it.position.fence for tp, it in run.assignments(1).items()} == {TP: 2, OTHER: 2}


def test_run_that_ends_while_a_partition_waits_for_its_broker_does_not_say_that_it_has_ended(run: Run) -> None:
    Cluster.silent.add(OTHER)
    run.mirror(copied())
    assert set(run.link.attempts().values()) == {True}, "what that broker was sent may still land"


def test_halt_that_a_fence_finds_is_noted_with_where_the_trouble_was_seen(run: Run) -> None:
    run.fences.stopped[TP] = Stopped(reason=Halt.FOREIGN_WRITER, detail="a stranger's", target_offset=41)
    run.mirror(copied())
    halt = run.link.halts()[TP]
    assert (halt.reason, halt.target_offset) == (Halt.FOREIGN_WRITER, 41)


def test_topic_that_is_there_again_goes_on_once_both_clusters_have_shown_it_twice() -> None:
    net, book = Selector(), Book()
    source, target = (Cluster(net, {"bootstrap_servers": "127.0.0.1:9"}, role) for role in ("source", "target"))
    source.pinned["t"], target.pinned["t"] = TOPIC.source_id, TOPIC.target_id
    book.halt(TP, str(Halt.TOPIC_MISSING), "gone", 0, 0, "", TOPIC.key)
    newcomers = Newcomers(
        link=book,
        growth=NoGrowth(),
        topics={"t": TOPIC},
        source=source,
        target=target,
        net=net,
        log=lambda _text: None,
        follow_seconds=LONG,
    )
    try:
        assert newcomers.take(())[0] == {OTHER}
        assert newcomers.take(())[0] == {TP, OTHER}
        assert book.halts() == {}
    finally:
        net.close()
