"""The cutover gate is asked by the cutover itself, before each group; whatever calls it cannot go around it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals import cutover as cutover_gate
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import NotApproved
from kafka_migration.compare.result import Equality
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.move import Mover
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.inventory import inventory
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import CutoverResult, Fate
from tests.steps import histories
from tests.steps.gates import Migration

GROUPS = ("shop.app", "shop.last", "shop.later")


@pytest.fixture
def shop() -> Migration:
    """Everything before the cutover gate has succeeded, for three groups."""
    shop = Migration()
    for group in GROUPS[1:]:
        shop.source.consumer_commits(group, TopicPartition("shop.payments", 0), 30)
    histories.created(shop)
    histories.mirroring(shop)
    histories.validated(shop)
    return shop


def approve(shop: Migration) -> None:
    ctx = shop.ctx()
    approvals.record(ctx, GateName.CUTOVER, approvals.evidence(ctx, GateName.CUTOVER).digest, "ada")


def moving(monkeypatch: pytest.MonkeyPatch, after_first: Callable[[], object] = lambda: None) -> list[str]:
    """Groups are moved by saying so; ``after_first`` happens once the first one was."""
    moved: list[str] = []

    def move(_: Mover, group: str) -> None:
        moved.append(group)
        if len(moved) == 1:
            after_first()

    monkeypatch.setattr(Mover, "move", move)
    monkeypatch.setattr(cutover, "SEE_OFF_SECONDS", 0.0)
    return moved


def outcomes(result: CutoverResult) -> list[Fate]:
    return [it.outcome for it in result.groups]


def test_gate_that_nobody_approved_moves_no_group(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    moved = moving(monkeypatch)
    with pytest.raises(NotApproved, match="nobody has approved it yet"):
        cutover.apply(shop.ctx())
    assert moved == []


def test_open_gate_lets_every_group_pass_and_says_why(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    approve(shop)
    moved = moving(monkeypatch)
    assert outcomes(cutover.apply(shop.ctx())) == [Fate.MOVED] * 3
    assert tuple(moved) == GROUPS
    assert any(line.startswith("cutover gate: approved by ada") for line in shop.told)


def verdict_turns(shop: Migration) -> None:
    histories.validated(shop, Equality.DIFFERENT)


def partition_halts(shop: Migration) -> None:
    shop.ctx().link.halt(TopicPartition("shop.orders", 0), "CORRUPT", "a checksum", 7, 7, shop.ctx().stamp())


def approver_rejects(shop: Migration) -> None:
    approvals.reject(shop.ctx(), GateName.CUTOVER, "", "ada")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (verdict_turns, "source and target are equal FAIL"),
        (partition_halts, "no partition is halted FAIL"),
        (approver_rejects, "ada rejected it"),
    ],
)
def test_gate_that_shuts_while_a_group_is_moved_stops_before_the_next(
    change: Any, said: str, shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(shop)
    moved = moving(monkeypatch, lambda: change(shop))
    result = cutover.apply(shop.ctx())
    assert moved == ["shop.app"]
    assert outcomes(result) == [Fate.MOVED, Fate.REFUSED, Fate.REFUSED]
    assert all(said in it.reason for it in result.groups[1:]), result.groups
    assert result.exit_code == 1


def test_group_that_was_left_stopped_is_started_again_though_the_gate_is_shut(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx = shop.ctx()
    GroupRecord.own(ctx.journal, "shop.app", at=ctx.stamp()).mark(Step.STOPPING, ctx.clock.now(), target_before=[])
    started: list[str] = []
    monkeypatch.setattr(
        Mover, "_start_again", lambda _mover, record, error: started.append(f"{record.group}: {error.gate}")
    )
    with pytest.raises(NotApproved):
        cutover.apply(shop.ctx())
    assert started == ["shop.app: cutover"]


def test_group_that_was_left_stopped_is_started_again_when_the_gate_shuts_before_its_turn(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    approve(shop)
    ctx = shop.ctx()
    GroupRecord.own(ctx.journal, "shop.later", at=ctx.stamp()).mark(Step.STOPPING, ctx.clock.now(), target_before=[])
    started: list[str] = []
    monkeypatch.setattr(
        Mover, "_start_again", lambda _mover, record, error: started.append(f"{record.group}: {error.gate}")
    )
    assert moving(monkeypatch, lambda: partition_halts(shop)) == []
    assert outcomes(cutover.apply(shop.ctx())) == [Fate.MOVED, Fate.REFUSED, Fate.REFUSED]
    assert started == ["shop.later: cutover"]


def test_gate_asks_the_clusters_anew_only_once_in_a_while(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands of groups are not described once for each of them; a change is seen all the same, a little later."""
    approve(shop)
    asked: list[str] = []
    take = inventory.take

    def counted(*args: Any, **how: Any) -> Any:
        asked.append("again")
        return take(*args, **how)

    monkeypatch.setattr(inventory, "take", counted)
    gate = cutover_gate.CutoverGate(shop.ctx())
    for _ in range(5):
        gate.ask()
    assert len(asked) == 1
    shop.source.add_topic("shop.new")
    shop.clock.sleep(cutover_gate.FACTS_SECONDS + 1)
    with pytest.raises(NotApproved, match=r"shop\.new"):
        gate.ask()


def test_facts_that_were_taken_briefly_have_the_digest_that_was_approved(shop: Migration) -> None:
    seen = approvals.evidence(shop.ctx(), GateName.CUTOVER)
    approve(shop)
    cutover_gate.CutoverGate(shop.ctx()).ask()
    assert seen.tables, "what a person sees has tables, and the gate needs none"
