"""The cutover gate asks for a mirror that is active and keeps up."""

from __future__ import annotations

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.controls import Pause
from kafka_migration.link import ready
from kafka_migration.migration.context import Context
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_lag import mirrored

LAG_GATE = {"threshold_records": 10}


def asked(ctx: Context) -> tuple[CheckResult, CheckResult]:
    active, low = ready.checks(ctx)
    return active, low


@pytest.mark.parametrize(
    ("state", "age", "behind", "active", "low"),
    [
        ("running", 0, 3, Verdict.PASS, Verdict.PASS),
        ("running", 0, 4, Verdict.PASS, Verdict.FAIL),
        # Its heartbeat is gone, however low the lag is by what it last wrote.
        ("running", 600, 0, Verdict.FAIL, Verdict.FAIL),
        # One that has ended is no matter once everything is copied.
        ("ended", 0, 0, Verdict.WARN, Verdict.PASS),
        ("ended", 0, 1, Verdict.WARN, Verdict.FAIL),
    ],
)
def test_gate_says_whether_the_mirror_is_active_and_how_far_behind(
    state: str, age: float, behind: int, active: Verdict, low: Verdict
) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100 - behind, lag_gate=LAG_GATE)
    at = ctx.stamp()
    shop.clock.sleep(age)
    link.record_run({"state": state, "at": at})
    found = asked(ctx)
    assert [it.verdict for it in found] == [active, low]
    if low is Verdict.FAIL and not age:
        assert f"{3 * behind} source offsets are to be copied" in found[1].evidence
    if age:
        assert "last heartbeat was at" in found[0].evidence


def test_mirror_that_never_started_shuts_the_cutover_gate() -> None:
    shop = Migration()
    histories.created(shop)
    blockers = approvals.evidence(shop.ctx(), GateName.CUTOVER).checks.blockers
    assert {"the mirror is active", "replication lag is low"} <= {it.name for it in blockers}
    (active,) = [it for it in blockers if it.name == "the mirror is active"]
    assert (active.verdict, active.evidence) == (Verdict.FAIL, "the mirror has not started")


def test_lag_that_swings_under_the_threshold_within_half_a_minute_is_low() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=50, lag_gate=LAG_GATE)
    link.record_run({"state": "running", "at": ctx.stamp()})
    shop.clock.at(10.0, lambda: link.places.update(dict.fromkeys(link.places, 100)))
    assert [it.verdict for it in asked(ctx)] == [Verdict.PASS, Verdict.PASS]


def test_paused_mirror_that_is_behind_at_all_is_named_with_who_paused_it() -> None:
    ctx, link = mirrored(Migration(), at=99, lag_gate=LAG_GATE)
    link.record_run({"state": "running", "at": ctx.stamp()})
    link.pause(Pause(by="ada", at=ctx.stamp(), reason="a test"))
    _, low = asked(ctx)
    assert low.verdict is Verdict.FAIL
    assert "ada" in low.evidence
