"""Translating and moving groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import drift, grid, seconds

if TYPE_CHECKING:
    from kafka_migration.groups.parity import Parity
    from kafka_migration.groups.record import Translation
    from kafka_migration.groups.translate import Preview
    from kafka_migration.groups.watch import WatchResult
    from kafka_migration.steps.cutover import CutoverResult, GroupOutcome

_GOOD = frozenset({"moved", "already_moved", "would_move", "alive"})
_NEUTRAL = frozenset({"not_concerned", "waiting"})


def _said(word: str) -> Text:
    return Text(word.replace("_", " "), "green" if word in _GOOD else "" if word in _NEUTRAL else "bold red")


def _positions(translations: Iterable[Translation]) -> list[tuple[str, str, str, str]]:
    return [
        (str(it.tp), "-" if it.source is None else str(it.source), str(it.target), it.policy) for it in translations
    ]


def translated(found: Preview) -> RenderableType:
    """Every group's positions, then what would keep it from being moved; or explicit offsets."""
    parts: list[RenderableType] = []
    for it in found.groups:
        title = f"{it.group} ({it.state}, {it.members} members)"
        note = "; ".join([*it.problems, *it.flags])
        parts.append(grid(title, ("partition", ">source", ">target", "how"), _positions(it.translations), note=note))
    if found.offsets:
        rows = (
            (str(it.tp), str(it.source), "-" if it.target is None else str(it.target), it.problem)
            for it in found.offsets
        )
        parts.append(grid("Offsets", ("partition", ">source", ">target", "problem"), rows))
    return Group(*(parts or [Text("the plan selects no group")]))


def side_by_side(found: Parity) -> RenderableType:
    """Groups on both clusters, then topics, then access rules that the target lacks."""
    rows = (
        (
            it.group,
            "moved" if it.is_moved else "on the source",
            ", ".join(f"{count} {standing}" for standing, count in it.counts.items()),
            Text(it.problem, "bold red"),
        )
        for it in found.groups
    )
    parts = [grid("Groups", ("group", "where", "partitions on the target", "problem"), rows)]
    if found.topics:
        parts.append(drift(found.topics))
    if found.access is None:
        parts.append(Text(f"ACLs: not compared: {found.access_unknown}", "dim"))
    else:
        rules = (
            (it.principal, it.operation, it.permission, f"{it.resource_type} {it.resource}", it.pattern)
            for it in found.access
        )
        parts.append(grid("ACLs that the target lacks", ("principal", "operation", "", "on", "pattern"), rules))
    return Group(*parts)


def moved(result: CutoverResult) -> RenderableType:
    """What became of each group, and what to do where it was not moved."""
    rows = ((it.group, _said(it.outcome), seconds(it.pause_seconds), _why(it)) for it in result.groups)
    return grid("Groups", ("group", "outcome", ">pause", "why"), rows)


def _why(it: GroupOutcome) -> Text:
    text = Text(it.reason)
    for flag in it.flags:
        text.append(f"{'; ' if text.plain else ''}{flag}")
    if it.members:
        text.append("\nmembers: " + ", ".join(it.members[:5]))
    if it.remedy:
        text.append(f"\nremedy: {it.remedy}", "cyan")
    return text


def watched(result: WatchResult) -> RenderableType:
    """Which groups live on the target."""
    rows = []
    for it in result.groups:
        text = Text(it.evidence)
        if it.remedy:
            text.append(f"\nremedy: {it.remedy}", "cyan")
        rows.append((it.group, _said(it.life), seconds(it.pause_seconds), text))
    return grid("Groups on the target", ("group", "", ">pause", "evidence"), rows)
