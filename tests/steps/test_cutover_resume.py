"""Kill at any step and run again: every group ends up on exactly one cluster, at exactly its position."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import move
from kafka_migration.groups.hooks import HookCall, HookRun, run_hook
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.migration.context import Context
from kafka_migration.state.journal import Journal
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import CutoverResult, Fate, UndoResult
from tests.steps.hook_server import HookServer
from tests.steps.killing import Killed, Killer, MortalCluster, MortalStore, dying_before
from tests.steps.worlds import START, FakeWorld, World

COMMITTED = 20


@dataclass
class Shop:
    """A consumer group and whoever operates it. ``read`` are the stretches of target offsets it has processed."""

    world: World
    hooks: HookServer
    group: str
    tp: TopicPartition
    read: list[tuple[int, int]] = field(default_factory=list)
    cutover: dict[str, object] = field(default_factory=dict)

    def start(self, _: str) -> None:
        """Start on the target: go on from the committed offset, for five records."""
        begin = self.world.committed("target", self.group)[self.tp]
        self.world.go_on("target", self.group, self.tp, begin + 5)
        self.read.append((begin, begin + 5))

    def run(self, patch: pytest.MonkeyPatch, killer: Killer) -> CutoverResult:
        """A process that moves the group, until it ends or is killed."""
        return cutover.apply(self._mortal(patch, killer), [self.group])

    def undo(self, patch: pytest.MonkeyPatch, killer: Killer) -> UndoResult:
        """A process that moves the group back, until it ends or is killed."""
        return cutover.undo(self._mortal(patch, killer), self.group)

    def _mortal(self, patch: pytest.MonkeyPatch, killer: Killer) -> Context:
        ctx = self.world.ctx(consumers=self.hooks.consumers, cutover=self.cutover)
        ctx.journal = Journal(MortalStore(self.world.store, killer), "moving")
        ctx.target = MortalCluster(ctx.target, killer)  # type: ignore[assignment]
        # In memory, hundreds of runs: they call without HTTP, which the other scenarios show.
        patch.setattr(move, "run_hook", killer.around(run_hook if self.world.is_real else self._directly))
        return ctx

    def _directly(self, call: HookCall, **_: object) -> HookRun:
        verb = "stop" if call.hook in self.world.plan(consumers=self.hooks.consumers).consumers.stop else "start"
        self.hooks.act(verb, call.cluster, call.phase, call.group)
        return HookRun(what=str(call), seconds=0.0, said="done")

    @property
    def record(self) -> GroupRecord:
        return GroupRecord.load(Journal(self.world.store, "moving"), self.group)


def open_shop(world: World, hooks: HookServer, name: str, topic: str, *, rehearsed: int | None = None) -> Shop:
    """A shop whose consumers run on the source. ``rehearsed`` is what a rehearsal committed on the target."""
    shop = Shop(world, hooks, world.group(name), TopicPartition(topic, 0))
    if rehearsed is not None:
        shop.cutover = {"rewind": rehearsed > COMMITTED - START}
        world.commit("target", shop.group, {shop.tp: rehearsed})
    world.commit("source", shop.group, {shop.tp: COMMITTED}, metadata="note")
    leave = world.join("source", shop.group, [topic])
    running = [leave]

    def stop(_: str) -> None:
        while running:
            running.pop()()

    hooks.on("stop", "source", stop)
    hooks.on("start", "target", shop.start)
    return shop


def killed(shop: Shop, at: int) -> bool:
    """Whether a run that is to be killed at point ``at`` came so far."""
    with pytest.MonkeyPatch.context() as patch:
        try:
            shop.run(patch, Killer(at))
        except Killed:
            return True
    return False


def finished(shop: Shop) -> CutoverResult:
    with pytest.MonkeyPatch.context() as patch:
        return shop.run(patch, Killer())


def assert_moved_once(shop: Shop, result: CutoverResult) -> None:
    assert [it.outcome for it in result.groups] in ([Fate.MOVED], [Fate.ALREADY_MOVED]), result.groups
    assert shop.record.has(Step.ALIVE)
    assert shop.read[0][0] == COMMITTED - START
    # Each start went on where the one before ended: nothing is skipped, and nothing rewound.
    assert all(after[0] == before[1] for before, after in zip(shop.read, shop.read[1:], strict=False))
    assert shop.world.committed("source", shop.group) == {shop.tp: COMMITTED}
    assert [(it.source, it.target) for it in shop.record.translations] == [(COMMITTED, COMMITTED - START)]


def killed_before(shop: Shop, last: Step) -> None:
    """A run that dies right before it would note ``last``."""
    with dying_before(last):
        finished(shop)


#: What a rehearsal left on the target: nothing, an offset below the translated one, or one beyond it.
LEFT = (None, 5, 70)
REHEARSALS = pytest.mark.parametrize("rehearsed", LEFT, ids=["new", "behind", "ahead"])


@REHEARSALS
def test_run_killed_at_any_point_is_finished_by_the_next(
    rehearsed: int | None, world: World, hooks: HookServer
) -> None:
    topic = world.topic("orders")
    # Real brokers take seconds for each: there, every fourth point is tried with one of the three.
    at, stride = (1 + 4 * LEFT.index(rehearsed), 12) if world.is_real else (1, 1)
    while True:
        shop = open_shop(world, hooks, f"k{at}", topic, rehearsed=rehearsed)
        was_killed = killed(shop, at)
        assert_moved_once(shop, finished(shop))
        if not was_killed:
            break
        at += stride
    # Ten entries, a commit and two hooks, each before and after.
    assert at >= 26


@REHEARSALS
def test_second_run_may_be_killed_as_well(rehearsed: int | None, fake_world: FakeWorld, hooks: HookServer) -> None:
    topic = fake_world.topic("orders", records=1000)
    # Every pair of points with one of the three.
    pairs = [(first, second) for first in range(1, 27) for second in range(1, 27)]
    for first, second in [(a, b) for a, b in pairs if (a + b // 3) % 3 == LEFT.index(rehearsed)]:
        shop = open_shop(fake_world, hooks, f"k{first}-{second}", topic, rehearsed=rehearsed)
        killed(shop, first)
        killed(shop, second)
        assert_moved_once(shop, finished(shop))


def test_offsets_that_a_rehearsal_commits_after_a_refusal_are_not_taken_for_the_move(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    leaving = []
    write = move.Mover._write

    def come_back_and_write(*args: object) -> None:
        leaving.append(world.join("source", shop.group, [shop.tp.topic]))
        write(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(move.Mover, "_write", come_back_and_write)
    assert finished(shop).groups[0].outcome is Fate.REFUSED
    monkeypatch.undo()
    leaving[0]()
    world.commit("target", shop.group, {shop.tp: 70})
    outcome = finished(shop).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert f"{shop.tp} (committed 70, translated 10)" in outcome.reason
    assert world.committed("target", shop.group) == {shop.tp: 70}


def test_offsets_that_a_rehearsal_commits_after_a_kill_before_the_write_are_not_taken_for_the_move(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    ctx = world.ctx(consumers=hooks.consumers)
    ctx.target = MortalCluster(ctx.target, Killer(1))  # type: ignore[assignment]
    with pytest.raises(Killed):
        cutover.apply(ctx)
    assert shop.record.has(Step.WRITING)
    world.commit("target", shop.group, {shop.tp: 70})
    assert "further ahead" in finished(shop).groups[0].reason
    assert world.committed("target", shop.group) == {shop.tp: 70}


def test_rehearsal_that_was_ahead_and_runs_again_is_not_taken_for_a_rewind_that_was_killed_before_its_write(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"), rehearsed=70)
    ctx = world.ctx(consumers=hooks.consumers, cutover=shop.cutover)
    ctx.target = MortalCluster(ctx.target, Killer(1))  # type: ignore[assignment]
    with pytest.raises(Killed):
        cutover.apply(ctx)
    assert shop.record.has(Step.WRITING)
    assert not shop.record.has(Step.WRITTEN)
    world.join("target", shop.group, [shop.tp.topic])
    assert finished(shop).groups[0].outcome is not Fate.MOVED
    assert not shop.record.has(Step.READ_BACK)
    assert world.committed("target", shop.group) == {shop.tp: 70}


def test_offsets_beyond_a_write_that_was_not_read_back_are_the_groups_own_only_with_its_members(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    killed_before(shop, Step.READ_BACK)
    assert shop.record.has(Step.WRITTEN)
    world.target.consumer_commits(shop.group, shop.tp, 70)
    assert "further ahead" in finished(shop).groups[0].reason
    # It was the group itself, and its consumers run there again.
    world.join("target", shop.group, [shop.tp.topic])
    hooks.on("start", "target", lambda _: None)
    assert finished(shop).groups[0].outcome is Fate.MOVED


def test_group_that_went_on_on_the_source_after_its_write_is_not_taken_as_moved(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    killed_before(shop, Step.READ_BACK)
    world.go_on("source", shop.group, shop.tp, 40)
    world.join("target", shop.group, [shop.tp.topic])
    assert finished(shop).groups[0].outcome is Fate.REFUSED
    assert not shop.record.has(Step.READ_BACK)


def test_write_of_an_earlier_translation_does_not_vouch_for_what_a_rehearsal_commits(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    killed_before(shop, Step.READ_BACK)
    world.go_on("source", shop.group, shop.tp, 40)
    killed_before(shop, Step.WRITING)
    assert [it.source for it in shop.record.translations] == [40]
    world.go_on("target", shop.group, shop.tp, 70)
    world.join("target", shop.group, [shop.tp.topic])
    assert finished(shop).groups[0].outcome is Fate.REFUSED
    assert not shop.record.has(Step.READ_BACK)


def test_rewind_whose_write_was_not_answered_is_made_by_the_next_run(fake_world: FakeWorld, hooks: HookServer) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"), rehearsed=70)
    with world.target.failing("commit", CouldNotFindOut("no answer")):
        assert finished(shop).groups[0].outcome is Fate.FAILED
    assert_moved_once(shop, finished(shop))


def test_offsets_of_a_stranger_between_write_and_read_back_are_not_taken_for_the_move(
    fake_world: FakeWorld, hooks: HookServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = fake_world
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    write = world.target.commit

    def write_and_be_overtaken(*args: Any) -> None:
        write(*args)
        world.target.consumer_commits(shop.group, shop.tp, 70)

    monkeypatch.setattr(world.target, "commit", write_and_be_overtaken)
    assert "further ahead" in finished(shop).groups[0].reason
    assert any("differ from what was written" in line for line in world.told)
    monkeypatch.undo()
    assert "further ahead" in finished(shop).groups[0].reason
    world.join("target", shop.group, [shop.tp.topic])
    assert finished(shop).groups[0].outcome is Fate.REFUSED, "nor if it shows members"
    assert not shop.record.has(Step.READ_BACK)


def test_undo_killed_at_any_point_is_finished_by_the_next(fake_world: FakeWorld, hooks: HookServer) -> None:
    topic = fake_world.topic("orders")
    at = 1
    while True:
        shop = open_shop(fake_world, hooks, f"k{at}", topic)
        hooks.on("start", "target", lambda _: None)
        assert finished(shop).groups[0].outcome is Fate.MOVED
        hooks.calls.clear()
        with pytest.MonkeyPatch.context() as patch:
            try:
                shop.undo(patch, Killer(at))
            except Killed:
                with pytest.MonkeyPatch.context() as again:
                    shop.undo(again, Killer())
            else:
                break
        assert shop.record.has(Step.UNDONE)
        assert ("start", "source", "undo", shop.group) in hooks.calls
        assert fake_world.committed("source", shop.group) == {shop.tp: COMMITTED}
        at += 1
    assert at > 8


def test_cut_that_was_made_stays_where_it_was_made(world: World) -> None:
    """A rerun must not skip the records that arrived between a kill and itself."""
    topic = world.topic("orders", partitions=2)
    group, never = world.group("app"), TopicPartition(topic, 0)
    world.commit("source", group, {TopicPartition(topic, 1): 20})
    policy = {"cutover": {"uncommitted": "cut", "stopped_groups": [group]}}
    ctx = world.ctx(**policy)
    ctx.target = MortalCluster(ctx.target, Killer(1))  # type: ignore[assignment]
    with pytest.raises(Killed):
        cutover.apply(ctx)
    world.more("target", never, 7)
    assert cutover.apply(world.ctx(**policy)).groups[0].outcome is Fate.MOVED
    assert world.committed("target", group)[never] == 90


def test_moved_group_is_not_touched_again(world: World, hooks: HookServer) -> None:
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    finished(shop)
    # Its own offsets by now; a person may even have set them back.
    world.go_on("target", shop.group, shop.tp, 3)
    hooks.calls.clear()
    result = finished(shop)
    assert (result.groups[0].outcome, result.groups[0].alive) == (Fate.ALREADY_MOVED, True)
    assert world.committed("target", shop.group) == {shop.tp: 3}
    assert hooks.calls == []


def test_group_that_was_started_by_hand_after_a_kill_is_taken_as_moved(world: World, hooks: HookServer) -> None:
    """Killed after the write, before reading it back; then somebody starts the consumers and they go on."""
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    ctx = world.ctx(consumers=hooks.consumers)
    ctx.target = MortalCluster(ctx.target, Killer(2))  # type: ignore[assignment]
    with pytest.raises(Killed):
        cutover.apply(ctx)
    world.go_on("target", shop.group, shop.tp, 33)
    world.join("target", shop.group, [shop.tp.topic])
    hooks.on("start", "target", lambda _: None)
    result = finished(shop)
    assert result.groups[0].outcome is Fate.MOVED
    assert world.committed("target", shop.group) == {shop.tp: 33}
    assert shop.record.evidence(Step.READ_BACK, "found") == "in use"
    assert [it["offset"] for it in shop.record.evidence(Step.READ_BACK, "offsets")] == [33]


def test_group_that_came_back_on_the_source_before_it_ran_on_the_target_is_moved_again(
    world: World, hooks: HookServer
) -> None:
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    hooks.on("start", "target", lambda _: None)
    result = cutover.apply(world.ctx(consumers=hooks.consumers, cutover={"watch_seconds": 0.1}))
    assert result.groups[0].outcome is Fate.MOVED
    world.go_on("source", shop.group, shop.tp, 50)
    hooks.on("start", "target", shop.start)
    assert finished(shop).groups[0].outcome is Fate.MOVED
    assert shop.read == [(40, 45)]
    assert len(shop.record.earlier) == 1


def test_declared_group_that_came_back_on_the_source_after_it_was_active_on_the_target_is_moved_again(
    world: World,
) -> None:
    group, tp = world.group("app"), TopicPartition(world.topic("orders"), 0)
    world.commit("source", group, {tp: 20})
    ctx = world.ctx(cutover={"stopped_groups": [group]})
    assert cutover.apply(ctx).groups[0].outcome is Fate.MOVED
    GroupRecord.load(ctx.journal, group).note_alive(ctx.clock.now(), sign="members", pause_seconds=None)
    # Whoever declares it stopped has stopped it there; it committed nothing meanwhile.
    world.go_on("source", group, tp, 50)
    assert cutover.apply(ctx).exit_code == 0
    assert world.committed("target", group) == {tp: 40}


def test_group_that_came_back_after_it_was_stopped_is_stopped_again(world: World, hooks: HookServer) -> None:
    topic = world.topic("orders")
    shop = open_shop(world, hooks, "app", topic)
    # Killed once it is stopped; whoever watches over its consumers starts them again, and they go on.
    ctx = world.ctx(consumers=hooks.consumers)
    ctx.target = MortalCluster(ctx.target, Killer(1))  # type: ignore[assignment]
    with pytest.raises(Killed):
        cutover.apply(ctx)
    assert shop.record.has(Step.STOPPED)
    world.go_on("source", shop.group, shop.tp, 64)
    leave = world.join("source", shop.group, [topic])
    hooks.on("stop", "source", lambda _: leave())
    hooks.calls.clear()
    assert finished(shop).groups[0].outcome is Fate.MOVED
    assert [call[0] for call in hooks.calls] == ["stop", "start"]
    assert shop.read == [(54, 59)]


def test_group_that_goes_on_on_both_clusters_is_reported_and_left_alone(world: World, hooks: HookServer) -> None:
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    finished(shop)
    world.go_on("source", shop.group, shop.tp, 50)
    outcome = finished(shop).groups[0]
    assert outcome.outcome is Fate.REFUSED
    assert "runs on the target" in outcome.reason
    assert f"committed {shop.tp} again on the source" in outcome.reason
    assert world.committed("target", shop.group) == {shop.tp: 15}


def test_started_group_that_shows_no_life_is_started_again(world: World, hooks: HookServer) -> None:
    shop = open_shop(world, hooks, "app", world.topic("orders"))
    hooks.on("start", "target", lambda _: None)
    cutover.apply(world.ctx(consumers=hooks.consumers, cutover={"watch_seconds": 0.1}))
    hooks.on("start", "target", shop.start)
    hooks.calls.clear()
    outcome = finished(shop).groups[0]
    assert (outcome.outcome, outcome.alive) == (Fate.MOVED, True)
    assert hooks.calls == [("start", "target", "cutover", shop.group)]


def test_group_that_the_source_has_forgotten_stays_moved(fake_world: FakeWorld, hooks: HookServer) -> None:
    shop = open_shop(fake_world, hooks, "app", fake_world.topic("orders"))
    finished(shop)
    fake_world.source.forget_group(shop.group)
    assert [it.outcome for it in cutover.apply(fake_world.ctx()).groups] == [Fate.ALREADY_MOVED]


@pytest.mark.parametrize("uncommitted", ["refuse", "cut"])
def test_moved_group_that_both_clusters_have_forgotten_before_it_was_started_goes_on_where_it_was(
    fake_world: FakeWorld, uncommitted: str
) -> None:
    world, place = fake_world, TopicPartition(fake_world.topic("orders"), 0)
    group = world.group("app")
    world.commit("source", group, {place: 20})
    ctx = world.ctx(cutover={"stopped_groups": [group], "uncommitted": uncommitted})
    assert cutover.apply(ctx).groups[0].outcome is Fate.MOVED
    there = world.committed("target", group)
    for cluster in (world.source, world.target):
        cluster.forget_group(group)
    assert cutover.apply(ctx).groups[0].exit_code == 0
    assert world.committed("target", group) == there
    assert world.committed("source", group) == {place: 20}, "so that it can be undone, too"


def test_moved_group_that_reads_nothing_of_the_plan_any_more_stays_moved(fake_world: FakeWorld) -> None:
    world = fake_world
    group = world.group("app")
    world.commit("source", group, {TopicPartition(world.topic("orders"), 0): 20})
    ctx = world.ctx(cutover={"stopped_groups": [group]})
    assert cutover.apply(ctx).groups[0].outcome is Fate.MOVED
    world.source.forget_group(group)
    world.commit("source", group, {TopicPartition(world.foreign_topic("x"), 0): 1})
    assert cutover.apply(ctx).groups[0].outcome is Fate.ALREADY_MOVED


def test_record_of_a_later_version_is_not_guessed_at(fake_world: FakeWorld) -> None:
    group = fake_world.group("app")
    fake_world.commit("source", group, {TopicPartition(fake_world.topic("orders"), 0): 20})
    fake_world.store.put(f"moving/group/{group}", {"format": 2, "steps": {}})
    with pytest.raises(Exception, match="this version cannot read") as caught:
        cutover.apply(fake_world.ctx())
    assert caught.value.exit_code == 3  # type: ignore[attr-defined]
