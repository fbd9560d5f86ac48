"""schemas: which schemas of the plan's topics the target's schema registry lacks; and making them there."""

from __future__ import annotations

from typing import Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def schemas(
    plan: PlanFile,
    apply: Annotated[bool, typer.Option("--apply", help="Make the missing schemas on the target's registry.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Delete what --apply has made, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Make them, or delete them, without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which schemas of the plan's topics the target's schema registry lacks. Changes nothing without --apply or
    --undo."""
    if apply and undo:
        raise typer.BadParameter("--apply and --undo exclude each other", param_hint="--apply")
    output = Output(as_json=as_json)
    if apply:
        _apply(plan, output, yes=yes, dry_run=dry_run)
    elif undo:
        _undo(plan, output, yes=yes, dry_run=dry_run)
    else:
        _show(plan, output)


def _show(plan: PlanFile, output: Output) -> None:
    from kafka_migration.cli.render.schemas import difference
    from kafka_migration.schemas.difference import read

    with opened(plan, output, to_check=True) as ctx:
        found = read(ctx)
    output.result(found.as_dict(), difference(found))
    raise typer.Exit(found.exit_code)


def _apply(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.steps import schemas as step

    with opened(plan, output, dry_run=dry_run) as ctx:
        found = step.check(ctx)
        if not (found.is_none or dry_run or yes):
            question = f"Make {found} on the target's schema registry?"
            demand_yes(output, question, shown=found.missing, declined="nothing was made")
        made = step.apply(ctx).value
    verb = "would be made" if dry_run else "made, and read back"
    output.result(made.as_dict() | {"dry_run": dry_run}, f"{made} {verb}")


def _undo(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.cli.render.schemas import staying
    from kafka_migration.cli.undoing import take_back
    from kafka_migration.steps import schemas as step

    take_back(
        plan,
        output,
        check=step.check_undo,
        undo=step.undo,
        asks=lambda found: (f"Delete {len(found.removed)} versions for good", found.removed),
        shows=lambda found: (staying(found), f"{len(found.removed)} versions"),
        verb="deleted",
        yes=yes,
        dry_run=dry_run,
    )
