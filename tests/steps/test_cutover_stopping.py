"""What is asked before consumers are stopped, and what becomes of those that were stopped for nothing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from kafka_migration.domain.controls import Pause
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import looks, sides, translate
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.inventory import inventory
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import Fate
from tests.steps.hook_server import HookServer
from tests.steps.killing import Killed
from tests.steps.worlds import START, FakeWorld, World


@pytest.fixture
def world(fake_world: FakeWorld) -> FakeWorld:
    return fake_world


def running(world: World, hooks: HookServer, *names: str, commit: int = 20, **topic: Any) -> tuple[Any, ...]:
    """Groups whose consumers run on the source, and stop and start by hooks."""
    name = world.topic("orders", **topic)
    tp, groups, leaving = TopicPartition(name, 0), [world.group(it) for it in names], {}

    def start(group: str) -> None:
        leaving[group] = world.join("source", group, [name])

    def stop(group: str) -> None:
        leaving.pop(group, lambda: None)()

    for group in groups:
        world.commit("source", group, {tp: commit})
        start(group)
    hooks.on("stop", "source", stop)
    hooks.on("start", "source", start)
    hooks.on("start", "target", lambda group: world.go_on("target", group, tp, commit - START + 1))
    return tp, groups


def record(world: World, group: str) -> GroupRecord:
    return GroupRecord.load(Journal(world.store, "moving"), group)


def verbs(hooks: HookServer) -> list[tuple[str, str, str]]:
    return [(verb, cluster, group.rpartition(".")[2]) for verb, cluster, _, group in hooks.calls]


def test_commit_in_an_open_transaction_holds_up_neither_a_look_nor_other_groups_and_ends_with_the_consumers(
    world: FakeWorld, hooks: HookServer
) -> None:
    _, groups = running(world, hooks, "busy", "other")
    world.source.pending = {groups[0]}
    ctx = world.ctx(consumers=hooks.consumers)
    assert set(inventory.take(ctx).groups) >= set(groups)
    assert not any(group.problems for group in translate.preview(ctx, groups).groups)
    assert set(sides.unmoved(ctx)) == set(groups)
    looks.take(ctx, groups)
    first, second = cutover.apply(ctx, groups).groups
    assert (first.exit_code, second.outcome) == (3, Fate.MOVED), "what it has committed is not known at rest"
    stop = hooks._actions["stop", "source"]

    def stops(group: str) -> None:
        stop(group)
        world.source.pending = set()

    hooks.on("stop", "source", stops)
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED


# -- before the first stop --------------------------------------------------------------------------------------------


def test_silent_mirror_stops_no_group(world: FakeWorld, hooks: HookServer) -> None:
    _, groups = running(world, hooks, "a", "b", "c")
    world.link.last_word = lambda: datetime(2029, 12, 31, 23, 59, tzinfo=UTC)
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert [it.outcome for it in result.groups] == [Fate.REFUSED] * 3
    assert "the mirror's last heartbeat was at 2029-12-31 23:59:00 UTC" in result.groups[0].reason
    assert hooks.calls == []
    assert all(not world.source.group_state(group).is_empty for group in groups)


def test_mirror_that_ended_with_records_to_copy_stops_no_group(world: FakeWorld, hooks: HookServer) -> None:
    _, groups = running(world, hooks, "a", "b", mirrored=99)
    world.link.last_word = None
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert "1 source offsets are to be copied" in result.groups[0].reason
    assert "it is ended" in result.groups[0].reason
    assert hooks.calls == []


def test_mirror_that_ended_after_it_copied_everything_is_enough(world: FakeWorld, hooks: HookServer) -> None:
    _, groups = running(world, hooks, "a")
    world.link.last_word = None
    assert cutover.apply(world.ctx(consumers=hooks.consumers), groups).groups[0].outcome is Fate.MOVED


def test_lag_over_the_gates_threshold_stops_no_group(world: FakeWorld, hooks: HookServer) -> None:
    _, groups = running(world, hooks, "a", mirrored=50)
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 49})
    assert "50 source offsets are to be copied" in cutover.apply(ctx, groups).groups[0].reason
    assert hooks.calls == []
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 50})
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED


def test_paused_mirror_stops_no_group_however_little_is_to_be_copied(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=99)
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 50})
    world.link.pause = Pause(by="ada", at="2029-12-31T23:59:00+00:00", reason="backup")
    reason = cutover.apply(ctx, groups).groups[0].reason
    assert "it is paused by ada at 2029-12-31 23:59:00 UTC (backup), with 1 source offsets to copy" in reason
    assert hooks.calls == []
    world.mirror(tp, 100)
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED, "nothing is to be copied any more"


def test_lag_of_what_moved_groups_read_stops_no_other_group_from_moving(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a")
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 0})
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED
    world.more("source", tp, 50)
    other, group = TopicPartition(world.topic("payments"), 0), world.group("b")
    world.commit("source", group, {other: 20})
    hooks.on("stop", "source", lambda _: None)
    hooks.on("start", "target", lambda _: world.go_on("target", group, other, 11))
    result = cutover.apply(ctx, (*groups, group))
    assert [it.outcome for it in result.groups] == [Fate.ALREADY_MOVED, Fate.MOVED]


def test_lag_that_falls_meanwhile_is_waited_for(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    world.later(3.0, lambda: world.mirror(tp, 100))
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 0})
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED


def test_halt_behind_the_commits_stops_no_other_group_from_moving(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    world.link.halt(tp, "CORRUPT")
    ctx = world.ctx(consumers=hooks.consumers, lag_gate={"threshold_records": 0})
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED


def test_commit_that_the_mirror_does_not_reach_ends_the_batch_before_a_group_is_stopped(
    world: FakeWorld, hooks: HookServer
) -> None:
    _, groups = running(world, hooks, "a", "b", "c", commit=80, mirrored=50)
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert hooks.calls == []
    assert all("has not copied up to its commits" in it.reason for it in result.groups)
    # One was waited for, the others were not tried.
    assert world.clock.monotonic() < 2 * world.wait
    assert [record(world, group).steps for group in groups] == [{}, {}, {}]


def test_start_hook_that_may_not_run_is_found_before_the_group_is_stopped(world: FakeWorld, hooks: HookServer) -> None:
    _, groups = running(world, hooks, "a")
    consumers = {"stop": hooks.consumers["stop"], "start": [{"command": ["/opt/nobody/allows/this", "{group}"]}]}
    outcome = cutover.apply(world.ctx(consumers=consumers), groups).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert "/opt/nobody/allows/this is not allowed here" in outcome.reason
    assert hooks.calls == []
    assert world.committed("target", groups[0]) == {}


# -- after a stop that was for nothing --------------------------------------------------------------------------------


def test_group_that_was_stopped_and_not_copied_is_started_again_and_ends_the_batch(
    world: FakeWorld, hooks: HookServer
) -> None:
    tp, groups = running(world, hooks, "a", "b", "c", mirrored=50)
    start = hooks.act

    def commits_once_more(verb: str, cluster: str, phase: str, group: str) -> None:
        start(verb, cluster, phase, group)
        if verb == "stop":
            world.go_on("source", group, tp, 80)

    hooks.act = commits_once_more  # type: ignore[method-assign]
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert verbs(hooks) == [("stop", "source", "a"), ("start", "source", "a")]
    assert hooks.calls[1][2] == "undo"
    assert [it.outcome for it in result.groups] == [Fate.REFUSED] * 3
    assert "its consumers were started on the source again" in result.groups[0].remedy
    assert not world.source.group_state(groups[0]).is_empty
    assert "has not copied" in record(world, groups[0]).evidence(Step.UNDONE, "because")
    # The mirror has caught up, and the next run moves all of them.
    world.mirror(tp, 100)
    hooks.on("start", "target", lambda group: world.go_on("target", group, tp, 71))
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert [it.outcome for it in result.groups] == [Fate.MOVED] * 3
    assert [world.committed("target", group) for group in groups] == [{tp: 71}] * 3


def reads_on(world: FakeWorld, hooks: HookServer, tp: TopicPartition) -> None:
    """The group commits beyond what is mirrored while it is stopped, so that its move fails after that."""
    act = hooks.act

    def stops(verb: str, cluster: str, phase: str, group: str) -> None:
        act(verb, cluster, phase, group)
        if verb == "stop":
            world.go_on("source", group, tp, 80)

    hooks.act = stops  # type: ignore[method-assign]


def test_group_that_a_hook_and_somebody_else_stop_is_started_again(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    reads_on(world, hooks, tp)
    consumers = {**hooks.consumers, "stop": [*hooks.consumers["stop"], {"wait": True}]}
    outcome = cutover.apply(world.ctx(consumers=consumers), groups).groups[0]
    assert verbs(hooks) == [("stop", "source", "a"), ("start", "source", "a")]
    assert not outcome.is_stopped


def test_commits_that_a_rehearsal_left_on_the_target_keep_no_group_stopped(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    reads_on(world, hooks, tp)
    world.commit("target", groups[0], {tp: 30})
    outcome = cutover.apply(world.ctx(consumers=hooks.consumers, cutover={"rewind": True}), groups).groups[0]
    assert verbs(hooks) == [("stop", "source", "a"), ("start", "source", "a")]
    assert (outcome.outcome, outcome.is_stopped) == (Fate.REFUSED, False)


def test_group_ahead_on_the_target_is_refused_before_it_is_stopped(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a")
    world.commit("target", groups[0], {tp: 70})
    outcome = cutover.apply(world.ctx(consumers=hooks.consumers), groups).groups[0]
    assert f"{tp} (committed 70, translated 10)" in outcome.reason
    assert hooks.calls == []
    assert not world.source.group_state(groups[0]).is_empty


def test_group_that_runs_on_the_target_is_not_started_on_the_source_as_well(
    world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp, groups = running(world, hooks, "a")
    start = hooks.act

    def comes_up_there(verb: str, cluster: str, phase: str, group: str) -> None:
        start(verb, cluster, phase, group)
        world.join("target", group, [tp.topic])

    monkeypatch.setattr(hooks, "act", comes_up_there)
    outcome = cutover.apply(world.ctx(consumers=hooks.consumers), groups).groups[0]
    assert "not empty on the target" in outcome.reason
    assert verbs(hooks) == [("stop", "source", "a")]


def test_start_that_fails_leaves_a_record_of_a_stopped_group(world: FakeWorld, hooks: HookServer) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    reads_on(world, hooks, tp)
    start = hooks.act

    def fails(verb: str, cluster: str, phase: str, group: str) -> None:
        hooks.answer = (404, b"no such application") if verb == "start" else (200, b"done")
        if verb == "stop":
            start(verb, cluster, phase, group)

    hooks.act = fails  # type: ignore[method-assign]
    result = cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    assert "its consumers were stopped and run on neither side" in result.groups[0].remedy
    assert f"`undo --group {groups[0]}`" in result.groups[0].remedy
    assert any("its consumers stay stopped" in line for line in world.told)
    assert (result.groups[0].outcome, result.exit_code) == (Fate.REFUSED, 3), "it is worth another try"


@pytest.mark.parametrize("is_up", [True, False], ids=["up", "still-starting"])
def test_run_killed_while_it_starts_a_group_again_is_followed_by_one_that_stops_it_anew(
    is_up: bool, world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tp, groups = running(world, hooks, "a", mirrored=50)
    reads_on(world, hooks, tp)
    if not is_up:
        hooks.on("start", "source", lambda _: None)
    mark = GroupRecord.mark

    def dies(self: GroupRecord, step: Step, *args: Any, **evidence: Any) -> None:
        if step is Step.UNDONE:
            raise Killed("right after the start hook")
        mark(self, step, *args, **evidence)

    monkeypatch.setattr(GroupRecord, "mark", dies)
    with pytest.raises(Killed):
        cutover.apply(world.ctx(consumers=hooks.consumers), groups)
    monkeypatch.undo()
    hooks.calls.clear()
    world.mirror(tp, 100)
    ctx = world.ctx(consumers=hooks.consumers)
    assert cutover.apply(ctx, groups).groups[0].outcome is Fate.MOVED
    assert verbs(hooks) == [("stop", "source", "a"), ("start", "target", "a")]
