"""The page of ``status``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from kafka_migration.cli.render.tables import digest, drift, facts, grid, moment, number, seconds

if TYPE_CHECKING:
    from kafka_migration.steps.status import HaltStatus, MirrorStatus, Status

_OUTCOMES = {"done": "green", "running": "", "refused": "bold red", "failed": "bold red", "bad input": "bold red"}


def status(page: Status) -> RenderableType:
    """Everything on one page; parts that hold nothing yet are short."""
    holds = sum(by == page.migration for by in page.locks.values())
    head = facts(
        (
            ("migration", Text(page.migration, "bold")),
            ("plan", digest(page.plan_digest)),
            ("topics", f"{page.topics} made or adopted on the target, {holds} of them locked for this migration"),
        )
    )
    if not page.has_begun:
        return Group(head, Text("\nnothing has been done yet; `check` looks, `create` begins"))
    parts: list[RenderableType] = [head, Text(), _phases(page), _mirror(page)]
    foreign = {topic: by for topic, by in page.locks.items() if by != page.migration}
    if foreign:
        parts.append(grid("Locked for other migrations", ("topic", "migration"), sorted(foreign.items())))
    if page.halts:
        parts.append(_halts(page.halts))
    if page.losses:
        parts.append(_losses(page))
    if page.drift:
        parts.append(drift(page.drift))
    elif "drift" in page.unknown:
        parts.append(Text(f"whether topics have changed is unknown: {page.unknown['drift']}\n"))
    if page.groups:
        counts = ", ".join(f"{count} {step.replace('_', ' ')}" for step, count in page.groups_by_step.items())
        moves = ((it.group, it.step.replace("_", " "), moment(it.at), seconds(it.pause_seconds)) for it in page.groups)
        parts.append(grid(f"Groups: {counts}", ("group", "last step", "at (UTC)", ">pause"), moves))
        wrong = [(it.group, Text(it.astray, "bold red")) for it in page.groups if it.astray]
        if wrong:
            parts.append(grid("Groups on both sides, or on neither", ("group", "what is wrong"), wrong))
        elif "groups" in page.unknown:
            parts.append(Text(f"whether every group runs on one side is unknown: {page.unknown['groups']}\n"))
    if page.approvals:
        rows = (
            (str(it.gate), it.answer, it.approver, moment(it.at.isoformat()), digest(it.digest))
            for it in page.approvals
        )
        parts.append(grid("Approvals", ("gate", "answer", "by", "at (UTC)", "evidence"), rows))
    return Group(*parts)


def _phases(page: Status) -> RenderableType:
    rows = (
        (
            it.name,
            Text(it.outcome, _OUTCOMES.get(it.outcome, "")),
            moment(it.started),
            seconds(it.seconds) + (f" (run {it.runs})" if it.runs > 1 else ""),
            it.detail,
        )
        for it in page.phases
    )
    return grid("Phases", ("phase", "outcome", "began (UTC)", ">took", "detail"), rows)


def _mirror(page: Status) -> RenderableType:
    it = page.mirror
    rows: list[tuple[str, str | Text]] = [("mirror", _state(it))]
    if held := it.controls.describe():
        rows.append(("held back", Text(held, "yellow")))
    if it.waiting:
        rows.append(("held back", Text(it.waiting, "yellow")))
    rows += [("copied again", Text(text, "yellow")) for text in it.rewound]
    if it.last_word is not None:
        rows.append(("last heartbeat", f"{moment(it.last_word)} UTC, {seconds(it.age_seconds)} ago"))
        rows.append(("copied", f"{number(it.records)} records in {it.partitions} partitions, {it.fences} fences"))
    if it.sealed:
        rows.append(("sealed", it.sealed))
    if page.lag is not None:
        worst = ", ".join(f"{tp} {number(count)}" for tp, count in page.lag.worst)
        rows.append(("lag", f"{number(page.lag.total)} source offsets" + (f"; most: {worst}" if worst else "")))
        if page.lag.undecided:
            rows.append(("not decided", page.lag.undecided))
    else:
        rows.append(("lag", f"unknown: {page.unknown.get('lag', '')}"))
    verdict = page.validation
    rows.append(("validation", "none yet" if verdict is None else f"{verdict['verdict']} at {moment(verdict['at'])}"))
    return Group(facts(rows), Text())


def _state(it: MirrorStatus) -> Text:
    wish = "" if it.desired == "run" else f", asked to {it.desired}" + (f" ({it.reason})" if it.reason else "")
    if it.state == "silent":
        return Text(f"silent: it was running, and its heartbeat has stopped; start `mirror` again{wish}", "bold red")
    return Text(it.state + (f" ({it.ended_as})" if it.ended_as else "") + wish)


def _halts(halts: tuple[HaltStatus, ...]) -> RenderableType:
    rows = (
        (it.partition, Text(it.reason, "bold red"), f"{it.source_offset} / {it.target_offset}", it.detail)
        for it in halts
    )
    # One remedy for all partitions that halted for the same reason.
    reasons = {it.reason: Text(f"{it.meaning}\n").append(f"remedy: {it.remedy}", "cyan") for it in halts}
    return Group(
        grid("Halted partitions", ("partition", "reason", "source / target", "detail"), rows),
        grid("What can be done", ("reason", "meaning"), sorted(reasons.items())),
    )


def _losses(page: Status) -> RenderableType:
    rows = (
        (f"{it['topic']}-{it['partition']}", f"{it['start']}..{it['end']}", it["halt"], it["by"], moment(it["at"]))
        for it in page.losses
    )
    return grid("Given up", ("partition", "source offsets", "after", "by", "at (UTC)"), rows)
