"""A plan's context as Airflow's processes open it: progress goes to the log, and no secret of a cluster does."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.printable import in_one_line
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.snapshot import Snapshot, require_own

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.plans.model import Plan


@contextmanager
def opened_context(plan: Plan, log: Any, **options: bool) -> Iterator[MigrationContext]:
    """The context of ``plan``, as :func:`kafka_migration.migration.context.open_context` opens it with ``options``."""
    from airflow.sdk.log import mask_secret

    from kafka_migration.migration.context import open_context
    from kafka_migration.schemas.connection import secrets_of

    # Warnings only: each connection of kafka-python would be a dozen lines of a task's log, each request of httpx one.
    for name in ("kafka", "httpx"):
        logging.getLogger(name).setLevel(logging.WARNING)
    with open_context(plan, log=lambda text: log.info("%s", in_one_line(text)), **options) as ctx:
        # Airflow masks what it hands out itself; a connection that came from the environment it has never seen. Other
        # libraries write to the task's log, too.
        for cluster in (ctx.source, ctx.target):
            for secret in cluster.connection.secrets():
                mask_secret(secret)
        for secret in secrets_of(plan.registries):
            mask_secret(secret)
        yield ctx


@contextmanager
def opened_for_run(
    snapshot: Snapshot, log: Any, *, run: str, plan_file: str, wave: str = "", **options: bool
) -> Iterator[MigrationContext]:
    """As :func:`opened_context`, for the run named ``run`` in the journal: refuses a ``snapshot`` that is not the run's
    own, and before that makes no internal topics, which might be on another target. A corrected plan is the run's own
    once it has joined the migration that the run began. With ``wave``, as far as that wave of the plan goes. Raises
    what :func:`kafka_migration.plans.snapshot.require_own` and :func:`kafka_migration.approvals.waves.within` raise."""
    from kafka_migration.approvals.waves import within
    from kafka_migration.migration.history import digest_of_run
    from kafka_migration.migration.joined import joined

    def require(ctx: MigrationContext) -> None:
        recorded, last = digest_of_run(ctx, run), joined(ctx)
        own = [] if recorded is None else [recorded, *([last.digest] if last else [])]
        require_own(snapshot, own=own, plan_file=plan_file)

    plan = snapshot.load()
    if options.get("make_state") and not _vouches(plan_file, snapshot):
        with opened_context(plan, log) as ctx:
            require(ctx)
    with opened_context(plan, log, **options) as ctx:
        require(ctx)
        yield within(ctx, wave) if wave else ctx


def _vouches(plan_file: str, snapshot: Snapshot) -> bool:
    if snapshot.path:
        return True
    try:
        return load_plan(plan_file).digest == snapshot.digest
    except BadInput:
        # Edited until it is not valid, or not on this machine: the journal is what counts then.
        return False
