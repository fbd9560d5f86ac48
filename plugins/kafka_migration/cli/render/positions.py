"""Positions that are kept outside Kafka's groups, and where they lead."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import grid

if TYPE_CHECKING:
    from kafka_migration.positions.connect_offsets import OffsetsTranslation
    from kafka_migration.positions.files import FileTranslation
    from kafka_migration.positions.translation import Translated

_SHOWN = 200


def in_file(found: FileTranslation) -> RenderableType:
    """Each position of a file or checkpoint; those with a problem first, if there are too many for a terminal."""
    rows = [(place, *_cells(one)) for place, one in found.rows]
    below = [Text(f"left out, too old to be translated exactly: {name}", "yellow") for name in found.left_out]
    if found.output is not None:
        below.append(Text(f"written: {found.output}", "green"))
    title = f"{found.input.path} ({found.input.format}, {found.input.positions} positions)"
    return Group(_table(title, ("where", *_columns(found.back)), rows), *below)


def in_connect(found: OffsetsTranslation) -> RenderableType:
    """Each position of an offsets topic, and what becomes of it on the other one."""
    rows = []
    for one in found.moved:
        if one.translated is not None:
            rows.append((one.entry.place, *_cells(one.translated), Text("" if one.change is None else str(one.change))))
    below = [Text(f"{found.others} other keys, which hold no position of Kafka, stay as they are", "dim")]
    if found.written is not None:
        below.append(Text(f"written to {found.output}: {found.written}; there already: {_same(found)}", "green"))
    title = f"{found.topic} ({len(found.positions)} positions)"
    columns = ("connector", *_columns(found.back), f"on {found.output}" if found.output else "")
    return Group(_table(title, columns, rows), *below)


def _same(found: OffsetsTranslation) -> int:
    return len(found.moved) - (found.written or 0)


def _columns(back: bool) -> tuple[str, ...]:
    return ("partition", ">target", ">source", "how") if back else ("partition", ">source", ">target", "how")


def _cells(one: Translated) -> tuple[str | Text, ...]:
    how = Text(one.problem, "bold red") if one.problem else Text(str(one.how))
    if one.problem:
        how.append(f"\nremedy: {one.remedy}", "cyan")
    offset = "-" if one.offset is None else str(one.offset)
    return str(one.position.tp), str(one.position.offset), offset, how


def _table(title: str, columns: tuple[str, ...], rows: Iterable[tuple[str | Text, ...]]) -> RenderableType:
    every = list(rows)
    note = f"and {len(every) - _SHOWN} more; --json has all" if len(every) > _SHOWN else ""
    if note:
        every.sort(key=lambda row: not any(isinstance(cell, Text) and "remedy: " in cell.plain for cell in row))
    return grid(title, columns, every[:_SHOWN], note=note)
