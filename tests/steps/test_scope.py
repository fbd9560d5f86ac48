"""A wave is measured, judged and approved for itself; what is of the whole link or plan refuses one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.record import answers, signed_content
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups.translate import selected_groups
from kafka_migration.link.lag import LagMeter
from kafka_migration.migration.context import Context, Scope
from kafka_migration.migration.signing import Keyring
from kafka_migration.steps import mirror, release, stop
from kafka_migration.validation import validate
from tests.steps.gates import Migration
from tests.steps.test_approvals import approve, mirrored_and_equal

CUTOVER = GateName.CUTOVER
FIRST = Scope.wave("first", topics={"shop.orders"}, groups={"shop.app"})
SECOND = Scope.wave("second", topics={"shop.payments"}, groups={"shop.billing"})
HALTED = TopicPartition("shop.payments", 0)


@pytest.fixture
def shop() -> Migration:
    made = Migration()
    made.has_active_mirror = True
    made.source.consumer_commits("shop.billing", HALTED, 10)
    mirrored_and_equal(made)
    return made


def approve_wave(ctx: Context) -> None:
    approvals.record(ctx, CUTOVER, approvals.evidence(ctx, CUTOVER).digest, "ada")


def test_wave_has_lag_halts_and_groups_of_its_own(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.halt(HALTED, "CORRUPT", "seen", 1, 1, ctx.stamp())
    first, second = ctx.within(FIRST), ctx.within(SECOND)
    assert {tp.topic for tp in LagMeter(first).read().sample.lag} == {"shop.orders"}
    assert not LagMeter(first).read().halted
    assert LagMeter(second).read().halted == {HALTED: "CORRUPT"} == LagMeter(ctx).read().halted
    assert selected_groups(first) == ("shop.app",)
    assert set(selected_groups(ctx)) == {"shop.app", "shop.billing"}
    with pytest.raises(BadInput, match="wave first does not hold this group"):
        selected_groups(first, ["shop.billing"])


def test_evidence_of_a_wave_is_of_its_topics_and_groups_and_does_not_mind_a_halt_beside_it(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.halt(HALTED, "CORRUPT", "seen", 1, 1, ctx.stamp())
    found = approvals.evidence(ctx.within(FIRST), CUTOVER)
    assert set(found.facts["topics"]) == {"shop.orders"}
    assert set(found.facts["groups"]) == {"shop.app"}
    assert not found.facts["halts"]
    assert found.checks.is_open
    assert "wave first" in found.as_markdown()
    for other in (ctx.within(SECOND), ctx):
        assert approvals.evidence(other, CUTOVER).facts["halts"] == {str(HALTED): "CORRUPT"}
    renamed = Scope.wave("other", topics=FIRST.topics or set(), groups=FIRST.groups or set())
    assert approvals.evidence(ctx.within(renamed), CUTOVER).digest != found.digest


def test_approval_of_a_wave_opens_its_gate_alone_under_a_key_of_its_own(shop: Migration) -> None:
    first = shop.ctx().within(FIRST)
    approve_wave(first)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/first/1-approved"}
    assert approvals.check(first, CUTOVER).approval == answers(first)[CUTOVER]
    for other in (shop.ctx(), shop.ctx().within(SECOND)):
        assert not answers(other)
        with pytest.raises(NotApproved, match="nobody has approved it yet"):
            approvals.check(other, CUTOVER)
    approvals.revoke(first, CUTOVER, "ada")
    with pytest.raises(NotApproved, match="revoked"):
        approvals.check(first, CUTOVER)


def test_approval_of_the_whole_plan_stands_where_it_stood_and_opens_no_wave(shop: Migration) -> None:
    approval = approve(shop, CUTOVER)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/1-approved"}
    assert "scope" not in signed_content(shop.ctx(), approval)
    with pytest.raises(NotApproved, match="nobody has approved it yet"):
        approvals.check(shop.ctx().within(FIRST), CUTOVER)


def test_answer_that_is_removed_shuts_the_gate_of_its_own_wave_alone(shop: Migration) -> None:
    first, second = shop.ctx().within(FIRST), shop.ctx().within(SECOND)
    for ctx in (first, second):
        approve_wave(ctx)
    assert set(shop.ctx().journal.all("approval")) == {"cutover/first/1-approved", "cutover/second/1-approved"}
    shop.ctx().journal.forget("approval", "cutover/first/1-approved")
    with pytest.raises(NotApproved, match="answer 1 was removed"):
        approvals.check(first, CUTOVER)
    assert approvals.check(second, CUTOVER).approval is not None


def test_signed_approval_of_one_wave_that_is_written_under_another_does_not_count(shop: Migration) -> None:
    keys = Keyring(("k" * 32,))
    signed = {"approvals": {"signed": True}}
    first = replace(shop.ctx(**signed), approval_keys=lambda: keys).within(FIRST)
    renamed = Scope.wave("other", topics=FIRST.topics or set(), groups=FIRST.groups or set())
    other = first.within(renamed)
    approve_wave(first)
    value = first.journal.read("approval", "cutover/first/1-approved") or {}
    digest = approvals.evidence(other, CUTOVER).digest
    first.journal.record("approval", "cutover/other/1-approved", {**value, "scope": "other", "digest": digest})
    with pytest.raises(NotApproved, match="differs from what was signed"):
        approvals.check(other, CUTOVER)
    assert approvals.check(first, CUTOVER).approval is not None


def test_wave_that_is_rejected_leaves_the_mirror_to_the_others(shop: Migration) -> None:
    approvals.reject(shop.ctx().within(FIRST), CUTOVER, "sha256:0", "ada")
    assert shop.ctx().link.wished().desired is Desired.RUN
    approvals.reject(shop.ctx(), CUTOVER, "sha256:0", "ada")
    assert shop.ctx().link.wished().desired is Desired.STOP


@pytest.mark.parametrize(
    "do",
    [
        stop.apply,
        lambda ctx: stop.apply(ctx, now=True),
        lambda ctx: mirror.apply(ctx, None),  # type: ignore[arg-type]
        release.apply,
        validate.apply,
    ],
)
def test_what_is_of_the_whole_link_is_refused_for_a_wave_and_changes_nothing(
    shop: Migration, do: Callable[[Context], Any]
) -> None:
    before = shop.links.items(), shop.store.items()
    with pytest.raises(Refused, match="is for the whole plan shop, not for wave first"):
        do(shop.ctx().within(FIRST))
    assert (shop.links.items(), shop.store.items()) == before
