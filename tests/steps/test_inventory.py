"""The inventory tells what the plan means on the source, and its digest moves only with what an approval is about."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_migration.domain.errors import ClusterUnreachable, NotAuthorized
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.inventory import inventory
from kafka_migration.kafka.facts import TransactionFacts
from kafka_migration.kafka.types import CommittedOffset
from tests.kafka.migration import Migration, migrations

CONFIGS = {"retention.ms": "3600000", "segment.bytes": "5000000"}


@pytest.fixture(params=["fake", "real"])
def migration(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


@pytest.fixture(params=["fake"])
def fake(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


@pytest.fixture(params=["real"])
def real(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


def test_topics_of_the_plan_are_told_with_what_is_in_them(migration: Migration) -> None:
    name = migration.source_lab.topic("orders", partitions=2, configs=CONFIGS)
    other = migration.source_lab.topic("skipped")
    then = int(migration.clock.now().timestamp() * 1000) - 5000
    migration.produce(name, 0, 10, timestamp=then)
    migration.source_lab.delete_records(TopicPartition(name, 0), 4)
    taken = inventory.take(migration.ctx(topics={"include": [rf"{migration.name}\..*"], "exclude": [r".*\.skipped"]}))
    assert other not in taken.topics
    it = taken.topics[name]
    assert (it.partitions, it.replication_factor, dict(it.configs)) == (2, 1, CONFIGS)
    assert (it.cleanup_policy, it.timestamp_type, it.retention_ms) == ("delete", "CreateTime", 3_600_000)
    assert it.ends == {0: PartitionEnds(start=4, end=10), 1: PartitionEnds(start=0, end=0)}
    assert it.offsets == 6
    assert it.bytes is not None
    assert it.bytes > 0
    assert it.span is not None
    assert (it.span.earliest, it.span.latest) == (then + 4, then + 9)
    assert it.topic_id == migration.source.topics([name])[name].topic_id
    assert taken.cluster_id == migration.source.cluster_id()
    assert taken.topic_partitions == (TopicPartition(name, 0), TopicPartition(name, 1))
    if migration.is_real:
        assert taken.unchecked == {}
        assert taken.acls == ()


def test_rate_is_what_is_written_while_it_looks(fake: Migration) -> None:
    name = fake.source_lab.topic("busy")
    fake.clock.while_asleep = lambda: fake.source_lab.produce(TopicPartition(name, 0), 250, timestamp=1)
    it = inventory.take(fake.ctx()).topics[name]
    assert it.records_per_second == 250
    assert it.bytes_per_second == 250 * 100


def test_groups_are_told_with_members_lag_and_what_they_never_committed(migration: Migration) -> None:
    read = migration.source_lab.topic("read", partitions=2)
    for partition in (0, 1):
        migration.produce(read, partition, 10)
    migration.source_lab.delete_records(TopicPartition(read, 0), 4)
    still, live, fresh = (f"{migration.name}.{name}" for name in ("still", "live", "fresh"))
    migration.source.commit(still, {TopicPartition(read, 0): CommittedOffset(offset=2)})
    migration.source_lab.join(live, [read], protocol="consumer")
    taken = inventory.take(migration.ctx())
    assert set(taken.groups) == {still, live}
    it = taken.groups[still]
    # The commit lies below the log start: six records are left to it.
    assert (it.state, it.protocol, it.committed, it.lag) == ("Empty", "classic", 1, 6)
    assert it.uncommitted == (TopicPartition(read, 1),)
    it = taken.groups[live]
    assert (it.state, it.protocol, [m.client_id for m in it.members]) == ("Stable", "consumer", ["shop"])
    assert it.topics == {read}
    assert it.uncommitted == (TopicPartition(read, 0), TopicPartition(read, 1))
    assert fresh not in taken.groups


def test_readers_that_the_plan_leaves_behind_are_named(migration: Migration) -> None:
    name = migration.source_lab.topic("shared")
    ours, theirs = f"{migration.name}.ours", f"{migration.name}.theirs"
    for group in (ours, theirs):
        migration.source.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=0)})
    taken = inventory.take(migration.ctx(groups={"include": [ours]}))
    assert (set(taken.groups), taken.left_behind) == ({ours}, (theirs,))


def test_transactional_producers_are_counted(real: Migration) -> None:
    from confluent_kafka import Producer

    name = real.source_lab.topic("transactional")
    real.produce(name, 0, 1)
    assert inventory.take(real.ctx()).topics[name].producers.transactional == 0  # type: ignore[union-attr]
    servers = real.source.connection.servers
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    assert producer.flush(30) == 0
    it = inventory.take(real.ctx()).topics[name].producers
    assert it is not None
    assert (it.transactional, it.in_transaction) == (1, 1)
    producer.commit_transaction(30)
    it = inventory.take(real.ctx()).topics[name].producers
    assert it is not None
    assert (it.transactional, it.in_transaction) == (1, 0)


def test_transaction_over_several_topics_is_named_by_its_transactional_id(real: Migration) -> None:
    from confluent_kafka import Producer

    one, two, other = (real.source_lab.topic(name) for name in ("one", "two", "other"))
    producer = Producer({"bootstrap.servers": real.source.connection.servers, "transactional.id": f"{one}-writer"})
    producer.init_transactions(30)
    # Not in one transaction: whoever writes both may have them in one at any time.
    for topics in ([one], [two], [one]):
        producer.begin_transaction()
        for name in topics:
            producer.produce(name, b"x", partition=0)
        producer.commit_transaction(30)
    plain = Producer({"bootstrap.servers": real.source.connection.servers, "enable.idempotence": True})
    for name in (one, other):
        plain.produce(name, b"x", partition=0)
    assert plain.flush(30) == 0
    assert inventory.take(real.ctx()).transactions == (
        TransactionFacts(name=f"{one}-writer", topics=frozenset({one, two})),
    )
    # Of a principal that may not describe transactional ids, brokers keep them without an error.
    real.source.transactional_ids = lambda _ids: {}  # type: ignore[attr-defined]
    (unnamed,) = inventory.take(real.ctx()).transactions or ()
    assert unnamed.name.isdecimal()
    assert unnamed.topics == {one, two}
    assert inventory.take(real.ctx()).as_dict()["transactions"] == [{"name": unnamed.name, "topics": [one, two]}]


class TestDigest:
    def test_digest_stays_while_records_and_offsets_move(self, migration: Migration) -> None:
        name, group = migration.source_lab.topic("moving"), f"{migration.name}.g"
        migration.source.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=0)})
        before = inventory.take(migration.ctx())
        migration.produce(name, 0, 100)
        migration.source.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=7)})
        after = inventory.take(migration.ctx())
        assert after.digest == before.digest
        assert after.as_dict() != before.as_dict()

    @pytest.mark.parametrize("change", ["setting", "topic", "group", "recreated"])
    def test_digest_moves_with_what_is_approved(self, migration: Migration, change: str) -> None:
        name = migration.source_lab.topic("first")
        before = inventory.take(migration.ctx()).digest
        if change == "setting":
            migration.source.alter_configs(name, set={"retention.ms": "5000"})
        elif change == "topic":
            migration.source_lab.topic("second")
        elif change == "group":
            migration.source.commit(f"{migration.name}.g", {TopicPartition(name, 0): CommittedOffset(offset=0)})
        else:
            migration.source_lab.delete_topic(name)
            migration.source_lab.topic("first")
        assert inventory.take(migration.ctx()).digest != before

    def test_groups_and_topics_outside_the_plan_do_not_move_it(self, migration: Migration) -> None:
        name = migration.source_lab.topic("ours")
        fields: dict[str, Any] = {"topics": {"include": [name]}, "groups": {"include": [f"{migration.name}\\.ours"]}}
        before = inventory.take(migration.ctx(**fields)).digest
        other = migration.source_lab.topic("other")
        migration.source.commit(f"{migration.name}.other", {TopicPartition(other, 0): CommittedOffset(offset=0)})
        assert inventory.take(migration.ctx(**fields)).digest == before


def test_inventory_changes_nothing_and_goes_into_json(migration: Migration) -> None:
    name = migration.source_lab.topic("json")
    taken = inventory.take(migration.ctx())
    assert (migration.source.changes, migration.target.changes, migration.store.items()) == ([], [], {})
    value = json.loads(json.dumps(taken.as_dict()))
    assert value["digest"] == taken.digest
    assert value["topics"][name]["partitions"] == 1


def test_what_may_not_be_asked_is_unchecked_with_the_reason(fake: Migration) -> None:
    fake.source_lab.topic("t")
    denied = NotAuthorized("source", "Describe", "cluster")

    def deny(*_: object) -> object:
        raise denied

    for method in ("disk_use", "producers", "quotas", "scram_users", "acls"):
        setattr(fake.source, method, deny)
    taken = inventory.take(fake.ctx())
    assert set(taken.unchecked) == {"bytes", "producers", "quotas", "scram users", "acls"}
    assert taken.unchecked["quotas"] == denied.message
    assert (taken.bytes, taken.quotas, taken.acls) == (None, None, None)
    assert taken.as_dict()["unchecked"] == dict(taken.unchecked)


def test_one_closed_group_does_not_hide_the_others(fake: Migration) -> None:
    name = fake.source_lab.topic("t")
    groups = [f"{fake.name}.{it}" for it in ("closed", "open")]
    for group in groups:
        fake.source.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=0)})
    denied = NotAuthorized("source", "Describe", f"group {groups[0]}")
    with fake.source_lab.cluster.failing("committed", denied, on=groups[0]):
        taken = inventory.take(fake.ctx())
    assert [taken.groups[group].lag for group in groups] == [None, 0]
    assert groups[0] in taken.unchecked["committed offsets"]


def test_cluster_that_falls_silent_ends_the_inventory(fake: Migration) -> None:
    fake.source_lab.topic("t")
    silent = ClusterUnreachable("source", "one:9092", "timed out")
    with fake.source_lab.cluster.failing("groups", silent), pytest.raises(ClusterUnreachable):
        inventory.take(fake.ctx())
