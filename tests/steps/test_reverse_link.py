"""Where a reverse link begins, without brokers (on real ones: tests/copy/test_reverse.py)."""

from __future__ import annotations

import uuid
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.approvals import approvals, rollback
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.rollback import RollbackGate
from kafka_migration.domain import ledger
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.groups.record import GroupRecord
from kafka_migration.groups.translate import selected_groups
from kafka_migration.link import reverse, seal
from kafka_migration.migration.context import Context, Scope
from kafka_migration.overview import status
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.steps import outlook, release
from tests.state.test_link import FakeLog
from tests.steps.gates import Migration

ORDERS, EXCLUDED = TopicPartition("shop.orders", 0), TopicPartition("shop.old", 0)


class Marked:
    """Stands for the topic on the source that fences keep their ids alive with."""

    def __init__(self, *_: object) -> None:
        self.ensure = self.close = lambda: None


@pytest.fixture
def ctx(monkeypatch: pytest.MonkeyPatch) -> Context:
    """Sealed, with a topic that the plan does not mean any more."""
    monkeypatch.setattr(reverse, "TopicLog", Marked)
    return forward_and_back()


def forward_and_back() -> Context:
    """A migration whose forward link is sealed, at target offset 35 of ``ORDERS``, of which 40 offsets are copied."""
    shop = Migration()
    found = shop.ctx(topics={"include": [r"shop\.orders"]})
    found.source.connection = SimpleNamespace(librdkafka=dict)  # type: ignore[assignment]

    def link(name: str) -> LinkState:
        logs: list[Any] = [FakeLog(topic) for topic in (ledger.OFFSET_MAP_TOPIC, ledger.PROGRESS_TOPIC)]
        return LinkState(name, shop.links, *logs, selects=found.plan.topics.matches)

    forward, back = (link(direction.own("shop")) for direction in Direction)
    third = link(Direction.FORWARD.own("shop", 2))
    pins = [
        LinkTopic(name=tp.topic, source_id=uuid.UUID(int=n), target_id=uuid.UUID(int=n + 10))
        for n, tp in enumerate((ORDERS, EXCLUDED), start=1)
    ]
    forward.pin(source_cluster="s", target_cluster="t", topics=pins, at="")
    opening = RunOpening(fence=1, records=0, source=40, target=30, closes=0)
    forward.record_openings([(ORDERS, opening)])
    forward.record_seal(Seal(at="noon", identity=Identity(7, 9), ends={ORDERS: 35, EXCLUDED: 3}))
    return replace(found, link=forward, on_open_link=lambda way, _: back if way is Direction.REVERSE else third)


def test_reverse_link_begins_behind_the_marker_of_the_seal_and_behind_what_was_copied(ctx: Context) -> None:
    back = reverse.arm(ctx).link
    assert {tp: (at.source, at.target) for tp, at in back.positions().items()} == {ORDERS: (36, 40)}
    assert back.topics() == {
        "shop.orders": LinkTopic(name="shop.orders", source_id=uuid.UUID(int=11), target_id=uuid.UUID(int=1))
    }


def test_topic_that_is_included_again_is_taken_up_at_its_cut_and_one_without_a_cut_is_not(ctx: Context) -> None:
    back = reverse.arm(ctx).link
    back.record_run({"state": "ended", "at": ""})
    uncut = LinkTopic(name="shop.uncut", source_id=uuid.UUID(int=5), target_id=uuid.UUID(int=15))
    ctx.link.pin(source_cluster="s", target_cluster="t", topics=[uncut], at="")
    opening = RunOpening(fence=1, records=0, source=8, target=2, closes=0)
    ctx.link.record_openings([(EXCLUDED, opening)], {EXCLUDED.topic: str(uuid.UUID(int=12))})
    for link in (ctx.link, back):
        link.select_also(lambda _topic: True)
    assert reverse.arm(ctx).link.topics().keys() == {ORDERS.topic, EXCLUDED.topic}
    assert {tp: (at.source, at.target) for tp, at in back.positions().items()} == {ORDERS: (36, 40), EXCLUDED: (4, 8)}


