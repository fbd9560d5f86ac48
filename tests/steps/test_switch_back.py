"""Switching producers back to the source, in memory: the order of effects, refusals, a death at every change, and
forward again. What the two directions share is shown in tests/steps/test_switch.py."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kafka_migration.cli.render.status import status as render_status
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import MigrationError, Refused, StateConflict
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.types import Desired, Position, TopicPartition
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import BACK_WRITES, WRITES
from kafka_migration.fence.proof import Straggler
from kafka_migration.fence.record import FenceState
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import lifecycle, reverse, seal, switched
from kafka_migration.link.lag import LagMeter
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import completion
from kafka_migration.migration.context import Context
from kafka_migration.migration.reports import board_files, read_json
from kafka_migration.overview import status
from kafka_migration.overview.board import Publisher
from kafka_migration.plans.hooks import Hook
from kafka_migration.plans.model import Plan
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.steps import cancel, complete, cutover, mirror, recopy, stop, switch
from kafka_migration.steps import fence as fence_step
from kafka_migration.steps.step import Decision
from kafka_migration.topics import keeping
from kafka_migration.validation import verdict
from tests.fence.worlds import OWN, PROBE, acl
from tests.steps import histories
from tests.steps.test_lag import PARTITIONS
from tests.steps.test_switch import ORDERS, Shop, _after, _gate_shut, make

__all__ = ["make"]


class Way(LinkState):
    """A link of the way back, or of a later generation, whose mirror drains once that is wished for."""

    def __init__(self, shop: BackShop, name: str, **options: Any) -> None:
        super().__init__(name, shop.links, *shop.logs(), **options)
        self._shop = shop

    def positions(self, of: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        return super().positions(of) | self._shop.copied.get(self.name, {})

    def wish(self, wish: Wish) -> None:
        super().wish(wish)
        if wish.desired is Desired.DRAIN and (self.run() or {}).get("state") == "running":
            self._shop.clock.at(self._shop.drain_seconds, lambda: self._shop.copy_back(wish))


class BackShop(Shop):
    """Producers were switched to the target, the reverse mirror runs, and consumers are back on the source."""

    def __init__(self) -> None:
        super().__init__()
        self.copied: dict[str, dict[TopicPartition, Position]] = {}
        self.target._acls, self.target._brokers = [], (1, 2, 3)
        rules = [("User:web", "WRITE"), (OWN, "READ"), (OWN, "WRITE"), (PROBE, "WRITE")]
        self.target.create_acls([acl(principal, operation, "shop.", "PREFIXED") for principal, operation in rules])
        self.there = self.target.acls()

    def begin(self) -> None:
        """Everything up to the switch back."""
        self.switch()
        back = self.back()
        keeping.apply(back)
        back.link.record_run({"at": back.stamp(), "state": "running"})
        for tp in PARTITIONS:
            self.target.append(tp, 7)
        self.copy_back(Wish(desired=Desired.RUN))
        self.target.consumer_commits("shop.app", ORDERS, 90)
        histories.rolled_back(self)
        group = GroupRecord.own(self.ctx().journal, "shop.app", at=self.ctx().stamp())
        group.mark(Step.STARTED, self.clock.now())
        group.mark(Step.ALIVE, self.clock.now(), sign="committed", pause_seconds=1.0)
        self.effects.clear()
        changes = {"create_acls": "acl on target", "delete_acls": "acl on target removed"}
        self.target._errors |= {call: partial(self.note, effect) for call, effect in changes.items()}
        back.link.record_run({"at": back.stamp(), "state": "running"})
        self.effects.clear()

    def copy_back(self, wish: Wish) -> None:
        """The reverse mirror's own process."""
        link, deadly = self.back().link, self.deadly
        self.deadly = lambda: None
        stand = {tp: at.source for tp, at in link.positions().items()}
        ends = {tp: log.end for tp, log in self.target.ends(PARTITIONS).items()}
        for tp, end in (wish.ends or ends).items():
            if more := end - stand[tp]:
                self.source.append(tp, more)
            new = Position(source=end, target=self.source.ends([tp])[tp].end, fence=0, records=0)
            self.copied.setdefault(link.name, {})[tp] = new
        if wish.desired is Desired.DRAIN:
            link.record_run({"at": self.ctx().stamp(), "state": "ended", "reason": "drained"})
        self.deadly = deadly

    def plan(self, **fields: Any) -> Plan:
        hooks = {"stop": [{"command": ["/bin/true", "stop"]}], "start": [{"command": ["/bin/true", "start"]}]}
        producers = {"fence": {"probe": "probe"}, "target_fence": {"probe": "probe"}, **hooks}
        return super().plan(**{"producers": producers, **fields})

    def ctx(self, *, dry_run: Any = False, **fields: Any) -> Context:
        ctx = super().ctx(dry_run=dry_run, **fields)
        selects = ctx.plan.topics.matches
        ctx.on_open_link = lambda direction, generation: Way(self, direction.own("shop", generation), selects=selects)
        clusters = {"source": self.source, "target": self.target}
        ctx.connect = lambda role, conn_id, seconds: clusters[role].as_principal(  # type: ignore[assignment,return-value]
            PROBE if conn_id == "probe" else OWN
        )
        return ctx

    def back(self) -> Context:
        return self.ctx().reverse()

    def switch_back(self, **fields: Any) -> Decision:
        return switch.run(reverse.way_back(self.ctx(**fields).newest()), environ={})

    def denials_there(self) -> int:
        return sum(rule.permission == "DENY" for rule in self.target.acls())

    def retention(self) -> str | None:
        return self.source.topic_configs(["shop.orders"])["shop.orders"]["retention.ms"].value


