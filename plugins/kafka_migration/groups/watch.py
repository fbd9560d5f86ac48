"""Watching moved groups until they are active where they were moved to: the target, or the source after a rollback.

A group is active once it commits past its translated offset. One that has nothing to read (its offsets are the mirror's
end) is active when it has members and its commits stand. One that the plan declares stopped needs only the read-back,
which cutover has done. A group that is active on both clusters does not count as moved.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.generations import Generations
from kafka_migration.domain.listing import listed
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap
from kafka_migration.domain.types import TopicPartition
from kafka_migration.groups import sides
from kafka_migration.groups.proof import below, beyond
from kafka_migration.groups.record import GroupRecord, Step, Translation
from kafka_migration.link import reverse

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Seconds between two looks at all groups.
INTERVAL_SECONDS = 1.0


class Life(enum.StrEnum):
    """What is known of a group where it was moved to."""

    ALIVE = "alive"
    WAITING = "waiting"
    LATE = "late"
    ON_BOTH = "on_both"
    NOT_MOVED = "not_moved"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLife:
    """One group, at one look. ``pause_seconds`` is how long it processed nothing, as far as it can be seen.

    ``is_final``: looking again is of no use, because it is active, was not moved, or its time is over.
    """

    group: str
    life: Life
    evidence: str
    remedy: str = ""
    pause_seconds: float | None = None
    is_final: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "life": str(self.life),
            "evidence": self.evidence,
            "remedy": self.remedy,
            "pause_seconds": self.pause_seconds,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchResult:
    """All groups watched."""

    groups: tuple[GroupLife, ...]

    @property
    def exit_code(self) -> int:
        """0 all are active; 1 some are not; 3 all that are not could not be looked at."""
        rest = {group.life for group in self.groups} - {Life.ALIVE}
        return 0 if not rest else 3 if rest == {Life.UNKNOWN} else 1

    def as_dict(self) -> dict[str, Any]:
        return {"groups": [group.as_dict() for group in self.groups]}


def apply(ctx: Context, groups: Sequence[str] | None = None, *, seconds: float | None = None) -> WatchResult:
    """Look until every group is active or its time is over: ``cutover.watch_seconds`` from its start, or ``seconds``
    from now. Without ``groups``: all that this migration has begun to move."""
    until = None if seconds is None else ctx.clock.now() + timedelta(seconds=seconds)
    wait = GroupsWait(ctx, groups, until=until)
    while not wait.look() and not ctx.dry_run:
        ctx.clock.sleep(INTERVAL_SECONDS)
    return wait.result


class GroupsWait:
    """Groups (by default all that this migration has begun to move), looked at until each of them is settled."""

    def __init__(self, ctx: Context, groups: Sequence[str] | None = None, *, until: datetime | None = None) -> None:
        self.names = _begun(ctx) if groups is None else tuple(groups)
        self._ctx, self._until = ctx, until
        self._lives: dict[str, GroupLife] = {}
        self._lookout = sides.Lookout(ctx)
        ctx.log(f"watch {len(self.names)} groups where they were moved to")

    def look(self) -> bool:
        """Look at those that are not settled, and report each once it is; True if no look more is of any use."""
        # Of all groups, also of those that were settled long ago: a deployment may bring one back at any time.
        for name in self._lookout.look().keys() & self._lives.keys():
            self._lives[name] = replace(self._lives[name], is_final=False)
        waiting = [name for name in self.names if name not in self._lives or not self._lives[name].is_final]
        for life in sample(self._ctx, waiting, until=self._until).groups:
            self._lives[life.group] = life
            if life.is_final:
                self._ctx.log(f"{life.group}: {life.life}: {life.evidence}")
        return all(name in self._lives and self._lives[name].is_final for name in self.names)

    @property
    def result(self) -> WatchResult:
        """What the last looks have shown; without groups that no look has reached yet."""
        return WatchResult(groups=tuple(self._lives[name] for name in self.names if name in self._lives))


def sample(ctx: Context, groups: Sequence[str], *, until: datetime | None = None) -> WatchResult:
    """One look at each of ``groups``. ``until`` replaces the time that the plan gives them.

    One that still waits when its time is over is LATE.
    """
    lives = []
    for record in GroupRecord.of(ctx.journal, groups).values():
        group = record.group
        try:
            life = look(ctx, record)
        except CouldNotFindOut as error:
            life = GroupLife(group=group, life=Life.UNKNOWN, evidence=error.message, remedy=error.remedy)
        lives.append(_judged(ctx, record, life, until))
    return WatchResult(groups=tuple(lives))


def look(ctx: Context, record: GroupRecord) -> GroupLife:
    """What the cluster shows of a group now that it was moved to. The first sign of life goes into the journal."""
    if not record.leg.is_done:
        move = "cutover" if record.leg.direction is Direction.FORWARD else "rollback"
        return GroupLife(
            group=record.group,
            life=Life.NOT_MOVED,
            evidence=f"its offsets were not moved (last step: {list(record.steps)[-1] if record.steps else 'none'})",
            remedy=f"run `{move} --group {record.group}`, which shows why if it is refused",
            is_final=True,
        )
    ctx = reverse.seen_by(ctx, record.leg.direction, record.leg.generation)
    now = ctx.clock.now()
    was_active = record.has(Step.ALIVE)
    sign = record.evidence(Step.ALIVE, "sign") if was_active else _sign_of_life(ctx, record)
    if sign is None:
        return GroupLife(group=record.group, life=Life.WAITING, evidence=_what_is_missing(ctx, record))
    # Of one that was seen alive before, too: it may have come back where it left since.
    here = sides.back_where_they_left(ctx, [record]).get(record.group)
    if here:
        return GroupLife(
            group=record.group,
            life=Life.ON_BOTH,
            evidence=f"{sign}; but it also {here}",
            remedy=f"records that both sides read are processed twice: {sides.remedy_back(record)}",
        )
    if was_active:
        return _alive(record)
    if not ctx.dry_run:
        record.note_alive(now, sign=sign, pause_seconds=pause_seconds(ctx, record, now))
        return _alive(record)
    return GroupLife(group=record.group, life=Life.ALIVE, evidence=sign, is_final=True)


def pause_seconds(ctx: Context, record: GroupRecord, alive_at: datetime) -> float | None:
    """From the last time the group was seen to do something where it came from to its first sign of life where it was
    moved to.

    A group that was found empty counts from when its move began: what was before is not known. For one that is
    declared stopped it is how long its move took.
    """
    since = record.time(Step.STOPPED, "active_at") or record.at(Step.STOPPING)
    if since is None:
        return None
    is_stopped = record.group in ctx.plan.cutover.stopped_groups
    until = (record.at(Step.READ_BACK) or alive_at) if is_stopped else alive_at
    return round((until - since).total_seconds(), 3)


def _alive(record: GroupRecord) -> GroupLife:
    return GroupLife(
        group=record.group,
        life=Life.ALIVE,
        evidence=record.evidence(Step.ALIVE, "sign"),
        pause_seconds=record.evidence(Step.ALIVE, "pause_seconds"),
        is_final=True,
    )


def _sign_of_life(ctx: Context, record: GroupRecord) -> str | None:
    translations = record.translations
    there = ctx.destination.committed(record.group)
    past = beyond(translations, there)
    if past:
        rows = listed(f"{move.tp} ({move.destination} -> {there[move.tp].offset})" for move in past)
        return f"committed past its translated offset: {rows}"
    if below(translations, there):
        return None
    if record.group in ctx.plan.cutover.stopped_groups:
        return "declared stopped; its offsets are read back"
    state = ctx.destination.group_state(record.group)
    if state.members and not _to_read(ctx, translations):
        return f"nothing to read yet; {len(state.members)} members, and its commits stand"
    return None


def _to_read(ctx: Context, translations: Sequence[Translation]) -> list[TopicPartition]:
    """Partitions where a record is mirrored at or after the group's position.

    By the offset map, not by the log end: a fence's marker is an offset too, and no consumer reads past it.
    """
    maps = reverse.newest_maps(ctx, [move.tp for move in translations])
    return [move.tp for move in translations if move.tp in maps and _has_record_from(ctx, maps[move.tp], move)]


def _has_record_from(ctx: Context, offsets: OffsetMap | Generations, move: Translation) -> bool:
    end = offsets.source_end if ctx.direction is Direction.FORWARD else offsets.target_end
    try:
        return reverse.across(offsets, ctx.direction.opposite, move.destination) < end
    except NotMirroredYet:
        return False


def _what_is_missing(ctx: Context, record: GroupRecord) -> str:
    members = len(ctx.destination.group_state(record.group).members)
    lost = below(record.translations, ctx.destination.committed(record.group))
    if lost:
        return f"{members} members; its commits of {listed(lost)} are below what was written"
    return f"{members} members on the {ctx.direction.destination}, no commit past the translated offsets yet"


def _judged(ctx: Context, record: GroupRecord, life: GroupLife, until: datetime | None) -> GroupLife:
    """``life``, made final if the group's time is over."""
    if life.is_final:
        return life
    if until is None:
        began = record.at(Step.STARTED) or record.at(Step.READ_BACK) or ctx.clock.now()
        until = began + timedelta(seconds=ctx.plan.cutover.watch_seconds)
    if ctx.clock.now() < until:
        return life
    return replace(
        life,
        life=Life.LATE if life.life is Life.WAITING else life.life,
        evidence=f"{life.evidence}; its time was over at {until.isoformat(timespec='seconds')}",
        remedy=life.remedy or _remedy_of_late(record),
        is_final=True,
    )


def _remedy_of_late(record: GroupRecord) -> str:
    remedy = f"look at its consumers' logs on the {record.leg.direction.destination}"
    is_forward = record.leg.direction is Direction.FORWARD
    return f"{remedy}; to move it back alone: `undo --group {record.group}`" if is_forward else remedy


def _begun(ctx: Context) -> tuple[str, ...]:
    # A group that was moved back is the source's again; the lookout names it if it is on the target as well.
    begun = (g for g, r in GroupRecord.all(ctx.journal).items() if r.steps and not r.has(Step.UNDONE))
    return tuple(sorted(group for group in begun if ctx.scope.has_group(group)))
