"""How a migration was cancelled or completed, and what still uses the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, grid
from kafka_migration.steps.retire import CONNECTIONS

if TYPE_CHECKING:
    from kafka_migration.domain.checks import Gate
    from kafka_migration.steps.cancel import Cancelled
    from kafka_migration.steps.complete import Completed


def cancelled(result: Cancelled) -> RenderableType:
    """What became of each topic."""
    if not result.is_new:
        return Text(f"nothing to do: the migration was {result.cancellation}")
    rows = [(one.topic, str(one.action), one.why) for one in result.topics]
    if result.dry_run:
        return Group(grid("Topics on the target", ("topic", "would be", "why"), rows), Text("nothing was changed"))
    left = [Text(text, "yellow") for text in (result.cancellation.left if result.cancellation else ())]
    done = Text(f"the migration was {result.cancellation}", "bold green")
    return Group(grid("Topics on the target", ("topic", "done", "why"), rows), *left, done)


def completed(result: Completed) -> RenderableType:
    """The checks, what else uses the source, and how far it is."""
    parts: list[RenderableType] = []
    if result.checks:
        parts.append(checks("May it be completed?", result.checks))
    if result.uses:
        parts += [checks("What else uses the source, or may", result.uses), Text(CONNECTIONS, "dim")]
    if result.completion is not None:
        parts.append(Text(f"the migration is {result.completion}", "bold green"))
    return Group(*parts)


def retired(gate: Gate) -> RenderableType:
    """The checklist, and what it cannot show."""
    end = Text("nothing uses the source", "bold green") if gate.is_open else Text("not to be switched off", "bold red")
    return Group(checks("Uses of the source", gate.results), Text(CONNECTIONS, "dim"), end)
