"""Connections are found in Airflow's own variables, in both of its forms, without importing Airflow."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from urllib.parse import quote, urlencode

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.kafka import lookup
from kafka_migration.kafka.lookup import find_connection, find_password
from tests.steps.worlds import FakeClock
from tests.waiting import HANGS_SECONDS

EXTRA = {"bootstrap.servers": "one:9092", "client.id": "me"}


def found(text: str) -> dict[str, str]:
    return find_connection("kafka_Source", {"AIRFLOW_CONN_KAFKA_SOURCE": text}).librdkafka()


FORMS = [
    json.dumps({"conn_type": "kafka", "extra": EXTRA}),
    json.dumps({"conn_type": "kafka", "extra": json.dumps(EXTRA)}),
    "kafka://?" + urlencode(EXTRA),
    "kafka://?__extra__=" + quote(json.dumps(EXTRA), safe=""),
]


@pytest.mark.parametrize("text", FORMS, ids=["json", "json-with-text", "uri", "uri-with-json"])
def test_variable_in_each_of_airflows_forms_is_read(text: str) -> None:
    assert found(text) == EXTRA | {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize("text", FORMS, ids=["json", "json-with-text", "uri", "uri-with-json"])
def test_same_text_means_the_same_to_airflow(text: str) -> None:
    from airflow.sdk.definitions.connection import Connection

    read = Connection.from_json if text.startswith("{") else Connection.from_uri
    theirs = read(text, conn_id="kafka_source")
    assert theirs.conn_type == "kafka"
    assert theirs.extra_dejson == EXTRA


FORM = {
    "host": "one:9092,two:9092",
    "login": "mover@",
    "password": "p:w/d",
    "extra": {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "ssl.ca.location": None, "client.id": ""},
}
CLUSTER_FORMS = [
    json.dumps({"conn_type": "kafka_cluster", **FORM}),
    "kafka-cluster://mover%40:p%3Aw%2Fd@one%3A9092%2Ctwo%3A9092/?__extra__="
    + quote(json.dumps(FORM["extra"]), safe=""),
]


@pytest.mark.parametrize("text", CLUSTER_FORMS, ids=["json", "uri"])
def test_connection_of_the_form_is_its_fields_and_its_extra(text: str) -> None:
    properties = find_connection("kafka_source", {"AIRFLOW_CONN_KAFKA_SOURCE": text}).properties
    assert dict(properties) == {
        "bootstrap.servers": "one:9092,two:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "mover@",
        "sasl.password": "p:w/d",
    }


@pytest.mark.parametrize("text", CLUSTER_FORMS, ids=["json", "uri"])
def test_connection_of_the_form_means_the_same_to_airflow(text: str) -> None:
    from airflow.sdk.definitions.connection import Connection

    read = Connection.from_json if text.startswith("{") else Connection.from_uri
    theirs = read(text, conn_id="kafka_source")
    assert (theirs.conn_type, theirs.host, theirs.login, theirs.password) == (
        "kafka_cluster",
        FORM["host"],
        FORM["login"],
        FORM["password"],
    )
    assert theirs.extra_dejson == FORM["extra"]


@pytest.mark.parametrize(("servers", "port"), [("one:9092", None), ("one", 9092)])
def test_port_of_a_connection_counts(servers: str, port: int | None) -> None:
    text = json.dumps({"conn_type": "kafka_cluster", "host": servers, "port": port})
    assert found(text)["bootstrap.servers"] == "one:9092"


@pytest.mark.parametrize("name", ["bootstrap.servers", "sasl.username", "sasl.password"])
def test_field_that_contradicts_the_extra_is_refused_and_not_quoted(name: str) -> None:
    with pytest.raises(BadInput, match="another value in its Extra") as caught:
        found(json.dumps({"conn_type": "kafka_cluster", **FORM, "extra": {name: "hunter22"}}))
    assert caught.value.field == name
    assert "hunter22" not in str(caught.value)
    assert str(FORM["password"]) not in str(caught.value)


def test_fields_of_a_connection_of_the_providers_type_are_left_alone() -> None:
    text = json.dumps({"conn_type": "kafka", "host": "other", "login": "nobody", "password": "x", "extra": EXTRA})
    assert found(text) == EXTRA | {"security.protocol": "PLAINTEXT"}


def test_unknown_id_names_the_variable_and_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "time", FakeClock())
    with pytest.raises(BadInput) as caught:
        find_connection("nobody", {})
    assert caught.value.value == "nobody"
    assert "AIRFLOW_CONN_NOBODY" in caught.value.remedy
    assert "Admin, Connections" in caught.value.remedy
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "field"),
    [
        (json.dumps({"conn_type": "http", "extra": EXTRA}), "conn_type"),
        ("postgres://host/db", "conn_type"),
        (json.dumps({"conn_type": "kafka", "extra": "not json"}), "extra"),
        (json.dumps({"conn_type": "kafka", "extra": [1]}), "extra"),
        (json.dumps({"conn_type": "kafka"}), "bootstrap.servers"),
    ],
)
def test_unusable_connection_is_refused_with_its_field(text: str, field: str) -> None:
    with pytest.raises(BadInput) as caught:
        found(text)
    assert caught.value.field == field


def test_broken_json_is_not_quoted() -> None:
    with pytest.raises(BadInput) as caught:
        found('{"conn_type": "kafka", "extra": {"sasl.password": "hunter22"')
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize("password", ["p[hunter22", "p\uff20hunter22"])
def test_uri_that_cannot_be_taken_apart_is_bad_input_and_not_quoted(password: str) -> None:
    variable = {"AIRFLOW_CONN_KAFKA_SOURCE": f"kafka-cluster://user:{password}@h:9092"}
    for find in (find_connection, find_password):
        with pytest.raises(BadInput, match="percent-encode") as caught:
            find("kafka_source", variable)
        assert "hunter22" not in str(caught.value)
        assert caught.value.file == "AIRFLOW_CONN_KAFKA_SOURCE"


def test_lookup_outside_airflow_does_not_import_it() -> None:
    code = (
        "import sys\n"
        "from kafka_migration.kafka.lookup import find_connection\n"
        "from kafka_migration.domain.errors import BadInput\n"
        "try:\n    find_connection('nobody', {})\n"
        "except BadInput:\n    sys.exit('airflow' in sys.modules)\n"
        "sys.exit(2)\n"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=HANGS_SECONDS, env=environ).returncode == 0


def test_inside_airflow_its_connections_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    import airflow.sdk
    from airflow.sdk.definitions.connection import Connection
    from airflow.sdk.exceptions import AirflowNotFoundException

    asked = list[str]()

    def get_connection(conn_id: str) -> Connection:
        asked.append(conn_id)
        if conn_id == "missing" or asked.count(conn_id) < 3:
            raise AirflowNotFoundException(conn_id)
        return Connection(conn_id=conn_id, conn_type="kafka", extra=json.dumps(EXTRA))

    clock = FakeClock()
    monkeypatch.setattr(lookup, "time", clock)
    monkeypatch.setattr(airflow.sdk.BaseHook, "get_connection", staticmethod(get_connection))
    assert find_connection("stored", {}).servers == "one:9092", "a locked database looks like no such connection"
    assert clock.monotonic() == 2.0
    with pytest.raises(BadInput, match="no connection has the id 'missing'"):
        find_connection("missing", {})
