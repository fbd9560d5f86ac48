"""From a plan file to a context, as commands open it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import BadInput

if TYPE_CHECKING:
    from kafka_migration.cli.output import Output
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan


@contextmanager
def opened(
    path: Path,
    output: Output,
    *,
    dry_run: bool = False,
    make_state: bool = False,
    to_check: bool = False,
    wave: str | None = None,
    reverse: bool = False,
) -> Iterator[Context]:
    """The context of the plan at ``path``, or of a wave of it; ``reverse``: as its reverse link sees it. Progress goes
    to standard error.

    Raises BadInput for the plan, a connection or a wave that it does not have, Refused if the reverse link has not
    begun, and what the clusters raise.
    """
    from kafka_migration.migration.context import open_context

    with open_context(loaded(path), log=output.log, dry_run=dry_run, make_state=make_state, to_check=to_check) as ctx:
        seen = ctx
        if wave is not None:
            from kafka_migration.approvals import waves

            seen = waves.within(ctx, wave)
        if reverse:
            from kafka_migration.link.reverse import behind

            seen = behind(seen)
        yield seen


def loaded(path: Path) -> Plan:
    """The plan at ``path``, whose connections exist. Raises BadInput with file, field, value and remedy."""
    from kafka_migration.kafka.lookup import find_connection
    from kafka_migration.plans.load import load_plan

    plan = load_plan(path)
    for field, conn_id in (("source", plan.source), ("target", plan.target)):
        try:
            find_connection(conn_id)
        except BadInput as error:
            if error.field != "conn_id":
                raise
            # The connection is unknown: name the line of the plan that names it.
            raise BadInput(
                f"no connection has the id {conn_id!r}", file=str(path), field=field, value=conn_id, remedy=error.remedy
            ) from error
    return plan
