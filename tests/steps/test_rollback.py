"""Rolling groups back that have processed records on the target: in memory, and on real brokers with real groups.

In these worlds the links only have maps; with real links, through the real gate: tests/copy/test_there_and_back.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from kafka_migration.approvals import waves
from kafka_migration.approvals.rollback import RollbackGate, selected
from kafka_migration.approvals.waves import turn
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.types import TopicPartition
from kafka_migration.fence import fence
from kafka_migration.groups import looks, move, sides, translate, watch
from kafka_migration.groups.hooks import HookCall, HookRun, run_hook
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.watch import Life
from kafka_migration.migration import completion
from kafka_migration.migration.context import Context, Scope
from kafka_migration.migration.joined import join
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cancel, cutover, rollback
from kafka_migration.steps.cutover import CutoverResult, Fate
from tests.steps.hook_server import HookServer
from tests.steps.killing import Killed, Killer, MortalCluster, MortalStore, dying_before
from tests.steps.worlds import FakeWorld, World

#: Offsets of the topic: forward, source START..99 is target 0..89; then the cut, whose seal and fence are 90 and 100.
TARGET_CUT, SOURCE_CUT, WRITTEN = 90, 100, 20


@pytest.fixture(autouse=True)
def open_way_back() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RollbackGate, "ask", lambda _gate: "open")
        yield


@dataclass
class Shop:
    """A group that was cut over, and runs on the target. ``read`` are the stretches of source offsets after that."""

    world: World
    hooks: HookServer
    group: str
    tp: TopicPartition
    read: list[tuple[int, int]]

    @property
    def fields(self) -> dict[str, Any]:
        return {"consumers": self.hooks.consumers, "cutover": {"watch_seconds": 0.5}}

    def ctx(self, **fields: Any) -> Context:
        return self.world.ctx(**{**self.fields, **fields})

    def back(self, **fields: Any) -> CutoverResult:
        return rollback.apply(self.ctx(**fields), [self.group])

    def start(self, _: str) -> None:
        begin = self.world.committed("source", self.group)[self.tp]
        self.world.go_on("source", self.group, self.tp, begin + 5)
        self.read.append((begin, begin + 5))

    @property
    def record(self) -> GroupRecord:
        return GroupRecord.load(Journal(self.world.store, "moving"), self.group)


def moved_shop(world: World, hooks: HookServer, topic: str = "", *, name: str = "app", at: int = 95) -> Shop:
    """A group that was moved and has committed ``at`` on the target since; its consumers are members there."""
    full = topic or world.topic("orders")
    shop = Shop(world, hooks, world.group(name), TopicPartition(full, 0), [])
    if not topic:
        world.cut(shop.tp, WRITTEN)
    world.commit("source", shop.group, {shop.tp: 20})
    hooks.on("start", "target", lambda _: world.go_on("target", shop.group, shop.tp, at))
    hooks.on("start", "source", shop.start)
    assert cutover.apply(shop.ctx(), [shop.group]).groups[0].outcome is Fate.MOVED
    assert world.committed("target", shop.group)[shop.tp] == at
    running = [world.join("target", shop.group, [full])]
    hooks.on("stop", "target", lambda _: running.pop()() if running else None)
    hooks.calls.clear()
    return shop


#: Where a group stands on the target, and the offset of its very next record on the source.
PLACES = [(40, 50), (89, 99), (TARGET_CUT, 101), (91, 101), (95, 105), (91 + WRITTEN, 101 + WRITTEN)]


@pytest.mark.parametrize(("at", "place"), PLACES)
def test_group_goes_on_at_its_very_next_record_below_and_above_the_cut(
    fake_world: FakeWorld, hooks: HookServer, at: int, place: int
) -> None:
    shop = moved_shop(fake_world, hooks, at=at)
    (outcome,) = shop.back().groups
    assert outcome.outcome is Fate.MOVED
    assert [(move.source, move.target, move.policy) for move in outcome.translations] == [(place, at, "exact")]
    assert shop.read == [(place, place + 5)]


@pytest.mark.parametrize("when", ["before", "written, and not started"])
def test_group_whose_offsets_have_expired_on_the_source_goes_on_at_its_very_next_record(
    fake_world: FakeWorld, hooks: HookServer, when: str
) -> None:
    shop = moved_shop(fake_world, hooks)
    if when != "before":
        hooks.on("start", "source", lambda _: setattr(hooks, "answer", (404, b"no such application")))
        assert shop.back().groups[0].outcome is Fate.REFUSED
        assert fake_world.committed("source", shop.group) == {shop.tp: 105}
        hooks.answer = (200, b"done")
        hooks.on("start", "source", shop.start)
    fake_world.source.forget_group(shop.group)
    assert selected(shop.ctx().reverse()) == (shop.group,)
    (outcome,) = shop.back().groups
    assert outcome.outcome is Fate.MOVED
    assert shop.read == [(105, 110)]


@pytest.mark.parametrize(
    ("days", "minutes", "is_named"),
    [(5.5, "10080", False), (6.5, None, True), (7.02, "10080", True), (7.5, "10080", False), (1.5, "2880", True)],
)
def test_group_whose_offsets_are_about_to_expire_on_the_source_is_named_with_what_to_do(
    fake_world: FakeWorld, hooks: HookServer, days: float, minutes: str | None, is_named: bool
) -> None:
    shop = moved_shop(fake_world, hooks)
    fake_world.source.configs_of_brokers["offsets.retention.minutes"] = minutes
    fake_world.clock.sleep(days * 86_400)
    (group,) = translate.preview(shop.ctx().reverse()).groups
    assert any("its offsets on the source expire at about 2030-01-" in flag for flag in group.flags) == is_named
    assert not any("expire" in flag for flag in translate.preview(shop.ctx()).groups[0].flags)


def test_rollback_that_is_refused_lets_no_group_read_on_the_source_before(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop, let_in = moved_shop(fake_world, hooks), list[object]()
    monkeypatch.setattr(fence, "let_groups_in", let_in.append)

    def shut(_gate: object) -> str:
        raise Refused("the gate is shut")

    with monkeypatch.context() as patch:
        patch.setattr(RollbackGate, "ask", shut)
        with pytest.raises(Refused, match="the gate is shut"):
            shop.back()
    assert not let_in
    shop.back()
    assert len(let_in) == 1


def test_wave_goes_back_alone_and_what_was_denied_to_groups_is_of_the_whole_plan(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    stays = moved_shop(fake_world, hooks)
    goes, let_in = moved_shop(fake_world, hooks, stays.tp.topic, name="goes"), list[Context]()
    monkeypatch.setattr(fence, "let_groups_in", let_in.append)
    ctx = goes.ctx().within(Scope.wave("first", topics={goes.tp.topic}, groups={goes.group}))
    (outcome,) = rollback.apply(ctx).groups
    assert (outcome.group, outcome.outcome) == (goes.group, Fate.MOVED)
    assert (stays.record.is_moved, goes.record.was_rolled_back) == (True, True)
    assert [seen.scope.is_whole for seen in let_in] == [True]
    # It has begun to move to the target at some time before, if ever.
    assert ctx.journal.read(waves.KIND, "first") is None


def test_group_is_stopped_on_the_target_and_started_on_the_source_at_home_again(
    world: World, hooks: HookServer
) -> None:
    shop = moved_shop(world, hooks)
    (outcome,) = shop.back().groups
    assert (outcome.outcome, outcome.alive) == (Fate.MOVED, True), outcome
    assert hooks.calls == [("stop", "target", "rollback", shop.group), ("start", "source", "rollback", shop.group)]
    assert world.target.group_state(shop.group).is_empty
    assert shop.read == [(105, 110)]
    # At home: nothing is astray, and both moves are in the record.
    assert sides.astray(shop.ctx()) == {}
    record = shop.record
    assert (record.is_moved, record.was_rolled_back, record.is_stopped) == (False, True, False)
    assert [(leg.direction, leg.generation) for leg in record.legs] == [
        (Direction.FORWARD, 1),
        (Direction.REVERSE, 1),
    ]
    assert [(move.source, move.target) for move in record.forward.translations] == [(20, 10)]
    assert record.forward.owner_epoch < record.leg.owner_epoch
    (life,) = watch.sample(shop.ctx(), [shop.group]).groups
    assert (life.life, life.evidence) == (Life.ALIVE, f"committed past its translated offset: {shop.tp} (105 -> 110)")
    # It is moved once, and neither forward again by the same link nor undone.
    assert [one.outcome for one in shop.back().groups] == [Fate.ALREADY_MOVED]
    (again,) = cutover.apply(shop.ctx(), [shop.group]).groups
    assert (again.outcome, "was moved back to the source since" in again.reason) == (Fate.REFUSED, True)
    with pytest.raises(Refused, match="was moved back to the source since"):
        cutover.undo(shop.ctx(), shop.group)
    # Back on the target without anybody's leave, it is named.
    world.join("target", shop.group, [shop.tp.topic])
    assert sides.astray(shop.ctx())[shop.group] == "has 1 members on the target"
    (life,) = watch.sample(shop.ctx(), [shop.group]).groups
    assert life.life is Life.ON_BOTH
    # Its position on the source is the live one: nothing there may be deleted.
    for remedy in (life.remedy, sides.check_back(shop.ctx()).remedy):
        assert "stop its consumers on the target for good" in remedy
        assert f"delete the group on the target (kafka-consumer-groups.sh --delete --group {shop.group})" in remedy
        assert "on the source for good" not in remedy
        assert "delete the group on the source" not in remedy


def test_records_that_are_not_mirrored_back_yet_are_waited_for(world: World, hooks: HookServer) -> None:
    shop = moved_shop(world, hooks)
    world.mirror_back(shop.tp, 2)
    world.later(1.0, lambda: world.mirror_back(shop.tp, WRITTEN))
    assert [one.outcome for one in shop.back().groups] == [Fate.MOVED]
    assert shop.read == [(105, 110)]


def test_group_that_waits_in_vain_is_not_stopped(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = moved_shop(fake_world, hooks)
    fake_world.mirror_back(shop.tp, 2)
    (outcome,) = shop.back().groups
    assert outcome.outcome is Fate.REFUSED
    assert "target offset 95 lies beyond the mirror's position 93" in outcome.reason
    assert (hooks.calls, shop.record.is_moved) == ([], True)
    assert fake_world.committed("source", shop.group) == {shop.tp: 20}


def test_group_that_was_stopped_and_cannot_go_back_is_started_on_the_target_again(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = moved_shop(world, hooks)
    world.more("target", shop.tp, 10)

    def stop(_: str) -> None:
        for member in world.target.group_state(shop.group).members:
            world.target.leave(shop.group, member.member_id)
        # Of what it commits as it stops the last record is not mirrored back.
        world.go_on("target", shop.group, shop.tp, 95 + WRITTEN)

    hooks.on("stop", "target", stop)
    hooks.on("start", "target", lambda _: None)
    (outcome,) = shop.back().groups
    assert outcome.outcome is Fate.REFUSED
    assert outcome.remedy.endswith("its consumers were started on the target again")
    assert [call[:3] for call in hooks.calls] == [("stop", "target", "rollback"), ("start", "target", "undo")]
    assert (shop.record.is_moved, shop.record.was_rolled_back) == (True, False)
    assert world.committed("source", shop.group) == {shop.tp: 20}
    # It is on the target as before: the next wave's turn is as it was, and what moves it on is named.
    after = shop.ctx().within(Scope.wave("next", topics=set(), groups=set(), after={shop.group}))
    assert turn(after).verdict is Verdict.PASS
    (life,) = watch.sample(shop.ctx(), [shop.group]).groups
    assert life.remedy.startswith(f"run `rollback --group {shop.group}`")
    assert shop.group in cancel._moved(shop.ctx())
    # Once it can, the same command moves it.
    world.more("source", shop.tp, 10)
    world.mirror_back(shop.tp, WRITTEN + 10)
    assert [one.outcome for one in shop.back().groups] == [Fate.MOVED]
    assert shop.read == [(105 + WRITTEN, 110 + WRITTEN)]
    assert len(shop.record.legs) == 2
    assert len(shop.record.earlier) == 1


def test_group_that_never_was_on_the_target_is_left_alone(world: World, hooks: HookServer) -> None:
    shop = moved_shop(world, hooks)
    stayed = world.group("stayed")
    world.commit("source", stayed, {shop.tp: 20})
    world.commit("target", stayed, {shop.tp: 60})  # a rehearsal's
    (outcome,) = rollback.apply(shop.ctx(), [stayed]).groups
    assert outcome.outcome is Fate.REFUSED
    assert "was not moved to the target by this migration" in outcome.reason
    assert world.committed("source", stayed) == {shop.tp: 20}
    assert selected(shop.ctx().reverse()) == (shop.group,)


def test_group_that_was_created_on_the_target_and_topics_that_were_are_named(world: World, hooks: HookServer) -> None:
    shop = moved_shop(world, hooks)
    new, topic = world.group("new"), f"{world.name}.since"
    world._fill("target", topic, 1, 5, 0)
    world.commit("target", new, {shop.tp: 95, TopicPartition(topic, 0): 3})
    assert selected(shop.ctx().reverse()) == (shop.group, new)
    (outcome,) = rollback.apply(shop.ctx(cutover={"stopped_groups": [new]}), [new]).groups
    assert outcome.outcome is Fate.MOVED, outcome.reason
    assert outcome.flags == (
        "it was created on the target: the source has no offset of it, and gets what it committed here",
        f"its offsets of {topic}-0 stay behind: these partitions were made after the cut",
    )
    assert world.committed("source", new) == {shop.tp: 105}


def two_topics(world: FakeWorld, hooks: HookServer) -> tuple[Shop, TopicPartition]:
    """As :func:`moved_shop`, with another topic, of which the group has committed 85 on the target."""
    first, second = TopicPartition(world.topic("orders"), 0), TopicPartition(world.topic("payments"), 0)
    for tp in (first, second):
        world.cut(tp, WRITTEN)
    group = world.group("app")
    world.commit("source", group, {second: 20})
    shop = moved_shop(world, hooks, first.topic)
    assert shop.group == group
    world.target.consumer_commits(group, second, 85)
    return shop, second


def test_topic_that_was_moved_and_is_excluded_since_keeps_its_group_from_going_back(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    shop, other = two_topics(fake_world, hooks)
    (outcome,) = shop.back(topics={"include": [rf"{fake_world.name}[.]orders"]}).groups
    assert outcome.outcome is Fate.REFUSED
    assert f"with topics that the plan does not select now: {other.topic}" in outcome.reason
    assert "select them again" in outcome.remedy
    assert (hooks.calls, fake_world.committed("source", shop.group)) == ([], {shop.tp: 20, other: 20})
    assert [one.outcome for one in shop.back().groups] == [Fate.MOVED]
    assert fake_world.committed("source", shop.group)[other] == 95


def test_topic_that_was_excluded_when_the_reverse_link_began_is_named_with_what_takes_it_up(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop, other = two_topics(world, hooks)
    maps = world.back.maps.pop(other)
    (outcome,) = shop.back().groups
    assert outcome.outcome is Fate.REFUSED
    assert f"reads {other}, which the reverse link does not copy" in outcome.reason
    assert "start `mirror --reverse` again" in outcome.remedy
    # Excluded before the seal, it has no cut, and no mirror takes it up.
    forward = world.link.maps.pop(other)
    (outcome,) = shop.back().groups
    assert "there is no place from which their records go back to the source" in outcome.reason
    assert "mirror --reverse" not in outcome.remedy
    assert (hooks.calls, world.committed("source", shop.group)) == ([], {shop.tp: 20, other: 20})
    world.link.maps[other], world.back.maps[other] = forward, maps
    assert [one.outcome for one in shop.back().groups] == [Fate.MOVED]


def test_rollback_by_a_plan_that_was_replaced_is_refused(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = moved_shop(fake_world, hooks)
    join(shop.ctx())
    join(shop.ctx(lag_gate={"threshold_records": 7}))
    with pytest.raises(Refused, match="was replaced by another one"):
        shop.back()
    assert hooks.calls == []


@pytest.mark.parametrize("policy", ["refuse", "cut"])
def test_group_that_was_never_moved_and_never_committed_is_left_alone(
    fake_world: FakeWorld, hooks: HookServer, policy: str
) -> None:
    world = fake_world
    shop, fresh = moved_shop(world, hooks), world.group("fresh")
    # On the source, where its application is down just now: its auto.offset.reset would have it read all.
    leave = world.join("source", fresh, [shop.tp.topic])
    looks.take(shop.ctx(), [fresh])
    leave()
    fields: dict[str, Any] = {"cutover": {"watch_seconds": 0.5, "uncommitted": policy}}
    assert selected(shop.ctx(**fields).reverse()) == (shop.group,)
    (outcome,) = rollback.apply(shop.ctx(**fields), [fresh]).groups
    assert (outcome.outcome, world.committed("source", fresh)) == (Fate.REFUSED, {})
    assert hooks.calls == []


def test_uncommitted_partitions_of_a_group_that_was_created_on_the_target_get_no_offset(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop, new, other = moved_shop(world, hooks), world.group("new"), TopicPartition(world.topic("other"), 0)
    world.cut(other, WRITTEN)
    world.commit("target", new, {shop.tp: 95})
    running = [world.join("target", new, [shop.tp.topic, other.topic])]
    hooks.on("stop", "target", lambda _: running.pop()() if running else None)
    hooks.on("start", "source", lambda _: None)
    (outcome,) = rollback.apply(shop.ctx(cutover={"watch_seconds": 0.5, "uncommitted": "cut"}), [new]).groups
    assert (outcome.outcome, world.committed("source", new)) == (Fate.MOVED, {shop.tp: 105}), outcome.reason
    assert (
        f"it never committed {other}: nothing is written there, and its auto.offset.reset decides on the source as it"
        " does on the target"
    ) in outcome.flags


def test_partitions_that_a_moved_group_began_to_read_on_the_target_are_named_with_the_plans_policy(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop, other = moved_shop(world, hooks), TopicPartition(world.topic("other"), 0)
    world.cut(other, WRITTEN)
    world.join("target", shop.group, [shop.tp.topic, other.topic])
    (outcome,) = shop.back(dry_run=True).groups
    assert "never committed an offset" in outcome.reason
    (outcome,) = shop.back(dry_run=True, cutover={"watch_seconds": 0.5, "uncommitted": "cut"}).groups
    assert outcome.flags == (
        f"it reads {other} on the target, and never committed there: cutover.uncommitted (cut) decides",
    )


def test_group_whose_commits_are_gone_from_the_target_is_refused(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = moved_shop(fake_world, hooks)
    fake_world.target.expire_commit(shop.group, shop.tp)
    (outcome,) = shop.back().groups
    assert "has no commit there any more" in outcome.reason
    assert hooks.calls == []


def test_dry_run_shows_the_steps_and_changes_nothing(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = moved_shop(fake_world, hooks)
    before = dict(fake_world.store.items(""))
    fake_world.told.clear()
    assert [one.outcome for one in shop.back(dry_run=True).groups] == [Fate.WOULD_MOVE]
    assert (hooks.calls, dict(fake_world.store.items(""))) == ([], before)
    assert fake_world.told[0] == "rollback gate: open"
    assert f"{shop.group}: translate its commits exactly, write them on the source, read them back and compare" in (
        fake_world.told
    )


def _mortal(shop: Shop, patch: pytest.MonkeyPatch, killer: Killer) -> Context:
    ctx = shop.ctx()
    ctx.journal = Journal(MortalStore(shop.world.store, killer), "moving")
    ctx.source = MortalCluster(ctx.source, killer)  # type: ignore[assignment]

    def directly(call: HookCall, **_: object) -> HookRun:
        verb = "stop" if call.hook in ctx.plan.consumers.stop else "start"
        shop.hooks.act(verb, call.cluster, call.phase, call.group)
        return HookRun(what=str(call), seconds=0.0, said="done")

    patch.setattr(move, "run_hook", killer.around(run_hook if shop.world.is_real else directly))
    return ctx


def _attempt(shop: Shop, at: int = 0) -> CutoverResult | None:
    """A process that moves the group back; None if it was killed at point ``at``."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            return rollback.apply(_mortal(shop, patch, Killer(at)), [shop.group])
        except Killed:
            return None


