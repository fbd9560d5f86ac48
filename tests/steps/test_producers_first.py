"""Producers that are switched before groups: groups move behind them, each to its very next record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.producers import ProducersGate, gate_of
from kafka_migration.cli.commands import run
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.groups import watch
from kafka_migration.groups.record import GroupRecord
from kafka_migration.link import ready, stragglers, switched
from kafka_migration.link.stragglers import Stray
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.steps import cutover, outlook, rollback, switch
from kafka_migration.steps.cutover import Fate
from tests.steps.gates import Migration
from tests.steps.hook_server import HookServer
from tests.steps.test_lag import PARTITIONS, mirrored
from tests.steps.test_mirror_ready import asked
from tests.steps.test_rollback import WRITTEN, open_way_back
from tests.steps.test_switch import ORDERS, Shop, make
from tests.steps.worlds import FakeWorld, World

__all__ = ["make", "open_way_back"]


class FirstShop(Shop):
    """Its producers go first."""

    more: ClassVar[Mapping[str, Any]] = {"first": True}


@pytest.fixture
def shop(make: Callable[..., Shop]) -> Shop:
    return make(FirstShop)


# -- the switch -------------------------------------------------------------------------------------------------------


def test_switch_does_not_wait_for_groups_and_names_those_that_move_behind_it(shop: Shop) -> None:
    shop.source.consumer_commits("shop.late", ORDERS, 3)
    (found,) = [check for check in switch.check(shop.ctx(), environ={}) if check.name == switch.GROUPS]
    assert (found.verdict, "shop.late" in found.evidence) == (Verdict.PASS, True)
    assert shop.switch().exit_code == 0
    assert shop.record().state is SwitchState.DONE


def test_group_that_was_moved_before_has_to_be_active_all_the_same(shop: Shop) -> None:
    group = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    group.forget(*[step for step in group.steps if step == "alive"])
    (found,) = [check for check in switch.check(shop.ctx(), environ={}) if check.name == switch.GROUPS]
    assert (found.verdict, "shop.app: moved, and not active" in found.evidence) == (Verdict.FAIL, True)


def test_gate_is_that_of_producers_and_each_shows_the_steps_up_to_the_next_question(shop: Shop) -> None:
    assert isinstance(gate_of(shop.ctx()), ProducersGate)
    ctx = shop.ctx(producers={"fence": {"probe": "probe"}, "first": True, "in_workflow": True})

    def following(gate: GateName) -> list[str]:
        return [step.partition(":")[0] for step in outlook.evidence(ctx, gate).next_steps]

    assert following(GateName.PRODUCERS) == ["switch_producers", "lift_fence", "approve_cutover"]
    assert following(GateName.CUTOVER)[0] == "cut_over"
    assert following(GateName.CUTOVER)[-1] == "report"


def test_groups_that_stay_are_not_denied_before_they_moved() -> None:
    with pytest.raises(BadInput, match="groups_stay"):
        Migration().plan(producers={"fence": {"probe": "p"}, "first": True, "groups_stay": True})


@pytest.mark.parametrize(("first", "begins_behind"), [(True, "validate"), (False, "watch_groups")])
def test_run_goes_on_with_a_switch_that_has_sealed_and_is_not_done(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, *, first: bool, begins_behind: str
) -> None:
    shop.switch()
    producers = {"fence": {"probe": "probe"}, "in_workflow": True, "first": first}
    ctx = shop.ctx(producers=producers)
    assert run._done(ctx) == "switch_producers"
    monkeypatch.setattr(switched, "read", lambda _ctx: Switch(state=SwitchState.SWITCHING, begun_at=ctx.stamp()))
    assert run._done(ctx) == begins_behind


# -- behind the seal --------------------------------------------------------------------------------------------------


def test_mirror_that_is_sealed_is_no_matter_unless_somebody_wrote_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ctx, link = mirrored(Migration(), at=90)
    link.record_run({"state": "ended", "at": ctx.stamp()})
    assert [check.verdict for check in asked(ctx)] == [Verdict.WARN, Verdict.FAIL]
    link.record_seal(Seal(at=ctx.stamp(), identity=Identity(7, 1), ends=dict.fromkeys(PARTITIONS, 5_000_000)))
    monkeypatch.setattr(stragglers, "look", lambda _ctx: ())
    assert [check.verdict for check in asked(ctx)] == [Verdict.PASS, Verdict.PASS]
    stray = Stray(tp=PARTITIONS[0], start=95, end=99, records=4, producers=(-1,))
    monkeypatch.setattr(stragglers, "look", lambda _ctx: (stray,))
    assert asked(ctx)[1].verdict is Verdict.FAIL
    with pytest.raises(ready.NotCopied, match="see `stragglers`"):
        ready.require_keeping_up(ctx, PARTITIONS)
    ready.require_keeping_up(ctx, PARTITIONS[1:])


#: Offsets of the source on which a group stands, and of the target at which its very next record stands: below the cut,
#: at it (a fence's marker on the source, the seal's on the target), and what came back from the target.
PLACES = [(50, 40), (99, 89), (100, 91), (101, 91), (105, 95), (101 + WRITTEN, 91 + WRITTEN)]


@pytest.mark.parametrize(("at", "place"), PLACES)
def test_group_moves_behind_producers_to_its_very_next_record_and_back_again(
    world: World, hooks: HookServer, at: int, place: int
) -> None:
    tp, group = TopicPartition(world.topic("orders"), 0), world.group("app")
    world.cut(tp, WRITTEN)
    world.link.is_sealed, world.link.last_word = True, None
    world.commit("source", group, {tp: at})
    fields = {"consumers": hooks.consumers, "cutover": {"watch_seconds": 0.5}}
    (outcome,) = cutover.apply(world.ctx(**fields), [group]).groups
    assert outcome.outcome is Fate.MOVED, outcome
    assert world.committed("target", group) == {tp: place}
    assert [call[:2] for call in hooks.calls] == [("stop", "source"), ("start", "target")]
    (outcome,) = rollback.apply(world.ctx(**fields), [group]).groups
    assert outcome.outcome is Fate.MOVED, outcome
    assert world.committed("source", group) == {tp: max(at, 101) if at > 99 else at}


def test_group_that_read_what_is_not_mirrored_back_is_not_moved(fake_world: FakeWorld, hooks: HookServer) -> None:
    tp, group = TopicPartition(fake_world.topic("orders"), 0), fake_world.group("app")
    fake_world.cut(tp, WRITTEN)
    fake_world.link.is_sealed, fake_world.link.last_word = True, None
    # One that nobody copied stands behind what came back.
    fake_world.more("source", tp, 1)
    fake_world.commit("source", group, {tp: 102 + WRITTEN})
    (outcome,) = cutover.apply(fake_world.ctx(consumers=hooks.consumers), [group]).groups
    assert outcome.outcome is Fate.REFUSED
    assert not hooks.calls


def test_group_that_has_records_to_read_on_the_target_shows_life_by_its_commits_alone(
    fake_world: FakeWorld, hooks: HookServer
) -> None:
    tp, group = TopicPartition(fake_world.topic("orders"), 0), fake_world.group("app")
    fake_world.cut(tp, WRITTEN)
    fake_world.link.is_sealed, fake_world.link.last_word = True, None
    fake_world.commit("source", group, {tp: 105})
    leave: list[Callable[[], None]] = []
    hooks.on("start", "target", lambda _: leave.append(fake_world.join("target", group, [tp.topic])))
    ctx = fake_world.ctx(consumers=hooks.consumers, cutover={"watch_seconds": 0.5})
    assert cutover.apply(ctx, [group]).groups[0].outcome is Fate.MOVED
    assert watch.look(ctx, GroupRecord.load(ctx.journal, group)).life is not watch.Life.ALIVE
    leave[0]()
    fake_world.go_on("target", group, tp, 96)
    assert watch.look(ctx, GroupRecord.load(ctx.journal, group)).life is watch.Life.ALIVE
