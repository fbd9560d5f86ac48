"""One connection lets all three clients into a real, guarded cluster, or says why it does not."""

from __future__ import annotations

import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from confluent_kafka.admin import ResourceType

from demo import jars
from demo.java import java_executable
from kafka_migration.domain.errors import AuthenticationFailed, BadInput, ClusterUnreachable, NotAuthorized
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.errors import TopicExists
from kafka_migration.kafka.types import ScramUser
from tests.kafka.guarded import PASSWORDS, Guarded
from tests.waiting import HANGS_SECONDS, wait_until

MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]


def by_librdkafka(connection: ClusterConnection) -> str:
    with Cluster("source", connection) as cluster:
        return cluster.cluster_id()


def by_kafka_python(connection: ClusterConnection) -> str:
    from kafka.net.manager import KafkaConnectionManager
    from kafka.protocol.metadata import MetadataRequest

    from kafka_migration.wire.selector import Selector

    # As an executor gets it: pickled.
    net, config = Selector(), pickle.loads(pickle.dumps(connection.kafka_python()))
    manager = KafkaConnectionManager(net, **config)
    try:
        manager.bootstrap(10_000)

        async def ask() -> str:
            return str((await manager.send(MetadataRequest(topics=[]))).cluster_id)

        return str(manager.run(ask))
    finally:
        manager.close()


def by_the_jvm(connections: list[ClusterConnection], directory: Path) -> list[str]:
    """One JVM for all: starting it takes longer than everything that it does."""

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace("\n", "\\n")

    files, system = list[str](), dict[str, str]()
    for at, connection in enumerate(connections):
        file = directory / f"client-{at}.properties"
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={escaped(value)}\n" for name, value in connection.jvm().items()))
        files.append(str(file))
        system |= connection.jvm_system_properties()
    # What Spark's connector runs with: its own version of the client, and Spark's jars.
    spark = find_spec("pyspark")
    assert spark is not None
    assert spark.origin is not None
    class_path = os.pathsep.join([jars.class_path("spark"), str(Path(spark.origin).parent / "jars" / "*")])
    options = [f"-D{name}={value}" for name, value in system.items()]
    program = str(Path(__file__).with_name("Probe.java"))
    command = [str(java_executable()), *options, "-cp", class_path, program, *files]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS)
    assert run.returncode == 0, run.stderr[-3000:]
    return [line.removeprefix("cluster ") for line in run.stdout.splitlines() if line.startswith("cluster ")]


def raised_by(call: Callable[[], object], kind: type[Exception]) -> Exception:
    with pytest.raises(kind) as caught:
        call()
    return caught.value


class TestLetIn:
    @pytest.mark.parametrize("mechanism", MECHANISMS)
    def test_both_python_clients_get_in_with_every_mechanism(self, guarded: Guarded, mechanism: str) -> None:
        connection = guarded.connection(mechanism=mechanism)
        assert by_kafka_python(connection) == by_librdkafka(connection)

    def test_the_jvm_gets_in_with_every_mechanism_and_with_certificates(self, guarded: Guarded, tmp_path: Path) -> None:
        connections = [guarded.connection(mechanism=mechanism) for mechanism in MECHANISMS]
        connections += [guarded.certified("jvm", ending) for ending in (("crt", "key"), ("pem", "pem"))]
        expected = by_librdkafka(connections[0])
        assert by_the_jvm(connections, tmp_path) == [expected] * len(connections)

    @pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
    def test_name_with_comma_and_equals_gets_in(self, guarded: Guarded, mechanism: str) -> None:
        connection = guarded.connection("com,ma=x", mechanism, sasl_password="secret")
        assert by_kafka_python(connection) == by_librdkafka(connection)

    @pytest.mark.parametrize("endings", [("crt", "key"), ("pem", "pem")], ids=["two files", "one file"])
    def test_both_python_clients_get_in_with_a_certificate(self, guarded: Guarded, endings: tuple[str, str]) -> None:
        connection = guarded.certified("python", endings)
        assert by_kafka_python(connection) == by_librdkafka(connection)

    def test_key_that_the_jvm_cannot_open_is_refused_to_all(self, guarded: Guarded) -> None:
        guarded.authority.issue("locked", password="key password")
        connection = guarded.certified("locked", ("crt", "key"), ssl_key_password="key password")
        for translate in (connection.librdkafka, connection.kafka_python, connection.jvm):
            error = raised_by(translate, BadInput)
            assert error.field == "ssl.key.location"  # type: ignore[attr-defined]
            assert "PBE-SHA1-3DES" in str(error)

    def test_token_is_kept_until_it_grows_old(self, guarded: Guarded) -> None:
        provider = guarded.connection(mechanism="OAUTHBEARER").kafka_python()["sasl_oauth_token_provider"]
        before = guarded.endpoint.asked
        assert provider.token() == provider.token()  # type: ignore[attr-defined]
        assert guarded.endpoint.asked == before + 1

    def test_token_is_refused_to_a_stranger_without_naming_its_secret(self, guarded: Guarded) -> None:
        connection = guarded.connection(mechanism="OAUTHBEARER", sasl_oauthbearer_client_secret="wrong-secret")
        provider = connection.kafka_python()["sasl_oauth_token_provider"]
        error = raised_by(provider.token, BadInput)  # type: ignore[attr-defined]
        assert "HTTP 401" in str(error)
        assert "wrong-secret" not in str(error)


