"""How long an epoch lasts: while there is a backlog as long as the plan says, and on and on once there is none."""

from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.copy.driver import pace
from kafka_migration.copy.driver.health import StandingPartitions
from kafka_migration.copy.driver.pace import Pace, Slots, Standstill
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.types import Position, TopicPartition

ONE, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


def _at(source: int) -> Position:
    return Position(source=source, target=source + 1, fence=0, records=source)


@pytest.mark.parametrize(
    ("end", "told", "is_to_end"),
    [
        (100_000, 100_000, False),
        (104_000, 100_000, False),  # a second's worth, on its way
        (500_000, 100_000, True),
        (1_900, 1_000, False),
        (50_000, 1_000, True),
        (50_000, 0, False),
    ],
)
def test_backlog_is_more_than_what_is_copied_in_some_seconds(end, told, is_to_end):
    now = [0.0]
    pace = Pace({ONE: _at(0), OTHER: _at(7)}, 15.0, clock=lambda: now[0])
    pace.see({ONE: _at(told)})
    now[0] = 20.0
    assert pace.is_to_end({ONE: end, OTHER: 7}, {ONE: _at(told)}) is is_to_end


@pytest.mark.parametrize(("began", "is_to_end"), [(1.0, True), (7.0, True), (14.0, False)])
def test_epoch_whose_tasks_begin_late_goes_on(began, is_to_end):
    now = [0.0]
    pace = Pace({ONE: _at(0)}, 15.0, clock=lambda: now[0])
    pace.see({})
    for now[0] in (began, 15.0):
        pace.see({ONE: _at(1_000)})
    assert pace.is_to_end({ONE: 50_000}, {ONE: _at(1_000)}) is is_to_end


def test_late_word_of_an_earlier_epoch_is_no_backlog():
    pace = Pace({ONE: _at(90_000)}, 0.0)
    pace.see({ONE: _at(10)})
    assert not pace.is_to_end({ONE: 90_000}, {ONE: _at(10)})


def test_partition_that_stands_is_named_again_after_twice_as_long_each_time_until_it_moves() -> None:
    now = [0.0]
    standstill = Standstill(10.0, clock=lambda: now[0])
    alarms = []
    for second in range(100):
        now[0] = float(second)
        if standstill.look({ONE: 7}):
            alarms.append(second)
    assert alarms == [10, 30, 70]
    assert standstill.look({ONE: 8}) == []
    now[0] += 10
    assert standstill.look({ONE: 8}) == [ONE], "it moved: it is patient no longer"


def test_throttled_partition_may_stand_for_as_long_as_a_large_batch_of_each_of_its_task_takes() -> None:
    now = [0.0]
    standstill = Standstill(10.0, clock=lambda: now[0])
    unused: Any = SimpleNamespace()
    watch = StandingPartitions(standstill, unused, unused, unused, 128 * 1024)
    shares = [
        SimpleNamespace(part=0.5, assignments=[SimpleNamespace(partition=tp) for tp in (ONE, OTHER)]),
        SimpleNamespace(part=0.5, assignments=[SimpleNamespace(partition=TopicPartition("t", 2))]),
    ]
    a_round: Any = SimpleNamespace(controls=Controls(), orders=shares)
    lagging = {ONE: 7, OTHER: 8}
    # Two batches of a mebibyte at 64 KiB a second: the other task's half of the throttle is of no use to them.
    assert watch._slowest(a_round, lagging) == 32.0
    for now[0] in (0.0, 10.0, 31.0):
        assert standstill.look(lagging, at_least=32.0) == []
    now[0] = 32.0
    assert standstill.look(lagging, at_least=32.0) == [ONE, OTHER]


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> Slots:
    monkeypatch.setattr(pace, "SMALL_BACKLOG", 50_000)
    return Slots(8, None)


def test_backlog_takes_all_slots(slots: Slots) -> None:
    assert slots.wanted(50_001, 3) == 8
    assert slots.wanted(50_000, 3) == 1


@pytest.mark.parametrize(
    ("records_per_second", "bytes_per_second", "partitions", "tasks"),
    [
        (0, 0, 1, 1),
        (10_000, 0, 1, 1),
        (10_001, 0, 1, 2),
        (1, 3 * 16 * 1024 * 1024, 1, 3),
        (1, 1, 501, 2),
        (10**6, 10**10, 10**4, 8),
    ],
)
def test_what_is_caught_up_takes_as_many_tasks_as_carry_it(
    slots: Slots, records_per_second: int, bytes_per_second: int, partitions: int, tasks: int
) -> None:
    slots.copied(100 * records_per_second, 100 * bytes_per_second, 100.0)
    assert slots.wanted(0, partitions) == tasks


def test_short_epoch_does_not_make_a_busy_link_idle(slots: Slots) -> None:
    slots.copied(100 * 40_000, 0, 100.0)
    slots.copied(10, 0, 9.0)
    assert slots.wanted(0, 1) == 4
    slots.copied(10, 0, 10.0)
    assert slots.wanted(0, 1) == 1


def test_fewer_slots_than_are_wanted_are_taken(slots: Slots) -> None:
    slots.copied(100 * 40_000, 0, 100.0)
    slots.only(2)
    assert (slots.wanted(0, 1), slots.wanted(10**6, 1)) == (2, 2)
