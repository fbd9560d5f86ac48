"""Guarded clusters let in whom they know, deny what nobody granted, and leave no secret where others can read it."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority

PASSWORD = "a pass,word=\"with' everything\\"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority") / "certificates")


@pytest.fixture(scope="module")
def by_password(authority: Authority) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(name="scram", security=security.scram(authority, {"ada": PASSWORD})) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def by_certificate(authority: Authority) -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka(name="tls", security=security.mutual_tls(authority)) as cluster:
        yield cluster


def write(properties: dict[str, str], topic: str) -> KafkaError | None:
    """What becomes of a record."""
    told: list[KafkaError | None] = []
    producer = Producer({**properties, "message.timeout.ms": 20_000, "log_level": 0})
    producer.produce(topic, b"x", on_delivery=lambda error, _: told.append(error))
    producer.flush(30)
    return told[0]


def topics(properties: dict[str, str]) -> list[str]:
    return sorted(AdminClient({**properties, "log_level": 0}).list_topics(timeout=10).topics)


def create(cluster: EmbeddedKafka, name: str) -> None:
    # Held until it has answered: a client that is gone answers nothing.
    admin = AdminClient({**cluster.admin_properties})
    for future in admin.create_topics([NewTopic(name, 1, 1)]).values():
        future.result(30)


def test_user_with_a_password_gets_in_and_may_do_nothing_yet(by_password: EmbeddedKafka, authority: Authority) -> None:
    create(by_password, "closed")
    ada = {
        "bootstrap.servers": by_password.bootstrap_servers,
        **security.scram_client(authority, "ada", PASSWORD),
    }
    assert topics(ada) == [], "topics without a grant are not even shown"
    error = write(ada, "closed")
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert topics(by_password.admin_properties) == ["closed"]


def test_client_with_a_certificate_gets_in_and_one_without_does_not(
    by_certificate: EmbeddedKafka, authority: Authority
) -> None:
    servers = {"bootstrap.servers": by_certificate.bootstrap_servers}
    create(by_certificate, "closed")
    assert topics({**servers, **authority.client("grace")}) == []
    assert topics({**servers, **authority.client(security.ADMIN)}) == ["closed"]
    nobody = {"security.protocol": "SSL", "ssl.ca.location": str(authority.ca)}
    for properties in ({**servers, **nobody}, servers):
        with pytest.raises(KafkaException):
            topics(properties)


@pytest.mark.parametrize("kind", ["by_password", "by_certificate"])
def test_no_listener_answers_without_credentials(kind: str, request: pytest.FixtureRequest) -> None:
    cluster: EmbeddedKafka = request.getfixturevalue(kind)
    for servers in (cluster.bootstrap_servers, cluster.internal_servers):
        with pytest.raises(KafkaException):
            topics({"bootstrap.servers": servers})


def test_secrets_are_readable_by_their_owner_only_and_on_no_command_line(
    by_password: EmbeddedKafka, authority: Authority
) -> None:
    files = list(authority.directory.iterdir())
    assert {file.name for file in files} >= {"ca.crt", "broker.pem", "admin.key"}
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert stat.S_IMODE(authority.directory.stat().st_mode) == 0o700
    lines = [" ".join(psutil.Process(pid).cmdline()) for pid in by_password.pids.values()]
    assert lines
    assert not [line for line in lines if PASSWORD in line]
    properties = Path(by_password.data_dir / "node-1" / "server.properties")
    assert stat.S_IMODE(properties.stat().st_mode) == 0o600


def test_restarted_node_knows_its_users(by_password: EmbeddedKafka, authority: Authority) -> None:
    by_password.restart()
    ada = security.scram_client(authority, "ada", PASSWORD)
    assert topics({"bootstrap.servers": by_password.bootstrap_servers, **ada}) == []
