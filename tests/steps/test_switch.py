"""Switching producers over, in memory: the order of effects, every refusal, and a death at every change.

On real guarded brokers the parts are shown on their own: the fence in tests/fence/test_fence_on_brokers.py, seal and
reverse link in tests/copy.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.rollback import RollbackGate
from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain import ledger
from kafka_migration.domain import seal as kept_seal
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.controls import Pause
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import (
    BadInput,
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NeedsRollback,
    NotAuthorized,
    Refused,
    StateConflict,
    TakenOver,
)
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Identity, Position, TopicPartition
from kafka_migration.fence import fence, record
from kafka_migration.fence.bans import WRITES
from kafka_migration.fence.fence import Lifted
from kafka_migration.fence.ground import require_producers
from kafka_migration.fence.proof import Straggler
from kafka_migration.fence.record import FenceState
from kafka_migration.groups import sides
from kafka_migration.groups.hooks import ALLOWED_COMMANDS, HookCall, HookFailed, HookRun
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import lifecycle, reverse, seal, switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.migration import completion
from kafka_migration.migration.context import Context, Scope
from kafka_migration.overview import status
from kafka_migration.plans.model import Plan
from kafka_migration.schemas import lease
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.steps import cutover, outlook, release, report, rollback, schemas, stop, switch, unfence
from kafka_migration.steps import fence as fence_step
from kafka_migration.steps.draining import short_of
from kafka_migration.steps.step import Decision
from kafka_migration.topics import restore
from kafka_migration.validation import pins
from kafka_migration.validation.record import KIND, LATEST
from tests.fence.worlds import OWN, PROBE, SHOP_ACLS, acl
from tests.state.test_link import FakeLog
from tests.steps import histories
from tests.steps.gates import Migration, PlainStore, at_a_terminal
from tests.steps.test_lag import PARTITIONS

ORDERS = histories.ORDERS[0]
TRUE = "/bin/true"
TOPICS = ("shop.orders", "shop.payments")


class Killed(BaseException):
    """The process is gone: nothing catches this, as nothing catches SIGKILL."""


class Store(PlainStore):
    """Notes each change, by its key, before it is made."""

    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self.note = note

    def put(self, key: str, value: dict[str, Any]) -> None:
        self.note(f"{key} {value.get('state', value.get('desired', ''))}".strip())
        super().put(key, value)

    def delete(self, key: str) -> None:
        self.note(f"delete {key}")
        super().delete(key)


class Log(FakeLog):
    """Read from its beginning by each process."""

    def start_at(self, starts: Any) -> None:
        """There is little to read."""


class Obedient(LinkState):
    """The forward link, whose mirror drains within ``shop.drain_seconds`` once that is wished for."""

    def __init__(self, shop: Shop, **options: Any) -> None:
        super().__init__("shop", shop.links, *shop.logs(), **options)
        self._shop = shop

    def positions(self, of: Collection[TopicPartition] | None = None) -> dict[TopicPartition, Position]:
        # What was written last is not copied yet when a drain begins.
        is_draining = self.wished().desired is Desired.DRAIN and (self.run() or {}).get("state") == "running"
        places = {tp: at - is_draining for tp, at in self._shop.places.items()}
        return {tp: Position(source=at, target=at, fence=0, records=0) for tp, at in places.items()}

    def offset_maps(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetMap]:
        if self.seal() is not None:
            # What stands on the target is of no interest behind it, and the seal of these tests is at its beginning.
            return super().offset_maps(partitions)
        places = self._shop.places
        return {tp: OffsetMap([Run(0, 0, at)], source_end=at, target_end=at) for tp, at in places.items()}

    def wish(self, wish: Wish) -> None:
        super().wish(wish)
        if wish.desired is Desired.DRAIN and (self.run() or {}).get("state") == "running":
            self._shop.clock.at(self._shop.drain_seconds, self._shop.drained)


class Shop(Migration):
    """Consumers are on the target, the mirror keeps up, and three principals may write to the source."""

    #: Of the section producers.
    more: ClassVar[Mapping[str, Any]] = {}

    def __init__(self) -> None:
        super().__init__()
        self.effects: list[str] = []
        self.entries: dict[str, list[Any]] = {topic: [] for topic in (ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)}
        self.places: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 100)
        self.drain_seconds, self.reason = 0.3, "drained"
        self.sealed_within = 0.0
        self.deadly: Callable[[], None] = lambda: None
        self.asked: Callable[[], str] = lambda: "approved by ada"
        self.compared: Callable[[PartitionRange], SegmentOutcome] = histories.read_alike
        self.store: Store = Store(self.note)
        self.links: Store = Store(self.note)
        self.source._acls, self.source._brokers = [], (1, 2, 3)
        self.source.create_acls(SHOP_ACLS)
        self.before = self.source.acls()
        histories.created(self)
        histories.pinned(self.ctx())
        histories.moved(self)
        self.mirrors()
        self.effects.clear()
        changes = {"create_acls": "acl", "delete_acls": "acl removed"}
        self.source._errors |= {call: partial(self.note, effect) for call, effect in changes.items()}

    def note(self, effect: str) -> None:
        """Something changes, unless the process dies before."""
        self.deadly()
        self.effects.append(effect)

    def mirrors(self) -> None:
        self.ctx().link.record_run({"at": self.ctx().stamp(), "state": "running"})

    def drained(self) -> None:
        """The mirror's own process: nothing that it writes dies with ours."""
        link, deadly = self.ctx().link, self.deadly
        self.deadly = lambda: None
        if self.reason == "drained":
            self.places |= link.wished().ends
        link.record_run({"at": self.ctx().stamp(), "state": "ended", "reason": self.reason})
        self.deadly = deadly

    def logs(self) -> list[Any]:
        logs = [Log(topic) for topic in self.entries]
        for log in logs:
            log.entries = self.entries[log.topic]
        return logs

    def plan(self, **fields: Any) -> Plan:
        hooks = {"stop": [{"command": [TRUE, "stop"]}], "start": [{"command": [TRUE, "start"]}]}
        return super().plan(**{"producers": {"fence": {"probe": "probe"}, **hooks, **self.more}, **fields})

    def ctx(self, *, dry_run: Any = False, **fields: Any) -> Context:
        ctx = super().ctx(dry_run=dry_run, **fields)
        selects = ctx.plan.topics.matches
        ctx.link = Obedient(self, selects=selects)
        ctx.on_open_link = lambda direction, generation: LinkState(
            direction.own("shop", generation), self.links, *self.logs(), selects=selects
        )
        ctx.connect = lambda role, conn_id, seconds: self.source.as_principal(  # type: ignore[assignment,return-value]
            PROBE if conn_id == "probe" else OWN
        )
        return ctx

    def switch(self, **fields: Any) -> Decision:
        return switch.run(self.ctx(**fields), environ={})

    def denials(self) -> int:
        return sum(rule.permission == "DENY" for rule in self.source.acls())

    def record(self) -> switched.Switch:
        found = switched.read(self.ctx())
        assert found is not None
        return found

    def hooks(self) -> list[str]:
        return [effect for effect in self.effects if effect.startswith("hook")]


