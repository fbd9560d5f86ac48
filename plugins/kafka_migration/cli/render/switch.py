"""A switch of producers: its checks, and how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, facts
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.steps.rehearsal import Measured, Rehearsed
    from kafka_migration.steps.switch import Switched


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
