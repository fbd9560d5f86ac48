"""The verdict of a validation, and what is not equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import facts, grid, number

if TYPE_CHECKING:
    from kafka_migration.validation.validate import Validation

_STYLES = {"EQUAL": "bold green", "DIFFERENT": "bold red"}
_SHOWN = 20


def validation(found: Validation) -> RenderableType:
    """The verdict and what it rests on; partitions only where they are not equal."""
    result = found.result
    rows = [
        ("verdict", Text(str(found.verdict), _STYLES.get(str(found.verdict), "bold yellow"))),
        ("read", Text(result.summary())),
        *(("note", Text(hint)) for hint in result.hints),
    ]
    beside = found.consumers
    if beside and (beside["unknown"] or beside["problems"]):
        rows.append(("consumers", Text(beside["unknown"] or "; ".join(beside["problems"]), "bold yellow")))
    if not found.expectations.success:
        rows.append(("suite", Text("; ".join(found.expectations.failed), "bold red")))
    unequal = [it for it in result.partitions if str(it.verdict) != "EQUAL"]
    parts: list[RenderableType] = [facts(rows), Text()]
    if unequal:
        cells = (
            (
                str(it.tp),
                str(it.verdict),
                number(it.source.rows if it.source else None),
                number(it.target.rows if it.target else None),
                it.detail,
            )
            for it in unequal[:_SHOWN]
        )
        note = f"{len(unequal) - _SHOWN} more partitions are not equal" if len(unequal) > _SHOWN else ""
        parts.append(grid("Not equal", ("partition", "verdict", ">source", ">target", "detail"), cells, note=note))
    parts += _drilled(result.partitions)
    parts.append(Text(f"Data Docs: {found.data_docs}"))
    return Group(*parts)


def _drilled(partitions: Sequence[Any]) -> list[RenderableType]:
    """The first records that differ, and what is said of the rest."""
    examples = [one for it in partitions if it.drilled is not None for one in it.drilled.examples]
    cells = (
        (
            f"{it.topic}-{it.partition}",
            str(it.fault),
            number(it.source_offset),
            (f"{it.found_in}: " if it.found_in is not None else "") + number(it.target_offset),
            it.key or "",
            "; ".join([*(one.text for one in it.altered), *([it.detail] if it.detail else [])]),
        )
        for it in examples[:_SHOWN]
    )
    note = f"{len(examples) - _SHOWN} more are in validation.json" if len(examples) > _SHOWN else ""
    heads = ("partition", "class", ">source offset", ">target offset", "key", "what differs")
    parts: list[RenderableType] = [grid("Records that differ", heads, cells, note=note)] if examples else []
    notes = [(str(it.tp), Text(it.drilled.text)) for it in partitions if it.drilled is not None and it.drilled.text]
    if notes:
        parts.append(facts(notes[:_SHOWN]))
    return parts
