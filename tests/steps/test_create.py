"""Topics on the target: as on the source, held open, made once, and whole again after a death anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.migration.context import Context
from kafka_migration.topics import create
from kafka_migration.topics.declared import INTENT, KIND, Action
from kafka_migration.topics.specs import HELD_OPEN, LONG_MAX
from tests.kafka.labs import FakeLab
from tests.kafka.migration import Killed, Migration, counted, migrations
from tests.waiting import wait_until

CONFIGS = {"retention.ms": "3600000", "cleanup.policy": "compact", "max.message.bytes": "2000000"}


@pytest.fixture(params=["fake", "real"])
def migration(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


@pytest.fixture(params=["fake"])
def fake(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


@pytest.fixture(params=["real"])
def real(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


def adopting(migration: Migration, name: str) -> Context:
    return migration.ctx(topics={"include": [f"{migration.name}.*"], "adopt": [name]})


def test_topics_are_created_as_on_the_source_and_held_open(migration: Migration) -> None:
    plain = migration.source_lab.topic("plain", partitions=3)
    odd = migration.source_lab.topic("odd", configs=CONFIGS)
    done = create.apply(migration.ctx())
    assert done.drift == ()
    assert [(step.name, step.action) for step in done.steps] == [(odd, Action.CREATE), (plain, Action.CREATE)]
    described = migration.target.topics([plain, odd])
    assert {name: (it.partitions, it.replication_factor) for name, it in described.items()} == {
        plain: (3, 1),
        odd: (1, 1),
    }
    assert migration.explicit(plain) == dict(HELD_OPEN)
    # An eighth more: compacted batches are made anew, and may compress a little worse.
    assert migration.explicit(odd) == {**HELD_OPEN, "max.message.bytes": "2250000"}
    assert migration.explicit(odd)["message.timestamp.after.max.ms"] == LONG_MAX


def test_the_sources_own_settings_are_in_the_journal_for_completion(migration: Migration) -> None:
    odd = migration.source_lab.topic("odd", configs=CONFIGS)
    create.apply(migration.ctx())
    record = migration.journal.read(KIND, odd)
    assert record is not None
    assert record["configs_source"] == CONFIGS
    assert (record["created"], record["adopted"]) == (True, False)
    assert record["topic_id"] == migration.target.topics([odd])[odd].topic_id
    assert record["source_topic_id"] == migration.source.topics([odd])[odd].topic_id
    assert migration.journal.all(INTENT) == {}


def test_second_run_changes_nothing(migration: Migration) -> None:
    migration.source_lab.topic("once", configs=CONFIGS)
    create.apply(migration.ctx())
    before, entries = list(migration.target.changes), migration.store.items()
    again = create.apply(migration.ctx())
    assert [step.action for step in again.steps] == [Action.KEEP]
    assert again.drift == ()
    assert migration.target.changes == before
    assert migration.store.items() == entries


def test_dry_run_says_the_same_and_changes_nothing(migration: Migration) -> None:
    names = [migration.source_lab.topic(name, configs=CONFIGS) for name in ("one", "two")]
    would = create.apply(migration.ctx(dry_run=True))
    assert would.dry_run
    assert (migration.target.changes, migration.source.changes, migration.store.items()) == ([], [], {})
    assert migration.target.topics(names) == {}
    said, migration.told[:] = list(migration.told), []
    create.apply(migration.ctx())
    assert migration.told == said
    assert len(said) == 2


def test_more_replicas_than_brokers_are_refused_before_anything_is_created(real: Migration) -> None:
    name = real.source_lab.topic("mapped")
    with pytest.raises(Refused, match=f"{name}: the target refuses it: .*replication factor"):
        create.apply(real.ctx(topic_defaults={"replication_factor": 3}))
    assert (real.target.changes, real.store.items()) == ([], {})


class TestStrangers:
    def test_topic_of_somebody_else_is_refused_and_no_other_created(self, migration: Migration) -> None:
        taken, free = migration.source_lab.topic("taken"), migration.source_lab.topic("free")
        migration.target_lab.topic("taken")
        with pytest.raises(Refused, match=f"1 of 2 topics.*{taken}: it exists on the target") as caught:
            create.apply(migration.ctx())
        assert "delete it there" in caught.value.remedy
        assert migration.target.changes == []
        assert migration.store.items() == {}
        assert migration.target.topics([free]) == {}

    def test_adopted_empty_topic_is_held_open_too(self, migration: Migration) -> None:
        name = migration.source_lab.topic("adopted", configs=CONFIGS)
        migration.target_lab.topic("adopted", configs={"retention.ms": "1000"})
        done = create.apply(adopting(migration, name))
        assert [step.action for step in done.steps] == [Action.ADOPT]
        assert done.drift == ()
        assert migration.explicit(name) == {**HELD_OPEN, "max.message.bytes": "2250000"}
        record = migration.journal.read(KIND, name)
        assert record is not None
        assert (record["created"], record["adopted"]) == (False, True)
        assert record["before"] == {"retention.ms": "1000"}
        assert "; instead of retention.ms=1000" in migration.told[0]

    def test_adoption_that_dies_anywhere_still_knows_how_the_topic_was(self, fake: Migration) -> None:
        name = fake.source_lab.topic("adopted")
        for at in counted():
            world = Migration(fake.source_lab, FakeLab("target"), fake.clock)
            world.target_lab.topic("adopted", configs={"retention.ms": "1000", "segment.bytes": "5000"})
            try:
                with world.dying_at(at):
                    create.apply(adopting(world, name))
                break
            except Killed:
                pass
            create.apply(adopting(world, name))
            record = world.journal.read(KIND, name)
            assert record is not None, f"died at {at}"
            assert (record["adopted"], record["before"]["retention.ms"]) == (True, "1000"), f"died at {at}"
            assert world.explicit(name) == {**HELD_OPEN, "segment.bytes": "5000"}
            assert world.journal.all(INTENT) == {}
        # Two deaths around each of the lock, the intent, the change, the note and the intent's end.
        assert at == 2 * 5

    def test_topic_that_was_made_again_since_an_adoption_died_is_looked_at_anew(self, fake: Migration) -> None:
        name = fake.source_lab.topic("adopted")
        fake.target_lab.topic("adopted", configs={"retention.ms": "1000"})
        with pytest.raises(Killed), fake.dying_at(2 + 2):
            create.apply(adopting(fake, name))
        fake.target_lab.delete_topic(name)
        fake.target_lab.topic("adopted", configs={"retention.ms": "2000"})
        with pytest.raises(Refused, match="it exists on the target"):
            create.apply(fake.ctx())
        create.apply(adopting(fake, name))
        record = fake.journal.read(KIND, name)
        assert record is not None
        assert record["before"] == {"retention.ms": "2000"}

    def test_setting_that_an_adopted_topic_would_not_take_is_found_before_anything_is_changed(
        self, fake: Migration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name = fake.source_lab.topic("adopted", configs={"segment.bytes": "5000"})
        fake.target_lab.topic("adopted")
        monkeypatch.setattr(fake.target_lab.cluster, "refused_changes", lambda spec: {"segment.bytes": "too small"})
        with pytest.raises(Refused, match=r"does not take its configs: segment\.bytes: too small"):
            create.apply(adopting(fake, name))
        assert (fake.target.changes, fake.store.items()) == ([], {})

    def test_broker_that_shows_a_moment_later_what_was_set_is_no_drift(
        self, fake: Migration, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        name, target = fake.source_lab.topic("adopted"), fake.target_lab.cluster
        fake.target_lab.topic("adopted", configs={"retention.ms": "1000"})
        shown, alter = target.topic_configs, target.alter_configs

        def altered(topic: str, **changes: Any) -> None:
            before = [shown([topic])] * 3
            alter(topic, **changes)
            monkeypatch.setattr(target, "topic_configs", lambda names: before.pop() if before else shown(names))

        monkeypatch.setattr(target, "alter_configs", altered)
        assert create.apply(adopting(fake, name)).drift == ()

    def test_setting_that_only_the_adopted_topic_has_is_drift(self, migration: Migration) -> None:
        name = migration.source_lab.topic("adopted")
        migration.target_lab.topic("adopted", configs={"segment.bytes": "5000000"})
        (drift,) = create.apply(adopting(migration, name)).drift
        assert str(drift) == f"{name}: segment.bytes is 5000000, declared unset"

    def test_topic_with_records_is_not_adopted(self, migration: Migration) -> None:
        name = migration.source_lab.topic("full")
        migration.target_lab.topic("full")
        migration.target_lab.produce(TopicPartition(name, 0), 1, timestamp=1)
        with pytest.raises(Refused, match="it holds records"):
            create.apply(adopting(migration, name))
        assert migration.target.changes == []

    def test_topic_with_other_partitions_is_not_adopted(self, migration: Migration) -> None:
        name = migration.source_lab.topic("narrow", partitions=2)
        migration.target_lab.topic("narrow", partitions=3)
        with pytest.raises(Refused, match="it has 3 partitions, and its source 2"):
            create.apply(adopting(migration, name))

    def test_topics_of_another_migration_are_refused(self, migration: Migration) -> None:
        name = migration.source_lab.topic("held")
        migration.ctx(migration="other").journal.lock([name], at="now")
        with pytest.raises(Refused, match=f"{name}: migration other holds it"):
            create.apply(migration.ctx())
        assert migration.target.changes == []

    def test_plan_that_matches_nothing_is_refused(self, migration: Migration) -> None:
        with pytest.raises(Refused, match="matches no topic") as caught:
            create.apply(migration.ctx())
        assert "topics.include" in caught.value.remedy
        assert caught.value.exit_code == 1

    def test_topic_that_vanished_is_not_made_again_in_silence(self, migration: Migration) -> None:
        name = migration.source_lab.topic("vanished")
        create.apply(migration.ctx())
        migration.target_lab.delete_topic(name)
        with pytest.raises(Refused, match="it is gone from the target"):
            create.apply(migration.ctx())

    def test_topic_that_was_recreated_is_not_ours(self, migration: Migration) -> None:
        name = migration.source_lab.topic("recreated")
        create.apply(migration.ctx())
        migration.target_lab.delete_topic(name)
        migration.target_lab.topic("recreated", configs=dict(HELD_OPEN))
        with pytest.raises(Refused, match="it was recreated"):
            create.apply(migration.ctx())


class TestDrift:
    def test_changed_setting_is_reported_and_left(self, migration: Migration) -> None:
        name = migration.source_lab.topic("drifting")
        create.apply(migration.ctx())
        migration.target_lab.cluster.alter_configs(name, set={"retention.ms": "1000"}, delete=["cleanup.policy"])

        def found() -> set[tuple[str, str, str]]:
            return {(drift.what, drift.declared, drift.observed) for drift in create.verify(migration.ctx())}

        # A broker may show a moment later what was set.
        changed = {("retention.ms", "-1", "1000"), ("cleanup.policy", "delete", "unset")}
        wait_until(lambda: found() == changed, lambda: str(found()))
        assert create.apply(migration.ctx()).drift != ()
        assert migration.explicit(name)["retention.ms"] == "1000"

    def test_change_on_the_source_is_reported(self, migration: Migration) -> None:
        name = migration.source_lab.topic("moving", configs={"retention.ms": "1000"})
        create.apply(migration.ctx())
        migration.source_lab.cluster.alter_configs(name, set={"retention.ms": "2000"})
        wait_until(lambda: create.verify(migration.ctx()), "the broker shows what was set")
        (drift,) = create.verify(migration.ctx())
        assert str(drift) == f"{name}: source's retention.ms is 2000, declared 1000"

    def test_missing_topics_are_reported(self, migration: Migration) -> None:
        here, there = migration.source_lab.topic("here"), migration.source_lab.topic("there")
        create.apply(migration.ctx())
        migration.target_lab.delete_topic(here)
        migration.source_lab.delete_topic(there)
        assert {(it.topic, it.what) for it in create.verify(migration.ctx())} == {
            (here, "topic"),
            (there, "source topic"),
        }


class TestDeath:
    def test_death_anywhere_and_a_rerun_end_as_if_nobody_had_died(self, fake: Migration) -> None:
        names = [fake.source_lab.topic(name, partitions=2, configs=CONFIGS) for name in ("a", "b", "c")]
        for at in counted():
            world = Migration(fake.source_lab, FakeLab("target"), fake.clock)
            try:
                with world.dying_at(at):
                    create.apply(world.ctx())
                break
            except Killed:
                pass
            again = create.apply(world.ctx())
            assert again.drift == (), f"died at {at}"
            assert sorted(world.target.topics()) == names
            assert sorted(world.journal.all(KIND)) == names
            assert world.journal.all(INTENT) == {}
            assert [c for c in world.target.changes if c.startswith("alter")] == []
        # Two deaths around each of a lock, an intent, a note and the intent's end, for each topic; and a creation.
        assert at == 3 * 8 + 2

    def test_death_after_a_creation_on_real_brokers_is_made_good(self, migration: Migration) -> None:
        names = [migration.source_lab.topic(name, configs=CONFIGS) for name in ("a", "b")]
        # Locks (4), intents (4), and right after the creation.
        with pytest.raises(Killed), migration.dying_at(4 + 4 + 1):
            create.apply(migration.ctx())
        # A broker may not know at once what the controller has created.
        wait_until(lambda: sorted(migration.target.topics(names)) == names, "the topics exist")
        assert migration.journal.all(KIND) == {}
        assert create.apply(migration.ctx()).drift == ()
        assert sorted(migration.journal.all(KIND)) == names
        both = f"create {names[0]} {names[1]}"
        assert migration.target.changes == [both, both, f"create {names[0]}", f"create {names[1]}"]

    def test_death_after_half_of_a_creation_on_real_brokers_is_made_good(self, migration: Migration) -> None:
        names = [migration.source_lab.topic(name, configs=CONFIGS) for name in ("a", "b")]
        specs = [it.declared.spec for it in create.check(migration.ctx())]
        # Locks and intents stand; then the cluster creates one of the two, and everybody dies.
        with pytest.raises(Killed), migration.dying_at(4 + 4):
            create.apply(migration.ctx())
        migration.target_lab.cluster.create_topics(specs[:1])
        assert create.apply(migration.ctx()).drift == ()
        assert sorted(migration.journal.all(KIND)) == names
        assert migration.journal.all(INTENT) == {}

    def test_strangers_topic_after_a_death_is_not_taken_for_ours(self, fake: Migration) -> None:
        name = fake.source_lab.topic("a")
        # The lock and the intent stand; nothing was created.
        with pytest.raises(Killed), fake.dying_at(2 + 2):
            create.apply(fake.ctx())
        fake.target_lab.cluster.create_topics([TopicSpec(name=name, partitions=1, replication_factor=1)])
        with pytest.raises(Refused, match="is not what an interrupted run was about to create") as caught:
            create.apply(fake.ctx())
        assert "retention.ms is unset, declared -1" in str(caught.value)

    def test_our_topic_with_records_after_a_death_is_refused(self, fake: Migration) -> None:
        name = fake.source_lab.topic("a")
        with pytest.raises(Killed), fake.dying_at(2 + 2 + 1):
            create.apply(fake.ctx())
        fake.target_lab.produce(TopicPartition(name, 0), 1, timestamp=1)
        with pytest.raises(Refused, match="it holds records"):
            create.apply(fake.ctx())


def test_locks_are_taken_before_anything_is_created(fake: Migration) -> None:
    name = fake.source_lab.topic("a")
    create.apply(fake.ctx())
    assert fake.journal.holders([name]) == {name: fake.name}


def test_result_goes_into_json(fake: Migration) -> None:
    fake.source_lab.topic("a")
    fake.source_lab.cluster.commit(f"{fake.name}.g", {TopicPartition(f"{fake.name}.a", 0): CommittedOffset(offset=0)})
    value = create.apply(fake.ctx()).as_dict()
    assert value["topics"][0]["action"] == "create"
    assert value["topics"][0]["spec"]["configs"]["retention.ms"] == "-1"
