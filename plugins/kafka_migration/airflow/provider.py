"""What Airflow lists of this package among its providers, by the entry point ``apache_airflow_provider``."""

from __future__ import annotations

from typing import Any

from kafka_migration import __version__


def info() -> dict[str, Any]:
    """By Airflow's schema of provider information. Its connections are those of the Kafka and Spark providers."""
    return {
        "package-name": "kafka-migration",
        "name": "Kafka migration",
        "description": "Moves topics and consumer groups from one Kafka cluster to another, while both are in use.",
        "versions": [__version__],
        "extra-links": [
            "kafka_migration.airflow.links.ReportLink",
            "kafka_migration.airflow.links.DocsLink",
        ],
    }