class AskedShop(Shop):
    """Its producers are switched by a step of the workflow."""

    more: ClassVar[Mapping[str, Any]] = {"in_workflow": True}


class ShopOfWaves(Shop):
    """Its groups were moved by waves, and approved by wave."""

    def plan(self, **fields: Any) -> Plan:
        given = [{"name": name, "topics": [rf"shop\.{name}"], "groups": [name]} for name in ("orders", "payments")]
        return super().plan(**{"waves": {"given": given}, **fields})


ASK = CutoverGate.ask


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Shop]:
    shops: list[Shop] = []

    def run_hook(call: HookCall, **_: Any) -> HookRun:
        command = (call.hook.command or ("",))[-1]
        shops[-1].note(f"hook {command} {call.cluster} {call.phase}")
        return HookRun(what=str(call), seconds=0.0, said="")

    def apply(ctx: Context, seconds: float = 120.0) -> Seal:
        assert not short_of(ctx, ctx.link.wished().ends)
        shops[-1].sealed_within = seconds
        shops[-1].note("seal")
        ends = dict.fromkeys(PARTITIONS, 0)
        if ctx.direction is Direction.REVERSE:
            ends = {tp: log.end for tp, log in ctx.destination.ends(PARTITIONS).items()}
        done = Seal(at=ctx.stamp(), identity=Identity(7, 9), ends=ends)
        ctx.link.record_seal(done)
        ctx.journal.record(kept_seal.KIND, ctx.own(kept_seal.NAME), done.as_dict())
        return done

    class Marked:
        def __init__(self, *_: object) -> None:
            self.ensure = self.close = lambda: None

    monkeypatch.setenv(ALLOWED_COMMANDS, TRUE)
    for module in (switch, fence_step):
        monkeypatch.setattr(module, "run_hook", run_hook)
        monkeypatch.setattr(module, "require_runnable", lambda *_, **__: None)
    monkeypatch.setattr(seal, "apply", apply)
    monkeypatch.setattr(seal, "warmed", lambda ctx: nullcontext(partial(apply, ctx)))
    monkeypatch.setattr(pins, "read_both", lambda _ctx, ranges: [shops[-1].compared(range_) for range_ in ranges])
    monkeypatch.setattr(reverse, "TopicLog", Marked)
    for gate in (CutoverGate, RollbackGate):
        monkeypatch.setattr(gate, "ask", lambda _gate: shops[-1].asked())

    def made(kind: type[Shop] = Shop) -> Shop:
        shops.append(kind())
        return shops[-1]

    return made


@pytest.fixture
def shop(make: Callable[[], Shop]) -> Shop:
    return make()


def served(shop: Shop) -> None:
    """The end of every switch that was not given up."""
    assert shop.record().state is SwitchState.DONE
    assert set(lifecycle.read(shop.ctx()).values()) == {TopicState.SERVED}
    assert shop.denials() == 6
    assert shop.ctx().link.seal() is not None
    back = reverse.begun(shop.ctx())
    assert back is not None
    assert {tp: (at.source, at.target) for tp, at in back.link.positions().items()} == {
        tp: (1, shop.places[tp]) for tp in PARTITIONS
    }


