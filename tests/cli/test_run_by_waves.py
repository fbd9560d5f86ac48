"""`run` on a plan with waves: one after another, each asked for, and none begun after one that did not end well."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.cli.commands import run as command
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.inventory import inventory
from kafka_migration.inventory.facts import plan_waves
from kafka_migration.migration.context import Context
from kafka_migration.steps import runner
from kafka_migration.steps.step import Decision
from kafka_migration.waves.pinned import pin
from tests.cli.conftest import Terminal

GIVEN = {"given": [{"name": "first", "topics": [".*orders"], "canary": True}, {"name": "second", "topics": [".*nts"]}]}
BEFORE = ["inventory_and_preflight", "create_targets", "watch_lag", "validate"]
AFTER = ["stop_mirror", "validate_end", "restore", "release", "report"]


def of(wave: str) -> list[str]:
    return [f"approve cutover {wave}", f"cut_over[{wave}]", f"watch_groups[{wave}]"]


@dataclass
class Played:
    """What `run` does, in order; ``fails`` gives the exit code of a step."""

    terminal: Terminal
    done: list[str] = field(default_factory=list)
    fails: dict[str, int] = field(default_factory=dict)
    moved: dict[str, tuple[str, ...]] = field(default_factory=dict)
    settles: bool = False

    def run(self) -> int:
        self.done.clear()
        return self.terminal.run("run").exit_code

    def step(self, ctx: Context, name: str, *, part: str = "", **_options: Any) -> Decision:
        self.done.append(name + part)
        if name == "create_targets" and self.settles:
            pin(ctx, plan_waves(ctx, inventory.take(ctx)).waves)
        if name == "watch_groups":
            self.moved[ctx.scope.key] = tuple(sorted(ctx.scope.reading))
        return Decision(exit_code=self.fails.get(name + part, 0))


class NoMirror:
    def __init__(self, *_arguments: Any, **_options: Any) -> None:
        pass

    def __enter__(self) -> NoMirror:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def start(self) -> None:
        pass

    require_ours = start

    def quiet(self) -> AbstractContextManager[None]:
        return nullcontext()


@pytest.fixture
def played(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Played:
    """Two groups, one in each topic; nobody has approved anything."""
    terminal.shop.source.consumer_commits("shop.billing", TopicPartition("shop.payments", 0), 10)
    found = Played(terminal)

    def shut(_ctx: Context, gate: GateName) -> None:
        raise NotApproved(gate, "nobody has approved it yet")

    def approve(gate: GateName, _plan: Path, *, wave: str | None) -> None:
        found.done.append(f"approve {gate} {wave}")

    monkeypatch.setattr(runner, "run", found.step)
    monkeypatch.setattr(runner, "wait", found.step)
    monkeypatch.setattr(approvals, "check", shut)
    monkeypatch.setattr(command, "approve", approve)
    monkeypatch.setattr(command, "can_be_asked", lambda: True)
    monkeypatch.setattr(command, "MirrorProcess", NoMirror)
    return found


def plan_of(played: Played, waves: dict[str, Any] | None) -> None:
    played.terminal.write_plan(waves=waves, approvals={"plan": False})


def go_on(played: Played, group: str) -> None:
    """The group has moved, and was seen on the target."""
    ctx = played.terminal.shop.ctx()
    record = GroupRecord.own(ctx.journal, group, at=ctx.stamp())
    for step in (Step.STOPPING, Step.READ_BACK, Step.ALIVE):
        record.mark(step, played.terminal.shop.clock.now())


def test_waves_are_moved_one_after_another_each_under_an_approval_of_its_own(played: Played) -> None:
    plan_of(played, GIVEN)
    assert played.run() == 0
    assert played.done == [*BEFORE, *of("first"), *of("second"), *AFTER]
    assert played.moved == {"first": ("shop.app",), "second": ("shop.billing",)}
    plan_of(played, None)
    assert played.run() == 0
    whole = ["approve cutover None", "cut_over", "watch_groups"]
    assert played.done == [*BEFORE, *whole, *AFTER], "without waves as before"


@pytest.mark.parametrize("step", ["cut_over[first]", "watch_groups[first]"])
def test_wave_that_does_not_end_well_has_its_groups_watched_and_the_next_one_does_not_begin(
    played: Played, step: str
) -> None:
    plan_of(played, GIVEN)
    played.fails[step] = 1
    assert played.run() == 1
    assert played.done == [*BEFORE, *of("first")]


def test_run_again_asks_for_no_wave_that_has_moved_and_for_one_that_was_moved_back(played: Played) -> None:
    plan_of(played, GIVEN)
    go_on(played, "shop.app")
    assert played.run() == 0
    assert played.done == [*BEFORE, *of("second"), *AFTER]
    ctx = played.terminal.shop.ctx()
    GroupRecord.own(ctx.journal, "shop.app", at=ctx.stamp()).mark(Step.UNDONE, played.terminal.shop.clock.now())
    assert played.run() == 0
    assert played.done == [*BEFORE, *of("first"), *of("second"), *AFTER]


def test_run_that_nobody_can_be_asked_at_names_the_command_that_approves_the_wave(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_of(played, GIVEN)
    monkeypatch.setattr(command, "can_be_asked", lambda: False)
    refused = played.terminal.run("run")
    assert refused.exit_code == 1
    assert "cutover gate of wave first: nobody can be asked here" in refused.stderr
    assert f"approve cutover {played.terminal.plan} --wave first, then run this again" in refused.stderr
    assert played.done == BEFORE


def test_computed_waves_are_those_that_create_has_settled(played: Played) -> None:
    plan_of(played, {"auto": {"most_topics": 1}})
    assert played.run() == 1, "create has settled none"
    assert played.done == BEFORE
    played.settles = True
    assert played.run() == 0
    assert played.done == [*BEFORE, *of("canary"), *of("wave-1"), *AFTER]
