"""What Airflow lists of this package among its providers, by the entry point ``apache_airflow_provider``.

With it goes a connection type: a form in Airflow's UI for what a plan's ``source`` and ``target`` name. The Kafka
provider's own type, ``kafka``, has one field for everything, its Extra; connections of that type are read, too. Airflow
knows one form for each type, so this one has a name of its own.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from airflow.sdk import BaseHook

from kafka_migration import __version__
from kafka_migration.domain.errors import MigrationError
from kafka_migration.kafka.lookup import CLUSTER_TYPE
from kafka_migration.kafka.properties import MECHANISMS, PROTOCOLS

_NAME = "Kafka cluster"


def info() -> dict[str, Any]:
    """By Airflow's schema of provider information."""
    return {
        "package-name": "kafka-migration",
        "name": "Kafka migration",
        "description": "Moves topics and consumer groups from one Kafka cluster to another, while both are in use.",
        "versions": [__version__],
        "connection-types": [connection_type()],
        "extra-links": [
            "kafka_migration.airflow.links.ReportLink",
            "kafka_migration.airflow.links.DocsLink",
        ],
    }


class KafkaClusterHook(BaseHook):
    """What Airflow asks about connections of this type; "Test" on their page answers with the cluster's id."""

    conn_name_attr = "conn_id"
    default_conn_name = "kafka_source"
    conn_type = CLUSTER_TYPE
    hook_name = _NAME

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    def test_connection(self) -> tuple[bool, str]:
        """Whether the cluster answers, and what; no secret."""
        from kafka_migration.kafka.cluster import Cluster
        from kafka_migration.kafka.lookup import find_connection

        try:
            # Of which side it is, a connection does not know.
            with closing(Cluster("source", find_connection(self.conn_id))) as cluster:
                return True, f"cluster {cluster.cluster_id()} answers"
        except MigrationError as error:
            return False, str(error)


def connection_type() -> dict[str, Any]:
    """By Airflow's schema of provider information. Fields of the form's own are the Extra's, in librdkafka's names."""
    return {
        "connection-type": CLUSTER_TYPE,
        "hook-class-name": f"{__name__}.{KafkaClusterHook.__name__}",
        "hook-name": _NAME,
        "ui-field-behaviour": {
            "hidden-fields": ["schema", "port"],
            "relabeling": {
                "host": "Bootstrap servers",
                "login": "SASL user name",
                "password": "SASL password",
                "extra": "More client properties",
            },
            "placeholders": {
                "host": "kafka-1:9092,kafka-2:9092",
                "extra": '{"client.id": "migration"}',
            },
        },
        "conn-fields": {
            "security.protocol": _text("Security protocol", enum=[*PROTOCOLS, None]),
            "sasl.mechanism": _text("SASL mechanism", enum=[*MECHANISMS, None]),
            "ssl.ca.location": _text(
                "File of the authorities (PEM)", "On every machine that connects: workers, triggerer, Spark's."
            ),
            "ssl.certificate.location": _text("File of the client's certificate (PEM)"),
            "ssl.key.location": _text("File of the client's key (PEM)"),
            "ssl.key.password": _text("Password of the client's key", format="password"),
            "sasl.kerberos.principal": _text("Kerberos principal", "For GSSAPI."),
            "sasl.kerberos.keytab": _text("Keytab", "On every machine that connects: workers, triggerer, Spark's."),
            "sasl.kerberos.service.name": _text("Kerberos service of the brokers", "kafka, if empty."),
            "sasl.oauthbearer.method": _text("Tokens by", "For OAUTHBEARER.", enum=["oidc", None]),
            "sasl.oauthbearer.token.endpoint.url": _text("Token endpoint"),
            "sasl.oauthbearer.client.id": _text("Token client's id"),
            "sasl.oauthbearer.client.secret": _text("Token client's secret", format="password"),
            "sasl.oauthbearer.scope": _text("Token scope"),
        },
    }


def _text(label: str, description: str = "", **schema: Any) -> dict[str, Any]:
    shown = {"label": label} | ({"description": description} if description else {})
    return {**shown, "schema": {"type": ["string", "null"], **schema}}
