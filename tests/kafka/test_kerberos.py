"""Kerberos: each client gets in by its connection's own keytab, or the reason is named; tickets are renewed."""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import AuthenticationFailed, BadInput, ClusterUnreachable, MigrationError, Refused
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.kafka import groups, sasl
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.forwarding import Forwarder
from kafka_migration.kafka.keyed_topic import KeyedTopic
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.kafka.types import CommittedOffset
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.selector import Selector
from tests.kafka.test_guarded import by_kafka_python, by_the_jvm, raised_by
from tests.kerberized import NEEDS_KERBEROS, Kerberized, kdc_for, kerberized_cluster
from tests.waiting import wait_until

pytestmark = [NEEDS_KERBEROS, pytest.mark.xdist_group("kerberized")]


def by_cluster(connection: ClusterConnection) -> str:
    with Cluster("source", connection, connect_timeout_seconds=6) as cluster:
        return cluster.cluster_id()


def by_wire(connection: ClusterConnection) -> None:
    with closing(WireCluster(Selector(), connection.kafka_python(), "source")) as cluster:
        # It tries until then, and a busy KDC takes a second for what it refuses.
        cluster.connect(6_000)


def authenticated(cluster: Kerberized) -> set[str]:
    """Whom the broker has let in."""
    return set(re.findall(r"authenticationID=(\S+?)@", cluster.kafka.log_tail(lines=2_000)))


def new_keytab(cluster: Kerberized, tmp_path: Path, principal: str) -> Path:
    """Of ``principal``, which nobody else uses."""
    return cluster.kdc.new_keytab(principal, tmp_path / "one.keytab")


