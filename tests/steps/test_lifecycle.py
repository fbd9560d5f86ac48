"""Where each topic stands in its life: noted by the steps, derived where an earlier version noted nothing."""

from __future__ import annotations

import uuid

import pytest

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, Identity
from kafka_migration.kafka.types import TopicDescription
from kafka_migration.link import lifecycle, seal
from kafka_migration.migration.context import Context, Scope
from kafka_migration.overview import status
from kafka_migration.state.link import Wish
from kafka_migration.steps import mirror, release, stop
from kafka_migration.topics import create
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.test_lag import PARTITIONS, mirrored

BOTH = ("shop.orders", "shop.payments")
SEAL = Seal(at="noon", identity=Identity(7, 9), ends=dict.fromkeys(PARTITIONS, 7))


def states(shop: Migration) -> dict[str, TopicState]:
    return lifecycle.read(shop.ctx())


def all_in(state: TopicState) -> dict[str, TopicState]:
    return dict.fromkeys(BOTH, state)


def pinned() -> Migration:
    """A migration whose topics were pinned by the step."""
    shop = Migration()
    histories.created(shop)
    mirror.pin(shop.ctx())
    return shop


def sealing(monkeypatch: pytest.MonkeyPatch, during: list[dict[str, TopicState]]) -> None:
    """Seal without a broker; ``during`` gets the states that stood just before."""

    def apply(ctx: Context) -> Seal:
        during.append(lifecycle.read(ctx))
        ctx.link.record_seal(SEAL)
        return SEAL

    monkeypatch.setattr(seal, "apply", apply)


def test_topics_are_mirroring_then_drained_then_sealed_then_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[dict[str, TopicState]] = []
    sealing(monkeypatch, during)
    shop = Migration()
    ctx, link = mirrored(shop, at=100, drain={"window_seconds": 10, "deadline_seconds": 100})
    lifecycle.note(ctx, BOTH, TopicState.MIRRORING)
    assert states(shop) == all_in(TopicState.MIRRORING)
    link.record_run({"at": ctx.stamp(), "state": "running"})
    shop.clock.at(30, lambda: link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "drained"}))
    assert stop.apply(ctx).stopped
    assert during == [all_in(TopicState.DRAINED)]
    assert states(shop) == all_in(TopicState.SEALED)
    assert stop.apply(ctx).stopped, "a second call proves the seal again"
    assert states(shop) == all_in(TopicState.SEALED)
    release.apply(shop.ctx(dry_run=True))
    assert states(shop) == all_in(TopicState.SEALED)
    release.apply(shop.ctx())
    assert states(shop) == all_in(TopicState.COMPLETED)


def test_stop_that_was_killed_before_the_seal_goes_on_from_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Migration()
    ctx, link = mirrored(shop, at=100, drain={"window_seconds": 10, "deadline_seconds": 100})
    link.record_run({"at": ctx.stamp(), "state": "ended", "reason": "drained"})

    def killed(_: Context) -> Seal:
        raise KeyboardInterrupt

    monkeypatch.setattr(seal, "apply", killed)
    with pytest.raises(KeyboardInterrupt):
        stop.apply(ctx)
    assert states(shop) == all_in(TopicState.DRAINED)
    sealing(monkeypatch, [])
    stop.apply(ctx)
    assert states(shop) == all_in(TopicState.SEALED)


def test_topics_that_the_mirror_pins_are_mirroring_and_a_second_start_writes_nothing() -> None:
    shop = pinned()
    assert states(shop) == all_in(TopicState.MIRRORING)
    before = shop.store.items("shop/topic-state/")
    shop.clock.sleep(60)
    mirror.pin(shop.ctx())
    assert shop.store.items("shop/topic-state/") == before


def test_topics_that_are_released_before_the_seal_are_not_completed() -> None:
    shop = pinned()
    release.apply(shop.ctx())
    assert states(shop) == all_in(TopicState.MIRRORING)


