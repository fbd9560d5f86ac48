"""The table of docs/metrics.md: `python -m tests.metrics.document` writes it anew."""

from __future__ import annotations

import re
from pathlib import Path

from kafka_migration.metrics.exporter import READ_AT, READ_FOR, UP
from kafka_migration.metrics.table import METRICS, PREFIX

PATH = Path(__file__).resolve().parents[2] / "docs" / "metrics.md"
_TABLE = re.compile(r"(?<=<!-- table -->\n\n).*?(?=\n\n<!-- end -->)", re.DOTALL)


def table() -> str:
    """The rows, as Markdown."""
    own = [(name, (), text) for name, text in (UP, READ_AT, READ_FOR)]
    rows = [*own, *((metric.name, metric.labels, metric.help) for metric in METRICS)]
    head = "| metric | labels besides `migration` | what it is |\n| --- | --- | --- |"
    lines = [
        f"| `{PREFIX}{name}` | {', '.join(f'`{label}`' for label in labels)} | {text} |" for name, labels, text in rows
    ]
    return "\n".join([head, *lines])


def with_table(text: str) -> str:
    """The document ``text`` with the table of today."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    PATH.write_text(with_table(PATH.read_text(encoding="utf-8")), encoding="utf-8")
