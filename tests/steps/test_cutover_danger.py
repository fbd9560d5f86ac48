"""Where a group could end up on both sides, or on neither: it is started on one only if proved off the other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.errors import CouldNotFindOut, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import looks, sides, watch
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.sides import EVERY_SECONDS, Lookout
from kafka_migration.groups.watch import Life
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import Fate
from tests.steps.hook_server import HookServer
from tests.steps.worlds import START, FakeWorld, World


def running(world: World, hooks: HookServer, name: str = "app") -> tuple[str, TopicPartition]:
    """A group with a consumer on the source that hooks stop there, and start on either side."""
    group, tp = world.group(name), TopicPartition(world.topic(f"orders.{name}"), 0)
    world.commit("source", group, {tp: 20})
    leaving = {group: world.join("source", group, [tp.topic])}

    def stop(_: str) -> None:
        if group in leaving:
            leaving.pop(group)()

    hooks.on("stop", "source", stop)
    hooks.on("start", "source", lambda _: leaving.setdefault(group, world.join("source", group, [tp.topic])))
    hooks.on("start", "target", lambda _: world.go_on("target", group, tp, 11))
    return group, tp


def then(hooks: HookServer, verb: str, more: Callable[[], object]) -> None:
    """Have ``more`` happen with the first hook ``verb``."""
    act, left = hooks.act, [more]

    def acts(called: str, cluster: str, phase: str, group: str) -> None:
        act(called, cluster, phase, group)
        if called == verb and left:
            left.pop()()

    hooks.act = acts  # type: ignore[assignment,method-assign]


def record(world: World, group: str) -> GroupRecord:
    return GroupRecord.load(Journal(world.store, "moving"), group)


# -- no start without a proof ------------------------------------------------------------------------------------------


def test_group_that_comes_up_on_the_target_while_it_is_stopped_is_not_started_on_the_source(
    world: World, hooks: HookServer
) -> None:
    group, tp = running(world, hooks)

    def come_up() -> None:
        world.go_on("target", group, tp, 70)
        world.join("target", group, [tp.topic])

    then(hooks, "stop", come_up)
    outcome = cutover.apply(world.ctx(consumers=hooks.consumers)).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert ("start", "source") not in [call[:2] for call in hooks.calls]
    assert world.source.group_state(group).is_empty
    assert not outcome.is_stopped, "it runs on the target"
    assert not [line for line in world.told if "started on the source again" in line], "nor is that what a person reads"


def test_group_that_comes_up_on_the_target_right_before_it_is_started_on_the_source_again_is_not_started(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, tp = running(world, hooks)
    # What cannot be copied has the group refused once it is stopped, and started again.
    then(hooks, "stop", lambda: world.go_on("source", group, tp, 10**6))

    def log(line: str) -> None:
        world.told.append(line)
        if "started on the source again" in line:
            world.join("target", group, [tp.topic])

    outcome = cutover.apply(replace(world.ctx(consumers=hooks.consumers), log=log)).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert [line for line in world.told if "started on the source again" in line]
    assert ("start", "source") not in [call[:2] for call in hooks.calls]


def test_group_that_committed_on_the_target_while_it_was_stopped_is_not_started_on_the_source(
    world: World, hooks: HookServer
) -> None:
    group, tp = running(world, hooks)
    then(hooks, "stop", lambda: world.go_on("target", group, tp, 70))
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert "further ahead on the target" in result.groups[0].reason
    assert ("start", "source") not in [call[:2] for call in hooks.calls]
    assert (result.groups[0].is_stopped, result.exit_code) == (True, 3)
    assert "run on neither side" in result.groups[0].remedy


def test_write_that_somebody_overtakes_starts_nothing_on_the_source(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    group, tp = running(world, hooks)
    write = world.target.commit

    def overtaken(*args: Any) -> None:
        write(*args)
        world.target.consumer_commits(group, tp, 70)
        world.join("target", group, [tp.topic])

    monkeypatch.setattr(world.target, "commit", overtaken)
    for _ in range(2):
        # Nor does the next run take what stands there for the group's own progress.
        assert cutover.apply(world.ctx(consumers=hooks.consumers)).groups[0].outcome is Fate.REFUSED
        assert {call[:2] for call in hooks.calls} == {("stop", "source")}


def before_its_start(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Once a group's start is noted, and before its hook is called, something ``happens``."""
    mark = GroupRecord.mark

    def marks(self: GroupRecord, step: Step, *args: Any, **evidence: Any) -> None:
        mark(self, step, *args, **evidence)
        if step is Step.STARTING:
            happens()

    monkeypatch.setattr(GroupRecord, "mark", marks)