def _assert_back_once(shop: Shop, result: CutoverResult | None) -> None:
    assert result is not None
    assert [one.outcome for one in result.groups] in ([Fate.MOVED], [Fate.ALREADY_MOVED]), result.groups
    assert shop.read[0][0] == 105
    # Each start went on where the one before ended: nothing is skipped, and nothing rewound.
    assert all(after[0] == before[1] for before, after in zip(shop.read, shop.read[1:], strict=False))
    assert shop.record.was_rolled_back
    assert [(one.source, one.target) for one in shop.record.translations] == [(105, 95)]
    assert len(shop.record.legs) == 2
    assert shop.world.committed("target", shop.group) == {shop.tp: 95}


def test_rollback_killed_at_any_point_converges(fake_world: FakeWorld, hooks: HookServer) -> None:
    first = moved_shop(fake_world, hooks)
    at = 0
    while True:
        at += 1
        shop = moved_shop(fake_world, hooks, first.tp.topic, name=f"k{at}")
        result = _attempt(shop, at)
        if result is not None:
            break
        _assert_back_once(shop, _attempt(shop))
    _assert_back_once(shop, result)
    assert at > 20


def _killed_before(shop: Shop, last: Step) -> None:
    """A process that moves the group back, and dies right before it would note ``last``."""
    with dying_before(last):
        shop.back()


