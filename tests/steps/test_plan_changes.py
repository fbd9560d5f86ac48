"""A corrected plan and a migration that runs: what it changes is shown, approved and recorded; what would leave records
or groups behind is refused before anything is changed."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_migration.approvals import approvals, passing
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity
from kafka_migration.groups.record import Step
from kafka_migration.inventory import plan_changes, preflight
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import join, joined, mirror_began, mirror_selection
from kafka_migration.plans.problems import InvalidPlan
from kafka_migration.steps import draining, mirror, runner, stop
from kafka_migration.topics.create import TargetGrowth
from tests.steps import histories
from tests.steps.gates import Migration

CORRECTED: dict[str, Any] = {"lag_gate": {"threshold_records": 7}}
WIDER: dict[str, Any] = {"topics": {"include": [r"shop\..*", "bank"]}}
NARROWER: dict[str, Any] = {"topics": {"include": [r"shop\..*"], "exclude": [r"shop\.orders"]}}


@pytest.fixture
def shop() -> Migration:
    """Created and mirrored; another topic is on the source, which the plan does not select."""
    made = Migration()
    histories.created(made)
    histories.mirroring(made)
    made.source.add_topic("bank")
    return made


def create(shop: Migration, by: str = "ada", **fields: Any) -> Context:
    """``by`` approves the plan of ``fields``, and it joins."""
    ctx = shop.ctx(**fields)
    approvals.record(ctx, GateName.PLAN, approvals.evidence(ctx, GateName.PLAN).digest, by)
    runner.run(shop.ctx(**fields), "create_targets")
    return shop.ctx(**fields)


def test_change_is_shown_by_check_and_stands_in_the_approved_evidence(shop: Migration) -> None:
    (found,) = [r for r in preflight.check(shop.ctx(**CORRECTED)).gate.results if r.name == plan_changes.NAME]
    assert found.verdict is Verdict.WARN
    assert found.evidence.startswith("changed: lag_gate.threshold_records was 1000, is 7")
    seen = approvals.evidence(shop.ctx(**CORRECTED), GateName.PLAN)
    assert seen.facts["plan changes"] == {"lag_gate.threshold_records": "1000 -> 7"}
    assert seen.tables[0].rows == (("lag_gate.threshold_records", "1000", "7", "from the next step on"),)
    assert plan_changes.NAME not in {r.name for r in preflight.check(shop.ctx()).gate.results}


def test_changed_plan_is_approved_anew_joins_and_is_remembered_with_who_approved_it(shop: Migration) -> None:
    with pytest.raises(NotApproved):
        runner.run(shop.ctx(**CORRECTED), "create_targets")
    first = joined(shop.ctx())
    assert first is not None
    create(shop, by="bob", **CORRECTED)
    # A second run of it, as after a kill: the approval holds, and nothing is noted twice.
    runner.run(shop.ctx(**CORRECTED), "create_targets")
    now = joined(shop.ctx())
    assert now is not None
    assert (now.digest, now.by, len(now.history)) == (shop.plan(**CORRECTED).digest, "bob", 2)
    assert now.history[0]["digest"] == first.digest
    assert now.history[1]["changes"] == ["lag_gate.threshold_records was 1000, is 7 (from the next step on)"]


def test_plan_that_takes_its_gate_away_is_asked_for_by_the_plan_before(shop: Migration) -> None:
    unasked: dict[str, Any] = {"approvals": {"plan": False}}
    with pytest.raises(NotApproved):
        runner.run(shop.ctx(**unasked), "create_targets")
    create(shop, **unasked)
    assert not passing.is_asked(shop.ctx(**unasked), GateName.PLAN)


@pytest.mark.parametrize("field", ["source", "target"])
@pytest.mark.parametrize("step", ["create_targets", "cut_over", "stop_mirror"])
def test_field_that_may_not_change_is_refused_before_anything_is_changed(
    step: str, field: str, shop: Migration
) -> None:
    before, changes = shop.store.items(), list(shop.target.changes)
    with pytest.raises(Refused, match=rf'{field} was "[ab]", is "elsewhere".*\n  remedy: name this connection again'):
        runner.run(shop.ctx(**{field: "elsewhere"}), step)
    with pytest.raises(Refused, match='is "elsewhere"'):
        mirror.check(shop.ctx(**{field: "elsewhere"}))
    assert (shop.store.items(), shop.target.changes) == (before, changes)
    (found,) = preflight.check(shop.ctx(**{field: "elsewhere"})).gate.blockers
    assert found.name == plan_changes.NAME


def test_group_that_was_moved_and_topics_that_it_reads_may_not_be_left_out(shop: Migration) -> None:
    histories.moved(shop, upto=Step.STOPPING)
    with pytest.raises(Refused, match=r"groups selected shop\.app, which was moved or is being moved"):
        plan_changes.require(shop.ctx(groups={"include": ["x"]}))
    histories.moved(shop)
    with pytest.raises(Refused, match=r"topics selected shop\.orders.*moved groups read it on the target: shop\.app"):
        plan_changes.require(shop.ctx(**NARROWER))
    plan_changes.require(shop.ctx(topics={"include": [r"shop\..*"], "exclude": [r"shop\.payments"]}))
    histories.moved(shop, upto=Step.UNDONE)
    plan_changes.require(shop.ctx(**NARROWER))


def test_halted_topic_may_be_left_out_though_moved_groups_read_it(shop: Migration) -> None:
    histories.moved(shop)
    ctx = shop.ctx()
    ctx.link.halt(histories.ORDERS[0], "CORRUPT", "a checksum", 1, 2, ctx.stamp())
    plan_changes.require(shop.ctx(**NARROWER))


def test_topics_that_were_not_copied_cannot_join_a_sealed_mirror(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.record_seal(Seal(at=ctx.stamp(), identity=Identity(7, 9), ends={}))
    (found,) = preflight.check(shop.ctx(**WIDER)).gate.blockers
    assert "topics that it never copied: bank" in found.evidence
    assert "mirror --unseal" in found.remedy


# -- a plan that was replaced -----------------------------------------------------------------------------------------


def test_step_with_a_plan_that_was_replaced_is_refused_until_that_plan_joins_again(shop: Migration) -> None:
    create(shop, **WIDER)
    for step in ("cut_over", "stop_mirror", "restore"):
        with pytest.raises(Refused, match=r"was replaced by another one.*\n  remedy: use the plan that joined"):
            runner.run(shop.ctx(), step)
    with pytest.raises(Refused, match="was replaced"):
        runner.wait(shop.ctx(), "stop_mirror")
    mirror.check(shop.ctx())  # It goes on with the plan that joined.
    create(shop)
    plan_changes.require(shop.ctx())
    with pytest.raises(Refused, match="was replaced"):
        plan_changes.require(shop.ctx(**WIDER))


def test_plan_that_an_earlier_version_recorded_is_compared_and_has_no_history(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.journal.record("plan", "plan", {"digest": ctx.plan.digest, "snapshot": ctx.plan.snapshot(), "at": ctx.stamp()})
    assert not plan_changes.shown(shop.ctx())
    assert [change.field for change in plan_changes.shown(shop.ctx(**CORRECTED))] == ["lag_gate.threshold_records"]
    create(shop, **CORRECTED)
    last = joined(shop.ctx())
    assert last is not None
    assert [plan["by"] for plan in last.history] == ["", "ada"]


# -- the mirror -------------------------------------------------------------------------------------------------------


def growing(ctx: Context, pinned: list[tuple[str, str, bool]]) -> TargetGrowth:
    def pin(goes_by: Context, names: Any, is_new: bool) -> None:
        histories.pinned(goes_by)
        pinned.extend((goes_by.plan.digest, name, is_new) for name in names)

    return TargetGrowth(ctx, pin)


def test_running_mirror_goes_on_with_the_plan_that_joined_and_keeps_what_it_copies(shop: Migration) -> None:
    running, pinned = shop.ctx(), list[tuple[str, str, bool]]()
    mirror_began(running)
    growth = growing(running, pinned)
    assert growth.follow().keys() == {"shop.orders", "shop.payments"}
    other: dict[str, Any] = {"topics": {"include": [r"shop\.orders", "bank"]}}
    create(shop, **other)
    assert growth.follow().keys() == {"shop.orders", "shop.payments", "bank"}
    # From where the plan begins, as at a new start of the mirror: it was not made while the mirror ran.
    assert pinned == [(shop.plan(**other).digest, "bank", False)]
    assert growth.follow().keys() == {"shop.orders", "shop.payments", "bank"}
    assert len(pinned) == 1
    assert mirror_selection(shop.ctx())("bank")
    assert mirror_selection(shop.ctx())("shop.payments")


def test_mirror_that_starts_with_a_plan_that_was_replaced_goes_on_with_the_one_that_joined(shop: Migration) -> None:
    create(shop, **WIDER)
    assert "bank" in growing(shop.ctx(), []).follow()


def test_mirror_with_a_plan_that_has_not_joined_keeps_to_it_until_another_joins(shop: Migration) -> None:
    growth = growing(shop.ctx(**CORRECTED), [])
    assert "bank" not in growth.follow()
    create(shop, **WIDER)
    assert "bank" in growth.follow()


# -- the stop gate ----------------------------------------------------------------------------------------------------


def not_mirrored(ctx: Context) -> str:
    (found,) = [r for r in stop.check(ctx)[0].results if r.name == draining.MIRRORED]
    return found.evidence if found.verdict is Verdict.FAIL else ""


def test_stop_gate_refuses_topics_that_were_not_created_or_that_its_mirror_does_not_copy(shop: Migration) -> None:
    mirror_began(shop.ctx())
    assert not not_mirrored(shop.ctx())
    assert not_mirrored(shop.ctx(**WIDER)) == "the plan selects topics that were not created on the target: bank"
    create(shop, **WIDER)
    assert not_mirrored(shop.ctx(**WIDER)).startswith("the mirror does not copy topics of the plan: bank (it goes by")
    histories.pinned(shop.ctx(**WIDER))
    # Pinned by an earlier mirror, say; the one that runs leaves it out.
    assert not_mirrored(shop.ctx(**WIDER)).startswith("the mirror does not copy topics of the plan: bank")
    mirror_began(shop.ctx(**WIDER))
    assert not not_mirrored(shop.ctx(**WIDER))


def test_topic_that_joins_during_the_drain_keeps_the_mirror_from_being_sealed(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = shop.ctx(**WIDER, drain={"window_seconds": 10, "deadline_seconds": 100})
    join(ctx)
    monkeypatch.setattr(stop, "_require_drained", lambda *_: None)
    monkeypatch.setattr(stop, "end_mirror", lambda *_, **__: None)
    checked = stop.check

    def passed(ctx: Context) -> Any:
        gate, report, ends = checked(shop.ctx())
        return type(gate)(gate.name, tuple(r for r in gate.results if r.name == draining.MIRRORED)), report, ends

    monkeypatch.setattr(stop, "check", passed)
    with pytest.raises(Refused, match="not sealed: since the drain began, the plan selects topics that were not"):
        stop.apply(ctx)


def test_wait_of_the_stop_gate_gives_a_topic_a_minute_to_join_and_then_names_it(shop: Migration) -> None:
    create(shop, **WIDER)
    decision = runner.wait(shop.ctx(**WIDER), "stop_mirror")
    assert decision.exit_code == 1
    assert "the mirror does not copy topics of the plan: bank" in decision.message
    assert 60 <= shop.clock.monotonic() < 200


@pytest.mark.parametrize("gate", [GateName.CUTOVER, GateName.ROLLBACK])
def test_plan_that_has_not_joined_takes_no_gate_away_and_makes_nobody_an_approver(
    shop: Migration, gate: GateName
) -> None:
    create(shop, by="ann", approvals={"approvers": ["ann"]})
    edited: dict[str, Any] = {"approvals": {"approvers": ["eve"], "cutover": False}}
    assert passing.is_asked(shop.ctx(**edited), gate)
    assert passing.approvers(shop.ctx(**edited), gate) == ("ann",)
    with pytest.raises(NotApproved, match="eve is not one of the plan's approvers"):
        passing.require_approver(shop.ctx(**edited), gate, "eve")
    create(shop, by="ann", **edited)
    assert not passing.is_asked(shop.ctx(**edited), gate)
    assert passing.approvers(shop.ctx(**edited), gate) == ("eve",)
    # Who let it join has approved it: a second run of `create`, as after a kill, asks nobody else.
    assert passing.approvers(shop.ctx(**edited), GateName.PLAN) == ("eve", "ann")
    runner.run(shop.ctx(**edited), "create_targets")


def test_approvals_of_a_plan_that_this_version_does_not_take_any_more_count_until_its_correction_has_joined(
    shop: Migration,
) -> None:
    create(shop, by="ann", approvals={"approvers": ["ann"]})
    last = joined(shop.ctx())
    assert last is not None
    refused = {**last.snapshot, "alerts": {"notifiers": [{"class": "x.Y", "connection": "z"}]}, "no_field": 1}
    value = shop.ctx().journal.read("plan", "plan")
    shop.ctx().journal.record("plan", "plan", {**(value or {}), "snapshot": refused, "digest": "sha256:0"})
    with pytest.raises(InvalidPlan):
        joined(shop.ctx()).plan()  # type: ignore[union-attr]
    edited: dict[str, Any] = {"approvals": {"approvers": ["eve"], "cutover": False}}
    assert passing.approvers(shop.ctx(**edited), GateName.PLAN) == ("ann",)
    assert passing.is_asked(shop.ctx(**edited), GateName.CUTOVER)
    create(shop, by="ann", **edited)
    assert passing.approvers(shop.ctx(**edited), GateName.CUTOVER) == ("eve",)
