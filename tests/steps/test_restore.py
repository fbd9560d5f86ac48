"""Target topics get their sources' settings back once nothing is copied any more; before that, they are held open."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.errors import ClusterUnreachable, Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity
from kafka_migration.kafka.types import ConfigValue
from kafka_migration.link import seal
from kafka_migration.state.journal import Journal
from kafka_migration.topics import create, restore
from kafka_migration.topics.declared import is_restored
from kafka_migration.topics.specs import HELD_OPEN, OLD_BOUND, restorable
from tests.fakes.cluster import DEFAULT_CONFIGS
from tests.steps import histories
from tests.steps.gates import Migration
from tests.steps.killing import Killed, Killer, MortalStore

ORDERS, PAYMENTS = "shop.orders", "shop.payments"


def _explicit(shop: Migration, topic: str) -> dict[str, Any]:
    return {name: it.value for name, it in shop.target.topic_configs([topic])[topic].items() if it.is_explicit}


def _sealed(shop: Migration) -> None:
    ends = dict.fromkeys((*histories.ORDERS, histories.PAYMENTS), 7)
    shop.ctx().link.record_seal(Seal(at="noon", identity=Identity(7, 3), ends=ends))


@pytest.fixture
def shop() -> Migration:
    """Created from sources with settings of their own, mirrored, and sealed."""
    shop = Migration()
    shop.source.alter_configs(
        ORDERS,
        set={"message.timestamp.type": "LogAppendTime", "cleanup.policy": "compact", "segment.bytes": "20000000"},
    )
    create.apply(shop.ctx())
    histories.mirroring(shop)
    _sealed(shop)
    return shop


def test_sources_settings_come_into_force_and_nothing_of_the_copy_is_left(shop: Migration) -> None:
    assert {name: _explicit(shop, ORDERS)[name] for name in HELD_OPEN} == dict(HELD_OPEN)
    done = restore.apply(shop.ctx())
    assert [it.topic for it in done] == [ORDERS, PAYMENTS]
    assert _explicit(shop, ORDERS) == {
        "cleanup.policy": "compact",
        "message.timestamp.type": "LogAppendTime",
        "retention.ms": "604800000",
        "segment.bytes": "20000000",
    }
    assert _explicit(shop, PAYMENTS) == {}
    assert create.verify(shop.ctx()) == ()


def test_second_run_changes_nothing(shop: Migration) -> None:
    restore.apply(shop.ctx())
    before = list(shop.target.changes)
    assert all(not (it.set or it.delete) for it in restore.apply(shop.ctx()))
    assert shop.target.changes == before


def test_dry_run_says_the_same_and_changes_nothing(shop: Migration) -> None:
    before = (shop.store.items(), list(shop.target.changes))
    said = [str(it) for it in restore.apply(shop.ctx(dry_run=True))]
    assert (shop.store.items(), list(shop.target.changes)) == before
    assert "retention.ms=604800000" in said[0]
    assert "retention.bytes as the target's default" in said[0]
    assert [str(it) for it in restore.apply(shop.ctx())] == said


def test_setting_that_the_source_has_changed_since_counts_as_it_is_now(shop: Migration) -> None:
    shop.source.alter_configs(
        ORDERS, set={"retention.ms": "1000", "max.message.bytes": "2000000"}, delete=["segment.bytes"]
    )
    restore.apply(shop.ctx())
    found = _explicit(shop, ORDERS)
    assert (found["retention.ms"], found["max.message.bytes"]) == ("1000", "2000000")
    assert create.verify(shop.ctx()) == ()


BUT_PAYMENTS = {"topics": {"include": [r"shop\..*"], "exclude": [r"shop\.payments"]}}


def test_topic_that_was_excluded_on_the_way_is_restored_as_well_and_held_open_again(shop: Migration) -> None:
    held = _explicit(shop, PAYMENTS)
    done = restore.apply(shop.ctx(**BUT_PAYMENTS))
    assert [(it.topic, it.is_excluded) for it in done] == [(ORDERS, False), (PAYMENTS, True)]
    assert "restore shop.payments (excluded from the plan): " in str(done[1])
    assert _explicit(shop, PAYMENTS) == {}
    # By a plan that means it again it may be mirrored after this.
    seal.undo(shop.ctx(**BUT_PAYMENTS))
    assert _explicit(shop, PAYMENTS) == held


@pytest.mark.parametrize("now", ["gone", "another", "held by another migration", "released"])
def test_excluded_topic_that_is_not_this_migrations_any_more_is_left_alone(shop: Migration, now: str) -> None:
    if now in ("gone", "another"):
        shop.target.delete_topics([PAYMENTS])
    if now == "another":
        shop.target.add_topic(PAYMENTS, configs=dict(HELD_OPEN))
    if now in ("held by another migration", "released"):
        shop.ctx().journal.unlock([PAYMENTS])
    if now == "held by another migration":
        Journal(shop.store, "other").lock([PAYMENTS], at="now")
    before = {name: _explicit(shop, name) for name in shop.target.topics() if name == PAYMENTS}
    assert [it.topic for it in restore.apply(shop.ctx(**BUT_PAYMENTS))] == [ORDERS]
    assert {name: _explicit(shop, name) for name in shop.target.topics() if name == PAYMENTS} == before


def test_adopted_topic_gets_its_sources_settings_and_what_does_not_come_back_is_named() -> None:
    shop = Migration()
    before = {"retention.ms": "1000", "cleanup.policy": "compact", "compression.type": "zstd", "segment.bytes": "5000"}
    shop.target.add_topic(PAYMENTS, configs=before)
    create.apply(shop.ctx(topics={"include": [r"shop\..*"], "adopt": [PAYMENTS]}))
    histories.mirroring(shop)
    _sealed(shop)
    (_, done) = restore.apply(shop.ctx())
    # What becomes of records is as on the source, where they are kept for seven days; the rest is its owner's.
    assert _explicit(shop, PAYMENTS) == {"compression.type": "zstd", "segment.bytes": "5000"}
    assert str(done).endswith("; not as before it was adopted: cleanup.policy=compact, retention.ms=1000")
    assert done.as_dict()["lost"] == {"cleanup.policy": "compact", "retention.ms": "1000"}


def _with_defaults(shop: Migration, monkeypatch: pytest.MonkeyPatch, source: dict[str, str]) -> None:
    """Real brokers tell the default behind an explicit setting, and the ``source`` has defaults of its own."""

    def patched(ask: Any, own: dict[str, str]) -> Any:
        def configs(names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
            defaults = DEFAULT_CONFIGS | own
            return {
                name: {
                    n: replace(v, default=defaults[n]) if v.is_explicit else replace(v, value=defaults[n])
                    for n, v in it.items()
                }
                for name, it in ask(names).items()
            }

        return configs

    monkeypatch.setattr(shop.source, "topic_configs", patched(shop.source.topic_configs, source))
    monkeypatch.setattr(shop.target, "topic_configs", patched(shop.target.topic_configs, {}))


@pytest.mark.parametrize(("effective", "left"), [("3000000", "3000000"), ("1048588", None)])
def test_limit_that_the_copy_wanted_goes_unless_the_source_has_it(
    shop: Migration, monkeypatch: pytest.MonkeyPatch, effective: str, left: str | None
) -> None:
    shop.target.alter_configs(PAYMENTS, set={"max.message.bytes": "4000000"})
    _with_defaults(shop, monkeypatch, {"max.message.bytes": effective})
    restore.apply(shop.ctx())
    assert _explicit(shop, PAYMENTS).get("max.message.bytes") == left


def test_default_of_the_source_that_the_target_does_not_share_becomes_a_setting(
    shop: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"retention.ms": "2592000000", "message.timestamp.type": "LogAppendTime", "segment.bytes": "5000000"}
    _with_defaults(shop, monkeypatch, own)
    restore.apply(shop.ctx())
    assert _explicit(shop, PAYMENTS) == {"retention.ms": "2592000000", "message.timestamp.type": "LogAppendTime"}
    assert _explicit(shop, ORDERS)["retention.ms"] == "604800000", "explicit there"
    assert create.verify(shop.ctx()) == ()
    assert all(not (it.set or it.delete) for it in restore.apply(shop.ctx()))


def test_source_that_is_switched_off_counts_as_it_was(shop: Migration) -> None:
    with shop.source.failing("topics", ClusterUnreachable("source", "a", "gone")):
        done = restore.apply(shop.ctx())
    assert {it.source for it in done} == {"created"}
    assert _explicit(shop, ORDERS)["retention.ms"] == "604800000"
    assert any("what was explicit at the creation counts" in text for text in shop.told)


@pytest.mark.parametrize("sealed", ["not at all", "half"])
def test_mirror_that_may_still_write_is_refused(shop: Migration, sealed: str) -> None:
    ctx, before = shop.ctx(), list(shop.target.changes)
    ctx.link.unseal()
    if sealed == "half":
        ctx.link.record_seal(Seal(at="noon", ends={}))
    with pytest.raises(Refused, match="may still write"):
        restore.apply(ctx)
    assert shop.target.changes == before


def test_topics_of_another_migration_by_now_are_refused(shop: Migration) -> None:
    ctx = shop.ctx()
    ctx.journal.unlock([ORDERS])
    with pytest.raises(Refused, match="does not hold"):
        restore.apply(ctx)


def test_seal_that_is_taken_away_holds_everything_open_again(shop: Migration) -> None:
    before = {topic: _explicit(shop, topic) for topic in (ORDERS, PAYMENTS)}
    restore.apply(shop.ctx())
    assert seal.undo(shop.ctx()) is True
    assert {topic: _explicit(shop, topic) for topic in (ORDERS, PAYMENTS)} == before
    ctx = shop.ctx()
    assert not any(is_restored(it) for it in ctx.journal.all("topic").values())
    assert (ctx.link.seal(), create.verify(ctx)) == (None, ())
    _sealed(shop)
    restore.apply(shop.ctx())
    assert _explicit(shop, PAYMENTS) == {}


class MortalTarget:
    """The target as seen by a process that may be killed before or after it changes a topic's settings."""

    def __init__(self, shop: Migration, killer: Killer) -> None:
        self._cluster = shop.target
        self.alter_configs = killer.around(shop.target.alter_configs)

    def __getattr__(self, name: str) -> object:
        return getattr(self._cluster, name)


