"""The source's topics keep every record while the reverse link writes to them, and get back what they had."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kafka_migration.domain.errors import NotAuthorized
from kafka_migration.link import seal
from kafka_migration.migration.context import Context
from kafka_migration.steps import mirror
from kafka_migration.topics import create, keeping, restore
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.killing import Killed, Killer, MortalStore

WANTED = {"retention.ms": "-1", "cleanup.policy": "delete", "message.timestamp.after.max.ms": str(2**63 - 1)}
OWN = {"retention.ms": "604800000", "cleanup.policy": "compact", "segment.bytes": "1000"}


@pytest.fixture
def shop() -> Migration:
    found = Migration()
    found.source.alter_configs("shop.orders", set=OWN)
    histories.created(found)
    histories.pinned(found.ctx())
    found.source.changes.clear()
    return found


def configs(shop: Migration, topic: str = "shop.orders") -> dict[str, str]:
    found = shop.source.topic_configs([topic])[topic]
    return {name: config.value or "" for name, config in found.items() if config.is_explicit}


def test_topics_keep_every_record_and_get_back_what_they_had(shop: Migration) -> None:
    before = {topic: configs(shop, topic) for topic in ("shop.orders", "shop.payments")}
    assert len(keeping.apply(shop.ctx())) == 2
    assert WANTED.items() <= configs(shop).items()
    assert configs(shop)["segment.bytes"] == "1000"
    assert keeping.apply(shop.ctx()) == ()
    # Neither drift of the source, nor what the target is to have in the end.
    assert create.verify(shop.ctx()) == ()
    given = keeping.give_back(shop.ctx())
    assert {topic: configs(shop, topic) for topic in before} == before
    assert "retention.ms=604800000" in str(given[0])
    assert "retention.ms as the source's default" in str(given[1])
    shop.source.changes.clear()
    assert keeping.give_back(shop.ctx()) == ()
    assert shop.source.changes == []


def test_target_gets_the_sources_own_configs_while_the_source_has_others_for_now(shop: Migration) -> None:
    keeping.apply(shop.ctx())
    found = restore._source_configs(shop.ctx(), {"shop.orders": {}, "shop.payments": {}})
    assert {name: found["shop.orders"][name].value for name in OWN} == OWN
    assert (found["shop.payments"]["retention.ms"].value, found["shop.payments"]["retention.ms"].is_explicit) == (
        "604800000",
        False,
    )


def test_larger_records_of_the_target_are_taken(shop: Migration) -> None:
    shop.target.alter_configs("shop.orders", set={"max.message.bytes": "5000000"})
    keeping.apply(shop.ctx())
    assert configs(shop)["max.message.bytes"] == "5000000"
    keeping.give_back(shop.ctx())
    assert "max.message.bytes" not in configs(shop)


def test_what_somebody_else_has_set_since_stays_and_is_named(shop: Migration) -> None:
    keeping.apply(shop.ctx())
    shop.source.alter_configs("shop.orders", set={"retention.ms": "42"})
    given = keeping.give_back(shop.ctx())
    assert configs(shop)["retention.ms"] == "42"
    assert "set by somebody else since, and left so: retention.ms" in str(given[0])


def test_dry_run_shows_and_changes_nothing(shop: Migration) -> None:
    assert keeping.apply(shop.ctx(dry_run=True))
    assert any("retention.ms=-1 (was 604800000)" in line for line in shop.told)
    assert shop.source.changes == []
    assert shop.ctx().journal.all(keeping.KIND) == {}


def test_without_the_right_nothing_is_copied(shop: Migration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seal, "check", lambda _ctx: None)
    ctx = shop.ctx()
    back = Context(**{**_fields(ctx), "direction": ctx.direction.opposite, "earlier": ((ctx.direction, ctx.link),)})
    error = NotAuthorized("source", "AlterConfigs", "topic shop.orders")
    with shop.source.failing("alter_configs", error), pytest.raises(NotAuthorized):
        mirror.apply(back, None)  # type: ignore[arg-type]
    assert back.link.run() is None


def _fields(ctx: Context) -> dict[str, Any]:
    return {name: getattr(ctx, name) for name in Context.__slots__}


def test_killed_anywhere_the_next_call_goes_on(shop: Migration) -> None:
    def mortal(killer: Killer) -> Context:
        ctx = shop.ctx()
        ctx.journal._store = MortalStore(shop.store, killer)
        return ctx

    before = configs(shop)
    for work, wanted in ((keeping.apply, before | WANTED), (keeping.give_back, before)):
        for at in itertools.count(1):
            killer = Killer(at)
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(shop.source, "alter_configs", killer.around(shop.source.alter_configs))
                try:
                    work(mortal(killer))
                except Killed:
                    continue
            break
        assert at > 3, "nothing was killed"
        assert {n: v for n, v in configs(shop).items() if n != "max.message.bytes"} == wanted
    assert shop.ctx().journal.all(keeping.KIND) == {}
