"""Taking back what a command's --apply has made on the target, after a person was asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafka_migration.cli.asking import demand_yes
from kafka_migration.cli.opening import opened

if TYPE_CHECKING:
    from rich.console import RenderableType

    from kafka_migration.cli.output import Output
    from kafka_migration.migration.context import Context
    from kafka_migration.steps.step import Decision


def take_back(
    plan: Path,
    output: Output,
    *,
    check: Callable[[Context], Any],
    undo: Callable[[Context], Decision],
    asks: Callable[[Any], tuple[str, Iterable[object]]],
    shows: Callable[[Any], tuple[RenderableType, str]],
    verb: str,
    yes: bool,
    dry_run: bool,
) -> None:
    """Have ``undo`` remove what ``check`` finds to be ``removed``. ``asks`` gives the question for it, and lines
    to show before; ``shows`` what stays, and in words what was removed, or (``verb``) deleted."""
    with opened(plan, output, dry_run=dry_run) as ctx:
        found = check(ctx)
        if found.removed and not (dry_run or yes):
            question, lines = asks(found)
            question = f"{question}, which migration {ctx.plan.name} has made?"
            demand_yes(output, question, shown=lines, declined=f"nothing was {verb}")
        found = undo(ctx).value
    stays, removed = shows(found)
    output.result(found.as_dict() | {"dry_run": dry_run}, stays, f"{removed} {'would be ' if dry_run else ''}{verb}")