def _attempt(shop: Migration, killer: Killer) -> None:
    ctx = shop.ctx()
    ctx.journal = Journal(MortalStore(shop.store, killer), "shop")
    ctx.target = MortalTarget(shop, killer)  # type: ignore[assignment]
    restore.apply(ctx)


POINTS = 8


@pytest.mark.parametrize("at", range(1, POINTS + 1))
@pytest.mark.parametrize("then", ["run again", "unsealed"])
def test_run_killed_at_any_step_is_finished_by_the_next_or_taken_back(shop: Migration, at: int, then: str) -> None:
    held = {topic: _explicit(shop, topic) for topic in (ORDERS, PAYMENTS)}
    with pytest.raises(Killed):
        _attempt(shop, Killer(at))
    if then == "unsealed":
        seal.undo(shop.ctx())
        assert {topic: _explicit(shop, topic) for topic in (ORDERS, PAYMENTS)} == held
    else:
        restore.apply(shop.ctx())
        assert (_explicit(shop, PAYMENTS), _explicit(shop, ORDERS)["cleanup.policy"]) == ({}, "compact")
    assert create.verify(shop.ctx()) == ()


def test_every_step_is_covered(shop: Migration) -> None:
    killer = Killer()
    _attempt(shop, killer)
    assert killer.seen == POINTS


def test_one_bound_of_old_brokers_becomes_the_two_that_came_after_it() -> None:
    found = restorable({OLD_BOUND: "1000", "retention.ms": "5", "follower.replication.throttled.replicas": "*"}, {})
    assert found == {
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "1000",
        "retention.ms": "5",
    }
    assert restorable({OLD_BOUND: "1000", "cleanup.policy": "compact"}, {"cleanup.policy": "refused"}) == {
        "message.timestamp.before.max.ms": "1000",
        "message.timestamp.after.max.ms": "1000",
    }
    assert "cleanup.policy" in DEFAULT_CONFIGS


def test_one_bound_stays_one_where_the_target_is_as_old() -> None:
    assert restorable({OLD_BOUND: "1000", "retention.ms": "5"}, {}, is_old=True) == {
        OLD_BOUND: "1000",
        "retention.ms": "5",
    }
