"""A plan's context as Airflow's processes open it: progress goes to the log, and no secret of a cluster does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.plans.model import Plan


@contextmanager
def opened_context(plan: Plan, log: Any, **options: bool) -> Iterator[MigrationContext]:
    """The context of ``plan``, as :func:`kafka_migration.migration.context.open_context` opens it with ``options``."""
    from airflow.sdk.log import mask_secret

    from kafka_migration.migration.context import open_context

    # Warnings only: each connection of kafka-python would be a dozen lines of a task's log.
    logging.getLogger("kafka").setLevel(logging.WARNING)
    with open_context(plan, log=lambda text: log.info("%s", text), **options) as ctx:
        # Airflow masks what it hands out itself; a connection that came from the environment it has never seen. Other
        # libraries write to the task's log, too.
        for cluster in (ctx.source, ctx.target):
            for secret in cluster.connection.secrets():
                mask_secret(secret)
        yield ctx