@pytest.mark.parametrize(
    ("happens", "reason"),
    [
        (lambda world, group, tp: world.join("source", group, [tp.topic]), "not empty on the source"),
        (lambda world, group, tp: world.commit("target", group, {tp: 3}), "below what was written"),
        (lambda world, group, _: world.target.forget_group(group), "below what was written"),
    ],
    ids=["comes back on the source", "is set back on the target", "is deleted on the target"],
)
def test_group_that_changes_after_its_move_is_not_started_on_the_target(
    fake_world: FakeWorld,
    hooks: HookServer,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[World, str, TopicPartition], object],
    reason: str,
) -> None:
    world = fake_world
    group, tp = running(world, hooks)
    before_its_start(monkeypatch, lambda: happens(world, group, tp))
    outcome = cutover.apply(world.ctx(consumers=hooks.consumers)).groups[0]
    assert reason in outcome.reason
    assert ("start", "target") not in [call[:2] for call in hooks.calls]


def test_commit_that_is_made_again_after_a_failure_looks_at_the_claim_first(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, _ = running(world, hooks)
    failing = world.target.failing("commit", CouldNotFindOut("no answer"))
    failing.__enter__()

    def taken_over() -> None:
        GroupRecord.own(Journal(world.store, "moving"), group, at="2030-01-01T00:00:00+00:00")
        failing.__exit__(None, None, None)

    then(hooks, "stop", lambda: world.later(5.0, taken_over))
    with pytest.raises(TakenOver):
        cutover.apply(world.ctx(consumers=hooks.consumers))
    assert world.committed("target", group) == {}


def test_mover_that_lost_its_claim_right_before_a_hook_does_not_call_it(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    group, _ = running(world, hooks)
    moving = Journal(world.store, "moving")
    before_its_start(monkeypatch, lambda: GroupRecord.own(moving, group, at="2030-01-01T00:00:00+00:00"))
    with pytest.raises(TakenOver):
        cutover.apply(world.ctx(consumers=hooks.consumers))
    assert ("start", "target") not in [call[:2] for call in hooks.calls]


# -- commits without members -------------------------------------------------------------------------------------------


def memberless(world: World) -> tuple[str, TopicPartition]:
    """A group that nobody is a member of, whose commits moved between two looks."""
    group, tp = world.group("app"), TopicPartition(world.topic("orders"), 0)
    world.commit("source", group, {tp: 20})
    looks.take(world.ctx(), [group])
    world.clock.sleep(world.rest * 2)
    world.go_on("source", group, tp, 21)
    return group, tp


def test_group_that_commits_without_members_is_not_moved_unless_somebody_stops_it(world: World) -> None:
    group, _ = memberless(world)
    result = cutover.apply(world.ctx())
    assert "a client commits for it without being a member" in result.groups[0].reason
    assert (result.groups[0].outcome, result.exit_code) == (Fate.REFUSED, 1)
    assert world.committed("target", group) == {}
    # Declared, it rests for as long as its commits were seen to take.
    began = world.clock.monotonic()
    outcome = cutover.apply(world.ctx(cutover={"stopped_groups": [group]})).groups[0]
    assert outcome.outcome is Fate.MOVED
    assert world.clock.monotonic() - began >= world.rest * 2


def test_group_that_commits_without_members_is_moved_once_its_hook_stopped_it(world: World, hooks: HookServer) -> None:
    group, tp = memberless(world)
    hooks.on("start", "target", lambda _: world.go_on("target", group, tp, 15))
    assert cutover.apply(world.ctx(consumers=hooks.consumers)).groups[0].outcome is Fate.MOVED
    assert [(it.source, it.target) for it in record(world, group).translations] == [(21, 21 - START)]


def test_group_that_was_seen_with_members_needs_no_rest(fake_world: FakeWorld) -> None:
    world = fake_world
    group, tp = world.group("app"), TopicPartition(world.topic("orders"), 0)
    world.commit("source", group, {tp: 20})
    leave = world.join("source", group, [tp.topic])
    looks.take(world.ctx(), [group])
    leave()
    began = world.clock.monotonic()
    assert cutover.apply(world.ctx(cutover={"stopped_groups": [group]})).groups[0].outcome is Fate.MOVED
    assert world.clock.monotonic() - began < world.rest


def test_members_that_come_and_go_between_looks_do_not_count_as_commits_without_any(fake_world: FakeWorld) -> None:
    world = fake_world
    group, tp = memberless(world)
    assert looks.take(world.ctx(), [group])[group].moved_seconds is not None
    leave = world.join("source", group, [tp.topic])
    assert looks.take(world.ctx(), [group])[group].moved_seconds is None
    leave()


def test_listing_the_groups_takes_a_look_at_each(fake_world: FakeWorld) -> None:
    world = fake_world
    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})
    assert cutover.batches(world.ctx()) == [[group]]
    assert list(Journal(world.store, "moving").all("group-look")) == [group]


