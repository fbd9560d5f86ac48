"""What has the driver end a round before its time, rule by rule: without tasks and brokers."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafka_migration.copy.driver.health import Commands, DeadTasks, Joining, Round, StandingPartitions, StuckPartitions
from kafka_migration.copy.driver.pace import Standstill
from kafka_migration.domain.types import Desired, Position, TopicPartition

TP = TopicPartition("t", 0)
FENCE = 5


def at(source: int = 100, fence: int = FENCE) -> Position:
    return Position(source=source, target=source, fence=fence, records=0)


def reported(report: dict[str, Any], fence: int = FENCE) -> Round:
    """A round of one partition, of which a task has reported."""
    assignment = MagicMock(partition=TP, position=at(), until=None)
    found = Round(MagicMock(), [MagicMock(assignments=[assignment], seconds=600.0)], Desired.RUN, 1, 15.0)
    found.progress, found.ends, found.begun = {TP: (at(fence=fence), report)}, {TP: 200}, 1
    return found


@pytest.mark.parametrize(
    ("state", "fence", "is_needed"),
    [("unsettled", FENCE, True), ("CORRUPT", FENCE, True), ("run", FENCE, False), ("unsettled", FENCE - 1, False)],
)
def test_driver_is_needed_by_what_is_told_behind_the_fence_of_this_epoch(
    state: str, fence: int, is_needed: bool
) -> None:
    finding = StuckPartitions().look(reported({"x": state}, fence))
    assert (finding is not None) is is_needed


@pytest.mark.parametrize(("held_ms", "stands"), [(60_000, False), (-60_000, True)])
def test_partition_that_a_quota_holds_back_does_not_stand_for_as_long_as_it_does(held_ms: int, stands: bool) -> None:
    """One that stands for too long at the second look."""
    attempts = MagicMock()
    attempts.hold_seconds.return_value = 0.0
    standing = StandingPartitions(Standstill(0.0), MagicMock(), attempts, MagicMock(), None)
    held = reported({"x": "run", "q": int(1000 * time.time()) + held_ms})
    assert [standing.look(held) is not None for _ in range(2)] == [False, stands]


def test_task_that_ends_where_a_drain_ends_is_not_taken_for_dead_and_a_drain_taken_back_ends_the_round() -> None:
    link, copy_round = MagicMock(), reported({"x": "run"})
    commands, dead = Commands(link, lambda: False), DeadTasks()
    copy_round.tasks = {0: True}
    link.wanted.return_value = (Desired.RUN, {})
    assert (commands.look(copy_round), dead.look(copy_round) is None) == (None, False)
    link.wanted.return_value = (Desired.DRAIN, {TP: 100})
    assert (commands.look(copy_round), dead.look(copy_round)) == (None, None)
    link.wanted.return_value = (Desired.DRAIN, {TP: 101})
    assert (commands.look(copy_round), dead.look(copy_round) is None) == (None, False)
    link.wanted.return_value = (Desired.RUN, {})
    assert commands.look(copy_round) is not None


def test_what_appears_while_a_drain_is_copied_is_not_taken_in() -> None:
    partitions, copy_round = MagicMock(takes_newcomers=True), reported({"x": "run"})
    partitions.join_beside.side_effect = lambda: partitions.takes_newcomers
    assert Joining(partitions).look(copy_round) is not None
    copy_round.desired = Desired.DRAIN
    assert Joining(partitions).look(copy_round) is None