def given_up(shop: Shop) -> None:
    """Producers write to the source, and a mirror that is started copies what they write."""
    ctx = shop.ctx()
    assert shop.source.acls() == shop.before
    fenced = record.read(ctx, WRITES)
    assert fenced is None or fenced.state is FenceState.LIFTED
    assert (ctx.link.seal(), reverse.begun(ctx), ctx.link.wished().desired) == (None, None, Desired.RUN)
    seal.check(ctx)
    assert set(lifecycle.read(ctx).values()) == {TopicState.MIRRORING}
    assert "hook start target switch" not in shop.effects


def test_effects_come_in_their_order_and_the_point_of_no_return_before_the_first_start(shop: Shop) -> None:
    decision = shop.switch()
    assert decision.exit_code == 0
    served(shop)
    order = [
        "shop/switch/producers switching",
        "shop/fence/writes fencing",
        "acl removed",
        "hook stop source fence",
        "acl",
        "shop/fence/writes fenced",
        "shop/desired drain",
        "seal",
        "shop:reverse/topic/shop.orders",
        "shop/switch/producers served by the target",
        "shop/topic-state/shop.orders served by the target",
        "hook start target switch",
        "shop/switch/producers switched",
    ]
    places = [shop.effects.index(effect) for effect in order]
    assert places == sorted(places), list(zip(order, places, strict=True))
    assert shop.hooks() == ["hook stop source fence", "hook start target switch"]
    record = shop.record()
    assert record.fence_ms is not None
    assert record.after_ms.keys() == {"proved", "drained", "sealed", "armed", "compared", "asked", "opened"}
    assert record.approval == "approved by ada"
    assert "others" not in decision.message


def test_schemas_are_copied_before_the_fence_and_what_came_since_while_producers_are_denied(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Any] = []
    versions = frozenset({("shop.orders-value", (1, 1))})

    def catch_up(ctx: Context, before: Any = None, *, until: float = math.inf) -> Any:
        seen.append((before, until - ctx.clock.monotonic() <= require_producers(ctx).switch_seconds))
        shop.note(f"schemas {len(seen)}")
        return versions

    monkeypatch.setattr(schemas, "catch_up", catch_up)
    assert shop.switch().exit_code == 0
    assert seen == [(None, False), (versions, True)], "the second time by the switch's own deadline"
    order = ["schemas 1", "acl", "shop/fence/writes fenced", "schemas 2", "seal", "hook start target switch"]
    places = [shop.effects.index(effect) for effect in order]
    assert places == sorted(places)


