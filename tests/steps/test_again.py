"""A halted topic copied afresh: only while no consumer has moved, and killed at any step it converges."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from kafka_migration.domain.errors import BadInput, NotAuthorized, Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import readers
from kafka_migration.link.claim import LATE_SECONDS
from kafka_migration.migration.context import Context
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.steps import mirror, recopy
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.killing import Killed, Killer, MortalStore

ORDERS = "shop.orders"


@pytest.fixture
def shop() -> Migration:
    """Created, mirrored for a while, and one partition of the orders is halted."""
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    ctx = shop.ctx()
    here = ctx.target.topics([ORDERS])[ORDERS]
    pinned = LinkTopic(
        name=ORDERS,
        source_id=uuid.UUID(ctx.source.topics([ORDERS])[ORDERS].topic_id),
        target_id=uuid.UUID(here.topic_id),
    )
    ctx.link.pin_again([pinned], at="")
    shop.target.append(TopicPartition(ORDERS, 0), 30)
    ctx.link.halt(TopicPartition(ORDERS, 0), "FOREIGN_WRITER", "somebody", 40, 41, ctx.stamp())
    ctx.link.halt(histories.PAYMENTS, "DATA_LOSS", "gone", 1, 2, ctx.stamp())
    return shop


def _target_id(ctx: Context) -> str:
    return ctx.target.topics([ORDERS])[ORDERS].topic_id


def test_positions_that_were_written_for_readers_without_a_group_are_named_void_and_hold_up_a_rewind(
    shop: Migration,
) -> None:
    ctx = shop.ctx()
    assert not mirror._moved(ctx)
    readers.note(ctx, [ORDERS], output="out.csv")
    assert mirror._moved(ctx)
    (todo,) = recopy.check(ctx, [ORDERS])
    assert "positions in it are void (out.csv, at 2030-01-01" in str(todo)
    recopy.apply(ctx, [ORDERS])
    assert not mirror._moved(ctx)


def test_topic_is_made_again_as_it_was_and_pinned_and_its_halts_are_void(shop: Migration) -> None:
    ctx = shop.ctx()
    before, configs = _target_id(ctx), ctx.target.topic_configs([ORDERS])[ORDERS]
    histories.validated(shop)
    (done,) = recopy.apply(ctx, [ORDERS])
    assert "halted: shop.orders-0 FOREIGN_WRITER" in str(done)
    after = _target_id(ctx)
    assert after != before
    assert ctx.target.topic_configs([ORDERS])[ORDERS] == configs
    assert ctx.journal.read("topic", ORDERS)["topic_id"] == after  # type: ignore[index]
    assert ctx.link.topics()[ORDERS].target_id == uuid.UUID(after)
    assert ctx.link.halted() == {histories.PAYMENTS}, "the other topic's is not"
    assert ctx.target.ends([TopicPartition(ORDERS, 0)])[TopicPartition(ORDERS, 0)].end == 0
    assert ctx.journal.read("validation", "latest") is None, "it was about records that are gone"
    assert ctx.journal.all("again") == {}


def test_topic_that_is_not_held_open_any_more_is_made_again_held_open(shop: Migration) -> None:
    ctx = shop.ctx()
    declared = ctx.journal.read("topic", ORDERS)["spec"]["configs"]  # type: ignore[index]
    changed = {"retention.ms": "1000", "message.timestamp.type": "LogAppendTime", "segment.bytes": "20000000"}
    shop.target.alter_configs(ORDERS, set=changed, delete=["retention.bytes"])
    recopy.apply(ctx, [ORDERS])
    explicit = {n: it.value for n, it in ctx.target.topic_configs([ORDERS])[ORDERS].items() if it.is_explicit}
    assert explicit == declared | {"segment.bytes": "20000000"}


def _before_deletions(shop: Migration, monkeypatch: pytest.MonkeyPatch, note: Callable[[], None]) -> None:
    """Have ``note`` called right before topics of the target are deleted."""
    delete = shop.target.delete_topics

    def noted(names: list[str]) -> None:
        note()
        delete(names)

    monkeypatch.setattr(shop.target, "delete_topics", noted)


def test_mirror_that_still_runs_is_ended_by_a_claim_before_its_topic_goes(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctx, claims = shop.ctx(), []
    ctx.link.claim("running", at=ctx.stamp())
    shop.clock.at(3, lambda: ctx.link.end_attempt("running", at=ctx.stamp()))
    _before_deletions(shop, monkeypatch, lambda: claims.append(ctx.link.attempts()))
    recopy.apply(ctx, [ORDERS])
    assert [sorted(found.values()) for found in claims] == [[False, True]], "once the mirror saw the claim, and ended"
    assert list(ctx.link.attempts().values()) == [False, False], "and the next run need not wait for it"


def test_what_a_mirror_sent_that_died_has_landed_before_its_topic_goes(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes appends by name would put it into the new one, and its halt would need a copy again."""
    ctx, began, gone = shop.ctx(), shop.clock.monotonic(), []
    ctx.link.claim("dead", at=ctx.stamp())
    _before_deletions(shop, monkeypatch, lambda: gone.append(shop.clock.monotonic()))
    recopy.apply(ctx, [ORDERS])
    assert gone == [began + LATE_SECONDS]
    assert "dead" not in ctx.link.attempts()


