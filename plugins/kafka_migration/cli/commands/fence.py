"""fence: keep producers from writing to the source, prove it, and let them again."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def fence(
    plan: PlanFile,
    check: Annotated[bool, typer.Option("--check", help="Only check whether it may be done.")] = False,
    lift: Annotated[bool, typer.Option("--lift", help="Let producers write again.")] = False,
    status: Annotated[
        bool, typer.Option("--status", help="Show the fence that stands, and what was written since it was proved.")
    ] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Keep producers from writing to the source, proved on every broker; again after a kill, or --lift."""
    from kafka_migration.cli.render import fence as render
    from kafka_migration.fence import fence as standing
    from kafka_migration.fence import record
    from kafka_migration.steps import fence as step

    output = Output(as_json=as_json)
    if check + lift + status > 1:
        raise typer.BadParameter("give one of --check, --lift and --status")
    with opened(plan, output, dry_run=dry_run or check) as ctx:
        if status:
            seen, rehearsal = standing.status(ctx, step.newest(ctx)), record.describe_rehearsals(ctx)
            output.result(seen.as_dict() | {"rehearsal": rehearsal}, render.standing(seen, rehearsal))
            raise typer.Exit(seen.exit_code)
        if lift:
            lifted = step.lift(ctx).value
            output.result(lifted.as_dict() | {"dry_run": dry_run}, f"lifted: {lifted.evidence}")
            return
        decision = step.run(ctx)
    output.result(decision.value.as_dict() | {"dry_run": dry_run or check}, render.fenced(decision.value))
    raise typer.Exit(decision.exit_code)
