"""Who the demo's clients are on locked clusters: everybody somebody else, and nobody more than needed."""

from __future__ import annotations

import json
import os
import stat
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from demo.access import (
    CONSUMERS,
    MIGRATION,
    PROBE,
    PRODUCERS,
    Access,
    KerberosAccess,
    LockedAccess,
    MovingAccess,
    binding,
)
from demo.brokers import EmbeddedKafka
from demo.clients.settings import Settings
from demo.stage import PLAN
from kafka_migration.inventory import permissions
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.plans.load import load_plan
from tests.kerberized import NEEDS_KERBEROS


@pytest.fixture(autouse=True)
def addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the clusters ran."""
    monkeypatch.setattr(EmbeddedKafka, "bootstrap_servers", property(lambda self: f"{self.name}:9092"))
    monkeypatch.setattr(EmbeddedKafka, "internal_servers", property(lambda self: f"{self.name}:9093"))


@pytest.fixture
def locked(tmp_path: Path) -> LockedAccess:
    return LockedAccess(tmp_path / "certificates")


def test_open_clusters_ask_for_nothing() -> None:
    access = Access()
    assert access.settings().cluster("target") == {"bootstrap.servers": "target:9092"}
    assert access.settings().producer_properties() == access.settings().admin_properties() == access.client("source")


def test_every_client_of_a_locked_source_is_a_principal_of_its_own(locked: LockedAccess) -> None:
    settings = locked.settings()
    clients = [settings.cluster("source"), settings.producer_properties(), locked.client("source")]
    assert [it["sasl.username"] for it in clients] == [CONSUMERS, PRODUCERS, MIGRATION["source"]]
    assert len({it["sasl.password"] for it in clients}) == len(clients)
    assert {it["security.protocol"] for it in clients} == {"SASL_SSL"}
    assert settings.admin_properties()["bootstrap.servers"] == "source:9093"


def test_every_client_of_a_locked_target_shows_a_certificate_of_its_own(locked: LockedAccess) -> None:
    files = [Path(it["ssl.key.location"]) for it in (locked.settings().cluster("target"), locked.client("target"))]
    assert [file.stem for file in files] == [CONSUMERS, MIGRATION["target"]]
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}
    assert files[0].read_bytes() != files[1].read_bytes()


def test_producers_that_move_get_into_both_clusters_and_probes_are_somebody_else(tmp_path: Path) -> None:
    moving = MovingAccess(tmp_path / "certificates")
    settings = moving.settings()
    assert settings.scenario == "full"
    assert settings.producer_properties("source")["sasl.username"] == PRODUCERS
    assert Path(settings.producer_properties("target")["ssl.key.location"]).stem == PRODUCERS
    connections = moving.connections()
    assert connections["kafka_source_probe"]["extra"]["sasl.username"] == PROBE
    assert Path(connections["kafka_target_probe"]["extra"]["ssl.key.location"]).stem == PROBE


def test_settings_with_credentials_survive_the_run_directory(locked: LockedAccess) -> None:
    settings = locked.settings()
    assert Settings.from_json(settings.to_json()) == settings


def test_connections_are_such_as_all_three_clients_understand(locked: LockedAccess) -> None:
    for conn_id, it in json.loads(json.dumps(locked.connections())).items():
        connection = ClusterConnection(conn_id, it["extra"])
        assert connection.librdkafka()["security.protocol"] == connection.jvm()["security.protocol"]
        assert connection.kafka_python()["security_protocol"] == connection.jvm()["security.protocol"]


@NEEDS_KERBEROS
def test_each_side_asks_the_migration_for_tickets_of_another_principal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = KerberosAccess(tmp_path / "certificates")
    monkeypatch.setenv("KRB5_CONFIG", "taken back by the fixture")
    with ExitStack() as stack:
        access.prepare(stack)
        for side, protocol in (("source", "SASL_SSL"), ("target", "SASL_PLAINTEXT")):
            it = ClusterConnection(side, access.connections()[f"kafka_{side}"]["extra"])
            assert it.properties["sasl.kerberos.principal"] == MIGRATION[side]
            assert it.librdkafka()["security.protocol"] == protocol
            assert it.jvm_system_properties() == {"java.security.krb5.conf": os.environ["KRB5_CONFIG"]}
    assert Path(access.settings().producer_properties()["ssl.key.location"]).stem == PRODUCERS


def test_migration_is_granted_what_its_table_says_for_the_demos_plan() -> None:
    plan = load_plan(PLAN)
    rules = permissions.rules(plan, "target", permissions.names_of(plan))
    bindings: list[Any] = [binding(rule, "User:writer") for rule in rules]
    assert len(bindings) == len(rules) > 10
    assert {it.principal for it in bindings} == {"User:writer"}
    assert ("TOPIC", "demo.", "PREFIXED", "WRITE") in {
        (it.restype.name, it.name, it.resource_pattern_type.name, it.operation.name) for it in bindings
    }
    assert "BROKER" in {it.restype.name for it in bindings}, "what librdkafka calls the cluster"
