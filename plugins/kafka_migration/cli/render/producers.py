"""A fence and a switch of producers: their checks, whom the fence denies, and how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, facts
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.fence.fence import Fenced, Standing
    from kafka_migration.steps.rehearsal import Measured, Rehearsed
    from kafka_migration.steps.switch import Switched


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


def switched(result: Switched) -> RenderableType:
    """The checks, then what the journal has."""
    parts: list[RenderableType] = [checks("Checks", result.checks)] if result.checks else []
    if result.switch is not None:
        parts.append(Text(str(result.switch), "bold green" if result.switch.is_served else "bold yellow"))
    if result.partitions:
        parts.append(Text(f"others than the mirror write to {len(result.seen)} of {result.partitions} partitions"))
    return Group(*parts)


def rehearsed(result: Rehearsed) -> RenderableType:
    """The checks, what was measured, and what a rehearsal cannot show."""
    parts: list[RenderableType] = [checks("Checks", result.checks)]
    if result.real:
        verb = "made and removed" if result.measured else "would be made and removed"
        parts.append(
            Text(
                f"{result.denials} ACLs of the probe {verb}; a switch makes {result.real}, for {result.principals}"
                f" principals and the probe, on {result.topics} topics"
            )
        )
    if result.measured is not None:
        parts.append(facts(_measured(result, result.measured)))
    parts += [Text(f"not shown: {one}", "yellow") for one in result.unshown]
    return Group(*parts)


def _measured(result: Rehearsed, found: Measured) -> list[tuple[str, str]]:
    rows = []
    if found.applied_ms is not None:
        brokers = listed(f"{broker}: {ms:.0f} ms" for broker, ms in sorted(found.denied_ms.items()))
        rows += [
            ("the probe's ACLs made after", f"{found.applied_ms:.0f} ms"),
            ("denied by brokers after", brokers),
            ("ACLs of the others", f"{found.more_ms:.0f} ms at the most, estimated for {result.principals} principals"),
        ]
    drained = "not in time" if found.drained_ms is None else f"{found.drained_ms:.0f} ms at the most"
    return [
        *rows,
        ("log ends read twice in", f"{found.ends_ms:.0f} ms"),
        ("the fence in all", f"{found.fence_ms:.0f} ms"),
        ("lag at that moment", f"{found.lag:,} source offsets, drained in {drained}"),
        ("left of switch_seconds", f"{found.left_ms / 1000:.1f} s"),
    ]
