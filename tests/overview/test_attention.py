"""What needs a person, by the page of a migration: named where it is so, with what to do, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.compare.result import Equality
from kafka_migration.domain.controls import Controls, Pause
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration.cancellation import Cancellation, State
from kafka_migration.migration.completion import Completion
from kafka_migration.migration.history import phase
from kafka_migration.overview import attention, status
from kafka_migration.overview.status import Status, WayBack
from kafka_migration.state.link import Wish
from kafka_migration.topics.drift import DriftStatus
from tests.steps import histories
from tests.steps.gates import Migration

WAVES = {"given": [{"name": "first", "topics": ["shop.orders"]}, {"name": "second", "topics": ["shop.payments"]}]}


@pytest.fixture
def shop() -> Migration:
    found = Migration()
    histories.created(found)
    histories.mirroring(found)
    return found


def needed(shop: Migration, change: Callable[[Status], Status] = lambda page: page, **fields: Any) -> list[str]:
    ctx = shop.ctx(**fields)
    return [f"{one.what}: {one.remedy}" for one in attention.needed(change(status.read(ctx)), ctx.plan)]


def test_migration_that_runs_needs_nobody(shop: Migration) -> None:
    assert needed(shop) == []


def test_mirror_that_is_silent_is_to_be_started_again_unless_it_was_stopped(shop: Migration) -> None:
    shop.clock.sleep(200)
    assert needed(shop) == []
    shop.clock.sleep(200)
    [only] = needed(shop)
    assert "forward mirror is silent" in only
    assert "`mirror`, or its task once cleared" in only
    sealed = needed(shop, lambda page: replace(page, mirror=replace(page.mirror, is_sealed=True)))
    assert sealed == []
    ctx = shop.ctx()
    ctx.link.wish(Wish(desired=Desired.STOP, reason="enough", at=ctx.stamp()))
    assert needed(shop) == []


def test_mirror_that_failed_or_is_paused_or_halted_is_named(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.record_run({"state": "ended", "at": ctx.stamp(), "reason": "failed"})
    assert needed(shop) == []
    shop.clock.sleep(700)
    ctx.link.halt(TopicPartition("shop.orders", 1), Halt.TRUNCATED, "seen", 12, 34, ctx.stamp())
    pause = Pause(by="ada", at=ctx.stamp(), reason="peak hours")
    found = needed(shop, lambda page: replace(page, mirror=replace(page.mirror, controls=Controls(pause=pause))))
    assert [one.partition(":")[0] for one in found][:2] == [
        "the forward mirror failed, and was not started again",
        "halted",
    ]
    assert "shop.orders-1 TRUNCATED" in found[1]
    assert "paused by ada" in found[2]
    assert "(peak hours)" in found[2]
    assert "`resume`" in found[2]


def test_way_back_that_is_silent_is_started_by_its_own_command(shop: Migration) -> None:
    def with_way_back(page: Status) -> Status:
        mirror = replace(page.mirror, state="silent", age_seconds=400.0)
        return replace(page, way_back=WayBack(mirror=mirror, lag=None, halts=()))

    [only] = needed(shop, with_way_back)
    assert "reverse mirror is silent" in only
    assert "`mirror --reverse`" in only


def test_phase_that_was_refused_is_named_until_it_has_passed(shop: Migration) -> None:
    with phase(shop.ctx(), "cut_over") as run:
        run.ends(1, "lag is 12")
    [only] = needed(shop)
    assert only == "cut_over refused: lag is 12: correct it, and run the same command, or clear the task, again"
    cancelled = Cancellation(at=shop.ctx().stamp(), by="ada", reason="", state=State.BEGUN_AGAIN)
    assert needed(shop, lambda page: replace(page, cancelled=cancelled)) == []
    with phase(shop.ctx(), "cut_over"):
        pass
    assert needed(shop) == []


def test_phase_that_failed_long_ago_or_that_is_the_mirrors_is_not_named(shop: Migration) -> None:
    for name in ("mirror", "mirror:reverse", "validate_end"):
        with phase(shop.ctx(), name) as run:
            run.ends(1, "because")
    [only] = [one for one in needed(shop) if "refused" in one]
    assert only.startswith("validate_end")
    shop.clock.sleep(6 * 3600)
    assert not [one for one in needed(shop) if "refused" in one]


def test_difference_is_named_and_no_cutover_is_asked_for(shop: Migration) -> None:
    histories.validated(shop, Equality.DIFFERENT)
    difference, refused = needed(shop)
    assert "found a difference" in difference
    assert refused.startswith("validate refused")


def test_cutover_waits_once_all_is_equal_and_until_it_is_approved_or_groups_move(shop: Migration) -> None:
    histories.validated(shop)
    assert needed(shop) == ["cutover waits for an approval: approve cutover PLAN"]
    assert needed(shop, approvals={"plan": True, "cutover": False}) == []
    seen = approvals.evidence(shop.ctx(), GateName.CUTOVER)
    approvals.record(shop.ctx(), GateName.CUTOVER, seen.digest, "ada", seen_at=seen.taken_at)
    assert needed(shop) == []


def test_group_that_moved_asks_for_no_approval_and_one_on_both_sides_is_named(shop: Migration) -> None:
    histories.validated(shop)
    histories.moved(shop)
    assert needed(shop) == []
    shop.source.join("shop.app", ["shop.orders"])
    [only] = needed(shop)
    assert "group shop.app has 1 members on the source" in only


def test_wave_whose_turn_has_come_waits_and_no_later_one(shop: Migration) -> None:
    assert needed(shop, waves=WAVES) == []
    histories.validated(shop)
    [only] = needed(shop, waves=WAVES)
    assert only == "cutover of wave first waits for an approval: approve cutover PLAN --wave first"


def test_switch_that_has_not_ended_comes_first_and_counts_where_a_migration_is_over(shop: Migration) -> None:
    switch = Switch(state=SwitchState.SWITCHING, begun_at=shop.ctx().stamp())
    assert needed(shop, lambda page: replace(page, switch=switch)) == []
    shop.clock.sleep(400)
    found = needed(shop, lambda page: replace(page, switch=switch))
    assert "may be shut out: run `switch` again, or clear its task" in found[0]
    assert "silent" in found[1]


def test_migration_that_is_over_needs_nothing_of_its_mirror(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.clock.sleep(400)
    assert len(needed(shop)) == 1
    assert needed(shop, lambda page: replace(page, states=dict.fromkeys(page.states, "completed"))) == []
    assert len(needed(shop, lambda page: replace(page, states={**page.states, "shop.orders": "completed"}))) == 1
    monkeypatch.setattr(Status, "is_over", True)
    assert needed(shop) == []


def test_what_could_not_be_found_out_is_named(shop: Migration) -> None:
    with shop.source.failing("topics", ClusterUnreachable("source", "127.0.0.1:1", "timed out")):
        found = needed(shop)
    assert [one for one in found if one.startswith("lag unknown: source: no broker")]


def test_group_on_neither_side_is_to_be_moved_on_or_back(shop: Migration) -> None:
    histories.moved(shop)
    astray = "was stopped, and runs on neither side (last step at 2030-01-01 00:00:40 UTC)"
    [only] = needed(shop, lambda page: replace(page, groups=(replace(page.groups[0], astray=astray),)))
    assert "shop.app was stopped" in only
    assert "`cutover --group NAME`" in only


def test_fence_that_was_left_without_a_switch_is_named(shop: Migration) -> None:
    def fenced(page: Status, fence: str) -> Status:
        return replace(page, fences={fence: "nobody may"}, states={"shop.orders": "fenced"})

    [only] = needed(shop, lambda page: fenced(page, "writes"))
    assert "a fence keeps producers from the source" in only
    assert needed(shop, lambda page: fenced(page, "early-writes")) == []
    switch = Switch(state=SwitchState.SWITCHING, begun_at=shop.ctx().stamp())
    assert needed(shop, lambda page: replace(fenced(page, "writes"), switch=switch)) == []
    mirroring = {"shop.orders": "mirroring"}
    assert needed(shop, lambda page: replace(fenced(page, "writes"), states=mirroring)) == []


def test_change_that_endangers_no_record_is_not_named(shop: Migration) -> None:
    def drifted(page: Status, *, endangers: bool) -> Status:
        texts = {"what": "retention.ms", "declared": "-1", "observed": "1", "remedy": "set it"}
        return replace(page, drift=(DriftStatus(topic="shop.orders", endangers=endangers, **texts),))

    assert needed(shop, lambda page: drifted(page, endangers=False)) == []
    [only] = needed(shop, lambda page: drifted(page, endangers=True))
    assert "records are in danger: shop.orders" in only


def test_migration_that_has_not_begun_needs_nobody() -> None:
    assert needed(Migration()) == []


def test_end_of_the_migration_that_was_begun_and_not_finished_is_to_be_run_again(shop: Migration) -> None:
    at = shop.ctx().stamp()
    cancelling = Cancellation(at=at, by="ada", reason="", state=State.CANCELLING)
    [only] = needed(shop, lambda page: replace(page, cancelled=cancelling))
    assert "run `cancel` again" in only
    [only] = needed(shop, lambda page: replace(page, completion=Completion(at=at, by="ada")))
    assert "being completed by ada" in only
    assert "run `complete` again" in only


def test_verdict_that_proves_nothing_is_named(shop: Migration) -> None:
    histories.validated(shop, Equality.INCONCLUSIVE)
    assert "validation proved nothing: INCONCLUSIVE" in needed(shop)[0]


def test_cutover_behind_producers_that_go_first_waits_behind_the_seal(shop: Migration) -> None:
    histories.validated(shop)
    hooks = {name: [{"command": ["/bin/true"]}] for name in ("stop", "start")}
    producers = {"in_workflow": True, "first": True, "fence": {"probe": "p"}, "target_fence": {"probe": "p"}, **hooks}
    assert needed(shop, producers=producers) == []
    [only] = needed(shop, lambda page: replace(page, mirror=replace(page.mirror, is_sealed=True)), producers=producers)
    assert "approve cutover PLAN" in only


def test_approval_of_before_a_cancellation_does_not_count(shop: Migration) -> None:
    histories.validated(shop)
    seen = approvals.evidence(shop.ctx(), GateName.CUTOVER)
    approvals.record(shop.ctx(), GateName.CUTOVER, seen.digest, "ada", seen_at=seen.taken_at)
    shop.clock.sleep(1)
    cancelled = Cancellation(at=shop.ctx().stamp(), by="ada", reason="", state=State.BEGUN_AGAIN)
    [only] = needed(shop, lambda page: replace(page, cancelled=cancelled))
    assert "approve cutover PLAN" in only
