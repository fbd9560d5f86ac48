"""Giving up the hold on topics: when it may be, and what it opens and closes."""

from __future__ import annotations

import pytest

from kafka_migration.domain.errors import CouldNotFindOut, Refused, TakenOver
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import stragglers, switched
from kafka_migration.link.claim import LATE_SECONDS
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.state.link import LinkState
from kafka_migration.steps import mirror, release
from kafka_migration.topics import create, restore
from tests.steps import histories
from tests.steps.gates import Migration

TOPICS = ("shop.orders", "shop.payments")


@pytest.fixture
def shop() -> Migration:
    found = Migration()
    histories.created(found)
    return found


def test_released_topics_are_free_and_the_mirror_leaves_them_alone_until_they_are_held_again(shop: Migration) -> None:
    assert release.apply(shop.ctx()) == TOPICS
    assert shop.ctx().journal.holders(TOPICS) == {}
    with pytest.raises(Refused, match=r"does not hold its topics any more: shop\.orders \(released\)"):
        mirror.check(shop.ctx())
    assert release.apply(shop.ctx()) == ()
    create.apply(shop.ctx())
    assert mirror.check(shop.ctx()) == list(TOPICS)


def test_topic_that_another_migration_took_since_is_named_with_it(shop: Migration) -> None:
    release.apply(shop.ctx())
    other = shop.ctx().journal
    other.migration = "other"
    other.lock(["shop.orders"], at="now")
    with pytest.raises(Refused, match=r"shop\.orders \(other\)"):
        mirror.check(shop.ctx())


def test_dry_run_releases_nothing(shop: Migration) -> None:
    assert release.apply(shop.ctx(dry_run=True)) == TOPICS
    assert shop.told[-3:-1] == ["give up shop.orders", "give up shop.payments"]
    assert set(shop.ctx().journal.holders(TOPICS)) == set(TOPICS)


def test_topics_that_stay_held_open_are_named_with_what_an_adopted_one_had_before() -> None:
    shop = Migration()
    shop.target.add_topic("shop.payments", configs={"retention.ms": "1000", "segment.bytes": "5000"})
    create.apply(shop.ctx(topics={"include": [r"shop\..*"], "adopt": ["shop.payments"]}))
    release.apply(shop.ctx())
    assert "retention is still disabled (retention.ms=-1," in shop.told[-2]
    assert "): shop.orders, shop.payments; `restore` gives" in shop.told[-2]
    assert shop.told[-1] == "shop.payments had retention.ms=1000 before it was adopted"
    shop.target.delete_topics(["shop.payments"])
    (said,) = release.left_open(shop.ctx(), TOPICS)
    assert "): shop.orders; `restore`" in said, "gone is not open"


def test_restored_topics_are_not_held_open(shop: Migration) -> None:
    sealed = Seal(at="noon", identity=Identity(7, 3), ends=dict.fromkeys((*histories.ORDERS, histories.PAYMENTS), 7))
    shop.ctx().link.record_seal(sealed)
    restore.apply(shop.ctx())
    shop.told.clear()
    assert release.apply(shop.ctx()) == TOPICS
    assert shop.told == ["give up shop.orders", "give up shop.payments"]


