"""The preflight against a guarded target: what is missing is named, and what is enough is enough."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka.admin import ResourceType

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable, NotAuthorized
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.inventory import inventory, preflight
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.migration.context import SystemClock, open_context
from kafka_migration.topics import create
from tests.cli.processes import connection
from tests.kafka.guarded import Guarded
from tests.kafka.labs import FakeLab, RealLab
from tests.kafka.migration import Migration
from tests.waiting import wait_until

#: A connection gets ten seconds; some more for a machine that is busy.
SOON_SECONDS = 20.0


@pytest.fixture
def migration(guarded: Guarded, source_cluster: object) -> Iterator[Migration]:
    """From an open cluster to the guarded one, as a principal that may do nothing yet."""
    source = RealLab(source_cluster.bootstrap_servers)  # type: ignore[attr-defined]
    it = Migration(source, FakeLab("target"), SystemClock())
    name = source.topic("orders", partitions=2)
    it.produce(name, 0, 3)
    commits = {TopicPartition(name, p): CommittedOffset(offset=1) for p in (0, 1)}
    source.cluster.commit(f"{it.name}.g", commits)
    it.target = Cluster("target", guarded.connection("reader"))  # type: ignore[assignment]
    yield it
    it.target.close()
    source.close()


def results(migration: Migration) -> dict[str, CheckResult]:
    return {it.name: it for it in preflight.check(migration.ctx(), environ={}).gate.results}


def enough(guarded: Guarded, migration: Migration, *, without: str = "") -> ExitStack:
    """All that a migration needs on the target, or all but one."""
    topic, group, cluster = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER
    prefix = f"{migration.name}."
    grants = [
        (topic, prefix, ("CREATE", "READ", "WRITE", "ALTER_CONFIGS")),
        (topic, "kafka-migration.", ("CREATE", "READ", "WRITE", "DESCRIBE_CONFIGS")),
        (group, prefix, ("READ",)),
        (ResourceType.TRANSACTIONAL_ID, "kafka-migration.", ("WRITE",)),
        (cluster, "kafka-cluster", ("DESCRIBE", "DESCRIBE_CONFIGS")),
    ]
    stack = ExitStack()
    for kind, resource, operations in grants:
        named = [it for it in operations if without != f"{kind.name} {it}" or resource not in (prefix, "kafka-cluster")]
        if named and without != kind.name:
            stack.enter_context(guarded.granted(kind, resource, *named))
    return stack


def test_smallest_set_of_grants_opens_the_gate(guarded: Guarded, migration: Migration) -> None:
    with enough(guarded, migration):
        wait_until(lambda: migration.target.cluster_operations() != frozenset(), "the grants are in force")
        found = results(migration)
        not_passed = {name: it.evidence for name, it in found.items() if it.verdict is not Verdict.PASS}
        assert set(not_passed) == {"producer id expiration"}
        assert create.apply(migration.ctx()).drift == ()
        assert results(migration)["permissions on target"].verdict is Verdict.PASS


def test_principal_without_any_grant_is_told_what_it_lacks(guarded: Guarded, migration: Migration) -> None:
    found = preflight.check(migration.ctx(), environ={})
    by_name = {it.name: it for it in found.gate.results}
    target = by_name["permissions on target"]
    assert target.verdict is Verdict.FAIL
    assert "Write on transactional id" in target.evidence
    assert "Create, Read, Write, DescribeConfigs on topic kafka-migration.journal.internal" in target.evidence
    groups = by_name["permissions on target groups"]
    assert (groups.verdict, groups.evidence) == (Verdict.FAIL, f"missing ACLs: Read on group {migration.name}.g")
    assert by_name["target room"].verdict is Verdict.UNCHECKED
    assert found.exit_code == 1


@pytest.mark.parametrize(
    ("without", "check", "verdict"),
    [
        ("TRANSACTIONAL_ID", "permissions on target", Verdict.FAIL),
        ("GROUP", "permissions on target groups", Verdict.FAIL),
        ("TOPIC CREATE", "target topics", Verdict.FAIL),
        ("BROKER DESCRIBE", "permissions on target cluster", Verdict.FAIL),
        ("BROKER DESCRIBE", "target room", Verdict.UNCHECKED),
        ("BROKER DESCRIBE_CONFIGS", "message sizes", Verdict.UNCHECKED),
    ],
)
def test_each_missing_grant_closes_the_gate(
    guarded: Guarded, migration: Migration, without: str, check: str, verdict: Verdict
) -> None:
    with enough(guarded, migration, without=without):
        found = results(migration)
    assert found[check].verdict is verdict
    assert found[check].remedy


def test_creation_without_permission_changes_nothing(guarded: Guarded, migration: Migration) -> None:
    with (
        enough(guarded, migration, without="TOPIC CREATE"),
        pytest.raises(Exception, match="not authorized: Create"),
    ):
        create.apply(migration.ctx())
    assert migration.store.items() == {}


def test_wrong_credentials_close_the_gate_in_words(guarded: Guarded, migration: Migration) -> None:
    migration.target = Cluster("target", guarded.connection("reader", sasl_password="wrong"))  # type: ignore[assignment]
    found = preflight.check(migration.ctx(), environ={})
    result = next(it for it in found.gate.results if it.name == "target reachable")
    assert result.verdict is Verdict.FAIL
    assert "authentication failed" in result.evidence
    assert "credentials of the connection" in result.remedy
    assert found.exit_code == 1


def test_source_topics_without_permission_to_read_their_settings_are_named(
    guarded: Guarded, migration: Migration
) -> None:
    name = f"{migration.name}.closed"
    with (
        Cluster("source", guarded.connection()) as admin,
        Cluster("source", guarded.connection("reader")) as reader,
        guarded.granted(ResourceType.TOPIC, migration.name, "READ"),
    ):
        admin.create_topics([TopicSpec(name=name, partitions=1, replication_factor=1)])
        wait_until(lambda: name in reader.topics(), "the topic is visible")
        migration.source = reader  # type: ignore[assignment]
        with pytest.raises(NotAuthorized, match=f"DescribeConfigs on topic {name}"):
            inventory.take(migration.ctx())
        result = results(migration)["permissions on source topics"]
    assert result.verdict is Verdict.FAIL
    assert f"DescribeConfigs on topic {name}" in result.evidence


class TestOpening:
    """What a command says of a target that does not let it in, from the connections on."""

    @pytest.fixture
    def plan(self, migration: Migration, source_cluster: object, monkeypatch: pytest.MonkeyPatch) -> Any:
        plan = migration.plan()
        servers = source_cluster.bootstrap_servers  # type: ignore[attr-defined]
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_SOURCE", connection(servers))
        return plan

    def test_wrong_password_is_said_at_once_and_in_words(
        self, guarded: Guarded, plan: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        extra = guarded.properties("reader", sasl_password="not-the-password")
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TARGET", json.dumps({"conn_type": "kafka", "extra": extra}))
        for make_state in (False, True):
            began = time.monotonic()
            with (
                pytest.raises(AuthenticationFailed, match="target: authentication failed") as caught,
                open_context(plan, make_state=make_state),
            ):
                pass
            assert time.monotonic() - began < SOON_SECONDS
            assert "not-the-password" not in str(caught.value)
        with open_context(plan, to_check=True) as ctx:
            found = {it.name: it for it in preflight.check(ctx, environ={}).gate.results}
        assert found["target reachable"].verdict is Verdict.FAIL
        assert "authentication failed" in found["target reachable"].evidence

    def test_target_that_nobody_answers_for_is_named_within_seconds(
        self, plan: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TARGET", connection("127.0.0.1:1"))
        began = time.monotonic()
        with (
            pytest.raises(ClusterUnreachable, match=r"target: no broker at 127\.0\.0\.1:1 answered"),
            open_context(plan),
        ):
            pass
        assert time.monotonic() - began < SOON_SECONDS

    def test_hidden_state_is_not_taken_for_none(
        self, guarded: Guarded, plan: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        extra = guarded.properties("reader")
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_TARGET", json.dumps({"conn_type": "kafka", "extra": extra}))
        with pytest.raises(NotAuthorized, match=r"Read on topic kafka-migration\.links\.internal"), open_context(plan):
            pass
