"""What `adopt` has found of copies that MirrorMaker made, and what becomes of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.steps.adopt import Adoption
    from kafka_migration.steps.step import Decision

#: Enough to see which; --json has them all.
_SHOWN = 100


def differences(found: Sequence[Adoption]) -> RenderableType:
    """Each topic with what becomes of it, and where its copy differs."""
    rows = [row for adoption in found for row in _differences(adoption)]
    more = f"and {len(rows) - _SHOWN} more: --json has all" if len(rows) > _SHOWN else ""
    columns = ("topic", ">partition", "records", ">how many", "on", "offsets")
    return Group(
        grid("Topics", ("topic", ">partitions", ">records", "outcome", "why"), map(_row, found)),
        grid("Differences", columns, rows[:_SHOWN], note=more),
        facts((adoption.topic, adoption.remedy) for adoption in found if adoption.remedy),
    )


def outcome(decision: Decision, *, applied: bool) -> RenderableType:
    """How many of each."""
    text = decision.message if applied else f"without --apply nothing was written: {decision.message}"
    return Text(text, "bold yellow" if decision.exit_code else "green")


def _row(adoption: Adoption) -> tuple[str, ...]:
    count = str(len(adoption.matches)) if adoption.matches else ""
    return adoption.topic, count, f"{adoption.records:,}" if count else "", adoption.fate.in_words, adoption.why


def _differences(adoption: Adoption) -> Iterator[tuple[str, ...]]:
    for match in adoption.matches:
        counts = match.counts()
        for kind, spans in match.differences.items():
            side = "source" if kind.is_on_source else "target"
            place = adoption.topic, str(match.tp.partition), str(kind)
            yield (*place, f"{counts[kind]:,}", side, listed(map(str, spans)))