def test_way_back_is_on_the_page_that_is_published(shop: BackShop, tmp_path: Path) -> None:
    Publisher(shop.ctx(), lambda: tmp_path).publish()
    page = json.loads(json.dumps(status.read(shop.ctx().newest()).as_dict()))
    found = read_json(board_files(tmp_path, "shop")[0])
    assert found is not None
    assert found["way_back"]["mirror"]["state"] == "running"
    assert {name: found[name] for name in page} == page


def test_status_shows_the_way_back_and_what_would_be_lost_until_it_is_given_up(shop: BackShop) -> None:
    assert "reverse mirror running; everything is mirrored back" in _shown(shop)
    shop.target.append(ORDERS, 5)
    assert "reverse mirror running; 5 offsets of the target would be lost if it were gone now" in _shown(shop)
    back = shop.back()
    back.link.halt(ORDERS, "FOREIGN_WRITER", "somebody wrote", 95, 105, back.stamp())
    assert f"{ORDERS} FOREIGN_WRITER (somebody wrote)" in _shown(shop)
    found = status.read(shop.ctx()).as_dict()
    assert (found["way_back"]["lag"]["total"], found["way_back"]["mirror"]["state"]) == (5, "running")
    # In words of this direction: the reverse mirror writes to the source, and is not started again at an offset.
    (halt,) = found["way_back"]["halts"]
    assert (halt["source_offset"], halt["target_offset"]) == (105, 95)
    assert "wrote to the source partition" in halt["meaning"]
    assert "stays on the target" in halt["remedy"]
    assert list(LagMeter(back).read().remedies.values()) == [halt["remedy"]]
    assert not found["halts"]
    begun = completion.begin(shop.ctx(), by="ada")
    assert "being completed by ada" in _shown(shop)
    assert "reverse mirror running" in _shown(shop)
    completion.end(shop.ctx(), begun)
    assert status.read(shop.ctx()).way_back is None


def _shown(shop: BackShop) -> str:
    console = Console(width=250, record=True, file=io.StringIO())
    console.print(render_status(status.read(shop.ctx()), ()))
    return console.export_text()


@pytest.fixture
def shop(make: Callable[..., Any]) -> BackShop:
    found = make(BackShop)
    found.begin()
    assert isinstance(found, BackShop)
    return found


def reversed_(shop: BackShop) -> None:
    """The end of every switch back that was not given up."""
    found = switched.read(shop.back())
    assert found is not None
    assert (found.state, found.to) == (SwitchState.DONE, "source")
    assert set(lifecycle.read(shop.ctx()).values()) == {TopicState.REVERSED}
    assert (shop.denials(), shop.denials_there()) == (0, 4)
    assert shop.back().link.seal() is not None
    assert shop.retention() == "604800000"
    again = shop.ctx().newest()
    assert (again.direction, again.generation) == (Direction.FORWARD, 2)
    # It begins behind everything that stands on the source.
    ends = {tp: log.end for tp, log in shop.source.ends(PARTITIONS).items()}
    assert {tp: at.source for tp, at in again.link.positions().items()} == {tp: end + 1 for tp, end in ends.items()}


