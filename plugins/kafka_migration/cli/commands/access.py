"""access: the source's ACLs on the target."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def access(
    plan: PlanFile,
    make: Annotated[bool, typer.Option("--apply", help="Make what the target lacks.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what --apply has made, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which ACLs of the plan's topics and groups the target lacks, make them, or remove them again."""
    from kafka_migration.access import access as copied
    from kafka_migration.cli.render.access import difference, line

    output = Output(as_json=as_json)
    if make and undo:
        raise typer.BadParameter("give one of --apply and --undo")
    with opened(plan, output, dry_run=dry_run, make_state=make and not dry_run) as ctx:
        if undo:
            made = copied.recorded(ctx)
            if made and not (dry_run or yes):
                question = f"Remove {len(made)} ACLs from the target?"
                demand_yes(output, question, shown=map(line, made), declined="nothing was removed")
            removed = copied.undo(ctx)
            would = "would be removed" if dry_run else "removed"
            output.result({"dry_run": dry_run, "removed": len(removed)}, f"{len(removed)} ACLs {would}")
            return
        seen = copied.read(ctx)
        if make:
            if seen.missing and not (dry_run or yes):
                question = f"Make {len(seen.missing)} ACLs on the target?"
                demand_yes(output, question, shown=map(line, seen.missing), declined="nothing was made")
            seen = copied.apply(ctx)
    output.result(seen.as_dict() | {"dry_run": dry_run}, difference(seen))
    raise typer.Exit(0 if make and dry_run else seen.exit_code)
