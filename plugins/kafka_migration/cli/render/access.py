"""ACLs that the target lacks, and those of the source that it need not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import facts, grid

if TYPE_CHECKING:
    from kafka_migration.access.difference import AccessDiff
    from kafka_migration.kafka.types import Acl

#: Enough to see which; --json has them all.
_SHOWN = 100


def difference(seen: AccessDiff) -> RenderableType:
    """Both as tables, and how many are there."""
    columns = ("permission", "principal", "operation", "on")
    missing = [_row(acl) for acl in seen.missing]
    left_out = [(*_row(one.acl), one.why) for one in seen.left_out]
    lacks = f"{len(missing)} missing: `access PLAN --commands` prints what makes them" if missing else "none missing"
    return Group(
        grid("The target lacks", columns, missing[:_SHOWN], note=_more(len(missing))),
        grid("Not copied", (*columns, "why"), left_out[:_SHOWN], note=_more(len(left_out))),
        facts(("note", text) for text in seen.notes),
        Text(f"{seen.present} there, {lacks}", "bold yellow" if missing else "green"),
    )


def _more(count: int) -> str:
    return f"and {count - _SHOWN} more: --json shows all" if count > _SHOWN else ""


def _row(acl: Acl) -> tuple[str, str, str, str]:
    pattern = " (prefix)" if acl.pattern == "PREFIXED" else ""
    host = "" if acl.host == "*" else f", from {acl.host}"
    return acl.permission, acl.principal, acl.operation, f"{acl.resource_type} {acl.resource}{pattern}{host}"
