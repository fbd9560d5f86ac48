"""What an approver sees before a gate, and the digest that the answer binds to.

Two kinds of evidence stand side by side. *Facts* hold as long as nobody changes something: the plan, topics with their
configs, groups and what they read, verdicts. The digest is taken over them alone. *Tables* show what moves while
records flow (offsets, lag, rates, members): were they digested, every approval would be void before it was given.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate
from kafka_migration.domain.digest import digest_of

if TYPE_CHECKING:
    from kafka_migration.kafka.facts import Inventory

Facts = Mapping[str, Mapping[str, str]]

#: A value that stands for something larger; shown as "changed" only.
_DIGEST_MARK = "#"


class GateName(enum.StrEnum):
    """The gates that may wait for a person."""

    PLAN = "plan"
    CUTOVER = "cutover"
    PRODUCERS = "producers"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows to show. ``note`` stands below, and mentions rows that are left out."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        if any(len(row) != len(self.columns) for row in self.rows):
            raise ValueError(f"table {self.title}: a row has another number of cells than {len(self.columns)}")

    def as_dict(self) -> dict[str, Any]:
        return {
            "title": self.title,
            "columns": list(self.columns),
            "rows": [list(r) for r in self.rows],
            "note": self.note,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """Everything about one gate of a migration at ``taken_at``. ``facts`` are sections of items with their values.
    ``scope`` is the key of the wave that they are about, "" for the whole plan.

    ``inventory`` is what they were taken from, None if a cluster did not answer.
    """

    gate: GateName
    migration: str
    taken_at: datetime
    facts: Facts
    checks: Gate
    tables: tuple[Table, ...]
    scope: str = ""
    next_steps: tuple[str, ...] = ()
    undo: tuple[str, ...] = ()
    inventory: Inventory | None = None

    @property
    def digest(self) -> str:
        """The digest of the facts: what an approval binds to."""
        of = {"gate": str(self.gate), "migration": self.migration, "facts": _plain(self.facts)}
        return digest_of({**of, "scope": self.scope} if self.scope else of)

    def with_facts(self, section: str, items: Mapping[str, str]) -> Evidence:
        """The same evidence with some items of a section as they were before."""
        return replace(self, facts={**self.facts, section: {**self.facts.get(section, {}), **items}})

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "gate": str(self.gate),
            "migration": self.migration,
            "taken_at": self.taken_at.isoformat(timespec="milliseconds"),
            "digest": self.digest,
            "facts": _plain(self.facts),
            "checks": [check.as_dict() for check in self.checks.results],
            "tables": [table.as_dict() for table in self.tables],
            "next_steps": list(self.next_steps),
            "undo": list(self.undo),
        }

    def as_markdown(self) -> str:
        """For a page that a person decides on. Names from the clusters cannot break out of their cells."""
        blocked = self.checks.blockers
        head = [
            f"# {self.migration}: approve the {self.gate}{f' of wave {self.scope}' if self.scope else ''}?",
            f"Taken {self.taken_at:%Y-%m-%d %H:%M:%S} UTC. An approval holds for exactly this evidence:",
            f"`{self.digest}`",
        ]
        if blocked:
            head.append(f"**{len(blocked)} checks do not pass. While they do not, this cannot be approved.**")
        checks = Table(
            title="Checks",
            columns=("check", "verdict", "evidence"),
            rows=tuple((r.name, str(r.verdict), _with_remedy(r)) for r in self.checks.results),
        )
        parts = [*head, *(_markdown(t) for t in (checks, *self.tables))]
        parts.append("## What happens next\n" + "\n".join(f"{n}. {s}" for n, s in enumerate(self.next_steps, 1)))
        parts.append("## How it is undone\n" + "\n".join(f"- {s}" for s in self.undo))
        return "\n\n".join(parts) + "\n"


def item(value: Any) -> str:
    """A JSON value as an item of the facts: itself if it is a short text, else a short digest of it."""
    if isinstance(value, str) and len(value) <= 80 and not value.startswith(_DIGEST_MARK):
        return value
    return _DIGEST_MARK + digest_of(value).removeprefix("sha256:")[:16]


def verdicts(gate: Gate) -> dict[str, str]:
    """A gate's checks as items of the facts.

    PASS and WARN are one fact: a warning about what moves (such as a group's first commit on a partition) comes
    and goes by itself, and must not void an approval. What it warns of stands in the facts where it does not.
    """
    blocking = {r.name: str(r.verdict) for r in gate.blockers}
    return {r.name: blocking.get(r.name, "passes") for r in gate.results}


def differences(before: Facts, now: Facts) -> tuple[str, ...]:
    """What changed between two sets of facts, one line each."""
    found = []
    for section in sorted({*before, *now}):
        old, new = before.get(section, {}), now.get(section, {})
        for name in sorted({*old, *new}):
            if name not in new:
                found.append(f"{section}: {name} is gone")
            elif name not in old:
                found.append(f"{section}: {name} is new")
            elif old[name] != new[name]:
                plain = not (old[name].startswith(_DIGEST_MARK) or new[name].startswith(_DIGEST_MARK))
                found.append(f"{section}: {name} " + (f"was {old[name]}, is {new[name]}" if plain else "changed"))
    return tuple(found)


def limited(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, see: str, most: int = 50) -> Table:
    """A table of the first ``most`` rows, with a note where it stops; ``see`` is the command that lists all of them."""
    every = [tuple(row) for row in rows]
    note = f"The first {most} of {len(every)} rows; `{see}` lists all of them" if len(every) > most else ""
    return Table(title=title, columns=tuple(columns), rows=tuple(every[:most]), note=note)


def _plain(facts: Facts) -> dict[str, dict[str, str]]:
    return {section: dict(items) for section, items in facts.items()}


def _with_remedy(result: CheckResult) -> str:
    return f"{result.evidence} (remedy: {result.remedy})" if result.remedy else result.evidence


def _markdown(table: Table) -> str:
    lines = [f"## {table.title}"]
    if table.rows:
        lines.append("")
        lines.append("| " + " | ".join(table.columns) + " |")
        lines.append("|" + " --- |" * len(table.columns))
        lines += ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in table.rows]
    else:
        lines.append("\nnone")
    if table.note:
        lines.append(f"\n{table.note}")
    return "\n".join(lines)


#: Characters that would mean something in Markdown or HTML: a group may have any name.
_MARKUP = str.maketrans({c: f"\\{c}" for c in "\\`*[]|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"})


def _cell(text: str) -> str:
    return " ".join(text.translate(_MARKUP).split())
