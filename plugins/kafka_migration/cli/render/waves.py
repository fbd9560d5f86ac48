"""Waves as tables: sizes, members, and what holds topics together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import RenderableType

from kafka_migration.cli.render import tables
from kafka_migration.cli.render.tables import grid
from kafka_migration.domain.listing import listed
from kafka_migration.waves import sizing
from kafka_migration.waves.order import WHOLE

if TYPE_CHECKING:
    from kafka_migration.domain.checks import Gate
    from kafka_migration.waves.links import Link
    from kafka_migration.waves.order import Wave, Waves


def sizes(sized: Sequence[sizing.WaveSize]) -> RenderableType:
    """A row for each wave."""
    texts = {"wave", "ETA", "retention"}
    columns = [name if name in texts else f">{name}" for name in sizing.COLUMNS]
    return grid("Waves, in their order", columns, (sizing.row(one) for one in sized), note=sizing.note(sized))


def members(waves: Waves) -> RenderableType:
    """The first topics and groups of each wave."""
    rows = (
        (sizing.title(wave), listed(sorted(wave.topics)) or "none", listed(sorted(wave.groups)) or "none")
        for wave in waves.waves
    )
    return grid("What moves together", ("wave", "topics", "groups"), rows, note="--why TOPIC shows what holds it")


def checks(gate: Gate) -> RenderableType:
    """What the checks of waves found."""
    return tables.checks("Checks", gate.results)


def why_topic(topic: str, wave: Wave | None, held: Mapping[str, Sequence[Link]]) -> RenderableType:
    """The topics that cannot move apart from ``topic``, each with the row of links that leads to it."""
    where = "no wave" if wave is None else "the whole plan" if wave.name == WHOLE else f"wave {wave.name}"
    rows = ((other, "\nthen ".join(link.title for link in links)) for other, links in held.items())
    note = "" if held else "nothing that is known holds it together with another topic"
    return grid(f"{topic}, in {where}, cannot move apart from", ("topic", "held by"), rows, note=note)


def why_wave(wave: Wave, links: Iterable[Link]) -> RenderableType:
    """What holds topics of a wave together."""
    rows = ((link.title, listed(sorted(link.topics))) for link in links)
    return grid(f"What holds topics of wave {wave.name} together", ("what", "topics"), rows)
