"""The stop gate: refused while producers write or lag remains; then the mirror drains up to the ends proved still."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Identity
from kafka_migration.fence import fence
from kafka_migration.link import flight, lifecycle, seal, switched
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration.context import Context
from kafka_migration.steps import stop
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_lag import PARTITIONS, mirrored


@pytest.fixture(autouse=True)
def sealed(monkeypatch: pytest.MonkeyPatch) -> list[Context]:
    """Contexts that were sealed; a fence needs real brokers (tests/copy/test_seal.py)."""
    contexts: list[Context] = []

    def apply(ctx: Context) -> Seal:
        assert ctx.link.run() is None or (ctx.link.run() or {})["state"] == "ended"
        contexts.append(ctx)
        return Seal(at=ctx.stamp(), identity=Identity(7, 9), ends=dict.fromkeys(PARTITIONS, 5_000_000))

    monkeypatch.setattr(seal, "apply", apply)
    return contexts


DRAIN = {"drain": {"window_seconds": 10, "deadline_seconds": 100}}


def failed(result: stop.StopResult) -> dict[str, str]:
    return {it.name: it.evidence for it in result.gate.blockers}


def test_still_source_without_lag_drains_up_to_its_ends_waits_for_the_mirror_to_end_and_seals(
    sealed: list[Context],
) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    shop.clock.at(30, lambda: link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "drained"}))
    result = stop.apply(ctx)
    assert result.stopped
    assert sealed == [ctx]
    assert result.as_dict()["seal"]["ends"]["shop.payments"] == {"0": 5_000_000}
    assert link.wished().desired is Desired.DRAIN
    assert link.wished().ends == dict.fromkeys(PARTITIONS, 100)
    assert shop.clock.monotonic() >= 30


def test_topic_that_changed_so_that_records_are_in_danger_keeps_the_mirror_from_being_drained() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    shop.target.alter_configs("shop.payments", set={"retention.ms": "1000"})
    assert failed(stop.apply(ctx)) == {"topics are as declared": "shop.payments: retention.ms is 1000, declared -1"}
    assert link.wished().desired is not Desired.DRAIN


@pytest.mark.parametrize("reason", ["stopped", "halted"])
def test_mirror_that_ends_short_of_the_drain_is_not_sealed(reason: str, sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})

    def interrupted() -> None:
        # Positions of a drain that went on while the window was watched, as after a takeover from an older state.
        link.record_run({"at": ctx.stamp(), "state": "ended", "reason": reason})
        link.positions = lambda of=None: {}  # type: ignore[method-assign]

    shop.clock.at(30, interrupted)
    with pytest.raises(CouldNotFindOut, match=rf"ended \({reason}\) before 3 partitions"):
        stop.apply(ctx)
    assert not sealed
    assert not flight.was_drained(ctx)
    assert flight.in_flight(ctx)


def test_mirror_that_had_caught_up_and_ended_by_itself_is_sealed(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "caught_up"})
    assert stop.apply(ctx).stopped
    assert sealed == [ctx]


def test_source_end_that_moves_within_the_window_is_refused_with_its_rate(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=150, **DRAIN)
    shop.clock.at(9, lambda: shop.source.append(histories.PAYMENTS, 50))
    result = stop.apply(ctx)
    assert not result.stopped
    assert failed(result) == {"source log ends are still": "1 source partitions still grow: shop.payments-0 +50 (5/s)"}
    assert not sealed
    assert link.wished().desired is Desired.RUN


def test_single_record_within_the_window_keeps_the_gate_shut(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=150, **DRAIN)
    shop.clock.at(9, lambda: shop.source.append(histories.PAYMENTS, 1))
    assert failed(stop.apply(ctx)) == {
        "source log ends are still": "1 source partitions still grow: shop.payments-0 +1 (0/s)"
    }
    assert not sealed


def test_remaining_lag_is_refused_though_nobody_writes() -> None:
    ctx, link = mirrored(Migration(), at=99, **DRAIN)
    assert failed(stop.apply(ctx)).keys() == {"no lag remains"}
    assert link.wished().desired is Desired.RUN


def test_open_transaction_is_refused_and_named_though_everything_else_is_copied(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    shop.source.append(histories.PAYMENTS, 7)
    shop.source.hold_back(histories.PAYMENTS, 100)
    found = failed(stop.apply(ctx))
    assert found == {
        "no transaction is open": "7 offsets in 1 partitions lie behind open transactions, most in"
        " shop.payments-0, from 100 on"
    }
    assert not sealed
    assert link.wished().desired is Desired.RUN


def test_records_in_an_open_transaction_move_the_source_end() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=100, **DRAIN)
    shop.source.hold_back(histories.PAYMENTS, 100)
    shop.clock.at(9, lambda: shop.source.append(histories.PAYMENTS, 50))
    assert "source log ends are still" in failed(stop.apply(ctx))


def test_halted_partition_is_refused() -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    link.halt(histories.PAYMENTS, "CORRUPT", "", 100, 100, ctx.stamp())
    assert failed(stop.apply(ctx)) == {"no partition is halted": "shop.payments-0 CORRUPT"}
    assert link.wished().desired is Desired.RUN


def test_mirror_that_does_not_end_in_time_could_not_be_found_out_about_and_the_wish_stays() -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    with pytest.raises(CouldNotFindOut, match="did not end within 100 s of being asked to drain"):
        stop.apply(ctx)
    assert link.wished().desired is Desired.DRAIN


def test_stop_now_asks_no_gate_says_so_and_seals_nothing(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    shop.clock.at(2, lambda: link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "stopped"}))
    result = stop.apply(ctx, now=True)
    assert result.stopped
    assert [it.evidence for it in result.gate.results] == ["no gate"]
    assert not sealed
    assert link.wished().desired is Desired.STOP


def test_mirror_that_died_is_stopped_at_once_where_it_stands_and_the_wish_stands_in_case_it_wakes() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=0, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    shop.clock.sleep(600)
    began = shop.clock.monotonic()
    result = stop.apply(ctx, now=True)
    assert result.stopped
    assert result.as_dict()["mirror"]["state"] == "silent"
    assert shop.clock.monotonic() == began
    assert link.wished().desired is Desired.STOP


def test_drain_of_a_mirror_that_died_says_to_start_it_again_and_takes_one_that_is(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    with pytest.raises(CouldNotFindOut, match="its heartbeat has stopped") as failed:
        stop.apply(ctx)
    assert "start the mirror again, which then ends as asked" in failed.value.remedy
    assert not sealed
    shop.clock.at(50, lambda: link.record_run({"at": ctx.stamp(), "state": "ended"}))
    assert stop.apply(ctx).stopped
    assert sealed == [ctx]


@pytest.mark.parametrize("now", [False, True])
def test_dry_run_wishes_and_seals_nothing(now: bool, sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    ctx.dry_run = True
    before = shop.links.items()
    stop.apply(ctx, now=now)
    assert shop.links.items() == before
    assert not sealed
    assert link.wished().desired is Desired.RUN


def test_moved_group_that_went_on_on_the_source_is_refused_and_named() -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    histories.moved(shop)
    assert not stop.check(ctx)[0].blockers
    # Members alone, as of a deployment that came back, are enough.
    member = shop.source.join("shop.app", ["shop.orders"])
    assert failed(stop.apply(ctx)) == {
        "moved groups rest on the cluster that they left": "shop.app has 1 members on the source"
    }
    shop.source.consumer_commits("shop.app", histories.ORDERS[1], 55)
    shop.source.leave("shop.app", member)
    said = "shop.app committed again on the source: shop.orders-1 (50 -> 55)"
    assert failed(stop.apply(ctx)) == {"moved groups rest on the cluster that they left": said}
    assert link.wished().desired is Desired.RUN
    # What the remedy says.
    shop.source.forget_group("shop.app")
    assert not stop.check(ctx)[0].blockers


def test_active_group_that_was_never_moved_is_refused_and_named() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=100, **DRAIN)
    histories.moved(shop)
    shop.source.join("shop.late", ["shop.orders"])
    gate, _, _ = stop.check(ctx)
    said = {it.name: it.evidence for it in gate.blockers}
    assert said["every group of the plan was moved"] == "shop.late: 1 members on the source"


def test_source_that_does_not_tell_of_moved_groups_leaves_the_gate_shut() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=100, **DRAIN)
    histories.moved(shop)
    with shop.source.failing("group_states", CouldNotFindOut("no coordinator")):
        gate = stop.check(ctx)[0]
    unchecked = ["moved groups rest on the cluster that they left", "every group of the plan was moved"]
    assert [(it.name, str(it.verdict)) for it in gate.blockers] == [(name, "UNCHECKED") for name in unchecked]
    assert gate.exit_code == 3


def _switches(ctx: Context) -> None:
    """Its fence has the source rest, and its process may be dead."""
    switched.write(ctx, Switch(state=SwitchState.SWITCHING, begun_at=ctx.stamp()))


def test_source_that_rests_for_a_switch_under_way_is_left_to_that(sealed: list[Context]) -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    _switches(ctx)
    result = stop.apply(ctx)
    (evidence,) = failed(result).values()
    assert (evidence.startswith("a switch begun at"), result.may_pass, sealed) == (True, True, [])
    assert "`switch` again" in result.gate.blockers[0].remedy
    assert link.wished().desired is Desired.RUN


def test_switch_that_begins_while_the_mirror_drains_keeps_it_from_being_sealed(sealed: list[Context]) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    shop.clock.at(20, lambda: _switches(ctx))
    shop.clock.at(30, lambda: link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "drained"}))
    with pytest.raises(CouldNotFindOut, match="not sealed: since the drain began, a switch begun at"):
        stop.apply(ctx)
    assert not sealed
    assert ctx.journal.all(lifecycle.KIND) == {}


def test_wait_for_a_still_source_does_not_end_by_the_fence_of_a_switch() -> None:
    shop = Migration()
    ctx, _ = mirrored(shop, at=100, **DRAIN)
    wait = stop.Wait(ctx)
    _switches(ctx)
    for _ in range(10):
        assert wait.look() is None
        shop.clock.sleep(5)
    overdue = wait.too_late("gave up")
    assert (overdue.exit_code, "`switch` again" in overdue.message) == (3, True)
    switched.write(ctx, Switch(state=SwitchState.GIVEN_UP, begun_at=ctx.stamp()))
    assert wait.look() is None, "producers write again, and the window begins anew"
    shop.clock.sleep(11)
    assert wait.look() is not None


def test_switch_whose_producers_were_not_all_started_is_left_to_finish(sealed: list[Context]) -> None:
    ctx, link = mirrored(Migration(), at=100, **DRAIN)
    switched.write(ctx, Switch(state=SwitchState.SERVED, begun_at=ctx.stamp(), topics=("shop.orders",)))
    result = stop.apply(ctx)
    assert (result.stopped, result.may_pass, sealed) == (False, True, [])
    assert "run `switch` again" in stop.run(ctx).message
    assert stop.Wait(ctx).look() is None
    switched.write(ctx, Switch(state=SwitchState.DONE, begun_at=ctx.stamp(), topics=("shop.orders",)))
    assert stop.apply(ctx).stopped
    assert link.wished().desired is Desired.RUN


def test_run_that_died_behind_its_seal_is_finished_whatever_stands_on_the_source_by_then(
    sealed: list[Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, **DRAIN)
    let_in: list[Context] = []
    monkeypatch.setattr(fence, "let_in_on_target", lambda ctx, _hooks: let_in.append(ctx))
    lifecycle.note(ctx, {tp.topic for tp in PARTITIONS}, TopicState.DRAINED)
    link.record_seal(Seal(at=ctx.stamp(), identity=Identity(7, 9), ends=dict.fromkeys(PARTITIONS, 5_000_000)))
    # Markers of a reverse link that has begun behind the seal.
    shop.source.append(histories.PAYMENTS, 1)
    assert stop.apply(replace(ctx, dry_run=True)).as_dict()["lag"] is not None
    assert ctx.journal.all("seal") == {}
    result = stop.apply(ctx)
    assert (result.stopped, sealed, let_in) == (True, [], [ctx])
    assert set(lifecycle.read(ctx).values()) == {TopicState.SEALED}
    assert ctx.journal.read("seal", "link") == (link.seal() or result.seal).as_dict()  # type: ignore[union-attr]
    decision = stop.Wait(ctx).look()
    assert decision is not None
    assert decision.exit_code == 0
