"""The short form of `make crash-matrix`: each scenario at some of its points; and that it finds what is wrong."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.fence import record
from kafka_migration.fence.record import FenceState
from kafka_migration.link import lifecycle, switched
from tests.crash.matrix import points, problem, undisturbed
from tests.crash.scenarios import SCENARIOS, Scenario

_EVERY = 7
BY_NAME = {scenario.name: scenario for scenario in SCENARIOS}


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_command_that_died_comes_to_the_same_end_when_it_is_run_again(scenario: Scenario) -> None:
    run = undisturbed(scenario)
    assert len(run.changes) >= scenario.at_least, run.changes
    assert [f"{it}: {found}" for it in [*points(scenario, run)][::_EVERY] if (found := problem(it, run))] == []


@pytest.mark.parametrize(
    ("name", "state", "producers", "denials", "locks"),
    [
        ("create", "", "source", (0, 4), 2),
        ("create after cancel", "", "source", (0, 4), 2),
        # Producers of the source stay fenced, as they were; what kept clients off the target is gone.
        ("stop", "sealed", "", (6, 0), 2),
        ("switch --back", "reversed", "source", (0, 4), 2),
        # Groups stay, too, by three more denials each.
        ("complete", "completed", "target", (10, 0), 0),
    ],
)
def test_undisturbed_run_ends_as_its_command_is_meant_to(
    name: str, state: str, producers: str, denials: tuple[int, int], locks: int
) -> None:
    end: Any = undisturbed(BY_NAME[name]).end
    journal, links = end["journal"], end["links"]
    states = {it["state"] for key, it in journal.items() if "/topic-state/" in key}
    assert (states, end["producers"]) == ({state} if state else set(), producers)
    assert tuple(sum("'DENY'" in acl for acl in end[side]["acls"]) for side in ("source", "target")) == denials
    assert sum(key.startswith("_lock/") for key in journal) == locks
    assert end["source"]["configs"]["shop.orders"] == {"retention.ms": "604800000"}
    assert (end["target"]["configs"]["shop.orders"]["retention.ms"] == "-1") is (name != "complete")
    sealed = {"stop": ["shop/seal"], "switch --back": ["shop/seal", "shop:reverse/seal"]}
    sealed["complete"] = sealed["switch --back"]
    assert [key for key in sorted(links) if key.endswith("/seal")] == sealed.get(name, [])
    assert all(links[key]["ends"] for key in sealed.get(name, []))
    assert {it["state"] for key, it in links.items() if key.endswith("/run")} <= {"ended"}


def test_there_are_at_least_sixty_points() -> None:
    assert 2 * sum(scenario.at_least for scenario in SCENARIOS) >= 60


def test_switch_shows_every_kind_of_change() -> None:
    changes = undisturbed(BY_NAME["switch"]).changes
    for kind in ("journal:", "links:", "source: create_acls", "target: EndTxn", "hook: start", "ensure"):
        assert any(kind in change for change in changes), kind


def _found(name: str) -> Iterator[str]:
    run = undisturbed(BY_NAME[name])
    return (found for it in points(BY_NAME[name], run) if (found := problem(it, run)))


def test_matrix_finds_a_fence_whose_denials_are_made_before_they_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    write = record.write

    def forgets(ctx: Any, ban: Any, fence: Any) -> None:
        if fence.state is not FenceState.FENCING:
            write(ctx, ban, fence)

    monkeypatch.setattr(record, "write", forgets)
    assert any("/journal/shop/fence/writes" in found for found in _found("fence"))


def test_matrix_finds_a_switch_that_is_done_before_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start hook behind the record would not be run by the next call."""
    write = switched.write

    def early(ctx: Any, switch: Any) -> None:
        is_served = switch.state is switched.SwitchState.SERVED
        write(ctx, replace(switch, state=switched.SwitchState.DONE) if is_served else switch)

    monkeypatch.setattr(switched, "write", early)
    assert any(found.startswith("/producers") or "/producers:" in found for found in _found("switch"))


def test_matrix_finds_locks_that_are_given_up_before_the_states_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    note = lifecycle.note

    def late(ctx: Any, topics: Any, state: TopicState) -> None:
        if state is TopicState.COMPLETED:
            ctx.journal.unlock(topics)
        note(ctx, topics, state)

    monkeypatch.setattr(lifecycle, "note", late)
    assert any("topic-state" in found for found in _found("release"))
