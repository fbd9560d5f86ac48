"""A switch of producers: its checks, and how it went."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks

if TYPE_CHECKING:
    from kafka_migration.steps.switch import Switched


def switched(result: Switched) -> RenderableType:
    """The checks, then what the journal has."""
    parts: list[RenderableType] = [checks("Checks", result.checks)] if result.checks else []
    if result.switch is not None:
        parts.append(Text(str(result.switch), "bold green" if result.switch.is_served else "bold yellow"))
    if result.partitions:
        parts.append(Text(f"others than the mirror write to {len(result.seen)} of {result.partitions} partitions"))
    return Group(*parts)