def given_up(shop: BackShop) -> None:
    """Producers write to the target as before, and the reverse mirror may go on."""
    assert shop.target.acls() == shop.there
    assert shop.denials() == 6
    last = record.read(shop.ctx(), BACK_WRITES)
    assert last is None or last.state is FenceState.LIFTED
    back = shop.back()
    assert (back.link.seal(), reverse.begun(back), back.link.wished().desired) == (None, None, Desired.RUN)
    assert set(lifecycle.read(shop.ctx()).values()) == {TopicState.SERVED}
    assert "hook start source switch" not in shop.effects
    assert shop.retention() == "-1"


def test_effects_come_in_their_order_and_the_sources_fence_is_lifted_behind_the_point(shop: BackShop) -> None:
    decision = shop.switch_back()
    assert decision.exit_code == 0, decision.message
    reversed_(shop)
    order = [
        "shop/switch/producers:reverse switching",
        "shop/fence/back-writes fencing",
        "acl on target removed",
        "hook stop target fence",
        "acl on target",
        "shop/fence/back-writes fenced",
        "shop:reverse/desired drain",
        "seal",
        "shop:2/topic/shop.orders",
        "shop/switch/producers:reverse served by the target",
        "shop/topic-state/shop.orders reversed",
        "shop/fence/writes lifting",
        "acl removed",
        "shop/fence/writes lifted",
        "hook start source switch",
        "shop/switch/producers:reverse switched",
    ]
    places = [shop.effects.index(effect) for effect in order]
    assert places == sorted(places), list(zip(order, places, strict=True))
    assert shop.hooks() == ["hook stop target fence", "hook start source switch"]
    assert "2 topics are served by the source since" in str(status.read(shop.ctx().newest()).switch)


def test_reruns_change_nothing_and_nothing_on_the_target_is_lifted_any_more(shop: BackShop) -> None:
    shop.switch_back()
    shop.effects.clear()
    assert shop.switch_back().exit_code == 0
    assert shop.effects == []
    with pytest.raises(Refused, match="topics are reversed"):
        fence.lift(shop.ctx().newest(), lambda *_: None, BACK_WRITES)
    with pytest.raises(StateConflict, match="producers were switched to the source"):
        fence.apply(shop.ctx().newest(), lambda *_: None, BACK_WRITES)


def _stands_on_the_target(shop: BackShop) -> None:
    group = GroupRecord.own(shop.ctx().journal, "shop.late", at=shop.ctx().stamp())
    for step in (Step.STOPPING, Step.TRANSLATED, Step.READ_BACK):
        group.mark(step, shop.clock.now(), **({"positions": [], "flags": []} if step is Step.TRANSLATED else {}))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda s: s.clock.sleep(100), "the mirror runs"),
        (lambda s: s.target.append(ORDERS, 10_000_000), "replication lag is low"),
        (lambda s: s.back().link.halt(ORDERS, "CORRUPT", "", 1, 1, s.ctx().stamp()), "no partition is halted"),
        (_stands_on_the_target, "groups were moved before producers"),
        (lambda s: s.target.add_partitions("shop.orders", 5), "the mirror copies every topic of the plan"),
        (lambda s: s.target.join("shop.app", ["shop.orders"]), "moved groups rest on the cluster that they left"),
        (lambda s: setattr(s.target, "_acls", None), "fence: principals to deny"),
        (lambda s: lifecycle.note(s.ctx(), ["shop.orders"], TopicState.COMPLETED), "topics are served by the target"),
        (lambda s: setattr(s, "asked", _gate_shut), "rollback gate"),
    ],
)
def test_what_is_not_ready_is_refused_by_name_before_anything_is_changed(
    shop: BackShop, change: Callable[[BackShop], object], name: str
) -> None:
    change(shop)
    shop.effects.clear()
    decision = shop.switch_back()
    assert decision.exit_code == 1
    failed = {check.name: check for check in decision.value.checks if check.verdict == "FAIL"}
    assert name in failed, decision.message
    assert failed[name].remedy
    assert shop.effects == []


