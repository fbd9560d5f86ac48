"""acls: what to grant before a migration begins."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kafka_migration.cli.options import Debug, Json, PlanFile
from kafka_migration.cli.output import Output

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kafka_migration.inventory.permissions import Names, Rule, Side
    from kafka_migration.plans.model import Plan


class SideOption(StrEnum):
    """As typed."""

    SOURCE = "source"
    TARGET = "target"


Principal = Annotated[
    str,
    typer.Option(
        metavar="TYPE:NAME", help="Whom to grant it, such as User:migration or User:CN=migration.", show_default=False
    ),
]
OneSide = Annotated[SideOption | None, typer.Option("--side", help="This cluster only. (default: both)")]
AskForNames = Annotated[
    bool,
    typer.Option(
        "--names", help="Ask the source which topics and groups there are now, and name each, instead of prefixes."
    ),
]


def acls(
    plan: PlanFile,
    principal: Principal,
    side: OneSide = None,
    names: AskForNames = False,
    as_json: Json = False,
    debug: Debug = False,
) -> None:
    """Print the ACLs that the migration needs, and no more. Changes nothing, and grants nothing."""
    from kafka_migration.domain.errors import BadInput
    from kafka_migration.domain.listing import listed
    from kafka_migration.inventory import permissions
    from kafka_migration.plans.load import load_plan

    kind, separator, name = principal.partition(":")
    if not (kind and separator and name) or principal != principal.strip():
        raise BadInput(
            "a principal is a type and a name",
            field="--principal",
            value=principal,
            remedy='write it like User:migration, or with certificates "User:CN=migration,O=Shop"',
        )
    output = Output(as_json=as_json)
    loaded = load_plan(plan)
    known = _asked(plan, output) if names else permissions.names_of(loaded)
    wanted: tuple[permissions.Side, ...] = permissions.SIDES if side is None else (side.value,)
    value: dict[str, Any] = {"principal": principal, "rules": [], "commands": [], "optional": []}
    parts: list[RenderableType] = []
    for cluster in wanted:
        servers = _servers(loaded, cluster)
        rules = permissions.rules(loaded, cluster, known)
        commands = permissions.commands(rules, principal=principal, servers=servers)
        value["rules"] += [rule.as_dict() for rule in rules]
        value["commands"] += commands
        parts += _shown(cluster, rules, commands)
        if more := permissions.rules(loaded, cluster, known, optional=True):
            value["optional"] += [rule.as_dict() for rule in more]
            commands = permissions.commands(more, principal=principal, servers=servers)
            why = listed(sorted({rule.right.why for rule in more}))
            parts += _shown(f"{cluster}, optional ({why})", more, commands)
    output.result(value, *parts)


def _asked(plan: Path, output: Output) -> Names:
    """Names on the source now, as far as the connection's principal may see them."""
    from kafka_migration.cli.opening import loaded
    from kafka_migration.inventory import permissions
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.lookup import find_connection

    what = loaded(plan)
    with Cluster("source", find_connection(what.source)) as source:
        topics, groups = what.topics.select(source.topics()), what.groups.select(source.groups())
    output.log(f"the source shows {len(topics)} topics and {len(groups)} groups of the plan")
    return permissions.named(topics, groups)


def _servers(plan: Plan, side: Side) -> str:
    """The connection's servers, or a variable to be set: rules can be printed before there is any connection."""
    from kafka_migration.domain.errors import BadInput
    from kafka_migration.kafka.lookup import find_connection

    try:
        return find_connection(plan.connection(side)).servers
    except BadInput:
        return f'"${side.upper()}_SERVERS"'


def _shown(side: str, rules: Iterable[Rule], commands: Iterable[str]) -> tuple[RenderableType, ...]:
    """Everything of one side; each command is a line of its own, never wrapped."""
    from rich.text import Text

    from kafka_migration.cli.render.tables import grid
    from kafka_migration.inventory.permissions import by_resource

    rows = [
        (kind, name, "prefixed" if prefixed else "literal", ", ".join(operations))
        for (kind, name, prefixed), operations in by_resource(rules).items()
    ]
    return (grid(f"{side}: allow", ("resource", "name", "pattern", "operations"), rows), *commands, Text())