def test_dry_run_begins_nothing(ctx: Context) -> None:
    assert not reverse.arm(replace(ctx, dry_run=True)).link.topics()


def test_seal_stays_once_another_link_has_begun_behind_it(ctx: Context) -> None:
    reverse.arm(ctx)
    with pytest.raises(Refused, match="stays sealed: the link that copies the other way has begun"):
        seal.undo(ctx)
    assert ctx.link.seal() is not None


def test_seal_that_is_taken_away_while_the_reverse_link_begins_leaves_no_beginning(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = ctx.reverse().link
    pin = back.pin

    def taken_away_before(**fields: Any) -> None:
        assert seal.undo(ctx)
        pin(**fields)

    monkeypatch.setattr(back, "pin", taken_away_before)
    with pytest.raises(Refused, match="seal of link shop was taken away meanwhile"):
        reverse.arm(ctx)
    assert (reverse.begun(ctx), ctx.link.seal()) == (None, None)


def test_reverse_link_that_begins_while_the_seal_is_taken_away_has_it_put_back(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands, unseal = ctx.link.seal(), ctx.link.unseal

    def begun_before() -> None:
        reverse.arm(ctx)
        unseal()

    monkeypatch.setattr(ctx.link, "unseal", begun_before)
    with pytest.raises(Refused, match="stays sealed"):
        seal.undo(ctx)
    assert ctx.link.seal() == stands
    assert reverse.begun(ctx) is not None


def test_way_back_is_open_behind_a_seal_alone_and_shows_what_is_to_be_copied(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    _seven_to_copy(monkeypatch)
    with pytest.raises(Refused, match="reverse link of shop has not begun"):
        RollbackGate(ctx.reverse()).ask()
    gate = RollbackGate(reverse.arm(ctx))
    with pytest.raises(NotApproved, match="rollback gate: nobody has approved it yet"):
        gate.ask()
    seen = approvals.evidence(ctx, GateName.ROLLBACK)
    assert ("records that would be lost", "7 offsets, if the target were gone now; `rollback` waits for them") in (
        seen.tables[0].rows
    )
    approvals.record(ctx, GateName.ROLLBACK, seen.digest, "ada", seen_at=seen.taken_at)
    assert gate.ask().endswith(
        "; the reverse link has 7 offsets of the target to copy in 1 partitions (mirror: running); each group waits for"
        " its own records"
    )
    # A wish to stop is of the cutover gate alone.
    approvals.revoke(ctx, GateName.ROLLBACK, "ada")
    with pytest.raises(NotApproved, match="ada revoked it"):
        gate.ask()
    unasked = replace(ctx, plan=Migration().plan(approvals={"cutover": False}, topics={"include": [r"shop\.orders"]}))
    assert "approvals.cutover is false" in RollbackGate(unasked.reverse()).ask()
    ctx.link.unseal()
    with pytest.raises(Refused, match="link shop is not sealed any more"):
        gate.ask()


def _seven_to_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = SimpleNamespace(lag={ORDERS: 7}, worst=(ORDERS, 7))
    report = SimpleNamespace(total=7, sample=sample, mirror="running")
    monkeypatch.setattr(rollback, "LagMeter", lambda _back: SimpleNamespace(read=lambda: report))


def test_wave_goes_back_under_an_approval_of_its_own(ctx: Context, monkeypatch: pytest.MonkeyPatch) -> None:
    reverse.arm(ctx)
    _seven_to_copy(monkeypatch)
    for group in ("shop.app", "shop.billing"):
        GroupRecord.own(ctx.journal, group, at=ctx.stamp())
    monkeypatch.setattr(rollback, "selected", lambda back, wanted=None: selected_groups(back, wanted))
    first = ctx.within(Scope.wave("first", topics={ORDERS.topic}, groups={"shop.app"}))
    second = ctx.within(Scope.wave("second", topics={EXCLUDED.topic}, groups={"shop.billing"}))
    seen = outlook.evidence(first, GateName.ROLLBACK)
    assert set(seen.facts["groups"]) == {"shop.app"}
    assert [step.partition(":")[0] for step in seen.next_steps] == ["rollback", "watch_rolled_back"]
    approvals.record(first, GateName.ROLLBACK, seen.digest, "ada", seen_at=seen.taken_at)
    assert "ada" in RollbackGate(first.reverse()).ask()
    for other in (second, ctx):
        with pytest.raises(NotApproved, match="nobody has approved it yet"):
            RollbackGate(other.reverse()).ask()


def test_rollback_of_the_whole_that_is_closed_closes_its_waves_and_an_answer_of_a_wave_is_shown(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverse.arm(ctx)
    _seven_to_copy(monkeypatch)
    wave = ctx.within(Scope.wave("first", topics={ORDERS.topic}, groups={"shop.app"}))

    def approve() -> None:
        seen = approvals.evidence(wave, GateName.ROLLBACK)
        approvals.record(wave, GateName.ROLLBACK, seen.digest, "ada", seen_at=seen.taken_at)

    with pytest.raises(NotApproved, match="no approval to revoke"):
        approvals.revoke(ctx, GateName.ROLLBACK, "ben")
    approve()
    assert [(answer.scope, answer.answer) for answer in status.read(ctx).approvals] == [("first", "approved")]
    for close in (approvals.revoke, partial(approvals.reject, digest="")):
        assert RollbackGate(wave.reverse()).ask()
        close(ctx, GateName.ROLLBACK, approver="ben")
        with pytest.raises(NotApproved, match="ben"):
            RollbackGate(wave.reverse()).ask()
        ctx.clock.sleep(1)
        approve()
    assert RollbackGate(wave.reverse()).ask()


def test_who_approves_a_rollback_sees_what_was_given_up_on_the_way_back(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    back = reverse.arm(ctx)
    _seven_to_copy(monkeypatch)
    before = approvals.evidence(ctx, GateName.ROLLBACK)
    back.link.halt(ORDERS, "DATA_LOSS", "the log now starts at 60", 36, 40, ctx.stamp())
    key = back.link.topics()[ORDERS.topic].key
    given_up = Skip(start=36, end=60, halt="DATA_LOSS", detail="", by="ada", at=ctx.stamp(), topic_key=key)
    back.link.lift({ORDERS: given_up})
    seen = approvals.evidence(ctx, GateName.ROLLBACK)
    (check,) = [one for one in seen.checks.results if one.name == "no records were given up"]
    assert (check.verdict, "target offsets 36..60 (24 at most)" in check.evidence) == (Verdict.WARN, True)
    assert seen.digest != before.digest


def test_rollback_of_the_whole_closes_its_waves_whatever_the_clocks_say_and_whoever_removes_it(
    ctx: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    reverse.arm(ctx)
    _seven_to_copy(monkeypatch)
    wave = ctx.within(Scope.wave("first", topics={ORDERS.topic}, groups={"shop.app"}))
    seen = approvals.evidence(ctx, GateName.ROLLBACK)
    approvals.record(ctx, GateName.ROLLBACK, seen.digest, "ada", seen_at=seen.taken_at)
    # By a machine whose clock is ahead.
    ctx.clock.sleep(40)
    seen = approvals.evidence(wave, GateName.ROLLBACK)
    approvals.record(wave, GateName.ROLLBACK, seen.digest, "ada", seen_at=seen.taken_at)
    ctx.clock.sleep(-35)
    approvals.revoke(ctx, GateName.ROLLBACK, "ben")
    with pytest.raises(NotApproved, match="ben revoked it"):
        RollbackGate(wave.reverse()).ask()
    ctx.journal.forget("approval", "rollback/2-revoked")
    with pytest.raises(NotApproved, match=r"(?s)answer 2 was removed from the journal.*approve rollback"):
        RollbackGate(wave.reverse()).ask()


def test_topics_are_not_released_while_the_reverse_mirror_runs(ctx: Context) -> None:
    back = reverse.arm(ctx).link
    assert release.check(ctx) == ()
    back.record_run({"state": "running", "at": ctx.stamp()})
    with pytest.raises(Refused, match="reverse mirror of shop is running"):
        release.check(ctx)