def test_without_a_way_back_it_is_refused(make: Callable[..., Any]) -> None:
    bare = make(BackShop)
    with pytest.raises(Refused, match="reverse link of shop has not begun"):
        bare.switch_back()


def test_straggler_on_the_target_has_the_fence_lifted_and_the_reverse_mirror_freed(shop: BackShop) -> None:
    _after(shop, "shop:reverse/desired drain", lambda: shop.target.append(ORDERS, 3))
    with pytest.raises(Straggler):
        shop.switch_back()
    given_up(shop)
    assert shop.hooks() == ["hook stop target fence", "hook start target lift"]


def test_what_is_written_on_the_target_behind_the_fence_of_a_killed_switch_is_named_and_ends_it(shop: BackShop) -> None:
    _after(shop, "shop/fence/back-writes fenced", lambda: setattr(shop, "deadly", _dies))
    with pytest.raises(Killed):
        shop.switch_back()
    shop.deadly = lambda: None
    ctx = shop.ctx().newest()
    assert fence_step.newest(ctx) is BACK_WRITES
    assert fence.status(ctx, BACK_WRITES).written == ()
    shop.target.append(ORDERS, 3)
    (written,) = fence.status(ctx, BACK_WRITES).written
    assert (written.tp, written.end - written.start) == (ORDERS, 3)
    with pytest.raises(Straggler):
        shop.switch_back()
    given_up(shop)


def test_mirror_forward_again_waits_for_the_point_and_then_begins_a_new_generation(shop: BackShop) -> None:
    _after(shop, "shop:2/topic/shop.orders", lambda: setattr(shop, "deadly", _dies))
    with pytest.raises(Killed):
        shop.switch_back()
    shop.deadly = lambda: None
    with pytest.raises(Refused, match="a switch of producers is under way"):
        mirror.apply(shop.ctx().newest(), None)  # type: ignore[arg-type]
    shop.switch_back()
    reversed_(shop)


class Killed(BaseException):
    """The process is gone."""


def _dies() -> None:
    raise Killed


def dying_after(changes: int) -> Callable[[], None]:
    """What is called before each change, and dies instead of so many and all after it."""
    left = itertools.count(changes, -1)

    def deadly() -> None:
        if next(left) <= 0:
            raise Killed

    return deadly


@pytest.mark.parametrize("then", ["again", "gate shut"])
def test_killed_anywhere_the_next_call_goes_on_or_gives_up_and_never_back_behind_the_point(
    make: Callable[..., Any], then: str
) -> None:
    for changes in itertools.count():
        shop = make(BackShop)
        shop.begin()
        shop.deadly = dying_after(changes)
        try:
            shop.switch_back()
        except Killed:
            shop.deadly = lambda: None
        else:
            assert changes >= 25
            return
        shop.clock.sleep(1)
        before = switched.read(shop.back())
        is_behind = before is not None and before.is_served
        shop.asked = _gate_shut if then == "gate shut" else shop.asked
        try:
            code = shop.switch_back().exit_code
        except MigrationError:
            code = 1
        if is_behind or not code:
            assert is_behind or then == "again"
            reversed_(shop)
        else:
            assert then == "gate shut"
            given_up(shop)


def test_forward_again_by_a_new_generation_lifts_the_targets_fence(shop: BackShop, monkeypatch: Any) -> None:
    shop.switch_back()
    ctx = shop.ctx().newest()
    seal.check(ctx)
    shop.clock.sleep(1)
    histories.validated(shop)
    assert verdict.check(ctx).verdict == "PASS"
    value = shop.store.get("shop/validation/latest")
    assert value is not None
    shop.store.put("shop/validation/latest", value | {"at": shop.record().served_at})
    found = verdict.check(ctx)
    assert (found.verdict, "before link shop:2 began" in found.evidence) == ("FAIL", True)
    _copies_again(shop, monkeypatch)
    decision = switch.run(shop.ctx().newest(), environ={})
    assert decision.exit_code == 0, decision.message
    assert set(lifecycle.read(shop.ctx()).values()) == {TopicState.SERVED}
    assert (shop.denials(), shop.denials_there()) == (6, 0)
    assert fence_step.newest(shop.ctx().newest()) is WRITES
    last = switched.last(shop.ctx().newest())
    assert last is not None
    assert (last.to, last.state) == ("target", SwitchState.DONE)
    back = shop.ctx().newest().reverse()
    assert (back.generation, sorted(back.link.topics())) == (2, ["shop.orders", "shop.payments"])
    # Also where `stop` has sealed, and nothing has begun the way back yet.
    back.link.unpin(back.link.topics())
    assert reverse.way_back(shop.ctx().newest()).generation == 2