def test_looks_that_only_read_the_plan_write_nothing(fake_world: FakeWorld) -> None:
    world = fake_world
    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})
    looks.take(world.ctx(dry_run=True), [group])
    assert world.store.items() == {}


# -- nobody is left on neither side ------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [503, 429])
def test_start_hook_whose_server_is_busy_is_called_again(code: int, world: World, hooks: HookServer) -> None:
    group, tp = running(world, hooks)
    busy = [code]

    def starts(_: str) -> None:
        hooks.answer = (busy.pop(), b"later") if busy else (200, b"done")
        if not busy and hooks.answer[0] == 200:
            world.go_on("target", group, tp, 11)

    hooks.on("start", "target", starts)
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert (result.groups[0].outcome, result.exit_code) == (Fate.MOVED, 0)
    assert [call[:2] for call in hooks.calls].count(("start", "target")) == 2
    assert not [line for line in world.told if "not moved" in line], "again at once, not once the batch is through"


def test_refused_group_does_not_end_the_tries_of_one_that_stands_stopped(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    refused, tp = world.group("a"), TopicPartition(world.topic("orders", partitions=2), 0)
    world.commit("source", refused, {tp: 20})
    group, _ = running(world, hooks, "b")
    failing = [world.target.failing(method, CouldNotFindOut("no answer"), on=group) for method in METHODS]
    then(hooks, "stop", lambda: [it.__enter__() for it in failing])
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert [it.outcome for it in result.groups] == [Fate.REFUSED, Fate.FAILED]
    assert [it.is_stopped for it in result.groups] == [False, True]
    assert result.exit_code == 3, "a group that stands stopped is worth another try"
    for it in failing:
        it.__exit__(None, None, None)
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert [it.outcome for it in result.groups] == [Fate.REFUSED, Fate.MOVED]
    assert result.exit_code == 1


METHODS = ("commit", "committed", "group_states")


def test_group_that_stands_stopped_is_tried_again_before_the_batch_ends(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, _ = running(world, hooks)
    failing = [world.target.failing(method, CouldNotFindOut("no answer"), on=group) for method in METHODS]

    def goes() -> None:
        for it in failing:
            it.__enter__()
            # Longer than a group is waited for: both the move and the way back give up.
            world.later(61.0, lambda it=it: it.__exit__(None, None, None))  # type: ignore[misc]

    then(hooks, "stop", goes)
    result = cutover.apply(world.ctx(consumers=hooks.consumers))
    assert (result.groups[0].outcome, result.exit_code) == (Fate.MOVED, 0)


# -- astray ------------------------------------------------------------------------------------------------------------


def test_moved_group_that_comes_back_on_the_source_is_named_by_every_wait(world: World, hooks: HookServer) -> None:
    group, tp = running(world, hooks)
    assert cutover.apply(world.ctx(consumers=hooks.consumers)).groups[0].alive
    lookout = Lookout(world.ctx())
    assert lookout.look() == {}
    world.go_on("source", group, tp, 25)
    if not world.is_real:
        world.clock.sleep(EVERY_SECONDS)
        assert "committed again on the source" in lookout.look()[group]
        world.clock.sleep(EVERY_SECONDS)
        assert lookout.look() == {}, "named once"
    assert "committed again on the source" in sides.astray(world.ctx())[group]
    (life,) = watch.apply(world.ctx(), seconds=0.1).groups
    assert life.life is Life.ON_BOTH


def test_watch_takes_up_a_settled_group_again_that_comes_back_on_the_source(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, tp = running(world, hooks)
    cutover.apply(world.ctx(consumers=hooks.consumers))
    wait = watch.GroupsWait(world.ctx(), [group])
    assert wait.look()
    world.go_on("source", group, tp, 25)
    world.clock.sleep(EVERY_SECONDS)
    wait.look()
    assert [it.life for it in wait.result.groups] == [Life.ON_BOTH]


def test_group_that_was_moved_back_and_runs_on_the_target_is_named(world: World, hooks: HookServer) -> None:
    group, tp = running(world, hooks)
    hooks.on("start", "target", lambda _: None)
    fields: dict[str, Any] = {"consumers": hooks.consumers, "cutover": {"watch_seconds": 0.1}}
    cutover.apply(world.ctx(**fields))
    assert cutover.undo(world.ctx(**fields), group).outcome == "undone"
    assert sides.astray(world.ctx(**fields)) == {}
    world.join("target", group, [tp.topic])
    assert "1 members on the target" in sides.astray(world.ctx(**fields))[group]
    assert [str(it.verdict) for it in sides.check(world.ctx(**fields))] == ["FAIL", "WARN"]


def test_group_that_stands_stopped_is_named_and_keeps_the_stop_gate_shut(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    group, tp = running(world, hooks)
    then(hooks, "stop", lambda: world.go_on("target", group, tp, 70))
    ctx = world.ctx(consumers=hooks.consumers)
    assert cutover.apply(ctx).groups[0].is_stopped
    assert sides.check(ctx)[0].verdict == "FAIL"
    assert sides.astray(ctx) == {}, "whoever moves it may be about to start it"
    world.clock.sleep(61)
    assert "runs on neither side" in sides.astray(ctx)[group]


def test_group_that_first_appears_after_the_others_were_moved_is_named(world: World, hooks: HookServer) -> None:
    _, tp = running(world, hooks)
    cutover.apply(world.ctx(consumers=hooks.consumers))
    ctx = world.ctx(consumers=hooks.consumers)
    assert [str(it.verdict) for it in sides.check(ctx)] == ["PASS", "PASS"]
    late = world.group("late")
    world.commit("source", late, {tp: 15})
    assert {group: str(left) for group, left in sides.unmoved(ctx).items()} == {late: "no members"}
    assert [str(it.verdict) for it in sides.check(ctx)] == ["PASS", "WARN"]
    world.join("source", late, [tp.topic])
    _, moved = sides.check(ctx)
    assert (str(moved.verdict), moved.evidence) == ("FAIL", f"{late}: 1 members on the source")