def test_copy_of_schemas_by_another_process_has_the_switch_given_up_and_producers_write_again(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held(ctx: Context, before: Any = None, *, until: float = math.inf) -> Any:
        if before is not None:
            ctx.journal.record(lease.KIND, "other", {"until": "2999-01-01T00:00:00+00:00"})
            with lease.held(ctx, until=until):
                pytest.fail("another process has it")
        return frozenset()

    monkeypatch.setattr(schemas, "catch_up", held)
    with pytest.raises(CouldNotFindOut, match="another process copies"):
        shop.switch()
    assert shop.record().state is SwitchState.GIVEN_UP


def test_reruns_change_nothing_and_nothing_is_lifted_or_fenced_any_more(shop: Shop) -> None:
    shop.switch()
    shop.effects.clear()
    assert shop.switch().exit_code == 0
    assert shop.effects == []
    with pytest.raises(Refused, match="served by the target"):
        fence.lift(shop.ctx(), lambda *_: None)
    with pytest.raises(StateConflict, match="producers were switched"):
        fence.apply(shop.ctx(), lambda *_: None)
    assert shop.denials() == 6


def test_what_follows_a_switch_works_as_ever(shop: Shop) -> None:
    shop.switch()
    result = stop.apply(shop.ctx())
    assert result.stopped
    waited = stop.Wait(shop.ctx()).look()
    assert waited is not None
    assert waited.exit_code == 0
    restore.apply(shop.ctx())
    assert "topics are served by the target" in str(status.read(shop.ctx()).switch)
    written = report.build(shop.ctx())
    assert written["switch"]["state"] == "switched"
    assert "served by the target" in report.as_html(written)
    assert "is fenced since" in written["fence"], "it keeps producers from the source"
    assert not [line for line in written["exceptions"] if "fence" in line]
    assert written["fence"] in report._exceptions({**written, "completed": {"at": "2030"}})
    half = written["fence"].replace("is fenced since", "is lifting since", 1)
    assert half in report._exceptions({**written, "fence": half})
    broken_off = {**written, "switch": {**written["switch"], "state": "switching"}}
    assert written["fence"] in report._exceptions(broken_off)
    assert written["fence"] in report._exceptions({k: v for k, v in written.items() if k != "switch"})
    assert release.apply(shop.ctx()) == TOPICS
    assert set(lifecycle.read(shop.ctx()).values()) == {TopicState.COMPLETED}
    assert switched.read(shop.ctx()) is not None


def test_records_of_others_on_the_target_are_seen(shop: Shop) -> None:
    for _ in range(2):
        shop.target.append(ORDERS, 1)
    assert shop.switch().value.seen == (ORDERS,)


@pytest.mark.parametrize("when", ["dry run", "refused"])
def test_look_and_refusal_change_nothing(shop: Shop, when: str) -> None:
    if when == "refused":
        shop.clock.sleep(100)
    decision = shop.switch(dry_run=when == "dry run")
    assert decision.exit_code == (when == "refused")
    assert shop.effects == []


def _gate_shut() -> str:
    raise Refused("cutover gate: nobody has approved it yet", remedy="approve cutover PLAN")


def _unmoved(shop: Shop) -> None:
    shop.source.join("shop.late", ["shop.orders"])


def _not_alive(shop: Shop) -> None:
    shop.source.consumer_commits("shop.slow", ORDERS, 40)
    histories.moved(shop, "shop.slow", upto=Step.STARTING)
    shop.mirrors()


def _back(shop: Shop) -> None:
    shop.source.join("shop.app", ["shop.orders"])


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (lambda s: s.clock.sleep(100), "the mirror runs"),
        (lambda s: s.ctx().link.record_run({"at": s.ctx().stamp(), "state": "ended"}), "the mirror runs"),
        (lambda s: s.ctx().link.pause(Pause(by="ada", at=s.ctx().stamp())), "the mirror runs"),
        (lambda s: seal.apply(_ended(s)), "the mirror runs"),
        (lambda s: s.source.append(ORDERS, 10_000_000), "replication lag is low"),
        (lambda s: s.ctx().link.halt(ORDERS, "CORRUPT", "", 1, 1, s.ctx().stamp()), "no partition is halted"),
        (lambda s: s.source.add_topic("shop.new"), "the mirror copies every topic of the plan"),
        (lambda s: s.target.alter_configs("shop.orders", set={"retention.ms": "1"}), "topics are as declared"),
        (_back, "moved groups rest on the cluster that they left"),
        (_unmoved, "groups were moved before producers"),
        (_not_alive, "groups were moved before producers"),
        (lambda s: setattr(s.source, "_acls", None), "fence: principals to deny"),
        (lambda s: setattr(s, "asked", _gate_shut), "cutover gate"),
    ],
)
def test_what_is_not_ready_is_refused_by_name_before_anything_is_changed(
    shop: Shop, change: Callable[[Shop], object], name: str
) -> None:
    change(shop)
    shop.effects.clear()
    decision = shop.switch()
    assert decision.exit_code == 1
    failed = {check.name: check for check in decision.value.checks if check.verdict == "FAIL"}
    assert name in failed, decision.message
    assert failed[name].remedy
    assert shop.effects == []


def _ended(shop: Shop) -> Context:
    shop.ctx().link.record_run({"at": shop.ctx().stamp(), "state": "ended", "reason": "drained"})
    return shop.ctx()


