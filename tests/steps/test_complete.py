"""Completing a migration, in memory: what refuses it, what it does, and a death at every change."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.approvals.rollback import RollbackGate
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Identity
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import lifecycle, reverse, seal, stragglers
from kafka_migration.link.claim import LATE_SECONDS
from kafka_migration.migration import completion
from kafka_migration.migration.context import Context
from kafka_migration.state.link import Wish
from kafka_migration.steps import complete, release, report, rollback
from kafka_migration.steps.step import Decision
from kafka_migration.topics import keeping
from tests.steps import histories
from tests.steps.gates import at_a_terminal
from tests.steps.test_switch import TOPICS, make
from tests.steps.test_switch_back import BackShop, Killed, dying_after

__all__ = ["make"]


class DoneShop(BackShop):
    """Clients are on the target, and validated to the end; the reverse mirror runs, for a way back."""

    def begin(self) -> None:
        self.switch()
        back = self.back()
        keeping.apply(back)
        back.link.record_fence(1, Identity(8, 0), at=back.stamp())
        back.link.record_run({"at": back.stamp(), "state": "running"})
        self.clock.sleep(1)
        histories.validated(self)
        back.link.record_run({"at": back.stamp(), "state": "running"})
        for side in (self.source, self.target):
            side.changes.clear()
        self.effects.clear()

    def copy_back(self, wish: Wish) -> None:
        link, deadly = self.back().link, self.deadly
        self.deadly = lambda: None
        link.record_run({"at": self.ctx().stamp(), "state": "ended", "reason": str(wish.desired)})
        self.deadly = deadly

    def complete(self, **fields: Any) -> Decision:
        return complete.run(self.ctx(**fields), by="ada", seconds=1)

    def retention_there(self) -> str | None:
        return self.target.topic_configs(["shop.orders"])["shop.orders"]["retention.ms"].value


@pytest.fixture
def shop(make: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Callable[[], DoneShop]:
    shops: list[DoneShop] = []

    def cut_off(ctx: Context, partitions: list[Any]) -> dict[Any, str]:
        shops[-1].note("cut off")
        assert (ctx.link.run() or {})["state"] == "ended"
        ctx.link.record_seal(Seal(at=ctx.stamp(), identity=Identity(8, 1), ends=dict.fromkeys(partitions, 1)))
        return {}

    def made() -> DoneShop:
        found: DoneShop = make(DoneShop)
        found.begin()
        shops.append(found)
        return found

    monkeypatch.setattr(seal, "cut_off", cut_off)
    # How a mirror is stopped is the link's own: here it obeys at once.
    monkeypatch.setattr(complete, "end_mirror", lambda back, wish, _seconds: shops[-1].copy_back(wish))
    return made


def completed(shop: DoneShop) -> None:
    ctx = shop.ctx()
    found = completion.read(ctx)
    assert found is not None
    assert found.ended
    assert set(lifecycle.read(ctx).values()) == {TopicState.COMPLETED}
    assert (shop.retention(), shop.retention_there()) == ("604800000", "604800000")
    assert ctx.journal.all(keeping.KIND) == {}
    assert release.check(ctx) == ()
    assert shop.back().link.seal() is not None


def test_the_way_back_is_given_up_configs_are_given_back_and_topics_released(shop: Callable[[], DoneShop]) -> None:
    found = shop()
    assert (found.retention(), found.retention_there()) == ("-1", "-1")
    decision = found.complete()
    assert decision.exit_code == 0, decision.message
    completed(found)
    assert found.effects.index("shop/completed/migration") < found.effects.index("cut off")
    # Twice changes nothing.
    found.effects.clear()
    assert found.complete().exit_code == 0
    assert found.effects == []
    for leads_back in (
        lambda: reverse.arm(found.ctx()),
        lambda: seal.undo(found.ctx()),
        lambda: _asked(found),
    ):
        with pytest.raises(Refused, match="completed by ada"):
            leads_back()


def test_report_shows_when_it_was_completed_by_whom_and_what_was_kept(shop: Callable[[], DoneShop]) -> None:
    found = shop()
    before = report.build(found.ctx())
    assert before["completed"] is None
    assert "<th>completed</th>" not in report.as_html(before)
    begun = completion.begin(found.ctx(), by="ada")
    assert "begun at 2030-01-01" in report.as_html(report.build(found.ctx()))
    found.clock.sleep(60)
    found.complete()
    after = report.build(found.ctx())
    assert (after["completed"]["at"], after["completed"]["by"]) == (begun.at, "ada")
    assert after["completed"]["ended"] > begun.at
    topics, groups, fence, state = after["completed"]["kept"]
    assert topics == "2 topics on the source, with their records"
    assert groups.startswith("the offsets of 1 groups on the source")
    assert fence.startswith("fence writes of 2 topics or groups is fenced since")
    assert state.endswith("on the target")
    page = report.as_html(after)
    assert "by ada, 2030-01-01" in page
    assert "there is no way back. Kept: 2 topics on the source" in page
    json.dumps(after)


def _asked(shop: DoneShop) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RollbackGate, "ask", _real_ask)
        rollback.apply(shop.ctx())


_real_ask = RollbackGate.ask


def _unvalidated(shop: DoneShop) -> None:
    shop.store.delete("shop/validation/latest")


def _validated_before_the_seal(shop: DoneShop) -> None:
    value = shop.store.get("shop/validation/latest")
    assert value is not None
    at = shop.ctx().link.seal()
    assert at is not None
    value["at"] = value["at"].replace(value["at"][:4], "1999", 1)
    shop.store.put("shop/validation/latest", value)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (_unvalidated, complete.VALIDATED),
        (_validated_before_the_seal, complete.VALIDATED),
        (lambda s: s.source.join("shop.late", ["shop.orders"]), "every group of the plan was moved"),
        (lambda s: s.source.join("shop.app", ["shop.orders"]), "moved groups rest on the cluster that they left"),
        (lambda s: lifecycle.note(s.ctx(), TOPICS, TopicState.REVERSED), complete.SERVED),
    ],
)
def test_what_is_left_is_refused_by_name_before_anything_is_changed(
    shop: Callable[[], DoneShop], change: Callable[[DoneShop], object], name: str
) -> None:
    found = shop()
    change(found)
    found.effects.clear()
    decision = found.complete()
    assert decision.exit_code == 1
    failed = {check.name: check for check in decision.value.checks if check.verdict == "FAIL"}
    assert name in failed, decision.message
    assert failed[name].remedy
    assert (found.effects, found.source.changes) == ([], [])


def _went_back(shop: DoneShop, *, by_undo: bool) -> None:
    """It stands on the source, with members or without."""
    record = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    if by_undo:
        record.mark(Step.UNDONE, shop.clock.now())
        return
    record.take_leg(Direction.REVERSE, 1)
    record.mark(Step.READ_BACK, shop.clock.now(), offsets=[])


@pytest.mark.parametrize("by_undo", [True, False])
def test_group_that_went_back_to_the_source_is_not_left_there_without_a_way(
    shop: Callable[[], DoneShop], by_undo: bool
) -> None:
    found = shop()
    found.source.consumer_commits("shop.app", histories.ORDERS[0], 55)
    _went_back(found, by_undo=by_undo)
    decision = found.complete()
    assert (decision.exit_code, "no group went back to the source" in decision.message) == (1, True)
    assert (completion.read(found.ctx()), found.back().link.seal()) == (None, None)


def test_rollback_that_passed_its_gate_before_the_record_came_is_seen_behind_it(shop: Callable[[], DoneShop]) -> None:
    found = shop()
    found.source.consumer_commits("shop.app", histories.ORDERS[0], 40)
    note, done = found.store.note, list[str]()

    def noted(what: str) -> None:
        note(what)
        if what.startswith("shop/completed/migration") and not done:
            done.append(what)
            _went_back(found, by_undo=False)

    found.store.note = noted
    decision = found.complete()
    assert (decision.exit_code, len(done)) == (1, 1)
    assert (completion.read(found.ctx()), found.back().link.seal()) == (None, None)


def test_mirror_of_the_way_back_does_not_count_as_a_producer_and_others_are_shown(
    shop: Callable[[], DoneShop],
) -> None:
    found = shop()
    uses = {check.name for check in complete.check(found.ctx(), seconds=1).uses}
    assert {"no log end moves", "no producer is active", "principals that may write"} <= uses
    found.back().link.record_run({"at": found.ctx().stamp(), "state": "ended"})
    assert "no log end moves" in {check.name for check in complete.check(found.ctx(), seconds=1).checks}


def test_killed_anywhere_the_next_call_goes_on(shop: Callable[[], DoneShop]) -> None:
    for changes in itertools.count():
        found = shop()
        found.deadly = dying_after(changes)
        try:
            found.complete()
        except Killed:
            found.deadly = lambda: None
        else:
            assert changes >= 10
            completed(found)
            return
        if completion.read(found.ctx()) is None:
            assert found.back().link.wished().desired is Desired.RUN
        decision = found.complete()
        assert decision.exit_code == 0, (changes, decision.message)
        completed(found)


def test_command_checks_and_completes(
    shop: Callable[[], DoneShop], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shop()
    km = partial(at_a_terminal(found, tmp_path, monkeypatch), "complete", "--seconds", "1")

    looked = km("--check", "--json")
    assert (looked.exit_code, json.loads(looked.stdout)["completed"], found.effects) == (0, False, [])
    unasked = km()
    assert (unasked.exit_code, found.effects) == (1, [])
    done = km("--yes")
    assert (done.exit_code, "completed by" in done.stdout) == (0, True), done.output
    completed(found)


def test_records_behind_the_cut_that_nobody_has_decided_about_keep_it_from_being_completed(
    shop: Callable[[], DoneShop], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shop()
    stray = stragglers.Stray(tp=histories.PAYMENTS, start=7, end=9, records=2, producers=(4711,))
    monkeypatch.setattr(stragglers, "look", lambda _ctx: (stray,))
    decision = found.complete()
    assert (decision.exit_code, "shop.payments-0: 2 records at source offsets 7 to 8" in decision.message) == (1, True)
    assert "stragglers --forward" in decision.message
    monkeypatch.setattr(stragglers, "look", partial(_unreadable))
    assert found.complete().exit_code == 3
    assert found.effects == []


def _unreadable(_ctx: Context) -> Any:
    raise CouldNotFindOut("the source does not answer")


def test_group_whose_undo_has_died_keeps_it_from_being_completed(shop: Callable[[], DoneShop]) -> None:
    found = shop()
    group = GroupRecord.own(found.ctx().journal, "shop.app", at=found.ctx().stamp())
    group.mark(Step.UNDOING, found.clock.now())
    decision = found.complete()
    assert (decision.exit_code, "no group is in the middle of its move" in decision.message) == (1, True)


def test_release_gives_the_sources_topics_their_configs_back_once_no_reverse_mirror_may_write(
    shop: Callable[[], DoneShop],
) -> None:
    found = shop()
    assert found.retention() == "-1"
    found.clock.sleep(10_000)
    found.back().link.record_run({"at": found.back().stamp(), "state": "ended"})
    release.apply(found.ctx())
    assert (found.retention(), found.ctx().journal.all(keeping.KIND)) == ("604800000", {})


def test_release_waits_for_a_reverse_mirror_that_did_not_record_its_end_while_the_source_keeps_every_record(
    shop: Callable[[], DoneShop],
) -> None:
    found = shop()
    link = found.back().link
    link.claim("silent", at=found.back().stamp())
    found.clock.sleep(10_000)
    before: list[tuple[str | None, int]] = []
    found.clock.at(LATE_SECONDS - 1, lambda: before.append((found.retention(), sum(link.attempts().values()))))
    release.apply(found.ctx())
    assert before == [("-1", 2)], "the source keeps every record, and a claim ends the mirror"
    assert (found.retention(), found.ctx().journal.all(keeping.KIND)) == ("604800000", {})
    assert not any(link.attempts().values())


def test_topics_are_released_where_clients_went_back_and_producers_were_moved_by_their_owners(
    shop: Callable[[], DoneShop], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = shop()
    stray = stragglers.Stray(tp=histories.PAYMENTS, start=7, end=9, records=2, producers=(4711,))
    monkeypatch.setattr(stragglers, "look", lambda _ctx: (stray,))
    found.clock.sleep(10_000)
    found.back().link.record_run({"at": found.back().stamp(), "state": "ended"})
    with pytest.raises(Refused, match="nobody has decided"):
        release.check(found.ctx())
    histories.rolled_back(found)
    assert release.apply(found.ctx()) == TOPICS
    assert found.retention() == "604800000"
