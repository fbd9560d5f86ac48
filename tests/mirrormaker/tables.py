"""The tables of docs/mirrormaker.md, from the code.

    python -m tests.mirrormaker.tables

writes them there anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kafka_migration.mirrormaker import options
from kafka_migration.mirrormaker.options import Counterpart

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "mirrormaker.md"
_PARTS = {
    "Of a flow, or of its connectors": options.FLOW,
    "Of clients, besides those that are a connection's": options.CLIENT,
    "Of Connect's worker": options.WORKER,
    "Of MirrorMaker 2's command line": options.SECOND,
    "Of MirrorMaker 1's command line": options.FIRST,
}
HEADING = "## Every option\n"


def tables() -> str:
    """Everything below the heading."""
    return "\n".join(f"\n### {title}\n\n{_table(table)}" for title, table in _PARTS.items())


def _table(table: Mapping[str, Counterpart]) -> str:
    grouped: dict[Counterpart, list[str]] = {}
    for name, counterpart in table.items():
        grouped.setdefault(counterpart, []).append(f"`{name}`")
    rows = [f"| {', '.join(names)} | {one.outcome}: {one.note} |" for one, names in grouped.items()]
    return "\n".join(["| options | |", "|---|---|", *rows, ""])


def main() -> None:
    """Write them."""
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(text.partition(HEADING)[0] + HEADING + tables(), encoding="utf-8")


if __name__ == "__main__":
    main()