def test_released_topics_that_are_taken_again_are_mirroring() -> None:
    shop = pinned()
    lifecycle.note(shop.ctx(), BOTH, TopicState.DRAINED)
    lifecycle.note(shop.ctx(), BOTH, TopicState.SEALED)
    release.apply(shop.ctx())
    create.apply(shop.ctx())
    mirror.pin(shop.ctx())
    assert states(shop) == all_in(TopicState.MIRRORING)


def test_state_that_cannot_come_next_is_refused_for_all_topics_and_nothing_is_noted() -> None:
    shop = Migration()
    ctx = shop.ctx()
    lifecycle.note(ctx, ["shop.orders"], TopicState.SEALED)
    lifecycle.note(ctx, ["shop.orders"], TopicState.SERVED)
    with pytest.raises(StateConflict, match=r"shop\.orders is served by the target, and cannot become mirroring"):
        lifecycle.note(ctx, BOTH, TopicState.MIRRORING)
    assert states(shop) == {"shop.orders": TopicState.SERVED}


def test_state_of_a_later_version_is_refused_with_what_to_do() -> None:
    shop = Migration()
    shop.ctx().journal.record(lifecycle.KIND, "shop.orders", {"state": "teleported", "at": "now"})
    with pytest.raises(StateConflict, match=r"'teleported', which this version does not know") as refused:
        states(shop)
    assert "the version of this tool that wrote it" in refused.value.remedy


def test_wave_sees_and_moves_its_own_topics_alone() -> None:
    shop = Migration()
    lifecycle.note(shop.ctx(), BOTH, TopicState.MIRRORING)
    wave = shop.ctx().within(Scope.wave("first", topics={"shop.orders"}, groups=set()))
    assert lifecycle.read(wave) == {"shop.orders": TopicState.MIRRORING}
    lifecycle.note(wave, lifecycle.read(wave), TopicState.FENCED)
    assert states(shop) == {"shop.orders": TopicState.FENCED, "shop.payments": TopicState.MIRRORING}


# -- begun by a version that noted nothing ----------------------------------------------------------------------------


@pytest.fixture
def earlier(monkeypatch: pytest.MonkeyPatch) -> Migration:
    """Created and mirroring, by a version that knew no states."""

    def of_name(topic: TopicDescription) -> uuid.UUID:
        return uuid.uuid5(uuid.NAMESPACE_OID, topic.name)

    monkeypatch.setattr(histories, "_id", of_name)
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    return shop


def test_what_an_earlier_version_began_is_derived_from_the_link_and_the_locks(earlier: Migration) -> None:
    ctx = earlier.ctx()
    assert states(earlier) == all_in(TopicState.MIRRORING)
    ctx.link.wish(Wish(desired=Desired.DRAIN, at=ctx.stamp()))
    ctx.link.record_run({"state": "ended", "reason": "drained", "at": ctx.stamp()})
    assert states(earlier) == all_in(TopicState.DRAINED)
    ctx.link.record_seal(Seal(at="noon", ends={}))
    assert states(earlier) == all_in(TopicState.DRAINED), "not every partition shows the seal"
    ctx.link.record_seal(SEAL)
    assert states(earlier) == all_in(TopicState.SEALED)
    ctx.journal.unlock(["shop.payments"])
    assert states(earlier) == {"shop.orders": TopicState.SEALED, "shop.payments": TopicState.COMPLETED}


def test_page_counts_topics_by_where_they_stand_in_the_order_of_a_life(earlier: Migration) -> None:
    earlier.ctx().journal.record(lifecycle.KIND, "shop.orders", {"state": "sealed", "at": "now"})
    page = status.read(earlier.ctx())
    assert page.states == {"shop.orders": "sealed", "shop.payments": "mirroring"}
    assert list(page.topics_by_state.items()) == [("mirroring", 1), ("sealed", 1)]
    assert page.as_dict()["topics_by_state"] == {"mirroring": 1, "sealed": 1}
