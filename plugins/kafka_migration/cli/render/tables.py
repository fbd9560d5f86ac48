"""The one table style, and how values look in its cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.printable import printable

if TYPE_CHECKING:
    from kafka_migration.topics.drift import DriftStatus

_CHANGES = 15
STYLES = {
    "PASS": "green",
    "FAIL": "bold red",
    "WARN": "yellow",
    "UNCHECKED": "magenta",
}

Cell = str | Text


def grid(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]], *, note: str = "") -> RenderableType:
    """A titled table; "none" where there are no rows. Columns whose name begins with ">" are numbers.

    Cells are never parsed for markup: a group may be called ``[red]``. Long ones are folded, never cut.
    """
    heading = Text(title, "bold")
    every = [tuple(row) for row in rows]
    below = [Text(f"  {note}", "dim")] if note else []
    if not every:
        return Group(heading, Text("  none"), *below, Text())
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in columns:
        number = name.startswith(">")
        table.add_column(
            Text(name.removeprefix(">")), justify="right" if number else "left", overflow="fold", no_wrap=number
        )
    for row in every:
        table.add_row(*map(_shown, row))
    return Group(heading, table, *below)


def _shown(cell: Cell) -> Text:
    """A cell with what a terminal would obey as its code: before its width is counted."""
    if isinstance(cell, str):
        return Text(printable(cell))
    plain = printable(cell.plain)
    return cell if plain == cell.plain else Text(plain, cell.style)


def facts(rows: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Names and values below each other."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name), _shown(value))
    return table


def checks(title: str, results: Iterable[CheckResult]) -> RenderableType:
    """Named checks: verdict, evidence, and below it the remedy where there is something to do."""
    rows = []
    for result in results:
        text = Text().append(result.name, "bold").append(f": {result.evidence}")
        if result.remedy and result.verdict is not Verdict.PASS:
            text.append(f"\nremedy: {result.remedy}", "cyan")
        rows.append((Text(str(result.verdict), STYLES.get(str(result.verdict), "")), text))
    return grid(title, ("verdict", "check"), rows)


def digest(value: str) -> str:
    """Enough of a digest to distinguish it from another one; whole ones are wider than half a terminal."""
    return value[: len("sha256:") + 16]


def number(value: int | None) -> str:
    """A count for people; "-" where it is not known."""
    return "-" if value is None else f"{value:,}"


def drift(changes: Sequence[DriftStatus]) -> RenderableType:
    """What changed about topics since they were declared, those first that endanger what was copied."""
    rows = (
        (
            one.topic,
            Text(one.what, "bold red" if one.endangers else ""),
            f"{one.declared} -> {one.observed}",
            one.remedy,
        )
        for one in changes[:_CHANGES]
    )
    note = f"{len(changes) - _CHANGES} more changes" if len(changes) > _CHANGES else ""
    return grid("Changed since it was declared", ("topic", "what", "change", "what can be done"), rows, note=note)