def test_dry_run_says_the_same_and_changes_nothing(shop: Migration) -> None:
    ctx = shop.ctx(dry_run=True)
    before = (shop.store.items(), shop.links.items(), list(shop.target.changes))
    (todo,) = recopy.apply(ctx, [ORDERS])
    assert shop.told[-1] == str(todo)
    assert (shop.store.items(), shop.links.items(), list(shop.target.changes)) == before


def test_topic_that_may_not_be_created_again_is_not_deleted(shop: Migration) -> None:
    ctx, before = shop.ctx(), shop.store.items()
    with shop.target.failing("create_topics", NotAuthorized("target", "Create", ORDERS)), pytest.raises(NotAuthorized):
        recopy.apply(ctx, [ORDERS])
    assert ORDERS in ctx.target.topics([ORDERS])
    assert (shop.store.items(), ctx.link.attempts()) == (before, {})


def test_topic_of_somebody_else_and_one_that_is_not_halted_are_refused(shop: Migration) -> None:
    ctx = shop.ctx()
    with pytest.raises(BadInput, match="not a topic of migration shop"):
        recopy.apply(ctx, ["elsewhere"])
    recopy.apply(ctx, [ORDERS])
    with pytest.raises(Refused, match="is not halted"):
        recopy.apply(ctx, [ORDERS])


@pytest.mark.parametrize("step", [Step.TRANSLATED, Step.WRITTEN, Step.READ_BACK, Step.ALIVE])
def test_topic_that_a_moved_group_reads_is_refused_and_the_group_is_named(shop: Migration, step: Step) -> None:
    histories.moved(shop, upto=step)
    changes = list(shop.target.changes)
    with pytest.raises(Refused, match=r"shop\.orders have positions on the target: shop\.app"):
        recopy.apply(shop.ctx(), [ORDERS])
    assert shop.target.changes == changes


def test_group_that_was_moved_back_is_no_obstacle(shop: Migration) -> None:
    histories.moved(shop)
    ctx = shop.ctx()
    for tp in histories.ORDERS:
        shop.target.consumer_commits("shop.app", tp, 41 + 10 * tp.partition)
    with pytest.raises(Refused, match=r"undo --group"):
        recopy.check(ctx, [ORDERS])
    GroupRecord.own(ctx.journal, "shop.app", at="2030-01-01T00:00:00+00:00").mark(Step.UNDONE, ctx.clock.now())
    recopy.apply(ctx, [ORDERS])


def test_group_that_was_moved_back_and_went_on_on_the_target_since_is_named(shop: Migration) -> None:
    histories.moved(shop)
    ctx = shop.ctx()
    GroupRecord.own(ctx.journal, "shop.app", at="2030-01-01T00:00:00+00:00").mark(Step.UNDONE, ctx.clock.now())
    shop.target.consumer_commits("shop.app", histories.ORDERS[0], 42)
    with pytest.raises(Refused, match=r"positions on the target: shop\.app"):
        recopy.apply(ctx, [ORDERS])


def test_group_that_somebody_else_put_on_the_target_is_named(shop: Migration) -> None:
    shop.target.consumer_commits("stranger", TopicPartition(ORDERS, 1), 3)
    with pytest.raises(Refused, match="stranger"):
        recopy.apply(shop.ctx(), [ORDERS])


def test_sealed_link_is_left_alone(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.link.record_seal(Seal(at="noon", ends={}))
    with pytest.raises(Refused, match="sealed"):
        recopy.apply(ctx, [ORDERS])


class MortalTarget:
    """The target as seen by a process that may be killed before or after it changes a topic."""

    def __init__(self, shop: Migration, killer: Killer) -> None:
        self._cluster = shop.target
        self.create_topics = killer.around(shop.target.create_topics)
        self.delete_topics = killer.around(shop.target.delete_topics)

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)


def _attempt(shop: Migration, killer: Killer) -> None:
    ctx = shop.ctx()
    ctx.journal = Journal(MortalStore(shop.store, killer), "shop")
    ctx.link = LinkState("shop", MortalStore(shop.links, killer), None, None)
    ctx.target = MortalTarget(shop, killer)  # type: ignore[assignment]
    recopy.apply(ctx, [ORDERS])


def _points(shop: Migration) -> int:
    killer = Killer()
    _attempt(shop, killer)
    return killer.seen


POINTS = 26


@pytest.mark.parametrize("at", range(1, POINTS + 1))
def test_run_killed_at_any_step_is_finished_by_the_next(shop: Migration, at: int) -> None:
    before = _target_id(shop.ctx())
    with pytest.raises(Killed):
        _attempt(shop, Killer(at))
    ctx = shop.ctx()
    if ctx.journal.all("again") or TopicPartition(ORDERS, 0) in ctx.link.halted():
        if ctx.journal.read("topic", ORDERS) is None:
            # Nothing else is in that plan: a mirror without --again would find nothing to copy.
            with pytest.raises(Refused, match=r"`mirror --again shop\.orders` finishes it"):
                mirror.check(shop.ctx(topics={"include": [r"shop\.orders"]}))
        recopy.apply(ctx, [ORDERS])
    assert _target_id(ctx) != before
    assert ctx.link.topics()[ORDERS].target_id == uuid.UUID(_target_id(ctx))
    assert ctx.journal.read("topic", ORDERS)["topic_id"] == _target_id(ctx)  # type: ignore[index]
    assert ctx.link.halted() == {histories.PAYMENTS}
    assert (ctx.journal.all("again"), ctx.journal.all("topic-intent")) == ({}, {})


def test_every_step_is_covered(shop: Migration) -> None:
    assert _points(shop) == POINTS