def test_hook_that_may_not_run_is_refused(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(call: HookCall, **_: Any) -> None:
        if call.cluster == "target":
            raise Refused("command start is not allowed here", remedy="have it allowed")

    monkeypatch.setattr(switch, "require_runnable", refuse)
    decision = shop.switch()
    assert (decision.exit_code, shop.effects) == (1, [])
    assert "command start" in decision.message


def test_command_checks_switches_and_shows_it(shop: Shop, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    km = at_a_terminal(shop, tmp_path, monkeypatch, columns=200)
    looked = km("switch", "--check", "--json")
    assert (looked.exit_code, json.loads(looked.stdout)["switched"], shop.effects) == (0, False, [])
    done = km("switch")
    assert (done.exit_code, "served by the target since" in done.stdout) == (0, True)
    found = json.loads(km("switch", "--json").stdout)
    assert (found["switched"], found["switch"]["state"]) == (True, "switched")
    assert "from the first denial" in km("status").stdout


def test_wave_and_plan_without_producers_are_refused(shop: Shop) -> None:
    wave = Scope.wave("one", topics={"shop.orders"}, groups={"shop.app"})
    with pytest.raises(Refused, match="for the whole plan shop, not for wave one"):
        switch.run(shop.ctx().within(wave), environ={})
    with pytest.raises(BadInput) as caught:
        shop.switch(producers=None)
    assert caught.value.field == "producers"


def test_source_configs_that_the_way_back_needs_are_shown_and_a_missing_right_is_a_warning(shop: Shop) -> None:
    def found() -> CheckResult:
        (one,) = (check for check in shop.switch(dry_run=True).value.checks if check.name == switch.WAY_BACK)
        assert isinstance(one, CheckResult)
        return one

    assert "retention.ms=-1 (was 604800000)" in found().evidence
    assert found().verdict == "PASS"
    bare = shop.source.topics()["shop.orders"]
    with pytest.MonkeyPatch.context() as patch:
        denied = {"shop.orders": replace(bare, operations=frozenset({"READ", "WRITE"}))}
        patch.setattr(shop.source, "topics", lambda names=None: denied)
        assert (found().verdict, "AlterConfigs" in found().evidence) == ("WARN", True)


# -- given up ---------------------------------------------------------------------------------------------------------


def _after(shop: Shop, effect: str, happen: Callable[[], object]) -> None:
    """``happen`` once ``effect`` has begun."""
    note = shop.note
    done: list[str] = []

    def noted(what: str) -> None:
        note(what)
        if what == effect and not done:
            done.append(effect)
            happen()

    for store in (shop.store, shop.links):
        store.note = noted
    shop.note = noted  # type: ignore[assignment,method-assign]


def _straggles(shop: Shop) -> None:
    # A super user, in the middle of the drain.
    _after(shop, "shop/desired drain", lambda: shop.source.append(ORDERS, 3))


def _straggles_late(shop: Shop) -> None:
    _after(shop, "seal", lambda: shop.source.append(ORDERS, 3))


def _comes_back(shop: Shop) -> None:
    _after(shop, "shop/desired drain", lambda: shop.source.join("shop.app", ["shop.orders"]))


def _cannot_be_seen(shop: Shop) -> None:
    def hide() -> None:
        shop.source._errors["acls"] = iter([NotAuthorized("source", "Describe", "cluster"), *[None] * 100]).__next__

    _after(shop, "seal", hide)


def _is_revoked(shop: Shop) -> None:
    _after(shop, "shop/fence/writes fenced", lambda: setattr(shop, "asked", _gate_shut))


def _takes_long(shop: Shop) -> None:
    shop.drain_seconds = 100


def _seals_slowly(shop: Shop) -> None:
    _after(shop, "seal", lambda: shop.clock.sleep(50))


def _copied_last(shop: Shop, read: Callable[[PartitionRange], SegmentOutcome]) -> None:
    def write() -> None:
        shop.source.append(ORDERS, 3)
        shop.compared = read

    # The last records that get through, behind all that was compared before the fence.
    _after(shop, "shop/fence/writes fencing", write)


def _differs(range_: PartitionRange) -> SegmentOutcome:
    return replace(histories.read_alike(range_), target=Digest(rows=range_.records, total=7))


def _tail_differs(shop: Shop) -> None:
    _copied_last(shop, _differs)


def _tail_cannot_be_read(shop: Shop) -> None:
    _copied_last(shop, lambda range_: replace(histories.read_alike(range_), failure="expired"))


def _tail_is_short_on_both_sides(shop: Shop) -> None:
    _copied_last(shop, lambda range_: SegmentOutcome.of(0, range_, "batch"))


def _ends_short(shop: Shop) -> None:
    shop.reason = "stopped"
    _after(shop, "shop/desired drain", lambda: shop.places.update({ORDERS: 50}))


def _writes_on(shop: Shop) -> None:
    shop.source.super_users.add("User:root")

    def again() -> None:
        shop.source.write_as("User:root", ORDERS)
        shop.clock.at(0.01, again)

    _after(shop, "hook stop source fence", again)


@pytest.mark.parametrize(
    ("what", "error", "words"),
    [
        (_straggles, Straggler, r"shop\.orders-0: offsets 100 to 103"),
        (_straggles_late, Straggler, r"shop\.orders-0: offsets 100 to 103"),
        (_writes_on, Straggler, r"shop\.orders-0: offsets"),
        (_comes_back, Refused, r"moved groups rest on the cluster that they left: shop\.app has 1 members"),
        (_is_revoked, Refused, "nobody has approved it yet"),
        (_takes_long, CouldNotFindOut, "did not end within"),
        (_seals_slowly, CouldNotFindOut, "not switched within 45 s"),
        (_cannot_be_seen, CouldNotFindOut, "whether the denials of the fence writes are still there"),
        (_tail_differs, Refused, r"differs on the target: shop\.orders-0 at source offsets 100\.\.103"),
        (_tail_cannot_be_read, CouldNotFindOut, "cannot be compared: expired"),
        (_tail_is_short_on_both_sides, CouldNotFindOut, "fewer records than were copied"),
        (_ends_short, CouldNotFindOut, r"ended \(stopped\) before"),
    ],
)
def test_what_goes_wrong_before_the_point_of_no_return_lifts_the_fence_and_frees_the_mirror(
    shop: Shop, what: Callable[[Shop], None], error: type[MigrationError], words: str
) -> None:
    what(shop)
    began = shop.clock.monotonic()
    with pytest.raises(error, match=words) as caught:
        shop.switch()
    given_up(shop)
    assert shop.clock.monotonic() - began < 60
    assert shop.hooks() == ["hook stop source fence", "hook start source lift"]
    assert shop.record().state is SwitchState.GIVEN_UP
    assert ("seal" in shop.effects) is (what not in (_writes_on, _takes_long, _ends_short))
    was_to_drain = "shop/desired drain" in shop.effects
    assert ("start it again if it was drained" in caught.value.remedy) is was_to_drain


def _validated_up_to_60(shop: Shop) -> None:
    found = [{"topic": tp.topic, "partition": tp.partition, "source_end": 60, "verdict": "EQUAL"} for tp in PARTITIONS]
    shop.ctx().journal.record(KIND, LATEST, {"partitions": found, "at": shop.ctx().stamp()})


def test_what_was_copied_since_the_last_validation_is_compared_before_anybody_is_fenced(shop: Shop) -> None:
    _validated_up_to_60(shop)
    read: list[tuple[TopicPartition, int, int]] = []

    def noted(range_: PartitionRange) -> SegmentOutcome:
        read.append((range_.tp, range_.source_start, range_.source_end))
        return _differs(range_)

    shop.compared, before = noted, len(shop.effects)
    with pytest.raises(Refused, match=r"shop\.orders-0 at source offsets 60\.\.100"):
        shop.switch()
    assert sorted(read) == [(tp, 60, 100) for tp in sorted(PARTITIONS)]
    assert not any(effect.startswith(("shop/fence", "hook", "acl")) for effect in shop.effects[before:])
    shop.compared = histories.read_alike
    shop.switch()
    served(shop)


def test_what_the_target_lost_since_the_last_validation_is_compared_as_it_was_copied_again(shop: Shop) -> None:
    _validated_up_to_60(shop)
    first, *others = sorted(PARTITIONS)
    shop.ctx().link.record_rewind(first, fence=1, lost=(41, 61), source=40, at=shop.ctx().stamp())
    read: list[tuple[TopicPartition, int, int]] = []

    def noted(range_: PartitionRange) -> SegmentOutcome:
        read.append((range_.tp, range_.source_start, range_.source_end))
        return histories.read_alike(range_)

    shop.compared = noted
    shop.switch()
    assert sorted(read) == [(first, 40, 100), *((tp, 60, 100) for tp in others)]


def test_of_too_much_for_one_process_only_what_comes_later_is_compared(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    _validated_up_to_60(shop)
    monkeypatch.setattr(pins, "MOST_OFFSETS", 40 * len(PARTITIONS) - 1)
    shop.compared = _differs
    shop.switch()
    served(shop)


def test_switch_that_was_given_up_after_the_seal_succeeds_later_from_its_own_cut(shop: Shop) -> None:
    _seals_slowly(shop)
    with pytest.raises(CouldNotFindOut):
        shop.switch()
    shop.source.append(ORDERS, 11)
    shop.places[ORDERS] = 111
    shop.mirrors()
    shop.switch()
    served(shop)


def test_fence_that_somebody_lifts_meanwhile_is_noticed(shop: Shop) -> None:
    def lift() -> Lifted:
        return fence.lift(shop.ctx(), lambda *_: None)

    _after(shop, "shop/desired drain", lift)
    with pytest.raises(StateConflict, match="does not stand any more"):
        shop.switch()
    given_up(shop)


def test_topics_that_stop_has_drained_meanwhile_are_neither_sealed_nor_armed_by_a_switch(shop: Shop) -> None:
    _after(shop, "shop/desired drain", lambda: lifecycle.note(shop.ctx(), TOPICS, TopicState.DRAINED))
    with pytest.raises(StateConflict, match=r"stopped by another command since the fence: shop\.orders \(drained\)"):
        shop.switch()
    assert "seal" not in shop.effects
    assert (shop.source.acls(), reverse.begun(shop.ctx())) == (shop.before, None)


def test_group_that_is_moved_back_while_the_switch_goes_on_ends_it(shop: Shop) -> None:
    def undo() -> None:
        record = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
        record.mark(Step.UNDONE, shop.clock.now())

    _after(shop, "shop/desired drain", undo)
    with pytest.raises(Refused, match=r"groups were moved back since the switch began: shop\.app"):
        shop.switch()
    given_up(shop)


def test_groups_that_cannot_be_kept_on_the_target_are_named_before_anything_is_changed(
    make: Callable[..., Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Staying(Shop):
        more: ClassVar[Mapping[str, Any]] = {"groups_stay": True}

    shop = make(Staying)
    assert switch.check(shop.ctx())
    # It may write to topics, which it is asked about for the fence of producers; it may not read as the group.
    monkeypatch.setattr(fence, "check", partial(_but_groups, fence.check))
    decision = shop.switch()
    assert (decision.exit_code, "groups that stay: probe" in decision.message) == (1, True)
    assert shop.denials() == 0


def _but_groups(real: Callable[..., Any], ctx: Context, ban: Any = WRITES, names: tuple[str, ...] = ()) -> Any:
    if ban.kind != "GROUP":
        return real(ctx, ban, names)
    refused = CheckResult(name="probe", verdict=Verdict.FAIL, evidence="may not read", remedy="grant it")
    return SimpleNamespace(checks=(refused,), denials=())


def test_undo_does_not_lead_to_a_source_that_no_producer_writes_to(shop: Shop) -> None:
    shop.switch()
    shop.effects.clear()
    with pytest.raises(Refused, match=r"(?s)a source to which no producer writes.*`rollback --group shop\.app`"):
        cutover.undo(shop.ctx(), "shop.app", environ={})
    completion.begin(shop.ctx(), by="ada")
    with pytest.raises(Refused, match="there is no way back any more"):
        cutover.undo(shop.ctx(), "shop.app", environ={})
    assert shop.hooks() == []


def test_other_process_that_switches_meanwhile_ends_this_one_before_it_changes_anything(shop: Shop) -> None:
    _after(
        shop,
        "shop/desired drain",
        lambda: shop.ctx().journal.claim(switched.KIND, "producers", at=shop.ctx().stamp()),
    )
    with pytest.raises(TakenOver):
        shop.switch()
    assert "seal" not in shop.effects
    assert shop.denials() == 6
    shop.switch()
    served(shop)


def test_seal_is_given_no_more_time_than_producers_have(shop: Shop) -> None:
    shop.drain_seconds = 20
    shop.switch()
    assert 0 < shop.sealed_within < 26


def test_switch_that_takes_its_time_to_seal_arms_no_way_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    _seals_slowly(shop)
    monkeypatch.setattr(reverse, "arm", lambda *_: pytest.fail("armed too late"))
    with pytest.raises(CouldNotFindOut, match="not switched within 45 s"):
        shop.switch()


def test_drain_of_a_switch_takes_no_time_to_look_for_groups_that_are_astray(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sides.Lookout, "look", lambda _self: pytest.fail("looked"))
    shop.drain_seconds = 5
    shop.switch()
    served(shop)


def test_fence_is_lifted_as_soon_as_a_cluster_that_was_away_for_a_while_answers(shop: Shop) -> None:
    def breaks() -> None:
        until, away = shop.clock.monotonic() + 60, ClusterUnreachable("source", "h:1", "gone")
        shop.source._errors["delete_acls"] = lambda: away if shop.clock.monotonic() < until else None
        shop.source.append(ORDERS, 3)

    _after(shop, "seal", breaks)
    with pytest.raises(Straggler):
        shop.switch()
    given_up(shop)
    assert any("which is tried again" in line for line in shop.told)


def test_stop_passes_behind_a_switch_whose_mirror_was_killed_before_it_recorded_its_end(shop: Shop) -> None:
    shop.switch()
    shop.ctx().link.record_run({"at": shop.ctx().stamp(), "state": "running"})
    assert stop.apply(shop.ctx()).stopped


def test_fence_that_cannot_be_lifted_is_named(shop: Shop) -> None:
    def breaks() -> None:
        shop.source._errors["delete_acls"] = lambda: CouldNotFindOut("no answer")

    _after(shop, "seal", breaks)
    shop.asked = iter(["open", "open"]).__next__
    _after(shop, "shop/desired drain", lambda: setattr(shop, "asked", _gate_shut))
    with pytest.raises(NeedsRollback, match="could not be lifted") as caught:
        shop.switch()
    assert "fence --lift" in caught.value.remedy


def test_start_hook_that_fails_is_run_again_by_the_next_call(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    run = vars(switch)["run_hook"]

    def fails(call: HookCall, **_: Any) -> HookRun:
        raise HookFailed("start exited with 1", remedy="look at it")

    monkeypatch.setattr(switch, "run_hook", fails)
    with pytest.raises(HookFailed) as caught:
        shop.switch()
    assert "run `switch` again" in caught.value.remedy
    assert shop.record().state is SwitchState.SERVED
    assert shop.denials() == 6
    monkeypatch.setattr(switch, "run_hook", run)
    shop.switch()
    served(shop)
    assert shop.hooks() == ["hook stop source fence", "hook start target switch"]


# -- deaths -----------------------------------------------------------------------------------------------------------


def _killed_at(shop: Shop, changes: int) -> bool:
    """Whether the switch died before its change number ``changes``; nothing of it changes anything after that."""
    left = itertools.count(changes, -1)

    def dies() -> None:
        if next(left) <= 0:
            raise Killed

    shop.deadly = dies
    try:
        shop.switch()
    except Killed:
        return True
    finally:
        shop.deadly = lambda: None
    return False


@pytest.mark.parametrize("then", ["again", "gate shut", "straggler"])
def test_killed_anywhere_the_next_call_goes_on_or_gives_up_and_never_back_behind_the_point(
    make: Callable[[], Shop], then: str
) -> None:
    for changes in itertools.count():
        shop = make()
        was_killed = _killed_at(shop, changes)
        if not was_killed:
            # Claims, records, denials, wish, seal, cut, point, hooks.
            assert changes >= 25
            return
        shop.clock.sleep(1)
        before = switched.read(shop.ctx())
        is_behind = before is not None and before.is_served
        if then == "again":
            shop.switch()
            served(shop)
            continue
        if then == "gate shut":
            shop.asked = _gate_shut
        else:
            shop.source.append(ORDERS, 2)
            # Written while the process was dead; whoever looks at the old proof alone would miss it.
            shop.places = dict(shop.places)
        try:
            decision = shop.switch()
        except MigrationError:
            decision = Decision(exit_code=1)
        if is_behind:
            served(shop)
        elif decision.exit_code:
            given_up(shop)
        else:
            # What was written before the proof that counts is copied, or was refused above.
            assert then == "straggler"
            served(shop)
            assert shop.places[ORDERS] == 102


def test_fence_is_proved_first_of_all_after_a_death(shop: Shop) -> None:
    assert _killed_at(shop, 20)
    shop.effects.clear()
    shop.asked = _gate_shut
    with pytest.raises(Refused, match="nobody has approved"):
        shop.switch()
    fenced = shop.effects.index("shop/fence/writes fenced")
    assert not any("desired" in effect or effect == "seal" for effect in shop.effects[:fenced])
    given_up(shop)


def test_mirror_by_the_reverse_link_keeps_it_from_being_taken_back(shop: Shop) -> None:
    shop.switch()
    back = reverse.begun(shop.ctx())
    assert back is not None
    assert back.direction is Direction.REVERSE
    back.link.record_run({"state": "running", "at": back.stamp()})
    with pytest.raises(Refused, match="a mirror has run by link shop:reverse"):
        reverse.disarm(shop.ctx())


def test_teardown_lifts_what_a_death_left_and_changes_nothing_behind_the_point(make: Callable[..., Shop]) -> None:
    for changes in itertools.count():
        shop = make()
        if not _killed_at(shop, changes):
            assert unfence.run(shop.ctx(), environ={}).message.startswith("producers were switched")
            return
        shop.clock.sleep(1)
        before, denials = switched.read(shop.ctx()), shop.denials()
        for _ in range(2):
            unfence.run(shop.ctx(), environ={})
        if before is not None and before.is_served:
            assert (shop.record(), shop.denials()) == (before, denials)
        else:
            given_up(shop)


def test_fence_without_a_switch_is_lifted_by_the_teardown(shop: Shop) -> None:
    fence_step.run(shop.ctx(), environ={})
    assert shop.denials()
    unfence.run(shop.ctx(), environ={})
    given_up(shop)
    assert unfence.run(shop.ctx(), environ={}).message == "no fence stands"


@pytest.mark.parametrize("kind", [AskedShop, ShopOfWaves])
def test_step_asks_a_person_who_sees_the_fence_and_is_bound_to_whom_it_denies(
    make: Callable[..., Shop], kind: type[Shop], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = make(kind)
    monkeypatch.setattr(CutoverGate, "ask", ASK)
    shop.has_active_mirror = True
    histories.validated(shop)
    seen = outlook.evidence(shop.ctx(), GateName.PRODUCERS)
    assert seen.next_steps[0].startswith("switch_producers: fence producers")
    assert seen.checks.is_open, seen.checks.blockers
    shown = seen.as_markdown()
    assert all(part in shown for part in ("User:web", "producers.stop", "fence: probe"))
    refused = shop.switch()
    assert "producers gate: nobody has approved it yet" in refused.message
    approvals.record(shop.ctx(), GateName.PRODUCERS, seen.digest, "ada", seen_at=seen.taken_at)
    shop.source.create_acls([acl("User:new", "WRITE", "shop.orders")])
    assert "fence: denied changed" in shop.switch().message
    assert not shop.denials()
    seen = approvals.evidence(shop.ctx(), GateName.PRODUCERS)
    approvals.record(shop.ctx(), GateName.PRODUCERS, seen.digest, "ada", seen_at=seen.taken_at)
    shop.switch()
    assert (shop.record().state, shop.record().approval[:15]) == (SwitchState.DONE, "approved by ada")


def _dies_behind(shop: Shop, effect: str) -> None:
    def dies() -> None:
        raise Killed

    _after(shop, effect, lambda: setattr(shop, "deadly", dies))
    with pytest.raises(Killed):
        shop.switch()
    shop.deadly = lambda: None


def test_no_group_goes_back_behind_a_switch_that_died_before_its_point(shop: Shop) -> None:
    _dies_behind(shop, "seal")
    for goes_back in (
        lambda: rollback.apply(shop.ctx(), ["shop.app"]),
        lambda: cutover.undo(shop.ctx(), "shop.app"),
    ):
        with pytest.raises(Refused, match="a switch of producers is under way"):
            goes_back()


def test_next_call_after_a_death_sees_a_group_that_went_back_meanwhile(shop: Shop) -> None:
    _dies_behind(shop, "seal")
    group = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    group.mark(Step.UNDOING, shop.clock.now())
    group.mark(Step.UNDONE, shop.clock.now())
    with pytest.raises(Refused, match="groups were moved before producers"):
        shop.switch()
    given_up(shop)


@pytest.mark.parametrize("is_ready", [True, False])
def test_next_call_after_a_death_and_a_fence_lifted_by_hand_begins_anew_or_gives_up(shop: Shop, is_ready: bool) -> None:
    _dies_behind(shop, "shop/fence/writes fenced")
    fence_step.lift(shop.ctx(), environ={})
    assert shop.denials() == 0
    shop.effects.clear()
    if is_ready:
        assert shop.switch().exit_code == 0
        served(shop)
        return
    shop.source.join("shop.app", ["shop.orders"])
    decision = shop.switch()
    assert (decision.exit_code, "moved groups rest" in decision.message) == (1, True)
    assert shop.record().state is SwitchState.GIVEN_UP
    assert (shop.hooks(), shop.denials()) == ([], 0), "nobody was stopped, or stays denied"