class TestLetIn:
    def test_every_client_gets_in_as_two_principals_of_one_process(
        self, kerberized: Kerberized, tmp_path: Path
    ) -> None:
        users = [f"side-{side}-{uuid.uuid4().hex[:6]}" for side in ("source", "target")]
        one, other = (kerberized.connection(user) for user in users)
        found = [ask(it) for it in (one, other, one) for ask in (by_cluster, by_kafka_python)]
        assert set(users) <= authenticated(kerberized)
        jvm_users = [f"jvm-{user}" for user in users]
        found += by_the_jvm([kerberized.connection(user) for user in jvm_users], tmp_path)
        assert len(set(found)) == 1
        assert len(found) == 8
        assert set(jvm_users) <= authenticated(kerberized)

    def test_internal_topic_is_written_read_and_followed(self, kerberized: Kerberized) -> None:
        properties = kerberized.connection().librdkafka()
        with TopicLog(properties, ledger.JOURNAL_TOPIC) as log, TopicLog(properties, ledger.JOURNAL_TOPIC) as other:
            log.ensure()
            wait_until(log.exists, "the topic is there")
            log.ensure()
            before = other.end()
            log.append([(b"a", b"1"), (b"b", b"2"), (b"a", None)])
            assert other.end() == before + 3
            assert [(it.key, it.value) for it in other.new_entries()][-3:] == [(b"a", b"1"), (b"b", b"2"), (b"a", None)]
            assert list(other.new_entries()) == []
            log.append([(b"c", b"3")])
            assert [(it.key, it.value) for it in other.new_entries()] == [(b"c", b"3")]

    def test_group_of_a_broker_that_takes_one_at_a_time_is_read_as_it_was_written(
        self, kerberized: Kerberized, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(groups, "_MANY_GROUPS_VERSION", 1_000)
        name = f"old-{uuid.uuid4().hex[:6]}"
        with Cluster("target", kerberized.connection()) as cluster:
            cluster.create_topics([TopicSpec(name=name, partitions=2, replication_factor=1, configs={})])
            wait_until(lambda: name in cluster.topics([name]), name)
            wanted = {TopicPartition(name, 1): CommittedOffset(offset=7, metadata="note")}
            cluster.commit(name, wanted)
            assert cluster.committed(name) == wanted

    def test_compacted_topic_of_others_is_written_and_read(self, kerberized: Kerberized) -> None:
        name = f"offsets-{uuid.uuid4().hex[:6]}"
        with Cluster("target", kerberized.connection()) as cluster:
            cluster.create_topics([TopicSpec(name=name, partitions=3, replication_factor=1, configs={})])
            wait_until(lambda: name in cluster.topics([name]), name)
            topic = KeyedTopic(cluster, name)
            assert topic.latest() == {}
            topic.put({b"one": b"1", b"two": b"2"})
            topic.put({b"one": b"3"})
            assert topic.latest() == {b"one": b"3", b"two": b"2"}

    def test_stragglers_are_not_forwarded(self, kerberized: Kerberized) -> None:
        with Cluster("source", kerberized.connection()) as cluster, pytest.raises(Refused, match="Kerberos"):
            Forwarder(cluster, cluster, "id", largest=1_000_000)


class TestKeptOut:
    def test_keytab_without_the_principal_is_refused_to_every_client_before_any_kdc_is_asked(
        self, kerberized: Kerberized
    ) -> None:
        connection = kerberized.connection(sasl_kerberos_principal="somebody-else")
        for translate in (connection.librdkafka, connection.kafka_python, connection.jvm):
            error = raised_by(translate, BadInput)
            assert error.field == "sasl.kerberos.keytab"  # type: ignore[attr-defined]
            assert "has no key of somebody-else" in str(error)

    def test_missing_package_is_named_with_the_command_that_installs_it(
        self, kerberized: Kerberized, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(__import__("sys").modules, "gssapi", None)
        error = raised_by(kerberized.connection().kafka_python, BadInput)
        assert "pip install 'kafka-migration[kerberos]'" in str(error)

    @pytest.mark.parametrize("ask", [by_cluster, by_wire])
    def test_keytab_that_is_older_than_the_keys_is_named_at_once(
        self, kerberized: Kerberized, tmp_path: Path, ask: Callable[[ClusterConnection], object]
    ) -> None:
        principal = f"old-{uuid.uuid4().hex[:6]}"
        old = shutil.copy(new_keytab(kerberized, tmp_path, principal), tmp_path / "old.keytab")
        new_keytab(kerberized, tmp_path, principal)
        connection = kerberized.connection(sasl_kerberos_principal=principal, sasl_kerberos_keytab=str(old))
        error = raised_by(lambda: ask(connection), AuthenticationFailed)
        assert f"{principal} by {old}" in str(error)
        assert "export it again" in str(error)

    @pytest.mark.parametrize("ask", [by_cluster, by_wire])
    def test_service_that_the_kdc_does_not_know_is_named(
        self, kerberized: Kerberized, ask: Callable[[ClusterConnection], object]
    ) -> None:
        connection = kerberized.connection(sasl_kerberos_service_name="kfk")
        error = raised_by(lambda: ask(connection), AuthenticationFailed)
        assert "check sasl.kerberos.service.name" in str(error)

    @pytest.mark.parametrize("ask", [by_cluster, by_wire])
    def test_kdc_that_is_gone_keeps_out_only_who_has_no_ticket_yet_and_only_until_it_is_back(
        self, kerberized: Kerberized, ask: Callable[[ClusterConnection], object]
    ) -> None:
        known, unknown = (kerberized.connection(f"{name}-{uuid.uuid4().hex[:6]}") for name in ("known", "unknown"))
        ask(known)
        kerberized.kdc.kill()
        try:
            error = raised_by(lambda: ask(unknown), ClusterUnreachable)
            ask(known)
        finally:
            kerberized.kdc.launch()
        assert not isinstance(error, AuthenticationFailed)
        assert "Cannot contact any KDC" in str(error)
        assert "check that the KDC runs" in str(error)
        ask(unknown)

    @pytest.mark.parametrize(
        ("code", "kind", "words"),
        [
            (-1765328347, SaslAuthenticationFailedError, "clock"),
            (-1765328230, KafkaConnectionError, "krb5.conf"),
            (-1765328378, SaslAuthenticationFailedError, "sasl.kerberos.principal"),
        ],
        ids=["skew", "realm", "principal"],
    )
    def test_error_of_the_library_comes_with_a_remedy(self, code: int, kind: type[Exception], words: str) -> None:
        error = SimpleNamespace(min_code=code, get_all_statuses=lambda _code, _is_major: [b"its own text"])
        found = sasl._as_kafkas(error, "reader")
        assert type(found) is kind
        assert re.search(rf"reader: its own text; .*{re.escape(words)}", str(found))


@pytest.fixture
def short_lived(tmp_path: Path) -> Iterator[Kerberized]:
    """Tickets are good for 12 seconds, and connections have to show one every two."""
    with (
        kdc_for(tmp_path / "kdc", ticket_seconds=12) as kdc,
        kerberized_cluster(kdc, {"connections.max.reauth.ms": "2000"}) as cluster,
    ):
        yield cluster


@pytest.mark.long
def test_tickets_that_end_are_acquired_anew_while_connections_go_on(short_lived: Kerberized) -> None:
    connection, net = short_lived.connection("long-runner"), Selector()
    kdc_log = short_lived.kdc.log

    def acquired() -> int:
        return len(re.findall(r"AS_REQ .* ISSUE: .* long-runner@", kdc_log.read_text(encoding="utf-8")))

    with (
        Cluster("source", connection) as cluster,
        closing(WireCluster(net, connection.kafka_python(), "source")) as wire,
        TopicLog(connection.librdkafka(), ledger.JOURNAL_TOPIC) as log,
    ):
        wire.connect()
        log.ensure()
        wait_until(log.exists, "the topic is there")
        failures: list[MigrationError] = []

        def went_on() -> bool:
            try:
                log.append([(b"key", b"value")])
                assert cluster.ends([TopicPartition(ledger.JOURNAL_TOPIC, 0)])
                net.run(lambda: wire.refresh([ledger.JOURNAL_TOPIC]))
            except MigrationError as error:
                failures.append(error)
            return acquired() >= 4

        wait_until(went_on, "tickets were acquired three times more", deadline_seconds=90)
    assert failures == []
