"""Moving a single group back."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import watch
from kafka_migration.groups.move import Mover
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import Fate
from tests.steps.hook_server import HookServer
from tests.steps.killing import Killed
from tests.steps.worlds import FakeWorld, World


def sick_shop(world: World, hooks: HookServer) -> tuple[str, TopicPartition, dict[str, Any]]:
    """A group that was moved, but whose consumers do not come alive on the target."""
    topic, group = world.topic("orders"), world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    fields: dict[str, Any] = {"consumers": hooks.consumers, "cutover": {"watch_seconds": 0.1}}
    assert cutover.apply(world.ctx(**fields)).groups[0].outcome is Fate.MOVED
    hooks.calls.clear()
    return group, TopicPartition(topic, 0), fields


def test_group_that_does_not_come_alive_is_moved_back_alone(world: World, hooks: HookServer) -> None:
    group, tp, fields = sick_shop(world, hooks)
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"
    assert hooks.calls == [("stop", "target", "undo", group), ("start", "source", "undo", group)]
    assert world.committed("source", group) == {tp: 20}
    assert watch.apply(world.ctx(**fields)).groups == ()


def test_group_whose_offsets_have_expired_on_the_source_is_started_there_where_it_was_stopped(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, tp, fields = sick_shop(world, hooks)
    world.source.forget_group(group)
    found: list[dict[TopicPartition, int]] = []
    hooks.on("start", "source", lambda _: found.append(world.committed("source", group)))
    assert cutover.undo(world.ctx(dry_run=True, **fields), group).outcome == "would_undo"
    assert world.committed("source", group) == {}
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"
    assert found == [{tp: 20}]


def test_group_whose_offsets_expired_while_it_stood_stopped_is_started_on_the_source_where_it_was_stopped(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    topic, group = world.topic("orders", partitions=2), world.group("app")
    gone, left = TopicPartition(topic, 0), TopicPartition(topic, 1)
    world.commit("source", group, {gone: 20, left: 30})
    fields: dict[str, Any] = {"consumers": hooks.consumers}

    def dies(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Mover, "_write", dies)
        with pytest.raises(Killed):
            cutover.apply(world.ctx(**fields))
    world.source.expire_commit(group, gone)
    # It went on there since: what stands there is never replaced.
    world.commit("source", group, {left: 35})
    found: list[dict[TopicPartition, int]] = []
    hooks.on("start", "source", lambda _: found.append(world.committed("source", group)))
    assert cutover.apply(world.ctx(**fields)).groups[0].outcome is Fate.REFUSED
    assert found == [{gone: 20, left: 35}]


def test_undo_twice_does_nothing_the_second_time(world: World, hooks: HookServer) -> None:
    group, _, fields = sick_shop(world, hooks)
    cutover.undo(world.ctx(**fields), group)
    hooks.calls.clear()
    assert cutover.undo(world.ctx(**fields), group).outcome == "already_undone"
    assert hooks.calls == []


def test_group_moved_back_can_be_moved_again(world: World, hooks: HookServer) -> None:
    group, tp, fields = sick_shop(world, hooks)
    cutover.undo(world.ctx(**fields), group)
    world.go_on("source", group, tp, 60)
    assert cutover.apply(world.ctx(**fields)).groups[0].outcome is Fate.MOVED
    assert world.committed("target", group) == {tp: 50}


def test_group_with_idle_members_on_the_target_is_stopped_there_first(world: World, hooks: HookServer) -> None:
    group, tp, fields = sick_shop(world, hooks)
    leave = world.join("target", group, [tp.topic])
    hooks.on("stop", "target", lambda _: leave())
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"
    assert world.target.group_state(group).is_empty


def test_group_that_has_gone_on_on_the_target_is_not_moved_back(world: World, hooks: HookServer) -> None:
    group, tp, fields = sick_shop(world, hooks)
    world.go_on("target", group, tp, 11)
    with pytest.raises(Refused, match="translated 10, committed 11"):
        cutover.undo(world.ctx(**fields), group)
    assert hooks.calls == []


def test_group_that_commits_while_it_is_stopped_on_the_target_is_not_started_on_the_source(
    world: World, hooks: HookServer
) -> None:
    group, tp, fields = sick_shop(world, hooks)
    hooks.on("stop", "target", lambda _: world.go_on("target", group, tp, 12))
    with pytest.raises(Refused, match="committed 12"):
        cutover.undo(world.ctx(**fields), group)
    # It belongs to the target now, and is not left stopped.
    assert [call[:3] for call in hooks.calls] == [("stop", "target", "undo"), ("start", "target", "cutover")]


def test_group_that_lives_on_the_target_and_has_no_stop_hook_is_refused(world: World, hooks: HookServer) -> None:
    group, tp, fields = sick_shop(world, hooks)
    world.join("target", group, [tp.topic])
    fields["consumers"] = {"start": hooks.consumers["start"]}
    with pytest.raises(Refused, match="not empty on the target"):
        cutover.undo(world.ctx(**fields), group)


def test_group_that_was_stopped_but_not_moved_is_started_on_the_source_again(world: World, hooks: HookServer) -> None:
    topic, group = world.topic("orders"), world.group("app")
    world.commit("source", group, {TopicPartition(topic, 0): 20})
    tp = TopicPartition(topic, 0)
    # What it commits while it is stopped is not there to be copied: it is started again, and that fails.
    hooks.on("stop", "source", lambda _: world.commit("source", group, {tp: 101}))
    hooks.on("start", "source", lambda _: setattr(hooks, "answer", (404, b"no such application")))
    fields: dict[str, Any] = {"consumers": hooks.consumers}
    outcome = cutover.apply(world.ctx(**fields)).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert f"`cutover --group {group}` again soon, or `undo --group {group}`" in outcome.remedy
    hooks.calls.clear()
    hooks.on("start", "source", lambda _: setattr(hooks, "answer", (200, b"done")))
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"
    assert hooks.calls == [("start", "source", "undo", group)]


def test_group_that_commits_on_the_target_without_members_is_not_started_on_the_source(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, tp = world.group("app"), TopicPartition(world.topic("orders", records=1000), 0)
    world.commit("source", group, {tp: 900})
    fields: dict[str, Any] = {"consumers": hooks.consumers, "cutover": {"watch_seconds": 0.1, "rewind": True}}
    assert cutover.apply(world.ctx(**fields)).groups[0].outcome is Fate.MOVED
    hooks.calls.clear()
    with world.restless("target", group, tp), pytest.raises(Refused, match="no members on the target, but still"):
        cutover.undo(world.ctx(**fields), group)
    assert hooks.calls == [("stop", "target", "undo", group)]


def test_move_that_is_interrupted_starts_the_group_where_it_was(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By Ctrl-C, or by who ends the process by a signal."""
    world = fake_world
    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Mover, "_write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cutover.apply(world.ctx(consumers=hooks.consumers))
    assert hooks.calls == [("stop", "source", "cutover", group), ("start", "source", "undo", group)]
    record = GroupRecord.load(world.ctx().journal, group)
    assert record.evidence(Step.UNDONE, "because") == "the move was interrupted"


