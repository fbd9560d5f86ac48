"""From a connection id to a connection: Airflow's environment variable first, Airflow itself inside Airflow.

The command line needs no Airflow database, and must not pay for importing Airflow (seconds): it reads
``AIRFLOW_CONN_<ID>`` in the two forms that Airflow reads, JSON and URI.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.waiting import tries
from kafka_migration.kafka.connections import ClusterConnection

#: The Kafka provider's, with all properties in its Extra.
_TYPE = "kafka"
#: Ours, with a form: servers and login are Airflow's own fields.
CLUSTER_TYPE = "kafka_cluster"

_FIELDS = ("conn_type", "host", "port", "schema", "login", "password", "extra")

_ASKED_AGAIN_SECONDS = 10.0


def find_connection(conn_id: str, environ: Mapping[str, str] | None = None) -> ClusterConnection:
    """The connection called ``conn_id``. Raises BadInput if there is none, or if it is not a usable one.

    Blocks inside Airflow (it asks the task's supervisor or the database): call it from a thread in a trigger.
    """
    found = find_fields(conn_id, environ)
    if found is None:
        raise _unknown(conn_id)
    return ClusterConnection(conn_id, _properties(*found))


def find_fields(conn_id: str, environ: Mapping[str, str] | None = None) -> tuple[str, dict[str, Any]] | None:
    """Where the connection called ``conn_id`` stands, for messages, and its fields, of any type, which hold secrets;
    None if there is none.

    Raises BadInput if it cannot be read. Blocks inside Airflow, as :func:`find_connection` does.
    """
    variable = variable_of(conn_id)
    text = (os.environ if environ is None else environ).get(variable)
    if text is not None:
        return variable, _stated(variable, text)
    connection = from_airflow(conn_id)
    if connection is None:
        return None
    return f"connection {conn_id}", {name: getattr(connection, name) for name in _FIELDS}


def stated(properties: Mapping[str, object]) -> str:
    """The value of a connection's variable, in Airflow's JSON form. Holds secrets."""
    return json.dumps({"conn_type": _TYPE, "extra": dict(properties)})


def find_password(conn_id: str, environ: Mapping[str, str] | None = None) -> str | None:
    """The password of the connection called ``conn_id``, of any type; None if there is no such connection.

    Raises BadInput if it has none, or cannot be read. Blocks inside Airflow, as :func:`find_connection` does.
    """
    found = find_fields(conn_id, environ)
    if found is None:
        return None
    password = str(found[1].get("password") or "")
    if not password:
        raise BadInput(f"the connection {conn_id} has no password", field="password", remedy="set its password")
    return password


def variable_of(conn_id: str) -> str:
    """The environment variable in which Airflow looks for ``conn_id``."""
    return f"AIRFLOW_CONN_{conn_id.upper()}"


def _unknown(conn_id: str) -> BadInput:
    return BadInput(
        f"no connection has the id {conn_id!r}",
        field="conn_id",
        value=conn_id,
        remedy=f"set {variable_of(conn_id)} to JSON like"
        ' {"conn_type": "kafka", "extra": {"bootstrap.servers": "host:9092"}},'
        " or add it in Airflow under Admin, Connections",
    )


def _stated(variable: str, text: str) -> dict[str, Any]:
    """The fields of a connection, from either of Airflow's forms."""
    if text.lstrip().startswith("{"):
        return _json_of(variable, text)
    parts = _parts_of(variable, text)
    login, _, servers = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return {
        # As Airflow spells a type in a URI.
        "conn_type": text.partition("://")[0].replace("-", "_"),
        "host": unquote(servers),
        "schema": unquote(parts.path.lstrip("/")),
        "login": unquote(user),
        "password": unquote(password),
        "extra": query.get("__extra__", query),
    }


def _parts_of(variable: str, text: str) -> SplitResult:
    try:
        return urlsplit(text)
    except ValueError:
        # Not its message, which has the password in it.
        raise BadInput(
            "is not a connection URI",
            file=variable,
            remedy="percent-encode user name and password, or write the connection as JSON",
        ) from None


def _properties(where: str, stated: Mapping[str, Any]) -> dict[str, Any]:
    """The client properties of a connection with the fields ``stated``. ``where`` is for messages."""
    kind = str(stated.get("conn_type") or "")
    _require_type(where, kind)
    extra = _decoded(where, stated.get("extra") or {})
    if kind == _TYPE:
        return extra
    servers, port = stated.get("host") or "", stated.get("port")
    fields = {
        "bootstrap.servers": f"{servers}:{port}" if servers and port else servers,
        "sasl.username": stated.get("login"),
        "sasl.password": stated.get("password"),
    }
    # A form leaves what nobody filled in empty.
    properties = {name: value for name, value in extra.items() if value not in (None, "")}
    for name, value in fields.items():
        if value and properties.setdefault(name, value) != value:
            raise BadInput(
                "stands in the connection's own field, and another value in its Extra",
                file=where,
                field=name,
                remedy="remove one of the two",
            )
    return properties


def _json_of(variable: str, text: str) -> dict[str, Any]:
    try:
        stated: dict[str, Any] = json.loads(text)
    except ValueError:
        # Not even the decoder's message: it quotes what it read.
        raise BadInput("is not valid JSON", file=variable, remedy="check quotes and commas") from None
    return stated


def from_airflow(conn_id: str) -> Any:
    """Airflow's own connection, of any type; None if there is none, or outside Airflow. Blocks."""
    if "airflow" not in sys.modules:
        # Importing it here would cost seconds and could only find an unconfigured one; inside Airflow it is loaded.
        return None
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    # Airflow takes every error of its database, a locked one for example, for "there is no such connection".
    for _ in tries(time, seconds=_ASKED_AGAIN_SECONDS, pause=1.0):
        try:
            return BaseHook.get_connection(conn_id)
        except AirflowNotFoundException:
            continue
    return None


def _require_type(where: str, kind: str) -> None:
    if kind not in (_TYPE, CLUSTER_TYPE):
        raise BadInput(
            f"the connection's type is {kind!r}, not {CLUSTER_TYPE!r} or {_TYPE!r}",
            file=where,
            field="conn_type",
            value=kind,
            remedy="make it a connection of type Kafka cluster, or one of type Apache Kafka, with the client's"
            " properties as its Extra",
        )


def _decoded(where: str, extra: object) -> dict[str, Any]:
    if isinstance(extra, str):
        try:
            extra = json.loads(extra)
        except ValueError:
            extra = None
    if not isinstance(extra, dict):
        raise BadInput(
            "is not a JSON object of client properties",
            file=where,
            field="extra",
            remedy='write it like {"bootstrap.servers": "host:9092"}',
        )
    return extra
