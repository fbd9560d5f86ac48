"""What the mirror phase notes around the copy itself."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest

from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.domain.errors import (
    CouldNotFindOut,
    HaltedPartition,
    MigrationError,
    NotAuthorized,
    StateConflict,
    TakenOver,
)
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.groups.record import Step
from kafka_migration.link import lifecycle
from kafka_migration.migration.context import Context
from kafka_migration.state.link import Wish
from kafka_migration.steps import mirror
from tests.fence.worlds import ORDERS, PAYMENTS, FencedShop
from tests.steps import histories
from tests.steps.gates import Migration


class Played:
    """A mirror that ends as a test says."""

    end: MirrorEnd | Exception
    settings: Settings
    may_rewind: Callable[[], bool]

    def __init__(self, *, settings: Settings, may_rewind: Callable[[], bool], **_: object) -> None:
        Played.settings, Played.may_rewind = settings, staticmethod(may_rewind)

    def run(self, **_: object) -> MirrorEnd:
        if isinstance(self.end, Exception):
            raise self.end
        return self.end


@pytest.fixture
def ctx(monkeypatch: pytest.MonkeyPatch) -> Context:
    shop = Migration()
    histories.created(shop)
    ctx = shop.ctx()
    connection = SimpleNamespace(kafka_python=dict)
    ctx.source.connection = ctx.target.connection = connection  # type: ignore[assignment]
    monkeypatch.setattr(mirror, "pin", lambda _: [])
    monkeypatch.setattr(mirror, "Mirror", Played)
    return ctx


def test_mirror_that_has_nothing_left_to_copy_is_noted_as_ended(ctx: Context) -> None:
    """Or the stop gate waits for it, and a task would start it again, for ever."""
    Played.end = HaltedPartition(topic="shop.orders", partition=0, reason="HALTED", detail="nothing is left to copy")
    with pytest.raises(HaltedPartition):
        mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
    run = ctx.link.run()
    assert run is not None
    assert (run["state"], run["reason"]) == ("ended", "halted")


def test_topics_stay_fenced_where_the_mirror_is_started_again_while_their_fence_stands() -> None:
    shop = FencedShop()
    for topic in (ORDERS, PAYMENTS):
        shop.target.add_topic(topic)
    ctx = shop.ctx()
    mirror.pin(ctx, [ORDERS, PAYMENTS])
    assert set(lifecycle.read(ctx).values()) == {TopicState.MIRRORING}
    shop.fence()
    lifecycle.note(ctx, [PAYMENTS], TopicState.DRAINED)
    mirror.pin(shop.ctx(), [ORDERS, PAYMENTS])
    assert set(lifecycle.read(ctx).values()) == {TopicState.FENCED}
    shop.lift()
    assert set(lifecycle.read(ctx).values()) == {TopicState.MIRRORING}


def test_mirror_is_told_what_target_topics_must_keep(ctx: Context) -> None:
    Played.end = HaltedPartition(topic="shop.orders", partition=0, reason="HALTED", detail="")
    with pytest.raises(HaltedPartition):
        mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
    held_open = ctx.journal.read("topic", "shop.orders")["spec"]["configs"]  # type: ignore[index]
    assert Played.settings.held_open.items() <= held_open.items()
    assert {"retention.ms", "retention.bytes", "cleanup.policy", "message.timestamp.type"} == set(
        Played.settings.held_open
    )


@pytest.mark.parametrize(
    ("halted", "outcome", "detail"),
    [((), "done", "drained"), ((TopicPartition("shop.orders", 1),), "refused", "drained; halted: shop.orders-1")],
)
def test_mirror_tells_the_journal_how_it_ended(
    halted: tuple[TopicPartition, ...], outcome: str, detail: str, ctx: Context
) -> None:
    Played.end = MirrorEnd(
        reason="drained", rounds=2, fences=1, records=7, bytes=70, batches=3, executors=(), halted=halted
    )
    assert mirror.apply(ctx, runner=None).records == 7  # type: ignore[arg-type]
    told = ctx.journal.read("phase", "mirror") or {}
    assert (told["outcome"], told["detail"]) == (outcome, detail)
    assert told["evidence"] == {"records": 7, "fences": 1}


@pytest.mark.parametrize(
    "error", [NotAuthorized("target", "Write", "topic shop.orders"), StateConflict("x"), CouldNotFindOut("x")]
)
def test_mirror_that_fails_is_noted_as_ended_and_its_retry_obeys_a_wish_that_it_was_told_before(
    ctx: Context, error: MigrationError
) -> None:
    Played.end = error
    ctx.link.wish(Wish(desired=Desired.STOP, at=ctx.stamp()))
    ctx.link.record_run({"state": "running", "at": ctx.stamp()})
    for _ in range(2):
        with pytest.raises(type(error)):
            mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
        run = ctx.link.run() or {}
        assert (run["state"], run["reason"]) == ("ended", "failed")
        assert ctx.link.wished().desired is Desired.STOP
    # Told to a mirror that had failed already, it is obeyed as it is.
    ctx.clock.sleep(1)
    ctx.link.wish(Wish(desired=Desired.STOP, at=ctx.stamp()))
    with pytest.raises(type(error)):
        mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
    assert ctx.link.wished().desired is Desired.RUN


def test_mirror_that_was_taken_over_leaves_the_journal_to_the_other(ctx: Context) -> None:
    Played.end = TakenOver("link shop")
    with pytest.raises(TakenOver):
        mirror.apply(ctx, runner=None)  # type: ignore[arg-type]
    assert (ctx.journal.read("phase", "mirror") or {})["outcome"] == "running"
    assert (ctx.link.run() or {})["state"] == "running"


@pytest.mark.parametrize(
    ("upto", "may"), [(None, True), (Step.STOPPED, True), (Step.TRANSLATED, False), (Step.ALIVE, False)]
)
def test_log_that_lost_its_tail_is_gone_on_with_until_a_group_was_translated(upto: Step | None, may: bool) -> None:
    shop = Migration()
    histories.created(shop)
    mirror.pin(shop.ctx())
    if upto is not None:
        histories.moved(shop, upto=upto)
    assert mirror._moved(shop.ctx()) is not may


def test_log_that_lost_its_tail_is_not_gone_on_with_where_a_group_commits_on_the_target_by_itself() -> None:
    shop = Migration()
    histories.created(shop)
    ctx = shop.ctx()
    mirror.pin(ctx)
    assert not mirror._moved(ctx)
    with shop.target.failing("committed", NotAuthorized("target", "Describe", "group orders")):
        assert mirror._moved(ctx), "nobody knows"
    tp = TopicPartition(next(iter(ctx.link.topics())), 0)
    shop.target.consumer_commits("a-group-of-the-target", tp, 3)
    assert mirror._moved(ctx)