@pytest.mark.parametrize("undoes", [True, False])
def test_rollback_that_takes_the_group_up_before_the_claim_keeps_it(
    world: World, hooks: HookServer, monkeypatch: pytest.MonkeyPatch, undoes: bool
) -> None:
    group, _, fields = sick_shop(world, hooks)
    ctx, own = world.ctx(**fields), GroupRecord.own

    def taken_up(journal: Any, name: str, *, at: str) -> GroupRecord:
        record = own(journal, name, at=at)
        record.take_leg(Direction.REVERSE, 1)
        record.mark(Step.STOPPING, ctx.clock.now())
        return own(journal, name, at=at)

    if not undoes:
        GroupRecord.own(ctx.journal, group, at=ctx.stamp()).forget(Step.STARTED)
    monkeypatch.setattr(GroupRecord, "own", taken_up)
    shut = Refused("the gate is shut")
    act = partial(cutover.undo, ctx, group) if undoes else partial(Mover(ctx).leave_running, group, shut)
    with pytest.raises(Refused, match="back to the source since"):
        act()
    assert hooks.calls == []


def test_group_in_the_middle_of_an_undo_is_not_cut_over(world: World, hooks: HookServer) -> None:
    group, _, fields = sick_shop(world, hooks)
    hooks.answer = (404, b"no")
    with pytest.raises(Refused, match="answered 404"):
        cutover.undo(world.ctx(**fields), group)
    outcome = cutover.apply(world.ctx(**fields)).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert "being moved back" in outcome.reason
    hooks.answer = (200, b"yes")
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"


def test_dry_undo_tells_the_hooks_and_runs_none(world: World, hooks: HookServer) -> None:
    group, _, fields = sick_shop(world, hooks)
    result = cutover.undo(world.ctx(dry_run=True, **fields), group)
    assert result.outcome == "would_undo"
    assert [call.split("/", 3)[-1] for call in result.hooks] == [
        f"stop/target/undo/{group}",
        f"start/source/undo/{group}",
    ]
    assert hooks.calls == []


def test_dry_undo_of_a_group_whose_start_failed_tells_that_it_is_stopped_there(world: World, hooks: HookServer) -> None:
    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})
    hooks.on("start", "target", lambda _: setattr(hooks, "answer", (404, b"no such application")))
    fields: dict[str, Any] = {"consumers": hooks.consumers}
    assert cutover.apply(world.ctx(**fields)).groups[0].outcome is Fate.REFUSED
    hooks.answer = (200, b"done")
    told = cutover.undo(world.ctx(dry_run=True, **fields), group).hooks
    hooks.calls.clear()
    assert cutover.undo(world.ctx(**fields), group).hooks == told
    assert hooks.calls == [("stop", "target", "undo", group), ("start", "source", "undo", group)]
    assert [call.split("/", 3)[-1] for call in told] == ["/".join(call) for call in hooks.calls]


def test_group_that_was_not_touched_cannot_be_moved_back(world: World) -> None:
    world.topic("orders")
    with pytest.raises(Refused, match="not touched"):
        cutover.undo(world.ctx(), world.group("app"))
    with pytest.raises(BadInput):
        cutover.undo(world.ctx(), "somebody-else")
