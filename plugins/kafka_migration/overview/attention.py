"""What only a person can clear: what a status page shows of it, the gravest first, each with the first thing to do.

The rules are those of monitoring/alerts.yaml, as far as one page shows what they look at. An approval that waits is
named where the page shows that its turn has come; Airflow lists every one that its tasks wait for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING

from kafka_migration.approvals import passing
from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.record import APPROVED
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.fence.bans import WRITES
from kafka_migration.groups.sides import REMEDY_STOPPED
from kafka_migration.link.heartbeat import FAILED
from kafka_migration.link.heartbeat import PHASE as MIRROR
from kafka_migration.migration.cancellation import State
from kafka_migration.migration.history import Outcome

if TYPE_CHECKING:
    from kafka_migration.overview.status import Status, WayBack
    from kafka_migration.plans.model import Plan

_FAILED = {Outcome.FAILED, Outcome.REFUSED, Outcome.BAD_INPUT}
#: A switch takes a minute; whoever mirrors waits out short outages, and starts a mirror that died again.
_SWITCH_SECONDS, _SILENT_SECONDS, _FAILED_SECONDS = 120.0, 300.0, 600.0
#: What failed longer ago was repaired by another name, or nobody wants it any more.
_RECENT = timedelta(hours=6)


class Kind(StrEnum):
    """Of what kind something is that needs a person."""

    SWITCH = "switch"
    FENCE = "fence"
    STRAGGLERS = "stragglers"
    GROUP = "group"
    MIRROR = "mirror"
    HALT = "halt"
    PAUSE = "pause"
    TOPIC = "topic"
    VERDICT = "verdict"
    END = "end"
    PHASE = "phase"
    APPROVAL = "approval"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Attention:
    """One line of a page: ``what`` is wrong, and the ``remedy``. ``things`` are what it is made of, such as each halted
    partition with its reason: a thing has the same text as long as it stands."""

    kind: Kind
    what: str
    remedy: str
    things: tuple[str, ...]


def needed(page: Status, plan: Plan) -> tuple[Attention, ...]:
    """By what is on ``page``, of the migration of ``plan``. Where a migration is over, only clients count."""
    found = [*_clients(page)]
    if not is_over(page):
        found += [*_link(page, Direction.FORWARD), *_records(page)]
        if page.way_back is not None:
            found += _link(page.way_back, Direction.REVERSE)
        found += [*_ends(page), *_phases(page), *_approvals(page, plan), *_unknown(page)]
    return tuple(found)


def is_over(page: Status) -> bool:
    """Whether nothing of the migration is left to do: it was completed, cancelled or released."""
    return page.is_over or (bool(page.states) and set(page.states.values()) == {TopicState.COMPLETED})


def _clients(page: Status) -> Iterator[Attention]:
    switch = page.switch
    if switch is not None and switch.is_unfinished and _seconds_since(page, switch.begun_at) > _SWITCH_SECONDS:
        what = f"the switch of producers to the {switch.to} has not ended: they may be shut out"
        remedy = f"run `{switch.command}` again, or clear its task: it goes on, or lifts the fence"
        yield Attention(Kind.SWITCH, what, remedy, (f"to the {switch.to}",))
    elif WRITES.key in page.fences and (switch is None or not switch.is_unfinished) and _has_fenced(page):
        what = "a fence keeps producers from the source, and they are not on the target"
        yield Attention(Kind.FENCE, what, "run `switch`, or lift it: `fence --lift`", ("on the source",))
    if page.stragglers:
        what = f"written to the source behind the cut: {listed(page.stragglers, separator='; ')}"
        remedy = "`stragglers` shows by whom: forward it, or give it up"
        yield Attention(Kind.STRAGGLERS, what, remedy, tuple(str(stray.tp) for stray in page.stragglers))
    for group in page.groups:
        if group.astray:
            on_neither = "neither side" in group.astray
            yield Attention(
                Kind.GROUP,
                f"group {group.group} {group.astray}",
                REMEDY_STOPPED if on_neither else "stop its consumers there, and see to what was processed twice",
                (f"{group.group} on {'neither side' if on_neither else 'both sides'}",),
            )


def _has_fenced(page: Status) -> bool:
    return TopicState.FENCED in page.states.values()


def _link(page: Status | WayBack, direction: Direction) -> Iterator[Attention]:
    mirror, command = page.mirror, "mirror" if direction is Direction.FORWARD else "mirror --reverse"
    age = mirror.age_seconds or 0.0
    if mirror.desired != "stop" and not mirror.is_sealed:
        remedy = (
            f"check whether its process is still running; `{command}`, or its task once cleared, goes on where it was"
        )
        if mirror.state == "silent" and age > _SILENT_SECONDS:
            yield Attention(Kind.MIRROR, f"the {direction} mirror is silent: nothing is copied", remedy, (direction,))
        elif mirror.ended_as == FAILED and age > _FAILED_SECONDS:
            what = f"the {direction} mirror failed, and was not started again"
            yield Attention(Kind.MIRROR, what, remedy, (direction,))
    if page.halts:
        remedy = "`status` has what each reason means, and what to do"
        things = tuple(f"{halt.partition} {halt.reason}" for halt in page.halts)
        yield Attention(Kind.HALT, f"halted: {listed(things)}", remedy, things)
    if mirror.controls.pause is not None:
        what = f"the {direction} mirror is {mirror.controls.describe()}"
        remedy = "`resume` it before retention removes what was not copied"
        yield Attention(Kind.PAUSE, what, remedy, (f"{direction} mirror",))


def _records(page: Status) -> Iterator[Attention]:
    if endangered := sorted({one.topic for one in page.drift if one.endangers}):
        what = f"changed so that records are in danger: {listed(endangered)}"
        yield Attention(Kind.TOPIC, what, "`status` names each change", tuple(endangered))
    if page.validation is not None and not page.validation["passed"]:
        verdict = page.validation["verdict"]
        what = "validation found a difference" if verdict == "DIFFERENT" else f"validation proved nothing: {verdict}"
        remedy = "`report` shows it; the gate of the cutover stays shut until `validate` passes"
        yield Attention(Kind.VERDICT, what, remedy, (page.validation["verdict"],))


def _ends(page: Status) -> Iterator[Attention]:
    """An end of the migration that was begun, and not finished."""
    if page.cancelled is not None and page.cancelled.state is State.CANCELLING:
        yield Attention(Kind.END, str(page.cancelled), "run `cancel` again: it goes on", ("cancel",))
    if page.completion is not None and not page.completion.ended:
        what = f"the migration is {page.completion}"
        yield Attention(Kind.END, what, "run `complete` again: it goes on", ("complete",))


def _phases(page: Status) -> Iterator[Attention]:
    since = page.at - _RECENT
    if page.cancelled is not None:
        since = max(since, datetime.fromisoformat(page.cancelled.at))
    for phase in page.phases:
        is_mirror = phase.name.partition(":")[0] == MIRROR
        if phase.outcome in _FAILED and not is_mirror and datetime.fromisoformat(phase.started) > since:
            what = f"{phase.name} {phase.outcome}: {phase.detail}"
            remedy = "correct it, and run the same command, or clear the task, again"
            yield Attention(Kind.PHASE, what, remedy, (phase.name,))


def _approvals(page: Status, plan: Plan) -> Iterator[Attention]:
    """Of a cutover, once all is equal: of each wave by where it stands; else while no group has begun to move."""
    is_first = plan.producers is not None and plan.producers.in_workflow and plan.producers.first
    is_turn = page.mirror.is_sealed if is_first else not page.mirror.is_sealed
    if page.validation is None or not page.validation["passed"] or not is_turn:
        return
    for wave in page.waves:
        if wave.waits:
            yield _approval(GateName.CUTOVER, wave.wave)
    if plan.waves is None and not page.groups and plan.asks(GateName.CUTOVER):
        newest = [
            answer for answer in page.approvals if answer.gate is GateName.CUTOVER and not _is_past(page, answer.at)
        ]
        if not any(answer.answer == APPROVED for answer in newest):
            yield _approval(GateName.CUTOVER)


def _is_past(page: Status, at: datetime) -> bool:
    """Whether it was of a life of the migration that ended by a cancellation."""
    return page.cancelled is not None and at < datetime.fromisoformat(page.cancelled.at)


def _approval(gate: GateName, wave: str = "") -> Attention:
    of = f" of wave {wave}" if wave else ""
    return Attention(Kind.APPROVAL, f"{gate}{of} waits for an approval", passing.command(gate, wave), (f"{gate}{of}",))


def _unknown(page: Status) -> Iterator[Attention]:
    # Before there are topics, there is no lag.
    for part, why in page.unknown.items() if page.topics else ():
        what = f"{part.replace('_', ' ')} unknown: {why}"
        yield Attention(Kind.UNKNOWN, what, "see whether that cluster answers, and to whom", (part,))


def _seconds_since(page: Status, at: str) -> float:
    return (page.at - datetime.fromisoformat(at)).total_seconds()
