"""Commands that are killed by SIGKILL at requests to real brokers, and run again; and which requests they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.real import SCENARIOS, places, results
from tests.crash.wire import Deadly


@pytest.mark.soak
# All commands: `make crash-matrix`.
def test_commands_killed_at_real_requests_come_to_the_same_end_when_they_are_run_again(tmp_path: Path) -> None:
    fence = [scenario for scenario in SCENARIOS if scenario.name == "fence"]
    found = list(results(2, tmp_path, fence))
    assert [f"{it.scenario}, killed {it.deadly}: {it.problem}" for it in found if it.problem] == []
    assert len(found) == 2
    assert all(it.changes and not it.unrecorded for it in found)


def test_points_are_of_every_kind_and_spread() -> None:
    changes = ["Produce"] * 9 + ["CreateAcls", "EndTxn", "EndTxn"]
    found = places(changes, 5)
    assert found[:3] == [Deadly("CreateAcls", 1, False), Deadly("EndTxn", 1, True), Deadly("Produce", 1, False)]
    assert [it.count for it in found[3:]] == [2, 6]
    assert all(it.name == "Produce" for it in found[3:])
