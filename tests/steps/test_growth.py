"""Room on the target for what appears on the source: made once, noted, and made good after a death."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import asdict

import pytest

from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.kafka.errors import BrokerRefused
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import handlers_due, join, mirror_began
from kafka_migration.state.link import LinkTopic
from kafka_migration.topics import create
from tests.handlers import handler, nothing
from tests.steps import histories
from tests.steps.gates import Migration

ORDERS, NEW = "shop.orders", "shop.refunds"
FOLLOWS = {"mirror": {"follow_new_topics": True}}


@pytest.fixture
def shop() -> Migration:
    """Created and mirrored; then the orders get partitions, and somebody makes a topic of refunds."""
    shop = Migration()
    histories.created(shop)
    histories.mirroring(shop)
    shop.source.add_partitions(ORDERS, 4)
    shop.source.add_topic(NEW, partitions=3, configs={"retention.ms": "5000"})
    return shop


def _growth(ctx: Context) -> create.TargetGrowth:
    def pin(_: Context, names: Sequence[str], _is_new: bool) -> None:
        here, there = ctx.source.topics(names), ctx.target.topics(names)
        topics = [
            LinkTopic(name=n, source_id=uuid.UUID(here[n].topic_id), target_id=uuid.UUID(there[n].topic_id))
            for n in there
        ]
        ctx.link.pin_again(topics, at="")

    return create.TargetGrowth(ctx, pin)


def test_target_grows_to_the_sources_partitions_and_the_journal_knows(shop: Migration) -> None:
    ctx = shop.ctx()
    for _ in range(2):
        _growth(ctx).grow(ORDERS, 4)
    assert shop.target.changes.count(f"grow {ORDERS} 4") == 1
    assert ctx.target.topics([ORDERS])[ORDERS].partitions == 4
    assert create.verify(ctx) == ()


def test_death_before_the_note_is_made_good(shop: Migration) -> None:
    shop.target.create_partitions(ORDERS, 4)
    assert {it.what for it in create.verify(shop.ctx())} == {"partitions", "source partitions"}
    _growth(shop.ctx()).grow(ORDERS, 4)
    assert create.verify(shop.ctx()) == ()


@pytest.mark.parametrize(
    "error", [NotAuthorized("target", "Alter", ORDERS), BrokerRefused("no", code=44, reason="a policy")]
)
def test_target_that_says_no_is_passed_on_and_nothing_is_noted(shop: Migration, error: Exception) -> None:
    before = shop.store.items()
    with shop.target.failing("create_partitions", error), pytest.raises(type(error)):
        _growth(shop.ctx()).grow(ORDERS, 4)
    assert shop.store.items() == before


def test_topic_that_is_gone_cannot_grow(shop: Migration) -> None:
    shop.target.delete_topic(ORDERS)
    with pytest.raises(Refused, match="is gone"):
        _growth(shop.ctx()).grow(ORDERS, 4)


def test_new_topic_is_made_held_open_locked_noted_and_pinned(shop: Migration) -> None:
    ctx = shop.ctx(**FOLLOWS)
    found = _growth(ctx).follow()
    assert NEW in found
    assert ctx.target.topics([NEW])[NEW].partitions == 3
    assert ctx.target.topic_configs([NEW])[NEW]["retention.ms"].value == "-1"
    assert ctx.journal.read("topic", NEW)["configs_source"] == {"retention.ms": "5000"}  # type: ignore[index]
    assert ctx.journal.holders([NEW]) == {NEW: "shop"}
    changes = list(shop.target.changes)
    assert _growth(ctx).follow().keys() == found.keys()
    assert shop.target.changes == changes


def test_topic_that_was_made_and_not_pinned_is_pinned_by_the_next(shop: Migration) -> None:
    ctx = shop.ctx(**FOLLOWS)
    create.apply(ctx)
    changes = list(shop.target.changes)
    assert NEW in _growth(ctx).follow()
    assert shop.target.changes == changes


def test_new_topic_waits_for_a_mirror_that_began_with_its_handler(shop: Migration) -> None:
    ctx, entry = shop.ctx(**FOLLOWS), {"topics": [NEW], **asdict(handler(nothing))}
    join(ctx)
    mirror_began(ctx)
    growth, after = _growth(ctx), shop.ctx(**FOLLOWS, handlers=[entry])
    join(after)
    for _ in range(2):
        assert NEW not in growth.follow()
    create.apply(after)
    assert NEW not in growth.follow(), "nor once somebody has made it"
    (told,) = [text for text in shop.told if text.startswith(f"new topic {NEW} does not join")]
    assert told.endswith("has it handled otherwise; start the mirror again")
    assert any(text.endswith("; its handlers hold once the mirror is started again") for text in shop.told)
    assert handlers_due(after)
    mirror_began(after)
    assert not handlers_due(after)
    assert NEW in _growth(after).follow()


def test_new_topic_that_is_compacted_joins_with_a_handler_that_keeps_keys_alone(shop: Migration) -> None:
    shop.source.add_topic("shop.latest", configs={"cleanup.policy": "compact"})
    entry = {"topics": [r"shop\.(latest|refunds)"], **asdict(handler(nothing))}
    growth = _growth(shop.ctx(**FOLLOWS, handlers=[entry]))
    for _ in range(2):
        assert (NEW in growth.follow(), "shop.latest" in growth.follow()) == (True, False)
    (told,) = [text for text in shop.told if "shop.latest" in text]
    assert "it is compacted, and its handler may change keys and drop records; set keeps_keys: true" in told
    assert "shop.latest" in _growth(shop.ctx(**FOLLOWS, handlers=[entry | {"keeps_keys": True}])).follow()


def test_plan_that_says_nothing_follows_nothing(shop: Migration) -> None:
    ctx, before = shop.ctx(), list(shop.target.changes)
    assert NEW not in _growth(ctx).follow()
    assert shop.target.changes == before
