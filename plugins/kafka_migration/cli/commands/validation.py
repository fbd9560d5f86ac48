"""validate, parity: whether both clusters hold the same."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Groups, Json, Master, PlanFile, ReportsDirectory
from kafka_migration.cli.output import Output
from kafka_migration.domain.levels import Level


def validate(
    plan: PlanFile,
    topic: Annotated[
        list[str] | None,
        typer.Option(metavar="TOPIC", help="This topic only; may be given again. (default: all)", show_default=False),
    ] = None,
    level: Annotated[
        Level | None,
        typer.Option(help="How closely: batch, record, or sampled. (default: the plan's level)", show_default=False),
    ] = None,
    full: Annotated[
        bool,
        typer.Option("--full", help="Read everything, also what was found equal before and has not changed."),
    ] = False,
    reverse: Annotated[
        bool,
        typer.Option("--reverse", help="What was mirrored back: from the target to the source, since the cut."),
    ] = False,
    master: Master = None,
    output_directory: ReportsDirectory = "reports",
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Read both clusters again, and compare them by digests; only what is new since the last time."""
    from kafka_migration.cli.render.evidence import validation as shown
    from kafka_migration.migration.reports import place_of
    from kafka_migration.steps import runner

    output, place = Output(as_json=as_json), place_of(output_directory, field="--output")
    with opened(plan, output, dry_run=dry_run) as ctx:
        seen = ctx.reverse() if reverse else ctx
        result = runner.run(
            seen,
            "validate",
            part=seen.direction.own(""),
            spark_master=master,
            reports=place,
            topics=topic or (),
            level=level,
            full=full,
        ).value
    output.result(result.as_dict(with_segments=False), shown(result))
    raise typer.Exit(result.exit_code)


def parity(plan: PlanFile, group: Groups = None, as_json: Json = False, debug: Debug = False) -> None:
    """Compare both clusters beside their records: groups' offsets through the map, topics, ACLs."""
    from kafka_migration.cli.render.groups import side_by_side
    from kafka_migration.groups import parity as phase_parity

    output = Output(as_json=as_json)
    with opened(plan, output) as ctx:
        found = phase_parity.read(ctx, group or None)
    output.result(found.as_dict(), side_by_side(found))
    raise typer.Exit(found.exit_code)
