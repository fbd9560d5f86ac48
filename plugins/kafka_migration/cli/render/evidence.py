"""Inventory, preflight, what an approver sees, and a validation's verdict with what is not equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, digest, facts, grid, number
from kafka_migration.domain.checks import Verdict

if TYPE_CHECKING:
    from kafka_migration.approvals.evidence import Evidence
    from kafka_migration.inventory.preflight import Preflight
    from kafka_migration.kafka.facts import Inventory
    from kafka_migration.topics.create import Created
    from kafka_migration.validation.validate import Validation

_STYLES = {"EQUAL": "bold green", "DIFFERENT": "bold red"}
_SHOWN = 20


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
    parts: list[RenderableType] = [
        Text(f"{seen.migration}: approve the {seen.gate}{f' of wave {seen.scope}' if seen.scope else ''}?", "bold"),
        Text(),
    ]
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


def validation(found: Validation) -> RenderableType:
    """The verdict and what it rests on; partitions only where they are not equal."""
    result = found.result
    rows = [
        ("verdict", Text(str(found.verdict), _STYLES.get(str(found.verdict), "bold yellow"))),
        ("read", Text(result.summary())),
        *(("note", Text(hint)) for hint in result.hints),
    ]
    consumers = found.consumers
    if consumers and (trouble := consumers["unknown"] or "; ".join(consumers["problems"])):
        rows.append(("consumers", Text(trouble, "bold yellow")))
    if not found.expectations.success:
        rows.append(("suite", Text("; ".join(found.expectations.failed), "bold red")))
    return Group(
        facts(rows),
        Text(),
        *_unequal(result.partitions),
        *_examples(result.partitions),
        *_remarks(result.partitions),
        Text(f"Data Docs: {found.data_docs}"),
    )


def _unequal(partitions: Sequence[Any]) -> list[RenderableType]:
    """A row for each partition that is not equal; nothing if all are."""
    unequal = [partition for partition in partitions if str(partition.verdict) != "EQUAL"]
    if not unequal:
        return []
    cells = (
        (
            str(partition.tp),
            str(partition.verdict),
            number(partition.source.rows if partition.source else None),
            number(partition.target.rows if partition.target else None),
            partition.detail,
        )
        for partition in unequal[:_SHOWN]
    )
    note = f"{len(unequal) - _SHOWN} more partitions are not equal" if len(unequal) > _SHOWN else ""
    return [grid("Not equal", ("partition", "verdict", ">source", ">target", "detail"), cells, note=note)]


def _examples(partitions: Sequence[Any]) -> list[RenderableType]:
    """The first records that differ; nothing if none is known."""
    examples = [example for one in partitions if one.drilled is not None for example in one.drilled.examples]
    if not examples:
        return []
    cells = (
        (
            f"{example.topic}-{example.partition}",
            str(example.fault),
            number(example.source_offset),
            (f"{example.found_in}: " if example.found_in is not None else "") + number(example.target_offset),
            example.key or "",
            "; ".join([*(altered.text for altered in example.altered), *([example.detail] if example.detail else [])]),
        )
        for example in examples[:_SHOWN]
    )
    note = f"{len(examples) - _SHOWN} more are in validation.json" if len(examples) > _SHOWN else ""
    heads = ("partition", "class", ">source offset", ">target offset", "key", "what differs")
    return [grid("Records that differ", heads, cells, note=note)]


def _remarks(partitions: Sequence[Any]) -> list[RenderableType]:
    """What the search for differing records reports of whole partitions."""
    notes = [
        (str(one.tp), Text(one.drilled.text)) for one in partitions if one.drilled is not None and one.drilled.text
    ]
    return [facts(notes[:_SHOWN])] if notes else []
