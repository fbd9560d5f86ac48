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
    elif warnings := sum(result.verdict is Verdict.WARN for result in seen.gate.results):
        parts.append(Text(f"no check fails; {warnings} {'warn' if warnings > 1 else 'warns'}", "bold yellow"))
    else:
        parts.append(Text("every check passes", "bold green"))
    return Group(*parts)


def inventory(taken: Inventory) -> RenderableType:
    """What the plan means on the source."""
    topics = grid(
        "Topics",
        ("topic", ">parts", ">repl", ">offsets", ">offsets/s", "configs"),
        (
            (
                name,
                str(topic.partitions),
                str(topic.replication_factor),
                number(topic.offsets),
                f"{topic.records_per_second:,.0f}",
                "\n".join(f"{key}={value}" for key, value in sorted(topic.configs.items())),
            )
            for name, topic in sorted(taken.topics.items())
        ),
    )
    groups = grid(
        "Consumer groups",
        ("group", "protocol", "state", ">members", ">lag", "reads"),
        (
            (
                name,
                group.protocol,
                group.state,
                str(len(group.members)),
                number(group.lag),
                "\n".join(sorted(group.topics)),
            )
            for name, group in sorted(taken.groups.items())
        ),
    )
    cluster = f"{taken.cluster_id}, {taken.brokers} brokers"
    head = facts((("source cluster", cluster), ("inventory", digest(taken.digest))))
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
                ((one.topic, one.what, one.declared, one.observed) for one in result.drift),
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
