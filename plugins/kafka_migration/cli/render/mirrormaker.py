"""What became of a MirrorMaker's options, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import facts, grid
from kafka_migration.mirrormaker.options import Outcome

if TYPE_CHECKING:
    from kafka_migration.mirrormaker.plans import Imported

_STYLES = {Outcome.TAKEN: "green", Outcome.TO_DO: "bold yellow", Outcome.NO_COUNTERPART: "bold red"}


def imported(made: Imported, written: Sequence[Path]) -> Sequence[RenderableType | str]:
    """Every option, then the plans; what has to be looked at stands last, where a terminal ends."""
    order = (Outcome.IGNORED, Outcome.NOT_NEEDED, Outcome.TAKEN, Outcome.NO_COUNTERPART, Outcome.TO_DO)
    rows = []
    for row in sorted(made.rows, key=lambda row: order.index(row.counterpart.outcome)):
        text = Text().append(row.setting.name, "bold").append(f" = {row.shown}\n{row.counterpart.note}")
        rows.append((Text(str(row.counterpart.outcome), _STYLES.get(row.counterpart.outcome, "")), text))
    plans = [
        (title, f"plan {fields['name']}, from {fields['source']} to {fields['target']}")
        for title, fields in made.plans.items()
    ]
    parts = (facts(plans), Text(), facts([("note", one) for one in made.differences]), Text())
    lines = [f"written: {path}" for path in written] or ["nothing was written: --write DIR"]
    return (grid("Options", ("outcome", "option, and where it went or why it did not"), rows), *parts, *lines)
