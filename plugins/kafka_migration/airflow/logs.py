"""What must not be in Airflow's logs, and what would drown the rest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context as MigrationContext


def hide_secrets(ctx: MigrationContext) -> None:
    """Have Airflow mask the clusters' secrets, also in what other libraries write to the task's log.

    Airflow masks what it hands out itself; a connection that came from the environment it has never seen.
    """
    from airflow.sdk.log import mask_secret

    for cluster in (ctx.source, ctx.target):
        for secret in cluster.connection.secrets():
            mask_secret(secret)


def quiet_clients() -> None:
    """Have kafka-python tell of trouble only: each connection would be a dozen lines of a task's log."""
    logging.getLogger("kafka").setLevel(logging.WARNING)
