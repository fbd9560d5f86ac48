"""Inventory, preflight, and what an approver sees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, digest, facts, grid, number
from kafka_migration.domain.checks import Verdict

if TYPE_CHECKING:
    from kafka_migration.approvals.evidence import Evidence
    from kafka_migration.inventory.preflight import Preflight
    from kafka_migration.kafka.facts import Inventory
    from kafka_migration.topics.create import Created


def preflight(seen: Preflight) -> RenderableType:
    """The inventory, then the checks, then the decision."""
    parts: list[RenderableType] = [] if seen.inventory is None else [inventory(seen.inventory)]
    parts.append(checks("Checks", seen.gate.results))
    blockers = seen.gate.blockers
    if blockers:
        parts.append(Text(f"{len(blockers)} checks do not pass", "bold red"))
    elif warnings := sum(it.verdict is Verdict.WARN for it in seen.gate.results):
        parts.append(Text(f"no check fails; {warnings} {'warn' if warnings > 1 else 'warns'}", "bold yellow"))
    else:
        parts.append(Text("every check passes", "bold green"))
    return Group(*parts)


def inventory(taken: Inventory) -> RenderableType:
    """What the plan means on the source."""
    topics = grid(
        "Topics",
        ("topic", ">parts", ">repl", ">offsets", ">offsets/s", "settings"),
        (
            (
                name,
                str(it.partitions),
                str(it.replication_factor),
                number(it.offsets),
                f"{it.records_per_second:,.0f}",
                "\n".join(f"{key}={value}" for key, value in sorted(it.configs.items())),
            )
            for name, it in sorted(taken.topics.items())
        ),
    )
    groups = grid(
        "Consumer groups",
        ("group", "protocol", "state", ">members", ">lag", "reads"),
        (
            (
                name,
                it.protocol,
                it.state,
                str(len(it.members)),
                number(it.lag),
                "\n".join(sorted(it.topics)),
            )
            for name, it in sorted(taken.groups.items())
        ),
    )
    head = facts(
        (
            ("source cluster", f"{taken.cluster_id}, {taken.brokers} brokers"),
            ("inventory", digest(taken.digest)),
        )
    )
    return Group(head, Text(), topics, groups)


def created(result: Created) -> RenderableType:
    """What was done with each target topic (or would be)."""
    rows = ((str(step.action), step.name, str(step.declared.spec.partitions)) for step in result.steps)
    parts = [grid("Would be done" if result.dry_run else "Done", ("action", "topic", ">parts"), rows)]
    if result.drift:
        parts.append(
            grid(
                "Not as declared",
                ("topic", "what", "declared", "observed"),
                ((it.topic, it.what, it.declared, it.observed) for it in result.drift),
            )
        )
    return Group(*parts)


def evidence(seen: Evidence) -> RenderableType:
    """What a person decides on, with the digest that the answer binds to at the end, next to the question."""
    parts: list[RenderableType] = [Text(f"{seen.migration}: approve the {seen.gate}?", "bold"), Text()]
    parts.append(checks("Checks", seen.checks.results))
    for table in seen.tables:
        parts.append(grid(table.title, table.columns, table.rows, note=table.note))
    for title, lines in (("What happens next", seen.next_steps), ("How it is undone", seen.undo)):
        parts.append(Text(title, "bold"))
        parts.append(facts((f"{at:>3}.", line) for at, line in enumerate(lines, 1)))
        parts.append(Text())
    parts.append(Text("The evidence's digest", "bold"))
    parts.append(Text(f"  {seen.digest}\n  taken {seen.taken_at.isoformat(timespec='milliseconds')}\n", no_wrap=True))
    return Group(*parts)
