"""What Airflow lists of this package among its providers, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

from kafka_migration import __version__
from kafka_migration.airflow.cluster_hook import connection_type


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