@pytest.mark.parametrize("last", [Step.STOPPED, Step.WRITTEN, Step.READ_BACK, Step.STARTED])
def test_rollback_killed_before_it_noted_a_step_converges(world: World, hooks: HookServer, last: Step) -> None:
    shop = moved_shop(world, hooks)
    _killed_before(shop, last)
    _assert_back_once(shop, shop.back())


def test_cutover_and_undo_leave_a_group_alone_that_is_on_its_way_back(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = moved_shop(fake_world, hooks)
    _killed_before(shop, Step.STOPPED)
    assert shop.record.leg.is_under_way
    claim = dict(fake_world.store.items("moving/group-owner/"))
    (outcome,) = cutover.apply(shop.ctx(), [shop.group]).groups
    assert "is being moved back to the source since" in outcome.reason
    with pytest.raises(Refused, match="is being moved back"):
        cutover.undo(shop.ctx(), shop.group)
    with pytest.raises(Refused, match="is being moved back"):
        move.Mover(shop.ctx()).move(shop.group)
    assert dict(fake_world.store.items("moving/group-owner/")) == claim, "the rollback still owns it"
    _assert_back_once(shop, _attempt(shop))


def test_group_that_stands_stopped_when_the_gate_shuts_is_started_where_it_was(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = moved_shop(fake_world, hooks)
    _killed_before(shop, Step.TRANSLATED)
    assert shop.record.is_stopped
    hooks.calls.clear()

    def shut(_gate: object) -> str:
        raise Refused("the gate is shut")

    monkeypatch.setattr(RollbackGate, "ask", shut)
    with pytest.raises(Refused, match="the gate is shut"):
        shop.back()
    assert [call[:2] for call in hooks.calls] == [("start", "target")]


def test_remedy_of_a_group_that_stands_stopped_goes_by_its_wave_where_a_wave_is_moved(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    shop = moved_shop(fake_world, hooks)
    _killed_before(shop, Step.TRANSLATED)
    back, problem = shop.ctx().reverse(), Refused("away", remedy="wait")
    wave = back.within(Scope.wave("first", topics={shop.tp.topic}, groups={shop.group}))
    for ctx, option in ((back, ""), (wave, " --wave first")):
        remedy = cutover._remedy(ctx, shop.group, problem, is_stopped=True)
        assert f"run `rollback --group {shop.group}{option}` again soon" in remedy


def test_group_that_waited_while_the_migration_was_completed_is_not_moved(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    shop = moved_shop(fake_world, hooks)
    hooks.calls.clear()
    fake_world.mirror_back(shop.tp, 2)

    def completes() -> None:
        completion.begin(shop.ctx(), by="ada")
        fake_world.mirror_back(shop.tp, WRITTEN)

    fake_world.later(1.0, completes)
    (outcome,) = shop.back().groups
    assert (outcome.outcome, "completed by ada" in outcome.reason) == (Fate.REFUSED, True)
    assert hooks.calls == []
    assert not shop.record.leg.is_unfinished, "and nothing of it keeps the completion from its end"
    assert (shop.record.is_moved, fake_world.committed("source", shop.group)) == (True, {shop.tp: 20})
