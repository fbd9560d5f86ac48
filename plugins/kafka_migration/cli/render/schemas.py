"""Schemas that the target's registry lacks, and what stands in the way."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.schemas.copy import ToUndo
    from kafka_migration.schemas.difference import Difference
    from kafka_migration.schemas.types import Version

#: Enough to see which; --json has them all.
_SHOWN = 100
_COLUMNS = ("subject", ">version", ">id", "type", "refers to")


def difference(found: Difference) -> RenderableType:
    """All as tables, and how many are there."""
    settings = [
        (name, ", ".join(f"{key} {value}" for key, value in config.items())) for name, config in found.configs.items()
    ]
    settings += [(name, f"mode {mode}") for name, mode in found.modes.items()]
    taken, left_out = ([(text,) for text in texts] for texts in (found.collisions, found.left_out))
    if found.collisions:
        end = Text(f"{len(found.collisions)} collisions: nothing is copied before they are gone", "bold red")
    elif found.is_none:
        end = Text(f"{found.present} versions there, none missing", "green")
    else:
        end = Text(f"{found.present} versions there; missing: {found}. `--apply` makes them", "bold yellow")
    return Group(
        grid("The target lacks", _COLUMNS, _rows(found.missing), note=_more(len(found.missing))),
        grid("To be set on the target", ("subject", "what"), settings[:_SHOWN], note=_more(len(settings))),
        grid("Taken on the target", ("what",), taken[:_SHOWN], note=_more(len(taken))),
        grid("Not copied", ("what",), left_out[:_SHOWN], note=_more(len(left_out))),
        facts(("note", text) for text in _notes(found)),
        end,
    )


def _notes(found: Difference) -> Iterator[str]:
    yield from found.notes
    if found.left_importing:
        yield f"left halfway, maybe in mode IMPORT: {listed(found.left_importing)}; `--apply` ends that"


def staying(found: ToUndo) -> RenderableType:
    """What is not deleted, and why."""
    return Group(
        grid("Stay, as others may need them, or are read-only", ("subject",), [(name,) for name in found.stay]),
        grid("Stay, as somebody has changed them since", ("version",), [(text,) for text in found.changed]),
    )


def _rows(versions: Iterable[Version]) -> list[tuple[str, ...]]:
    def row(version: Version) -> tuple[str, ...]:
        name = f"{version.subject} (soft-deleted)" if version.is_deleted else version.subject
        refers = listed(f"{one.subject} {one.version}" for one in version.content.references)
        return name, str(version.version), str(version.id), version.content.type, refers

    return [row(version) for version in list(versions)[:_SHOWN]]


def _more(count: int) -> str:
    return f"and {count - _SHOWN} more: --json shows all" if count > _SHOWN else ""
