"""A fence: its checks, whom it denies, and how it was proved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, facts
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.fence.fence import Fenced, Standing


def fenced(result: Fenced) -> RenderableType:
    """The checks, then whom it denies (or would), and the proof."""
    parts: list[RenderableType] = [checks("Checks", result.checks)]
    principals = sorted({acl.principal for acl in result.denials})
    if result.denials:
        verb = "added" if result.proof else "would be added"
        parts.append(Text(f"{len(result.denials)} ACLs {verb}: {listed(principals)}, on {len(result.names)} topics"))
    if result.proof is None:
        return Group(*parts)
    proof = result.proof
    rows = [
        ("topics", str(len(result.names))),
        ("denied by brokers after", listed(f"{b}: {ms:.0f} ms" for b, ms in sorted(proof.denied_ms.items())) or "-"),
        ("proved after", f"{proof.proved_ms:.0f} ms, in {proof.looks} looks at log ends"),
    ]
    parts.append(facts(rows))
    if not proof.promises:
        parts.append(
            Text("kind none: nothing keeps producers from writing again, and nothing is promised", "bold yellow")
        )
    else:
        parts.append(Text("fenced", "bold green"))
    return Group(*parts)


def standing(seen: Standing, rehearsal: str = "") -> RenderableType:
    """What is recorded, and what was written since; and what is there of a ``rehearsal``."""
    left = [Text(rehearsal, "yellow")] if rehearsal else []
    if seen.record is None:
        return Group(Text("no fence was ever applied"), *left)
    record = seen.record
    lines: list[RenderableType] = [
        Text(f"{record.state} since {record.at}, kind {record.kind}, {len(record.names)} topics")
    ]
    lines += [Text(f"written since: {one}", "bold red") for one in seen.written]
    if seen.missing:
        shown = listed(f"{acl.principal} on {acl.resource}" for acl in seen.missing)
        lines.append(
            Text(f"{len(seen.missing)} denials are gone: {shown}; `fence` makes and proves them again", "bold red")
        )
    if seen.unseen:
        lines.append(Text(f"whether its ACLs stand is unknown: {seen.unseen}", "yellow"))
    return Group(*lines, *left)