def test_running_mirror_keeps_its_topics(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.record_run({"state": "running", "at": ctx.stamp()})
    with pytest.raises(Refused, match="is running"):
        release.apply(ctx)
    assert set(ctx.journal.holders(TOPICS)) == set(TOPICS)
    ctx.link.record_run({"state": "ended", "at": ctx.stamp()})
    assert release.apply(ctx) == TOPICS


def test_mirror_that_only_says_nothing_is_ended_and_what_it_sent_waited_for(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.monotonic()
    ctx.link.claim("one", at=ctx.stamp())
    ctx.link.record_run({"state": "running", "at": ctx.stamp()})
    with pytest.raises(Refused, match="is running"):
        release.apply(ctx, forced=True)
    shop.clock.sleep(600)
    seen: list[tuple[dict[str, bool], set[str]]] = []
    shop.clock.at(2, lambda: seen.append((ctx.link.attempts(), set(ctx.journal.holders(TOPICS)))))
    shop.told.clear()
    release.apply(shop.ctx(dry_run=True))
    assert shop.told[0] == "end a mirror that did not record its end, and wait for what it may have sent"
    assert list(ctx.link.attempts().items()) == [("one", True)]
    assert release.apply(ctx) == TOPICS
    ((running, held),) = seen
    assert list(running.values()) == [True, True], "it was claimed, so the mirror writes no more"
    assert held == set(TOPICS)
    assert shop.clock.monotonic() - began >= 600 + LATE_SECONDS
    assert list(ctx.link.attempts().values()) == [False], "the next one does not wait again"


def test_mirror_that_records_its_end_by_and_by_is_not_waited_for_any_longer(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.monotonic()
    ctx.link.claim("one", at=ctx.stamp())
    ctx.link.record_run({"state": "ended", "at": ctx.stamp()})
    shop.clock.at(20, lambda: ctx.link.end_attempt("one", at=ctx.stamp()))
    assert release.apply(ctx) == TOPICS
    assert 20 <= shop.clock.monotonic() - began < 25


def test_mirror_that_begins_while_one_that_died_is_waited_for_keeps_the_topics(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.claim("dead", at=ctx.stamp())
    shop.clock.at(10, lambda: shop.ctx().link.claim("new", at=ctx.stamp()))
    with pytest.raises(TakenOver):
        release.apply(ctx)
    assert set(ctx.journal.holders(TOPICS)) == set(TOPICS)
    assert ctx.link.attempts() == {"new": True} | {name: False for name in ctx.link.attempts() if name != "new"}


def test_group_that_begins_to_move_while_a_mirror_that_died_is_waited_for_keeps_the_topics(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.claim("dead", at=ctx.stamp())
    shop.clock.at(10, lambda: histories.moved(shop, upto=Step.TRANSLATED))
    with pytest.raises(Refused, match="in the middle of their move"):
        release.apply(ctx)
    assert set(ctx.journal.holders(TOPICS)) == set(TOPICS)
    assert not any(ctx.link.attempts().values()), "nothing is left that the next one would wait for"


def test_cluster_that_is_away_while_a_mirror_that_died_is_waited_for_is_borne(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, attempts, began = shop.ctx(), LinkState.attempts, shop.clock.monotonic()
    ctx.link.claim("dead", at=ctx.stamp())

    def flaky(self: LinkState) -> dict[str, bool]:
        if 20 < shop.clock.monotonic() - began < 60:
            raise CouldNotFindOut("no answer")
        return attempts(self)

    monkeypatch.setattr(LinkState, "attempts", flaky)
    assert release.apply(ctx) == TOPICS
    assert shop.clock.monotonic() - began == LATE_SECONDS


def test_person_who_knows_that_a_mirror_is_dead_need_not_wait(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.monotonic()
    ctx.link.claim("one", at=ctx.stamp())
    assert release.apply(ctx, forced=True) == TOPICS
    assert shop.clock.monotonic() == began


def test_seal_that_is_not_complete_keeps_the_topics(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.monotonic()
    ctx.link.claim("one", at=ctx.stamp())
    ctx.link.record_seal(Seal(at="noon", ends={}))
    with pytest.raises(Refused, match="not every partition shows the seal"):
        release.apply(ctx, forced=True)
    ctx.link.record_seal(Seal(at="noon", identity=Identity(7, 3), ends={histories.PAYMENTS: 5}))
    assert release.apply(ctx) == TOPICS
    assert shop.clock.monotonic() == began, "nothing that it sends is taken"


def test_group_in_the_middle_of_its_move_keeps_the_topics(shop: Migration) -> None:
    histories.moved(shop, upto=Step.TRANSLATED)
    with pytest.raises(Refused, match=r"in the middle of their move: shop\.app") as refused:
        release.apply(shop.ctx())
    assert "undo --group" in refused.value.remedy
    histories.moved(shop)
    assert release.apply(shop.ctx()) == TOPICS


def test_group_that_is_being_moved_back_keeps_the_topics(shop: Migration) -> None:
    histories.moved(shop, upto=Step.READ_BACK)
    record = GroupRecord.own(shop.ctx().journal, "shop.app", at=shop.ctx().stamp())
    record.mark(Step.UNDOING, shop.clock.now())
    with pytest.raises(Refused, match=r"in the middle of their move: shop\.app"):
        release.apply(shop.ctx())
    record.mark(Step.UNDONE, shop.clock.now())
    assert release.apply(shop.ctx()) == TOPICS


def test_records_behind_the_cut_that_nobody_has_decided_about_keep_the_topics(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    stray = stragglers.Stray(tp=histories.PAYMENTS, start=7, end=9, records=2, producers=(4711,))
    monkeypatch.setattr(stragglers, "look", lambda _ctx: (stray,))
    with pytest.raises(Refused, match="nobody has decided") as refused:
        release.apply(shop.ctx())
    assert "`stragglers --give-up`" in refused.value.remedy
    assert release.check(shop.ctx(), forced=True) == TOPICS


@pytest.mark.parametrize("state", [SwitchState.SWITCHING, SwitchState.SERVED])
def test_switch_that_is_not_finished_keeps_the_topics(shop: Migration, state: SwitchState) -> None:
    ctx = shop.ctx()
    switched.write(ctx, Switch(state=state, begun_at=ctx.stamp()))
    with pytest.raises(Refused, match="a switch of producers") as refused:
        release.apply(ctx)
    assert refused.value.remedy == "run `switch`"