class TestKeptOut:
    @pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
    def test_wrong_password_is_said_at_once_and_in_words(self, guarded: Guarded, mechanism: str) -> None:
        connection = guarded.connection("reader", mechanism, sasl_password="not-the-password")
        for ask in (Cluster.cluster_id, Cluster.groups, Cluster.topics):
            with Cluster("target", connection) as cluster:
                error = raised_by(lambda ask=ask, cluster=cluster: ask(cluster), AuthenticationFailed)  # type: ignore[misc]
            assert str(error).startswith("target: authentication failed")
            assert "not-the-password" not in str(error)
            assert error.exit_code == 3  # type: ignore[attr-defined]

    def test_unknown_authority_is_an_unreachable_cluster_with_the_cause(self, guarded: Guarded) -> None:
        connection = ClusterConnection("guarded", {k: v for k, v in guarded.properties().items() if "ca" not in k})
        with Cluster("source", connection, connect_timeout_seconds=3) as cluster:
            error = raised_by(cluster.cluster_id, ClusterUnreachable)
        assert "certificate verify failed" in str(error)

    def test_wrong_protocol_is_an_unreachable_cluster(self, guarded: Guarded) -> None:
        connection = ClusterConnection("guarded", {"bootstrap.servers": guarded.servers})
        with Cluster("source", connection, connect_timeout_seconds=3) as cluster:
            assert guarded.servers in str(raised_by(cluster.cluster_id, ClusterUnreachable))

    def test_nobody_at_the_address_is_said_with_servers_and_cause(self) -> None:
        connection = ClusterConnection("nowhere", {"bootstrap.servers": "127.0.0.1:1"})
        with Cluster("source", connection, connect_timeout_seconds=2) as cluster:
            error = raised_by(cluster.topics, ClusterUnreachable)
        assert "127.0.0.1:1" in str(error)
        assert "Connection refused" in str(error)


