"""Translating and moving groups, and positions that are kept outside of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import drift, grid
from kafka_migration.domain.amounts import seconds

if TYPE_CHECKING:
    from kafka_migration.groups.parity import Parity
    from kafka_migration.groups.record import Translation
    from kafka_migration.groups.translate import Preview
    from kafka_migration.groups.watch import WatchResult
    from kafka_migration.positions.connect_offsets import OffsetsTranslation
    from kafka_migration.positions.files import FileTranslation
    from kafka_migration.positions.translation import Translated
    from kafka_migration.steps.cutover import CutoverResult, GroupOutcome

_GOOD = frozenset({"moved", "already_moved", "would_move", "alive"})
_NEUTRAL = frozenset({"not_concerned", "waiting"})
#: Positions of a file.
_SHOWN = 200


def _outcome(word: str) -> Text:
    return Text(word.replace("_", " "), "green" if word in _GOOD else "" if word in _NEUTRAL else "bold red")


def _positions(translations: Iterable[Translation]) -> list[tuple[str, str, str, str]]:
    return [
        (str(one.tp), "-" if one.source is None else str(one.source), str(one.target), one.policy)
        for one in translations
    ]


def translated(found: Preview) -> RenderableType:
    """Every group's positions, then what would keep it from being moved; or explicit offsets."""
    parts: list[RenderableType] = []
    for group in found.groups:
        title = f"{group.group} ({group.state}, {group.members} members)"
        note = "; ".join([*group.problems, *group.flags])
        parts.append(grid(title, ("partition", ">source", ">target", "how"), _positions(group.translations), note=note))
    if found.offsets:
        rows = (
            (str(one.tp), str(one.source), "-" if one.target is None else str(one.target), one.problem)
            for one in found.offsets
        )
        parts.append(grid("Offsets", ("partition", ">source", ">target", "problem"), rows))
    return Group(*(parts or [Text("the plan selects no group")]))


def side_by_side(found: Parity) -> RenderableType:
    """Groups on both clusters, then topics, then ACLs that the target lacks."""
    rows = (
        (
            group.group,
            "moved" if group.is_moved else "on the source",
            ", ".join(f"{count} {standing}" for standing, count in group.counts.items()),
            Text(group.problem, "bold red"),
        )
        for group in found.groups
    )
    parts = [grid("Groups", ("group", "where", "partitions on the target", "problem"), rows)]
    if found.topics:
        parts.append(drift(found.topics))
    if found.access is None:
        parts.append(Text(f"ACLs: not compared: {found.access_unknown}", "dim"))
    else:
        rules = (
            (acl.principal, acl.operation, acl.permission, f"{acl.resource_type} {acl.resource}", acl.pattern)
            for acl in found.access
        )
        parts.append(grid("ACLs that the target lacks", ("principal", "operation", "", "on", "pattern"), rules))
    return Group(*parts)


def moved(result: CutoverResult) -> RenderableType:
    """What became of each group, and what to do where it was not moved."""
    rows = ((one.group, _outcome(one.outcome), seconds(one.pause_seconds), _why(one)) for one in result.groups)
    return grid("Groups", ("group", "outcome", ">pause", "why"), rows)


def _why(group: GroupOutcome) -> Text:
    text = Text(group.reason)
    for flag in group.flags:
        text.append(f"{'; ' if text.plain else ''}{flag}")
    if group.members:
        text.append("\nmembers: " + ", ".join(group.members[:5]))
    if group.remedy:
        text.append(f"\nremedy: {group.remedy}", "cyan")
    return text


def watched(result: WatchResult) -> RenderableType:
    """Which groups are active on the target."""
    rows = []
    for group in result.groups:
        text = Text(group.evidence)
        if group.remedy:
            text.append(f"\nremedy: {group.remedy}", "cyan")
        rows.append((group.group, _outcome(group.life), seconds(group.pause_seconds), text))
    return grid("Groups on the target", ("group", "", ">pause", "evidence"), rows)


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
