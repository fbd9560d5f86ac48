"""Inventory, waves, checks and what came of them, what an approver sees, and what validation and adoption found."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import checks, digest, facts, grid, number
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.listing import listed
from kafka_migration.steps.retire import CONNECTIONS
from kafka_migration.waves import sizing
from kafka_migration.waves.order import WHOLE

if TYPE_CHECKING:
    from kafka_migration.approvals.evidence import Evidence
    from kafka_migration.domain.checks import Gate
    from kafka_migration.fence.fence import Fenced, Standing
    from kafka_migration.inventory.preflight import Preflight
    from kafka_migration.kafka.facts import Inventory
    from kafka_migration.steps.adopt import Adoption
    from kafka_migration.steps.cancel import Cancelled
    from kafka_migration.steps.complete import Completed
    from kafka_migration.steps.rehearsal import Measured, Rehearsed
    from kafka_migration.steps.step import Decision
    from kafka_migration.steps.switch import Switched
    from kafka_migration.topics.create import Created
    from kafka_migration.validation.validate import Validation
    from kafka_migration.waves.links import Link
    from kafka_migration.waves.order import Wave, Waves

_STYLES = {"EQUAL": "bold green", "DIFFERENT": "bold red"}
_SHOWN = 20
#: Enough to see which; --json has them all.
_MOST_DIFFERENCES = 100


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


def cancelled(result: Cancelled) -> RenderableType:
    """What became of each topic."""
    if not result.is_new:
        return Text(f"nothing to do: the migration was {result.cancellation}")
    rows = [(one.topic, str(one.action), one.why) for one in result.topics]
    if result.dry_run:
        return Group(grid("Topics on the target", ("topic", "would be", "why"), rows), Text("nothing was changed"))
    left = [Text(text, "yellow") for text in (result.cancellation.left if result.cancellation else ())]
    done = Text(f"the migration was {result.cancellation}", "bold green")
    return Group(grid("Topics on the target", ("topic", "done", "why"), rows), *left, done)


def completed(result: Completed) -> RenderableType:
    """The checks, what else uses the source, and how far it is."""
    parts: list[RenderableType] = []
    if result.checks:
        parts.append(checks("May it be completed?", result.checks))
    if result.uses:
        parts += [checks("What else uses the source, or may", result.uses), Text(CONNECTIONS, "dim")]
    if result.completion is not None:
        parts.append(Text(f"the migration is {result.completion}", "bold green"))
    return Group(*parts)


def retired(gate: Gate) -> RenderableType:
    """The checklist, and what it cannot show."""
    end = Text("nothing uses the source", "bold green") if gate.is_open else Text("not to be switched off", "bold red")
    return Group(checks("Uses of the source", gate.results), Text(CONNECTIONS, "dim"), end)


def fenced(result: Fenced) -> RenderableType:
    """The checks, then whom it denies (or would), and the proof."""
    parts: list[RenderableType] = [checks("Checks", result.checks)]
    principals = sorted({acl.principal for acl in result.denials})
    if result.denials:
        verb = "added" if result.proof else "would be added"
        parts.append(Text(f"{len(result.denials)} ACLs {verb}: {listed(principals)}, on {len(result.names)} topics"))
    if result.proof is None:
        return Group(*parts)
    proof = result.proof
    rows = [
        ("topics", str(len(result.names))),
        ("denied by brokers after", listed(f"{b}: {ms:.0f} ms" for b, ms in sorted(proof.denied_ms.items())) or "-"),
        ("proved after", f"{proof.proved_ms:.0f} ms, in {proof.looks} looks at log ends"),
    ]
    parts.append(facts(rows))
    if not proof.promises:
        parts.append(
            Text("kind none: nothing keeps producers from writing again, and nothing is promised", "bold yellow")
        )
    else:
        parts.append(Text("fenced", "bold green"))
    return Group(*parts)


def standing(seen: Standing, rehearsal: str = "") -> RenderableType:
    """What is recorded, and what was written since; and what is there of a ``rehearsal``."""
    left = [Text(rehearsal, "yellow")] if rehearsal else []
    if seen.record is None:
        return Group(Text("no fence was ever applied"), *left)
    record = seen.record
    lines: list[RenderableType] = [
        Text(f"{record.state} since {record.at}, kind {record.kind}, {len(record.names)} topics")
    ]
    lines += [Text(f"written since: {one}", "bold red") for one in seen.written]
    if seen.missing:
        shown = listed(f"{acl.principal} on {acl.resource}" for acl in seen.missing)
        lines.append(
            Text(f"{len(seen.missing)} denials are gone: {shown}; `fence` makes and proves them again", "bold red")
        )
    if seen.unseen:
        lines.append(Text(f"whether its ACLs stand is unknown: {seen.unseen}", "yellow"))
    return Group(*lines, *left)


def switched(result: Switched) -> RenderableType:
    """The checks, then what the journal has."""
    parts: list[RenderableType] = [checks("Checks", result.checks)] if result.checks else []
    if result.switch is not None:
        parts.append(Text(str(result.switch), "bold green" if result.switch.is_served else "bold yellow"))
    if result.partitions:
        parts.append(Text(f"others than the mirror write to {len(result.seen)} of {result.partitions} partitions"))
    return Group(*parts)


def rehearsed(result: Rehearsed) -> RenderableType:
    """The checks, what was measured, and what a rehearsal cannot show."""
    parts: list[RenderableType] = [checks("Checks", result.checks)]
    if result.real:
        verb = "made and removed" if result.measured else "would be made and removed"
        parts.append(
            Text(
                f"{result.denials} ACLs of the probe {verb}; a switch makes {result.real}, for {result.principals}"
                f" principals and the probe, on {result.topics} topics"
            )
        )
    if result.measured is not None:
        parts.append(facts(_measures(result, result.measured)))
    parts += [Text(f"not shown: {one}", "yellow") for one in result.unshown]
    return Group(*parts)


def _measures(result: Rehearsed, found: Measured) -> list[tuple[str, str]]:
    rows = []
    if found.applied_ms is not None:
        brokers = listed(f"{broker}: {ms:.0f} ms" for broker, ms in sorted(found.denied_ms.items()))
        rows += [
            ("the probe's ACLs made after", f"{found.applied_ms:.0f} ms"),
            ("denied by brokers after", brokers),
            ("ACLs of the others", f"{found.more_ms:.0f} ms at the most, estimated for {result.principals} principals"),
        ]
    drained = "not in time" if found.drained_ms is None else f"{found.drained_ms:.0f} ms at the most"
    return [
        *rows,
        ("log ends read twice in", f"{found.ends_ms:.0f} ms"),
        ("the fence in all", f"{found.fence_ms:.0f} ms"),
        ("lag at that moment", f"{found.lag:,} source offsets, drained in {drained}"),
        ("left of switch_seconds", f"{found.left_ms / 1000:.1f} s"),
    ]


def adoptions(found: Sequence[Adoption]) -> RenderableType:
    """Each topic with what becomes of it, and where its copy differs."""
    rows = [row for adoption in found for row in _adoption_differences(adoption)]
    more = f"and {len(rows) - _MOST_DIFFERENCES} more: --json has all" if len(rows) > _MOST_DIFFERENCES else ""
    columns = ("topic", ">partition", "records", ">how many", "on", "offsets")
    return Group(
        grid("Topics", ("topic", ">partitions", ">records", "outcome", "why"), map(_adoption, found)),
        grid("Differences", columns, rows[:_MOST_DIFFERENCES], note=more),
        facts((adoption.topic, adoption.remedy) for adoption in found if adoption.remedy),
    )


def adopted(decision: Decision, *, applied: bool) -> RenderableType:
    """How many of each."""
    text = decision.message if applied else f"without --apply nothing was written: {decision.message}"
    return Text(text, "bold yellow" if decision.exit_code else "green")


def _adoption(adoption: Adoption) -> tuple[str, ...]:
    count = str(len(adoption.matches)) if adoption.matches else ""
    return adoption.topic, count, f"{adoption.records:,}" if count else "", adoption.fate.in_words, adoption.why


def _adoption_differences(adoption: Adoption) -> Iterator[tuple[str, ...]]:
    for match in adoption.matches:
        counts = match.counts()
        for kind, spans in match.differences.items():
            side = "source" if kind.is_on_source else "target"
            place = adoption.topic, str(match.tp.partition), str(kind)
            yield (*place, f"{counts[kind]:,}", side, listed(map(str, spans)))