def test_forward_again_ended_by_stop_lifts_the_targets_fence_as_a_switch_would(
    shop: BackShop, monkeypatch: Any
) -> None:
    shop.switch_back()
    _copies_again(shop, monkeypatch)
    last = record.read(shop.ctx(), BACK_WRITES)
    assert last is not None
    opens = Hook(command=("/bin/true", "open"))
    record.write(shop.ctx(), BACK_WRITES, replace(last, closed=True, open=(opens,)))
    shop.effects.clear()
    # Their owners start producers.
    assert _ended_by_stop(shop) == ["hook open target lift"]


def _ended_by_stop(shop: BackShop) -> list[str]:
    """Producers of the second generation were moved to the target by their owners, and nothing keeps them out."""
    result = stop.apply(shop.ctx().newest())
    assert result.stopped, result.gate.blockers
    ctx, hooks = shop.ctx().newest(), shop.hooks()
    assert (shop.denials(), shop.denials_there(), record.standing(ctx)) == (0, 0, {})
    assert set(lifecycle.read(ctx).values()) == {TopicState.SEALED}
    assert switched.served(ctx) is None
    assert "served by the source" not in str(status.read(ctx).switch)
    assert complete._served(ctx).verdict == "PASS"
    # They can go back once more.
    fence.apply(ctx, lambda *_: None, BACK_WRITES)
    assert shop.denials_there() == 4
    assert fence_step.lift(ctx, environ={}).value.equal
    assert shop.denials_there() == 0
    return hooks


def test_stop_after_a_switch_that_was_given_up_and_killed_behind_the_seal_lifts_the_fence_when_it_is_run_again(
    shop: BackShop, monkeypatch: Any
) -> None:
    shop.switch_back()
    _copies_again(shop, monkeypatch)
    ctx = shop.ctx().newest()
    switched.write(ctx, switched.Switch(state=SwitchState.GIVEN_UP, begun_at=ctx.stamp(), why="a straggler"))
    _after(shop, "shop/fence/back-writes lifting", lambda: setattr(shop, "deadly", _dies))
    with pytest.raises(Killed):
        stop.apply(shop.ctx().newest())
    shop.deadly = lambda: None
    assert shop.denials_there()
    assert fence_step.newest(shop.ctx().newest()) is BACK_WRITES
    _ended_by_stop(shop)


@pytest.mark.parametrize("then", ["copied", "sealed by a switch"])
def test_fence_on_the_target_stays_as_long_as_producers_are_on_the_source_and_what_lifts_it_is_named(
    shop: BackShop, monkeypatch: Any, then: str
) -> None:
    shop.switch_back()
    _copies_again(shop, monkeypatch)
    if then == "sealed by a switch":
        _after(shop, "shop:reverse:2/topic/shop.orders", lambda: setattr(shop, "deadly", _dies))
        with pytest.raises(Killed):
            switch.run(shop.ctx().newest(), environ={})
        shop.deadly = lambda: None
        assert shop.denials() == 6
    ctx = shop.ctx().newest()
    assert (ctx.link.seal() is not None) == (then != "copied")
    with pytest.raises(Refused, match="topics are reversed") as caught:
        fence.lift(ctx, lambda *_: None, BACK_WRITES)
    assert "`stop`" in caught.value.remedy
    lifted = fence_step.lift(ctx, environ={}).value
    assert "fence back-writes of 2 topics or groups is fenced" in lifted.evidence
    assert "`switch` or `stop` lifts it" in lifted.evidence
    assert (shop.denials(), shop.denials_there()) == (0, 4)


