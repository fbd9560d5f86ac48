"""Plans that call topics otherwise on the target: what is refused before anything is made, or once something was. In
earnest, by commands: tests/cli/test_renamed.py."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups.translate import shared_with_others
from kafka_migration.inventory import plan_changes
from kafka_migration.kafka.renamed import renamed
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import join, names_of, require_names
from kafka_migration.state.journal import Journal
from kafka_migration.topics import create
from tests.steps.gates import Migration

WEST = {"prefix": "west"}


def named(shop: Migration, naming: Any = WEST, name: str = "shop") -> Context:
    """As commands open it."""
    ctx = shop.ctx(naming=naming)
    ctx.target = renamed(ctx.target, ctx.plan.topic_names)
    ctx.journal = Journal(shop.store, name, locked_as=ctx.plan.topic_names.on_target)
    return ctx


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch) -> Migration:
    monkeypatch.setattr("kafka_migration.topics.declared._from_target", lambda _ctx, _topics: {})
    return Migration()


def test_topics_are_made_by_their_names_on_the_target_and_locked_by_them(shop: Migration) -> None:
    shop.target.add_topic("shop.orders")
    create.apply(named(shop))
    assert set(shop.target.topic_names()) == {"shop.orders", "west.shop.orders", "west.shop.payments"}
    assert Journal(shop.store, "other").holders(["shop.orders", "west.shop.orders"]) == {"west.shop.orders": "shop"}


def test_topics_that_would_share_a_name_are_refused_before_one_is_made(shop: Migration) -> None:
    with pytest.raises(Refused, match=r"shop\.payments would be called shop\.payments on the target, too"):
        create.apply(named(shop, {"topics": {"shop.orders": "shop.payments"}}))
    assert shop.target.topic_names() == []


def test_topic_that_came_from_the_target_is_refused_unless_it_was_made_already(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    create.apply(named(shop))
    monkeypatch.setattr("kafka_migration.topics.declared._from_target", lambda _ctx, topics: dict.fromkeys(topics, "b"))
    assert [step.problem for step in create.check(named(shop))] == ["", ""]
    shop.source.add_topic("shop.late")
    with pytest.raises(Refused, match=r"shop\.late.* link b copies it from the target"):
        create.apply(named(shop))


def test_names_stay_once_topics_were_made_and_may_change_before(shop: Migration) -> None:
    ctx = named(shop)
    join(ctx)
    other = named(shop, {"prefix": "wst"})
    require_names(ctx.journal, other.plan)
    plan_changes.require(other)
    create.apply(ctx)
    require_names(ctx.journal, ctx.plan)
    for refusing in (lambda: require_names(ctx.journal, other.plan), lambda: plan_changes.require(other)):
        with pytest.raises(Refused, match="naming") as refused:
            refusing()
        assert "a plan of another name" in str(refused.value.remedy)
    assert names_of(ctx.journal) == TopicNames(prefix="west.")
    assert names_of(Journal(shop.store, "nobody")) == SAME


def test_topics_of_other_migrations_are_the_same_where_the_target_calls_them_so(shop: Migration) -> None:
    create.apply(named(shop))
    join(named(shop))
    outside = {"app": ["shop.orders"]}
    assert shared_with_others(named(shop, {"prefix": "east"}, "other"), outside) == ()
    assert shared_with_others(named(shop, "identity", "other"), outside) == ()
    (sentence,) = shared_with_others(named(shop, name="other"), outside)
    assert "shop.orders (shop)" in sentence


def test_people_are_told_what_the_target_calls_a_topic(shop: Migration) -> None:
    shop.target.add_topic("west.shop.orders")
    shop.target.append(TopicPartition("west.shop.orders", 0), 1)
    first = create.check(named(shop))[0]
    assert first.problem.startswith("west.shop.orders exists on the target")
    assert "delete west.shop.orders there" in first.remedy
    assert named(shop).called_on_target("shop.orders") == "shop.orders (there: west.shop.orders)"
    assert named(shop, "identity").called_on_target("shop.orders") == "shop.orders"
