"""access: which of the source's ACLs, client quotas and SCRAM users the target lacks."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from kafka_migration.cli.opening import opened
from kafka_migration.cli.options import Debug, Json, PlanFile
from kafka_migration.cli.output import Output


def access(
    plan: PlanFile,
    as_commands: Annotated[
        bool, typer.Option("--commands", help="Print the command lines that make them on the target, and nothing else.")
    ] = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Show which ACLs of the plan's topics and groups, and which quotas of their users, the target lacks. Changes
    nothing, and grants nothing."""
    from kafka_migration.access import difference, limits
    from kafka_migration.cli.render.access import difference as shown

    output = Output(as_json=as_json)
    with opened(plan, output, to_check=True) as ctx:
        seen = difference.read(ctx)
        found = limits.read(ctx, seen.users)
        servers = shlex.quote(ctx.target.connection.servers)
    lines = (*difference.commands(seen.missing, servers=servers), *limits.commands(found, servers=servers))
    value = {**seen.as_dict(), "quotas": found.as_dict(), "commands": list(lines)}
    output.result(value, *(lines if as_commands else [shown(seen, found)]))
    raise typer.Exit(1 if seen.missing or found.missing else 0)
