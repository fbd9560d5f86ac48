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
    consumers = found.consumers
    if consumers and (trouble := consumers["unknown"] or "; ".join(consumers["problems"])):
        rows.append(("consumers", Text(trouble, "bold yellow")))
    if not found.expectations.success:
        rows.append(("suite", Text("; ".join(found.expectations.failed), "bold red")))
    return Group(
        facts(rows),
        Text(),
        *_unequal(result.partitions),
        *_examples(result.partitions),
        *_remarks(result.partitions),
        Text(f"Data Docs: {found.data_docs}"),
    )


def _unequal(partitions: Sequence[Any]) -> list[RenderableType]:
    """A row for each partition that is not equal; nothing if all are."""
    unequal = [partition for partition in partitions if str(partition.verdict) != "EQUAL"]
    if not unequal:
        return []
    cells = (
        (
            str(partition.tp),
            str(partition.verdict),
            number(partition.source.rows if partition.source else None),
            number(partition.target.rows if partition.target else None),
            partition.detail,
        )
        for partition in unequal[:_SHOWN]
    )
    note = f"{len(unequal) - _SHOWN} more partitions are not equal" if len(unequal) > _SHOWN else ""
    return [grid("Not equal", ("partition", "verdict", ">source", ">target", "detail"), cells, note=note)]


def _examples(partitions: Sequence[Any]) -> list[RenderableType]:
    """The first records that differ; nothing if none is known."""
    examples = [example for one in partitions if one.drilled is not None for example in one.drilled.examples]
    if not examples:
        return []
    cells = (
        (
            f"{example.topic}-{example.partition}",
            str(example.fault),
            number(example.source_offset),
            (f"{example.found_in}: " if example.found_in is not None else "") + number(example.target_offset),
            example.key or "",
            "; ".join([*(altered.text for altered in example.altered), *([example.detail] if example.detail else [])]),
        )
        for example in examples[:_SHOWN]
    )
    note = f"{len(examples) - _SHOWN} more are in validation.json" if len(examples) > _SHOWN else ""
    heads = ("partition", "class", ">source offset", ">target offset", "key", "what differs")
    return [grid("Records that differ", heads, cells, note=note)]


def _remarks(partitions: Sequence[Any]) -> list[RenderableType]:
    """What the search for differing records reports of whole partitions."""
    notes = [
        (str(one.tp), Text(one.drilled.text)) for one in partitions if one.drilled is not None and one.drilled.text
    ]
    return [facts(notes[:_SHOWN])] if notes else []
