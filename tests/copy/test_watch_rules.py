"""What has the driver end an epoch before its time, rule by rule: without tasks and brokers."""

from __future__ import annotations

import time
from typing import Any
from unittest.mock import MagicMock

import pytest

from kafka_migration.copy.driver.pace import Standstill
from kafka_migration.copy.driver.watching import EpochWatch
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.types import Position, TopicPartition

TP = TopicPartition("t", 0)
FENCE = 5


def at(source: int = 100, fence: int = FENCE) -> Position:
    return Position(source=source, target=source, fence=fence, records=0)


@pytest.fixture
def watch() -> EpochWatch:
    """Of one partition, which stands for too long at the second look."""
    attempts = MagicMock()
    attempts.hold_seconds.return_value = 0.0
    others: dict[str, Any] = dict.fromkeys(
        ("link", "lookout", "net", "slots", "tell", "interrupted", "say_running", "newcomers", "trespass"), MagicMock()
    )
    found = EpochWatch(
        **others,
        attempts=attempts,
        standstill=Standstill(0.0),
        epoch_seconds=15.0,
        throttle=None,
        waiting={},
    )
    found._positions = {TP: at()}
    return found


@pytest.mark.parametrize(
    ("state", "fence", "is_needed"),
    [("unsettled", FENCE, True), ("CORRUPT", FENCE, True), ("run", FENCE, False), ("unsettled", FENCE - 1, False)],
)
def test_driver_is_needed_by_what_is_told_behind_the_fence_of_this_epoch(
    state: str, fence: int, is_needed: bool, watch: EpochWatch
) -> None:
    assert watch._needs_driver({TP: (at(fence=fence), {"x": state})}) is is_needed


@pytest.mark.parametrize(("held_ms", "stands"), [(60_000, False), (-60_000, True)])
def test_partition_that_a_quota_holds_back_does_not_stand_for_as_long_as_it_does(
    held_ms: int, stands: bool, watch: EpochWatch
) -> None:
    progress = {TP: (at(), {"x": "run", "q": int(1000 * time.time()) + held_ms})}
    looks = [watch._stands({TP: 200}, progress, Controls(), 1) for _ in range(2)]
    assert looks == [False, stands]
