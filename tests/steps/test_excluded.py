"""A halted topic that is excluded from the plan, as the remedy of many a halt says: nothing waits for it any more."""

from __future__ import annotations

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import BadInput
from kafka_migration.link import lag
from kafka_migration.migration.context import Context
from kafka_migration.overview import status
from kafka_migration.steps import mirror, recopy, stop
from kafka_migration.topics import create
from kafka_migration.validation import verdict
from tests.steps import histories
from tests.steps.gates import Migration

BUT_PAYMENTS = {"topics": {"include": [r"shop\..*"], "exclude": [r"shop\.payments"]}}
QUICK = {"lag_gate": {"threshold_records": 500, "samples": 1}}


@pytest.fixture
def shop() -> Migration:
    """Mirrored and validated; then the payments are halted for good."""
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    histories.validated(shop)
    ctx = shop.ctx()
    ctx.link.halt(histories.PAYMENTS, "CORRUPT", "a checksum", 1, 2, ctx.stamp())
    return shop


def _blockers(ctx: Context) -> set[str]:
    return {it.name for it in approvals.evidence(ctx, GateName.CUTOVER).checks.blockers}


def test_gates_open_that_the_halt_kept_shut(shop: Migration) -> None:
    whole, ctx = shop.ctx(**QUICK), shop.ctx(**BUT_PAYMENTS, **QUICK)
    assert "no partition is halted" in _blockers(whole)
    assert _blockers(ctx) == set()
    assert [lag.verify(it).passed for it in (whole, ctx)] == [False, True]
    assert "no partition is halted" in {it.name for it in stop.check(whole)[0].blockers}
    gate, report, ends = stop.check(ctx)
    assert "no partition is halted" not in {it.name for it in gate.blockers}
    assert set(report.sample.lag) == set(ends) == set(histories.ORDERS)
    assert status.halts(ctx) == ()


def test_mirror_leaves_it_alone_and_finds_it_as_it_was_when_the_plan_means_it_again(shop: Migration) -> None:
    ctx = shop.ctx(**BUT_PAYMENTS)
    assert mirror.check(ctx) == list(ctx.link.topics()) == ["shop.orders"]
    assert ctx.link.halted() == set()
    with pytest.raises(BadInput, match="not a topic of migration shop"):
        recopy.check(ctx, ["shop.payments"])
    assert ctx.journal.holders(["shop.payments"]) == {"shop.payments": "shop"}, "nobody else may have it yet"
    assert shop.ctx().link.halted() == {histories.PAYMENTS}
    assert mirror.check(shop.ctx()) == ["shop.orders", "shop.payments"]


def test_it_may_be_gone_and_go_uncompared(shop: Migration) -> None:
    shop.target.delete_topics(["shop.payments"])
    shop.source.delete_topics(["shop.payments"])
    assert create.verify(shop.ctx()) != ()
    ctx = shop.ctx(**BUT_PAYMENTS)
    assert create.verify(ctx) == ()
    assert verdict.check(shop.ctx()).verdict is not Verdict.PASS
    assert verdict.check(ctx).verdict is Verdict.PASS
