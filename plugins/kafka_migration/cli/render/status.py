"""The page of ``status``, replication lag, and how the mirror ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kafka_migration.cli.render.tables import Cell, checks, digest, drift, facts, grid, number
from kafka_migration.domain.amounts import moment, seconds
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.approvals.record import Approval
    from kafka_migration.domain.types import TopicPartition
    from kafka_migration.link.lag import LagReport
    from kafka_migration.migration.cancellation import Cancellation
    from kafka_migration.overview.attention import Attention
    from kafka_migration.overview.status import HaltStatus, MirrorStatus, Status
    from kafka_migration.steps.stop import StopResult
    from kafka_migration.topics.drift import DriftStatus

OUTCOMES = {"done": "green", "running": "", "refused": "bold red", "failed": "bold red", "bad input": "bold red"}
_SHOWN = 15


def status(page: Status, needs: Sequence[Attention]) -> RenderableType:
    """Everything on one page, what ``needs`` a person first; parts that hold nothing yet are short."""
    holds = sum(by == page.migration for by in page.locks.values())
    states = ", ".join(f"{count} {state}" for state, count in page.topics_by_state.items())
    head = facts(
        (
            ("migration", Text(page.migration, "bold")),
            ("plan", digest(page.plan_digest)),
            ("topics", f"{page.topics} made or adopted on the target, {holds} of them locked for this migration"),
            *([("stand at", states)] if states else []),
            *([("cancelled", Text(_cancelled(page.cancelled), "yellow"))] if page.cancelled else []),
            *([("completion", f"the migration is {page.completion}")] if page.completion else []),
            *([("producers", str(page.switch))] if page.switch else []),
            *([("fence", Text(page.fence, "yellow"))] if page.fence else []),
            *([("rehearsal", Text(page.rehearsal, "yellow"))] if page.rehearsal else []),
            *_stragglers(page),
        )
    )
    if not page.has_begun:
        return Group(head, Text("\nnothing has been done yet; `check` looks, `create` begins"))
    parts: list[RenderableType] = [head, *needed(needs), Text(), _phases(page), _mirror(page)]
    foreign = sorted((topic, by) for topic, by in page.locks.items() if by != page.migration)
    parts += _table("Locked for other migrations", ("topic", "migration"), foreign)
    if page.halts:
        parts.append(_halts(page.halts))
    parts += _losses(page)
    if page.drift:
        parts.append(drift(page.drift))
    elif "drift" in page.unknown:
        parts.append(Text(f"whether topics have changed is unknown: {page.unknown['drift']}\n"))
    if page.groups:
        parts += _groups(page)
    waves = [(one.title, one.stands, *_answer(one.approval), seconds(one.pause_seconds)) for one in page.waves]
    parts += _table("Waves", ("wave", "stands", "approval", "by", ">longest pause"), waves)
    answers = [
        (
            f"{one.gate} of {one.scope}" if one.scope else str(one.gate),
            one.answer,
            one.approver,
            moment(one.at.isoformat()),
            digest(one.digest),
        )
        for one in page.approvals
    ]
    parts += _table("Approvals", ("gate", "answer", "by", "at (UTC)", "evidence"), answers)
    return Group(*parts)


def needed(needs: Sequence[Attention], most: int | None = None) -> Iterator[RenderableType]:
    """What needs a person, each with its remedy; the first ``most``, or all."""
    if needs:
        table = Table.grid(padding=(0, 1))
        for need in needs[:most]:
            table.add_row(Text("!", "bold red"), Text(need.what, "red").append(f": {need.remedy}", "cyan"))
        yield from (Text("\nNeeds a person", "bold"), table)
        if most is not None and (more := len(needs) - most) > 0:
            yield Text(f"  {more} more: see `status`", "dim")


def _answer(found: Approval | None) -> tuple[str, str]:
    return ("-", "-") if found is None else (found.answer, found.approver)


def _cancelled(found: Cancellation) -> str:
    # `cancelled by …`, or what came after that; what was left is a person's to see to.
    rest = [f"{topic} {what}" for topic, what in sorted(found.topics.items()) if what != "deleted"]
    return "; ".join([str(found), *rest, *found.left])


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Cell]]) -> list[RenderableType]:
    """The table, unless it would be empty."""
    return [grid(title, columns, rows)] if rows else []


def _groups(page: Status) -> list[RenderableType]:
    counts = ", ".join(f"{count} {step.replace('_', ' ')}" for step, count in page.groups_by_step.items())
    moves = [
        (group.group, group.step.replace("_", " "), moment(group.at), seconds(group.pause_seconds))
        for group in page.groups
    ]
    parts = [grid(f"Groups: {counts}", ("group", "last step", "at (UTC)", ">pause"), moves)]
    astray = [(group.group, Text(group.astray, "bold red")) for group in page.groups if group.astray]
    parts += _table("Groups on both sides, or on neither", ("group", "what is wrong"), astray)
    if not astray and "groups" in page.unknown:
        parts.append(Text(f"whether every group runs on one side is unknown: {page.unknown['groups']}\n"))
    return parts


def _phases(page: Status) -> RenderableType:
    rows = (
        (
            phase.name,
            Text(phase.outcome, OUTCOMES.get(phase.outcome, "")),
            moment(phase.started),
            seconds(phase.seconds) + (f" (run {phase.runs})" if phase.runs > 1 else ""),
            phase.detail,
        )
        for phase in page.phases
    )
    return grid("Phases", ("phase", "outcome", "began (UTC)", ">took", "detail"), rows)


def _mirror(page: Status) -> RenderableType:
    mirror = page.mirror
    rows: list[tuple[str, Cell]] = [("mirror", state(mirror))]
    held = [text for text in (mirror.controls.describe(), mirror.waiting) if text]
    rows += [("held back", Text(text, "yellow")) for text in held]
    rows += [("copied again", Text(text, "yellow")) for text in mirror.rewound]
    if mirror.last_word is not None:
        copied = f"{number(mirror.records)} records in {mirror.partitions} partitions, {mirror.fences} fences"
        rows.append(("last heartbeat", f"{moment(mirror.last_word)} UTC, {seconds(mirror.age_seconds)} ago"))
        rows.append(("copied", copied))
    if mirror.sealed:
        rows.append(("sealed", mirror.sealed))
    rows += _lag(page) + _way_back(page)
    verdict = page.validation
    rows.append(("validation", "none yet" if verdict is None else f"{verdict['verdict']} at {moment(verdict['at'])}"))
    return Group(facts(rows), Text())


def _stragglers(page: Status) -> list[tuple[str, Cell]]:
    if "stragglers" in page.unknown:
        return [("stragglers", f"unknown: {page.unknown['stragglers']}")]
    if not page.stragglers:
        return []
    found = listed(page.stragglers, separator="; ")
    return [("stragglers", Text(f"written to the source behind the cut: {found}; see `stragglers`", "bold red"))]


def _lag(page: Status) -> list[tuple[str, Cell]]:
    if page.lag is None:
        return [("lag", f"unknown: {page.unknown.get('lag', '')}")]
    worst = ", ".join(f"{tp} {number(count)}" for tp, count in page.lag.worst)
    rows: list[tuple[str, Cell]] = [
        ("lag", f"{number(page.lag.total)} offsets" + (f"; most: {worst}" if worst else ""))
    ]
    if page.lag.undecided:
        rows.append(("not decided", page.lag.undecided))
    return rows


def _way_back(page: Status) -> list[tuple[str, Cell]]:
    back = page.way_back
    if back is None:
        return []
    left = f"what is not mirrored back yet is unknown: {page.unknown.get('way_back', '')}"
    if back.lag is not None:
        left = "everything is mirrored back"
        if back.lag.total:
            left = f"{number(back.lag.total)} offsets of the target would be lost if it were gone now; `rollback` waits"
    rows: list[tuple[str, Cell]] = [
        ("way back", Text("reverse mirror ").append(state(back.mirror, " --reverse")).append(f"; {left}"))
    ]
    if back.halts:
        halted = listed(f"{halt.partition} {halt.reason} ({halt.detail})" for halt in back.halts)
        rows.append(("halted there", Text(halted, "bold red")))
    if held := back.mirror.controls.describe():
        rows.append(("held back there", Text(held, "yellow")))
    return rows


def state(mirror: MirrorStatus, option: str = "") -> Text:
    """What the mirror is, and what is asked of it."""
    because = f" ({mirror.reason})" if mirror.reason else ""
    wish = "" if mirror.desired == "run" else f", asked to {mirror.desired}{because}"
    if mirror.state == "silent":
        start = f"start `mirror{option}` again"
        return Text(f"silent: it was running, and its heartbeat has stopped; {start}{wish}", "bold red")
    return Text(mirror.state + (f" ({mirror.ended_as})" if mirror.ended_as else "") + wish)


def _halts(halts: tuple[HaltStatus, ...]) -> RenderableType:
    rows = (
        (halt.partition, Text(halt.reason, "bold red"), f"{halt.source_offset} / {halt.target_offset}", halt.detail)
        for halt in halts
    )
    # One remedy for all partitions that halted for the same reason.
    reasons = {halt.reason: Text(f"{halt.meaning}\n").append(f"remedy: {halt.remedy}", "cyan") for halt in halts}
    return Group(
        grid("Halted partitions", ("partition", "reason", "source / target", "detail"), rows),
        grid("What can be done", ("reason", "meaning"), sorted(reasons.items())),
    )


def _losses(page: Status) -> list[RenderableType]:
    rows = [
        (
            f"{loss['topic']}-{loss['partition']}",
            f"{loss['side']} {loss['start']}..{loss['end']}",
            loss["halt"],
            loss["by"],
            moment(loss["at"]),
        )
        for loss in page.losses
    ]
    return _table("Given up", ("partition", "offsets", "after", "by", "at (UTC)"), rows)


def lag(report: LagReport, changes: Sequence[DriftStatus] = ()) -> RenderableType:
    """The sum, the partitions that are furthest behind, and what has changed about topics beneath the mirror."""
    head = facts(
        (
            ("lag", f"{number(report.total)} offsets in {len(report.sample.lag)} partitions"),
            ("copied", f"{report.trend.copied_per_second:,.0f} offsets/s"),
            ("produced", f"{report.trend.produced_per_second:,.0f} offsets/s"),
            ("ETA", str(report.trend).removeprefix("ETA ")),
            ("mirror", report.mirror + (f", {report.held}" if report.held else "")),
        )
    )
    parts = [head, Text()]
    if behind := _largest_first(report.sample.lag):
        rows = ((str(tp), number(count)) for tp, count in behind[:_SHOWN])
        parts.append(grid("Furthest behind", ("partition", ">lag"), rows, note=_more(behind, "partitions lag")))
    # No lag, and yet not copied: nobody may read it before its producer has decided.
    if undecided := _largest_first(report.sample.undecided):
        held = ((str(tp), str(report.sample.source_ends[tp]), number(count)) for tp, count in undecided[:_SHOWN])
        columns = ("partition", ">from offset", ">offsets")
        parts.append(grid("Behind open transactions", columns, held, note=_more(undecided, "partitions")))
    if report.halted:
        rows = ((str(tp), reason) for tp, reason in sorted(report.halted.items()))
        parts.append(grid("Halted (see `status`)", ("partition", "reason"), rows))
        parts.append(grid("What can be done", ("reason", "remedy"), report.remedies.items()))
    if changes:
        parts.append(drift(changes))
    return Group(*parts)


def _largest_first(counts: Mapping[TopicPartition, int]) -> list[tuple[TopicPartition, int]]:
    return sorted(((tp, count) for tp, count in counts.items() if count), key=lambda row: (-row[1], row[0]))


def _more(rows: Sequence[Any], what: str) -> str:
    return f"{len(rows) - _SHOWN} more {what}" if len(rows) > _SHOWN else ""


def stopped(result: StopResult, *, dry_run: bool) -> RenderableType:
    """The gate, and how the mirror ended."""
    if result.mirror.get("state") == "silent" and result.stopped and not dry_run:
        how = Text("the mirror's heartbeat has stopped, so it has probably died; if not, it stops now", "yellow")
    elif result.stopped and not dry_run:
        how = Text(f"the mirror has ended ({result.mirror.get('reason', 'stopped')})", "bold green")
    elif not result.gate.is_open:
        how = Text("the mirror runs on", "bold red")
    elif dry_run:
        how = Text("the gate is open; nothing was changed (dry run)")
    else:
        how = Text("no mirror has run yet")
    parts: list[RenderableType] = [checks("Stop gate", result.gate.results), how]
    if result.seal is not None:
        parts.append(Text(f"sealed: no mirror may write to these {len(result.seal.ends)} partitions any more"))
    return Group(*parts)


def outcome(value: Mapping[str, Any]) -> RenderableType:
    """How a run of the mirror ended; ``value`` is its ``as_dict``."""
    rows = [
        ("ended", str(value["reason"])),
        (
            "copied",
            f"{number(value['records'])} records, {number(value['bytes'])} bytes in {number(value['batches'])} batches",
        ),
        ("epochs", f"{value['epochs']}, {value['fences']} fences"),
    ]
    if value["halted"]:
        rows.append(("halted", ", ".join(value["halted"]) + " (see `status`)"))
    return facts(rows)
