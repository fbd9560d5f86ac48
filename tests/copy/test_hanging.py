"""A task that hangs (its worker is frozen, or waits for a disk) does not keep the others from going on."""

import threading
import uuid
from types import SimpleNamespace

import pytest

from kafka_migration.copy.driver import health
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits, TaskOrders
from tests.copy.bench import BRIEF, ThreadRound, ThreadRunner, assert_same, bench, records
from tests.copy.test_watching import running
from tests.kafka_tools import produce
from tests.waiting import wait_until

#: Within seven seconds all that a task does in order is over.
SETTINGS = Settings(streams=2, epoch_seconds=2, limits=Limits(**{**BRIEF, "settle_seconds": 1.0, "flush_seconds": 0.5}))


@pytest.fixture
def topic() -> str:
    return f"hangs-{uuid.uuid4().hex[:8]}"


class Hanging(ThreadRound):
    """The task of partition 0 does nothing, and does not end, until ``awake``."""

    def __init__(self, orders: list[TaskOrders], awake: threading.Event) -> None:
        self._awake = awake
        super().__init__(orders)

    def _work(self, orders: TaskOrders) -> None:
        if any(assignment.partition.partition == 0 for assignment in orders.assignments):
            self._awake.wait(120)
        else:
            super()._work(orders)


class HangsAtFirst(ThreadRunner):
    """Of its rounds the first one hangs."""

    def __init__(self, awake: threading.Event) -> None:
        super().__init__()
        self._awake = awake

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        if self.orders:
            return super().start(orders)
        self.orders.append(orders)
        return Hanging(orders, self._awake)


def test_only_a_task_that_has_begun_hangs_and_it_is_told_to_hurry_before(monkeypatch):
    now, tasks = [100.0], dict[int, bool]()
    monkeypatch.setattr(health, "time", SimpleNamespace(monotonic=lambda: now[0]))
    hangs = health._Hanging(SimpleNamespace(tasks=lambda: tasks), Limits())

    def due_after(seconds: float) -> bool:
        hangs.are_due()
        now[0] += seconds
        return hangs.are_due()

    for waits_for_slots_or_has_ended in ({}, {0: True}):
        tasks |= waits_for_slots_or_has_ended
        assert not due_after(10_000)
    tasks[1] = False
    assert not due_after(hangs.patience - 1)
    assert due_after(2)
    hangs.hurry()
    assert not due_after(hangs.patience - 1)
    assert due_after(2)


def test_task_that_does_not_end_is_given_up_and_all_partitions_are_copied(source_cluster, target_cluster, topic):
    awake = threading.Event()
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(20, 2, 1))
        try:
            with running(it, SETTINGS, HangsAtFirst(awake)):
                wait_until(lambda: sum(it.link.records().values()) == 20, "both partitions are copied")
                assert not awake.is_set()
        finally:
            awake.set()
        assert assert_same(it) == 20
        assert not it.link.halts()
