"""The preflight on real clusters: open for what will go well, closed with evidence and remedy for what will not."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory import preflight
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.topics import create
from tests.kafka.migration import Migration, migrations
from tests.waiting import wait_until


@pytest.fixture(params=["real"])
def migration(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


@pytest.fixture(params=["fake"])
def fake(request: pytest.FixtureRequest) -> Iterator[Migration]:
    yield from migrations(request)


def checked(migration: Migration, **fields: Any) -> dict[str, CheckResult]:
    found = preflight.check(migration.ctx(**fields), environ={})
    return {it.name: it for it in found.gate.results}


def test_ordinary_migration_finds_the_gate_open(migration: Migration) -> None:
    name = migration.source_lab.topic("orders", partitions=2, configs={"retention.ms": "86400000"})
    migration.produce(name, 0, 10)
    group = f"{migration.name}.g"
    migration.source.commit(group, {TopicPartition(name, p): CommittedOffset(offset=0) for p in (0, 1)})
    migration.source.changes.clear()
    found = preflight.check(migration.ctx(), environ={})
    verdicts = {it.name: it.verdict for it in found.gate.results}
    # Brokers forget producer ids after a day by default.
    assert {name for name, verdict in verdicts.items() if verdict is not Verdict.PASS} == {"producer id expiration"}
    assert verdicts["producer id expiration"] is Verdict.WARN
    assert found.gate.is_open
    assert found.exit_code == 0
    assert found.inventory is not None
    assert set(found.inventory.topics) == {name}
    assert set(verdicts) >= {name for name, _ in preflight.CHECKS}
    assert len(verdicts) == len(found.gate.results)


def _own(migration: Migration) -> set[str]:
    """Topics on the target, but for those of other tests."""
    return {name for name in migration.target.topics() if name.startswith(migration.name)}


def test_preflight_changes_nothing(migration: Migration) -> None:
    migration.source_lab.topic("untouched")
    topics = _own(migration)
    value = preflight.check(migration.ctx(), environ={}).as_dict()
    assert (migration.source.changes, migration.target.changes, migration.store.items()) == ([], [], {})
    assert _own(migration) == topics
    assert json.loads(json.dumps(value))["open"] is True


def test_preflight_passes_again_while_the_migration_is_under_way(migration: Migration) -> None:
    migration.source_lab.topic("known")
    create.apply(migration.ctx())
    found = checked(migration)
    assert found["target topics"].verdict is Verdict.PASS
    assert found["target topics"].evidence == "1 to keep"
    assert found["no other migration"].verdict is Verdict.PASS


def test_same_cluster_twice_is_refused(migration: Migration) -> None:
    migration.source_lab.topic("self")
    migration.target = migration.source
    found = checked(migration)["target is another cluster"]
    assert found.verdict is Verdict.FAIL
    assert migration.source.cluster_id() in found.evidence


def test_plan_that_matches_no_topic_is_refused(migration: Migration) -> None:
    found = preflight.check(migration.ctx(), environ={})
    result = next(it for it in found.gate.results if it.name == "plan matches topics")
    assert result.verdict is Verdict.FAIL
    assert "topics.include" in result.remedy
    assert found.exit_code == 1


def test_topic_that_exists_on_the_target_is_refused_unless_adopted(migration: Migration) -> None:
    name = migration.source_lab.topic("there")
    migration.target_lab.topic("there")
    result = checked(migration)["target topics"]
    assert result.verdict is Verdict.FAIL
    assert f"{name}: it exists on the target" in result.evidence
    topics = {"include": [f"{migration.name}.*"], "adopt": [name]}
    adopted = preflight.check(migration.ctx(topics=topics), environ={})
    assert next(it for it in adopted.gate.results if it.name == "target topics").verdict is Verdict.PASS


def test_topic_that_the_plan_adopts_with_its_records_is_left_to_adopt(migration: Migration) -> None:
    name = migration.source_lab.topic("there")
    migration.target_lab.topic("there")
    migration.target_lab.produce(TopicPartition(name, 0), 1, timestamp=1)
    topics = {"include": [f"{migration.name}.*"], "adopt": [name]}
    found = preflight.check(migration.ctx(topics=topics), environ={}).gate.results
    result = next(it for it in found if it.name == "target topics")
    assert (result.verdict, f"are compared first, by `adopt`: {name}" in result.evidence) == (Verdict.PASS, True)


def test_topics_of_another_migration_are_refused(migration: Migration) -> None:
    name = migration.source_lab.topic("held")
    migration.ctx(migration="other").journal.lock([name], at="now")
    found = checked(migration)
    assert found["no other migration"].verdict is Verdict.FAIL
    assert found["no other migration"].evidence == f"{name} is held by other"


def test_groups_that_read_topics_of_another_migration_as_well_are_a_warning(migration: Migration) -> None:
    ours, theirs = migration.source_lab.topic("ours"), migration.source_lab.topic("theirs")
    group, zero = f"{migration.name}.both", CommittedOffset(offset=0)
    migration.source.commit(group, {TopicPartition(ours, 0): zero, TopicPartition(theirs, 0): zero})
    # One that reads nothing of this plan moves with its own.
    migration.source.commit(f"{migration.name}.theirs", {TopicPartition(theirs, 0): zero})
    migration.ctx(migration="other").journal.lock([theirs], at="now")
    found = checked(migration, topics={"include": [ours]})["no other migration"]
    assert found.verdict is Verdict.WARN
    assert found.evidence.startswith(f"group {group} also reads {theirs} (other), which another migration mirrors")


def test_more_replicas_than_brokers_are_refused(migration: Migration) -> None:
    name = migration.source_lab.topic("wide")
    found = checked(migration, topic_defaults={"replication_factor": 3})
    assert found["replication"].verdict is Verdict.FAIL
    assert found["replication"].evidence == f"{name} has 3 replicas, the target 1 brokers"


def test_more_replicas_in_sync_than_replicas_are_refused(migration: Migration) -> None:
    name = migration.source_lab.topic("insync", configs={"min.insync.replicas": "2"})
    assert checked(migration)["replication"].evidence == f"{name} wants 2 replicas in sync, and would have 1"


def test_topics_whose_batches_are_made_anew_are_named(migration: Migration) -> None:
    assert checked(migration)["batches to re-encode"].evidence == "none: every batch is copied as it stands"
    stamped = migration.source_lab.topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})
    compacted = migration.source_lab.topic("compacted", configs={"cleanup.policy": "compact"})
    found = checked(migration)["batches to re-encode"]
    assert found.verdict is Verdict.PASS
    assert f"{compacted} (compacted), {stamped} (LogAppendTime)" in found.evidence


def test_transactional_topic_is_named(migration: Migration) -> None:
    from confluent_kafka import Producer

    name = migration.source_lab.topic("transactional")
    producer = Producer({"bootstrap.servers": migration.source.connection.servers, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(name, b"x", partition=0)
    producer.commit_transaction(30)
    found = checked(migration)["topics with transactions"]
    assert found.verdict is Verdict.PASS
    assert f"{name} (1 producers, 0 in a transaction)" in found.evidence


@pytest.mark.parametrize(("policy", "verdict"), [("refuse", Verdict.WARN), ("earliest", Verdict.PASS)])
def test_partitions_that_a_group_never_committed_are_listed(
    migration: Migration, policy: str, verdict: Verdict
) -> None:
    name, group = migration.source_lab.topic("half", partitions=3), f"{migration.name}.g"
    migration.source.commit(group, {TopicPartition(name, 1): CommittedOffset(offset=0)})
    found = checked(migration, cutover={"uncommitted": policy})["groups have committed"]
    assert found.verdict is verdict
    assert f"{group}: {name}-0, {name}-2" in found.evidence


def test_reader_that_is_left_behind_is_a_warning(migration: Migration) -> None:
    name, group = migration.source_lab.topic("shared"), f"{migration.name}.theirs"
    migration.source.commit(group, {TopicPartition(name, 0): CommittedOffset(offset=0)})
    found = checked(migration, groups={"include": []})["groups left behind"]
    assert found.verdict is Verdict.WARN
    assert group in found.evidence


def test_bound_on_times_that_was_set_on_a_mirror_topic_is_found_before_a_record_is_refused(
    migration: Migration,
) -> None:
    name = migration.source_lab.topic("aged")
    migration.produce(name, 0, 10, timestamp=1_700_000_000_000)
    create.apply(migration.ctx())
    assert checked(migration)["record times"].verdict is Verdict.PASS
    migration.target_lab.cluster.alter_configs(name, set={"message.timestamp.before.max.ms": "86400000"})
    wait_until(lambda: checked(migration)["record times"].verdict is Verdict.FAIL, "the bound is seen")
    assert "with records of 2023-11-14" in checked(migration)["record times"].evidence


def test_memory_that_is_advised_for_the_oldest_records_is_one_that_brokers_take(migration: Migration) -> None:
    migration.produce(migration.source_lab.topic("epoch"), 0, 1, timestamp=0)
    advised = checked(migration)["producer id expiration"].remedy.rpartition("=")[2]
    setting = ConfigEntry("producer.id.expiration.ms", advised, incremental_operation=AlterConfigOpType.SET)
    (broker,) = migration.target.brokers()
    resource = ConfigResource(ResourceType.BROKER, str(broker), incremental_configs=[setting])
    admin = AdminClient({"bootstrap.servers": migration.target.connection.servers})
    for future in admin.incremental_alter_configs([resource], validate_only=True).values():
        future.result(30)


def test_hook_that_the_administrator_did_not_allow_is_refused(migration: Migration) -> None:
    migration.source_lab.topic("hooked")
    found = checked(migration, consumers={"stop": [{"command": ["/bin/stop-all"]}]})
    assert found["hook consumers.stop[0]"].verdict is Verdict.FAIL


def test_target_that_does_not_answer_leaves_everything_unchecked(migration: Migration) -> None:
    migration.source_lab.topic("t")
    nowhere = ClusterConnection("nowhere", {"bootstrap.servers": "127.0.0.1:1"})
    migration.target = Cluster("target", nowhere, connect_timeout_seconds=2)  # type: ignore[assignment]
    found = preflight.check(migration.ctx(), environ={})
    results = {it.name: it for it in found.gate.results}
    assert results["source reachable"].verdict is Verdict.PASS
    assert results["target reachable"].verdict is Verdict.UNCHECKED
    assert "127.0.0.1:1" in results["target reachable"].evidence
    assert "bootstrap.servers" in results["target reachable"].remedy
    assert {results[name].verdict for name, _ in preflight.CHECKS} == {Verdict.UNCHECKED}
    assert (found.exit_code, found.inventory) == (3, None)


def test_wrong_credentials_are_a_no_not_a_silence(fake: Migration) -> None:
    refused = AuthenticationFailed("source", "one:9092", "Invalid username or password")
    with fake.source_lab.cluster.failing("cluster_id", refused):
        found = preflight.check(fake.ctx(), environ={})
    result = found.gate.results[0]
    assert (result.name, result.verdict) == ("source reachable", Verdict.FAIL)
    assert "authentication failed" in result.evidence
    assert found.exit_code == 1


def test_cluster_that_falls_silent_meanwhile_is_asked_only_once(
    fake: Migration, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.source_lab.topic("t")
    asked = []

    def silent() -> object:
        asked.append(1)
        raise ClusterUnreachable("source", "one:9092", "timed out")

    monkeypatch.setattr(fake.source, "topics", silent)
    found = preflight.check(fake.ctx(), environ={})
    verdicts = {it.name: it.verdict for it in found.gate.results}
    assert verdicts["plan matches topics"] is Verdict.UNCHECKED
    # Once for the inventory, once for the rights on what it would show, once for the steps of create.
    assert len(asked) == 3
    assert not found.gate.is_open


def test_password_that_crosses_the_network_in_clear_is_a_warning(fake: Migration) -> None:
    properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    properties |= {"bootstrap.servers": "h:1", "sasl.username": "mover", "sasl.password": "s3cret"}
    assert "target credentials" not in checked(fake)
    fake.target.connection = ClusterConnection("t", properties)
    found = checked(fake)["target credentials"]
    assert (found.verdict, "the password crosses the network in clear" in found.evidence) == (Verdict.WARN, True)
    assert "s3cret" not in str(found)
    assert "source credentials" not in checked(fake)
