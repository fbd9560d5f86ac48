"""ACLs that the target lacks, and those that it does not get."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import grid

if TYPE_CHECKING:
    from kafka_migration.access.access import AccessDiff
    from kafka_migration.kafka.types import Acl


def difference(seen: AccessDiff) -> RenderableType:
    """Both as tables, and how many are there."""
    style, state = ("bold yellow", "missing") if seen.missing else ("green", "nothing is missing")
    count = f"{len(seen.missing)} missing" if seen.missing else state
    return Group(
        grid("The target lacks", ("permission", "principal", "operation", "on"), [_row(acl) for acl in seen.missing]),
        grid(
            "Not copied",
            ("permission", "principal", "operation", "on", "why"),
            [(*_row(one.acl), one.why) for one in seen.left_out],
        ),
        Text(f"{seen.present} there, {len(seen.made)} of them made by this migration; {count}", style),
    )


def line(acl: Acl) -> str:
    """One ACL for people."""
    permission, principal, operation, on = _row(acl)
    return f"{permission} {principal} {operation} on {on}"


def _row(acl: Acl) -> tuple[str, str, str, str]:
    pattern = " (prefix)" if acl.pattern == "PREFIXED" else ""
    host = "" if acl.host == "*" else f", from {acl.host}"
    return acl.permission, acl.principal, acl.operation, f"{acl.resource_type} {acl.resource}{pattern}{host}"
