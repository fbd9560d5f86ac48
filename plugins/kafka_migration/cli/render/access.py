"""How ACLs look: a table for people, and the commands to paste."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import grid
from kafka_migration.inventory.permissions import Rule, by_resource


def shown(side: str, rules: Iterable[Rule], commands: Iterable[str]) -> tuple[RenderableType, ...]:
    """Everything of one side; each command is a line of its own, never wrapped."""
    rows = [
        (kind, name, "prefixed" if prefixed else "literal", ", ".join(operations))
        for (kind, name, prefixed), operations in by_resource(rules).items()
    ]
    return (grid(f"{side}: allow", ("resource", "name", "pattern", "operations"), rows), *commands, Text())
