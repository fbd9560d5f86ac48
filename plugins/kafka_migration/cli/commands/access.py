"""access: which of the source's ACLs, client quotas and SCRAM users the target lacks; and making what it lacks."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, DryRun, Json, PlanFile
from kafka_migration.cli.output import Output


def access(
    plan: PlanFile,
    as_commands: Annotated[
        bool, typer.Option("--commands", help="Print the command lines that make them on the target, and nothing else.")
    ] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Make what is missing on the target.")] = False,
    undo: Annotated[bool, typer.Option("--undo", help="Remove what --apply has made, and nothing else.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Make them, or remove them, without being asked.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which ACLs of the plan's topics and groups, and which quotas of their users, the target lacks. Changes
    nothing without --apply or --undo."""
    if as_commands + apply + undo > 1:
        raise typer.BadParameter("--commands, --apply and --undo exclude each other", param_hint="--apply")
    output = Output(as_json=as_json)
    if apply:
        _apply(plan, output, yes=yes, dry_run=dry_run)
    elif undo:
        _undo(plan, output, yes=yes, dry_run=dry_run)
    else:
        _show(plan, output, as_commands=as_commands)


def _show(plan: PlanFile, output: Output, *, as_commands: bool) -> None:
    from kafka_migration.access import limits
    from kafka_migration.cli.render.access import difference
    from kafka_migration.kafka import acl_commands
    from kafka_migration.steps import access as step

    with opened(plan, output, to_check=True) as ctx:
        seen = step.look(ctx)
        servers = shlex.quote(ctx.target.connection.servers)
    lines = (*acl_commands.adding(seen.acls.missing, servers=servers), *limits.commands(seen.limits, servers=servers))
    value = {**seen.acls.as_dict(), "quotas": seen.limits.as_dict(), "commands": list(lines)}
    value["scram_users"] = [asdict(user) for user in seen.users or ()]
    output.result(value, *(lines if as_commands else [difference(seen.acls, seen.limits, seen.users or ())]))
    # Users that a cluster does not show may be missing as well.
    raise typer.Exit(1 if seen.missing or seen.users is None else 0)


def _apply(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.cli.render.access import lines
    from kafka_migration.steps import access as step

    with opened(plan, output, dry_run=dry_run) as ctx:
        seen = step.check(ctx)
        if seen.missing and not (dry_run or yes):
            question = f"Make {seen.missing} on the target?"
            demand_yes(output, question, shown=lines(seen.missing), declined="nothing was made")
        made = step.run(ctx, seen).value
    verb = "would be made" if dry_run else "made, and read back"
    output.result(made.as_dict() | {"dry_run": dry_run}, f"{made} {verb}")


def _undo(plan: PlanFile, output: Output, *, yes: bool, dry_run: bool) -> None:
    from kafka_migration.cli.render.access import lines, staying
    from kafka_migration.cli.undoing import take_back
    from kafka_migration.steps import access as step

    take_back(
        plan,
        output,
        check=step.check_undo,
        undo=step.undo,
        asks=lambda found: (f"Remove {found.removed} from the target", lines(found.removed)),
        shows=lambda found: (staying(found), str(found.removed)),
        verb="removed",
        yes=yes,
        dry_run=dry_run,
    )