class TestPermissions:
    @pytest.fixture
    def reader(self, guarded: Guarded) -> Iterator[Cluster]:
        with Cluster("source", guarded.connection("reader")) as cluster:
            yield cluster

    @pytest.fixture
    def admin(self, guarded: Guarded) -> Iterator[Cluster]:
        with Cluster("source", guarded.connection()) as cluster:
            yield cluster

    def test_each_denial_names_operation_and_resource(self, guarded: Guarded, reader: Cluster, admin: Cluster) -> None:
        admin.create_topics([TopicSpec(name="denied", partitions=1, replication_factor=1)])
        tp, wanted = TopicPartition("denied", 0), TopicSpec(name="x", partitions=1, replication_factor=1)
        denials: dict[Callable[[], object], tuple[str, str] | None] = {
            reader.acls: ("Describe", "cluster"),
            reader.quotas: ("DescribeConfigs", "cluster"),
            reader.scram_users: ("Describe", "cluster"),
            reader.disk_use: ("Describe", "cluster"),
            reader.broker_configs: ("DescribeConfigs", "broker"),
            lambda: reader.topic_configs(["denied"]): ("DescribeConfigs", "topic denied"),
            lambda: reader.ends([tp]): ("Describe", "topic denied"),
            lambda: reader.committed("some-group"): ("Describe", "group some-group"),
            lambda: reader.group_state("some-group"): ("Describe", "group some-group"),
            lambda: reader.commit("some-group", {}): None,
            lambda: reader.create_topics([wanted]): ("Create", "topic x"),
            lambda: reader.alter_configs("denied", set={"retention.ms": "1"}): (
                "AlterConfigs",
                "topic denied",
            ),
        }
        for call, expected in denials.items():
            if expected is None:
                call()
                continue
            error = raised_by(call, NotAuthorized)
            assert isinstance(error, NotAuthorized)
            assert error.operation == expected[0]
            assert error.resource.startswith(expected[1])
            assert error.exit_code == 1

    def test_operations_are_told_as_they_are_granted(self, guarded: Guarded, reader: Cluster, admin: Cluster) -> None:
        assert reader.cluster_operations() == frozenset()
        assert {"CREATE", "DESCRIBE", "ALTER"} <= admin.cluster_operations()
        assert reader.group_operations(["orders.group"]) == {"orders.group": frozenset()}
        assert not reader.may_use_transactional_id("orders.tx")
        admin.create_topics([TopicSpec(name="orders.topic", partitions=1, replication_factor=1)])
        with (
            guarded.granted(ResourceType.TOPIC, "orders.", "READ", "DESCRIBE_CONFIGS"),
            guarded.granted(ResourceType.GROUP, "orders.", "READ"),
            guarded.granted(ResourceType.TRANSACTIONAL_ID, "orders.", "WRITE"),
        ):
            wait_until(lambda: "orders.topic" in reader.topics(), "the grant is in force")
            assert reader.topics()["orders.topic"].operations == {"READ", "DESCRIBE", "DESCRIBE_CONFIGS"}
            assert reader.group_operations(["orders.group"]) == {"orders.group": frozenset({"READ", "DESCRIBE"})}
            assert reader.may_use_transactional_id("orders.tx")
            assert not reader.may_use_transactional_id("other.tx")
            rules = [it for it in admin.acls() if it.principal == "User:reader" and it.resource == "orders."]
            assert {(it.resource_type, it.pattern, it.operation, it.permission) for it in rules} == {
                ("TOPIC", "PREFIXED", "READ", "ALLOW"),
                ("TOPIC", "PREFIXED", "DESCRIBE_CONFIGS", "ALLOW"),
                ("GROUP", "PREFIXED", "READ", "ALLOW"),
                ("TRANSACTIONAL_ID", "PREFIXED", "WRITE", "ALLOW"),
            }

    def test_scram_users_are_listed_without_secrets(self, admin: Cluster) -> None:
        users = admin.scram_users()
        assert {it.user for it in users} >= set(PASSWORDS)
        both = (("SCRAM-SHA-256", 4096), ("SCRAM-SHA-512", 4096))
        assert ScramUser(user="reader", credentials=both) in users


def test_creation_that_is_only_tried_asks_for_the_right_before_it_says_that_the_topic_exists(guarded: Guarded) -> None:
    """What `mirror --again` asks before it deletes the topic that it is to create again."""
    spec = TopicSpec(name="guarded.again", partitions=1, replication_factor=1, configs={})
    with Cluster("target", guarded.connection()) as admin:
        admin.create_topics([spec])
    with (
        Cluster("target", guarded.connection("reader")) as reader,
        guarded.granted(ResourceType.TOPIC, spec.name, "READ", "WRITE", "DELETE"),
    ):
        wait_until(lambda: reader.topics([spec.name]), "the grants are in force")
        with pytest.raises(NotAuthorized, match="Create"):
            reader.create_topics([spec], dry_run=True)
        with guarded.granted(ResourceType.TOPIC, spec.name, "CREATE"):
            wait_until(lambda: _exists(reader, spec), "Create is in force")


def _exists(cluster: Cluster, spec: TopicSpec) -> bool:
    try:
        cluster.create_topics([spec], dry_run=True)
    except NotAuthorized:
        return False
    except TopicExists:
        return True
    raise AssertionError("nothing was said of the topic that is there")
