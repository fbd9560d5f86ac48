"""The form for clusters' connections, as Airflow's own provider manager and UI service read it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kafka_migration import __version__
from kafka_migration.airflow.provider import KafkaClusterHook, connection_type
from kafka_migration.kafka import cluster as clusters
from kafka_migration.kafka.properties import SECRETS, normalised

_ASK = """
import json, logging
logging.basicConfig(level=logging.WARNING)
from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService
from airflow.providers_manager import ProvidersManager
manager = ProvidersManager()
hooks = {kind: hook and [hook.package_name, hook.hook_class_name] for kind, hook in manager.hooks.items()}
widgets = manager.connection_form_widgets.items()
sensitive = [w.field_name for name, w in widgets if "kafka_cluster" in name and w.is_sensitive]
shown = [m.model_dump(mode="json") for m in HookMetaService.hook_meta_data() if m.connection_type == "kafka_cluster"]
fields = manager.field_behaviours
print(json.dumps({"hooks": hooks, "sensitive": sensitive, "shown": shown, "kafka": fields["kafka"]}))
"""


@pytest.fixture(scope="module")
def airflow(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow makes of the entry point, as an installed wheel would bring it, beside the Kafka provider's."""
    site = tmp_path_factory.mktemp("site")
    info = site / f"kafka_migration-{__version__}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: kafka-migration\nVersion: {__version__}\n")
    (info / "entry_points.txt").write_text(
        "[apache_airflow_provider]\nprovider_info = kafka_migration.airflow.provider:info\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", _ASK],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(site), *sys.path]),
            "AIRFLOW_HOME": str(tmp_path_factory.mktemp("home")),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found | {"errors": done.stderr + done.stdout}


def test_type_has_a_name_of_its_own_beside_the_kafka_providers(airflow: dict[str, Any]) -> None:
    hook = "kafka_migration.airflow.provider.KafkaClusterHook"
    assert airflow["hooks"]["kafka_cluster"] == ["kafka-migration", hook]
    assert airflow["hooks"]["kafka"][0] == "apache-airflow-providers-apache-kafka"
    assert airflow["kafka"]["relabeling"] == {"extra": "Config Dict"}, "its form is as it was"
    assert "already" not in airflow["errors"]


def test_form_asks_for_servers_login_and_tls_and_hides_what_means_nothing(airflow: dict[str, Any]) -> None:
    (shown,) = airflow["shown"]
    assert shown["hook_name"] == "Kafka cluster"
    standard = shown["standard_fields"]
    titles = {name: standard[name]["title"] for name in ("host", "login", "password")}
    assert titles == {"host": "Bootstrap servers", "login": "SASL user name", "password": "SASL password"}
    assert standard["port"]["hidden"]
    assert standard["url_schema"]["hidden"]
    fields = shown["extra_fields"]
    assert fields["security.protocol"]["schema"]["enum"] == ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", None]


def test_secrets_of_the_form_are_sensitive(airflow: dict[str, Any]) -> None:
    # The login's password is Airflow's own field.
    assert set(airflow["sensitive"]) == SECRETS - {"sasl.password"}


def test_every_field_of_the_form_is_a_property_that_clients_understand() -> None:
    fields = connection_type()["conn-fields"]
    everything = dict.fromkeys(fields, "x") | {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    tokens = {name: everything[name] for name in everything if not name.startswith(("ssl.", "sasl.kerberos."))}
    tokens |= {"sasl.oauthbearer.method": "oidc", "sasl.oauthbearer.token.endpoint.url": "https://a.example/token"}
    files = {name: "x" for name in everything if name.startswith("ssl.")}
    assert normalised("c", {"bootstrap.servers": "h:1", **tokens}) == {"bootstrap.servers": "h:1", **tokens}
    with_tls = {"bootstrap.servers": "h:1", "security.protocol": "SSL", **files}
    assert normalised("c", with_tls) == with_tls
    tickets = {"sasl.kerberos.principal": "x", "sasl.kerberos.service.name": "x", "sasl.kerberos.keytab": "/x"}
    with_tickets = {"bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", **tickets}
    assert normalised("c", with_tickets) == with_tickets
    assert set(tokens) | set(files) | set(tickets) == set(fields)


def test_test_of_a_connection_names_the_cluster_or_why_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps({"conn_type": "kafka_cluster"}))
    works, why = KafkaClusterHook("tried").test_connection()
    assert not works
    assert "bootstrap.servers" in why
    monkeypatch.setenv("AIRFLOW_CONN_TRIED", json.dumps({"conn_type": "kafka_cluster", "host": "127.0.0.1:1"}))
    monkeypatch.setattr(clusters.Cluster, "cluster_id", lambda self: "abc")
    assert KafkaClusterHook("tried").test_connection() == (True, "cluster abc answers")


def test_package_of_the_entry_point_is_the_wheels() -> None:
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert 'provider_info = "kafka_migration.airflow.provider:info"' in text