@pytest.mark.parametrize(
    "dies_at", ["shop/fence/back-writes fenced", "shop/switch/producers:reverse served by the target"]
)
def test_fence_of_a_switch_back_is_lifted_before_its_point_alone_though_owners_had_moved_producers_there(
    shop: BackShop, dies_at: str
) -> None:
    ctx = shop.ctx()
    ctx.journal.forget(switched.KIND, switched.name(ctx))
    sealed = {"state": "sealed", "at": ctx.stamp()}
    ctx.journal.record_all(lifecycle.KIND, dict.fromkeys(lifecycle.read(ctx), sealed))
    _after(shop, dies_at, lambda: setattr(shop, "deadly", _dies))
    with pytest.raises(Killed):
        shop.switch_back()
    shop.deadly = lambda: None
    is_behind = switched.away_from(shop.ctx().newest(), "target") is not None
    assert is_behind == ("served" in dies_at)
    if is_behind:
        with pytest.raises(Refused, match="topics are reversed"):
            fence.lift(shop.ctx().newest(), lambda *_: None, BACK_WRITES)
    else:
        fence_step.lift(shop.ctx().newest(), environ={})
    assert shop.denials_there() == (4 if is_behind else 0)


def test_way_back_that_is_over_is_found_until_the_next_forward_link_is_sealed(shop: BackShop) -> None:
    shop.switch_back()
    over = reverse.way_back(shop.ctx().newest())
    assert (over.direction, over.generation, over.link.seal() is None) == (Direction.REVERSE, 1, False)


def _copies_again(shop: BackShop, monkeypatch: Any) -> None:
    """The forward mirror runs by its second generation, and consumers are on the target once more."""
    ctx = shop.ctx().newest()
    mirror._keep_records(ctx)
    assert set(lifecycle.read(ctx).values()) == {TopicState.MIRRORING}
    group = GroupRecord.own(ctx.journal, "shop.app", at=ctx.stamp())
    group.take_leg(Direction.FORWARD, 2)
    for step in (Step.STOPPING, Step.TRANSLATED, Step.READ_BACK, Step.STARTED):
        group.mark(step, shop.clock.now(), **({"positions": [], "flags": []} if step is Step.TRANSLATED else {}))
    group.mark(Step.ALIVE, shop.clock.now(), sign="committed", pause_seconds=1.0)
    ctx.link.record_run({"at": ctx.stamp(), "state": "running"})
    monkeypatch.setattr(shop, "copy_back", lambda _wish: _drained(shop))


def _drained(shop: BackShop) -> None:
    link = shop.ctx().newest().link
    link.record_run({"at": shop.ctx().stamp(), "state": "ended", "reason": "drained"})


def test_group_that_went_back_by_an_earlier_link_is_not_undone_nor_in_the_way_of_a_cancellation(shop: BackShop) -> None:
    shop.switch_back()
    ctx = shop.ctx().newest()
    assert ctx.generation == 2
    with pytest.raises(Refused, match="was moved back to the source \\(rollback\\), and not forward again since"):
        cutover.undo(ctx, "shop.app")
    record = GroupRecord.load(ctx.journal, "shop.app")
    assert (record.was_rolled_back, record.has(Step.UNDOING)) == (True, False)
    assert cancel._moved(ctx) == []


def test_topic_is_not_copied_again_from_the_beginning_behind_an_earlier_cut(shop: BackShop) -> None:
    shop.switch_back()
    with pytest.raises(Refused, match="goes on behind an earlier cut"):
        recopy.check(shop.ctx().newest(), ["shop.orders"])


@pytest.mark.parametrize("state", [SwitchState.SWITCHING, SwitchState.SERVED])
def test_stop_lifts_no_fence_of_a_switch_back_that_runs_or_has_died(shop: BackShop, state: SwitchState) -> None:
    """Where `stop` had sealed, so that no switch of the way there is known."""
    ctx = shop.ctx()
    ctx.journal.forget(switched.KIND, "producers")
    sealed = {topic: {"state": str(TopicState.SEALED), "at": ctx.stamp()} for topic in lifecycle.read(ctx)}
    ctx.journal.record_all(lifecycle.KIND, sealed)
    switched.write(shop.back(), switched.Switch(state=state, begun_at=ctx.stamp(), to="source"))
    shop.effects.clear()
    result = stop.apply(shop.ctx())
    assert (result.stopped, result.may_pass) == (False, True)
    assert "`switch --back`" in result.gate.blockers[0].remedy
    assert shop.effects == []


def test_group_whose_undo_has_died_keeps_producers_where_they_are(shop: BackShop) -> None:
    group = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    group.mark(Step.UNDOING, shop.clock.now())
    decision = shop.switch_back()
    assert (decision.exit_code, "shop.app: is in the middle of its move" in decision.message) == (1, True)
