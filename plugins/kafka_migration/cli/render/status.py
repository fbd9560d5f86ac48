"""The page of ``status``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import Cell, digest, drift, facts, grid, moment, number, seconds

if TYPE_CHECKING:
    from kafka_migration.steps.status import HaltStatus, MirrorStatus, Status

_OUTCOMES = {"done": "green", "running": "", "refused": "bold red", "failed": "bold red", "bad input": "bold red"}


def status(page: Status) -> RenderableType:
    """Everything on one page; parts that hold nothing yet are short."""
    holds = sum(by == page.migration for by in page.locks.values())
    states = ", ".join(f"{count} {state}" for state, count in page.topics_by_state.items())
    head = facts(
        (
            ("migration", Text(page.migration, "bold")),
            ("plan", digest(page.plan_digest)),
            ("topics", f"{page.topics} made or adopted on the target, {holds} of them locked for this migration"),
            *([("stand at", states)] if states else []),
        )
    )
    if not page.has_begun:
        return Group(head, Text("\nnothing has been done yet; `check` looks, `create` begins"))
    parts: list[RenderableType] = [head, Text(), _phases(page), _mirror(page)]
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
    answers = [
        (str(one.gate), one.answer, one.approver, moment(one.at.isoformat()), digest(one.digest))
        for one in page.approvals
    ]
    parts += _table("Approvals", ("gate", "answer", "by", "at (UTC)", "evidence"), answers)
    return Group(*parts)


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
            Text(phase.outcome, _OUTCOMES.get(phase.outcome, "")),
            moment(phase.started),
            seconds(phase.seconds) + (f" (run {phase.runs})" if phase.runs > 1 else ""),
            phase.detail,
        )
        for phase in page.phases
    )
    return grid("Phases", ("phase", "outcome", "began (UTC)", ">took", "detail"), rows)


def _mirror(page: Status) -> RenderableType:
    mirror = page.mirror
    rows: list[tuple[str, Cell]] = [("mirror", _state(mirror))]
    held = [text for text in (mirror.controls.describe(), mirror.waiting) if text]
    rows += [("held back", Text(text, "yellow")) for text in held]
    rows += [("copied again", Text(text, "yellow")) for text in mirror.rewound]
    if mirror.last_word is not None:
        copied = f"{number(mirror.records)} records in {mirror.partitions} partitions, {mirror.fences} fences"
        rows.append(("last heartbeat", f"{moment(mirror.last_word)} UTC, {seconds(mirror.age_seconds)} ago"))
        rows.append(("copied", copied))
    if mirror.sealed:
        rows.append(("sealed", mirror.sealed))
    rows += _lag(page)
    verdict = page.validation
    rows.append(("validation", "none yet" if verdict is None else f"{verdict['verdict']} at {moment(verdict['at'])}"))
    return Group(facts(rows), Text())


def _lag(page: Status) -> list[tuple[str, Cell]]:
    if page.lag is None:
        return [("lag", f"unknown: {page.unknown.get('lag', '')}")]
    worst = ", ".join(f"{tp} {number(count)}" for tp, count in page.lag.worst)
    rows: list[tuple[str, Cell]] = [
        ("lag", f"{number(page.lag.total)} source offsets" + (f"; most: {worst}" if worst else ""))
    ]
    if page.lag.undecided:
        rows.append(("not decided", page.lag.undecided))
    return rows


def _state(mirror: MirrorStatus) -> Text:
    because = f" ({mirror.reason})" if mirror.reason else ""
    wish = "" if mirror.desired == "run" else f", asked to {mirror.desired}{because}"
    if mirror.state == "silent":
        return Text(f"silent: it was running, and its heartbeat has stopped; start `mirror` again{wish}", "bold red")
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
            f"{loss['start']}..{loss['end']}",
            loss["halt"],
            loss["by"],
            moment(loss["at"]),
        )
        for loss in page.losses
    ]
    return _table("Given up", ("partition", "source offsets", "after", "by", "at (UTC)"), rows)
