"""Where groups run, beside where they should: on one side each, for as long as the migration lasts.

Claims and proofs keep movers from starting a group twice. What they cannot keep away is a deployment that nobody
thought of, a hook that takes effect late, and a group that first appears when the others are moved. What both clusters'
consumers read is read twice. So the commits and members of moved groups, on the cluster that they left, are compared
with those at their move as often as somebody asks, and everything that waits while groups run looks for such groups now
and then: :class:`Lookout`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.groups.looks import Commits
from kafka_migration.groups.proof import CommittedSince, changed_at_origin, require_not_ahead_at_destination
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.translate import selected_groups, view_groups
from kafka_migration.kafka.types import GroupState
from kafka_migration.link import reverse

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Between two looks of a lookout: a group that comes back is named within a minute.
EVERY_SECONDS = 20.0
#: A group that stands stopped for so long is not about to be started by whoever moves it.
STOPPED_SECONDS = 60.0

CHECK_BACK = "moved groups rest on the cluster that they left"
CHECK_WENT_BACK = "no group went back to the source"
CHECK_SIDES = "groups that were not moved run on the source, and there alone"
CHECK_MOVED = "every group of the plan was moved"
REMEDY_STOPPED = (
    "run `cutover --group NAME` to move it on, or `undo --group NAME` to start it on the source again; of one that was"
    " to go back, `rollback --group NAME`"
)
REMEDY_UNMOVED = (
    "move it (`cutover --group NAME`) while the mirror runs; or delete it on the source, or exclude it from the plan,"
    " if nobody needs it"
)


def remedy_back(record: GroupRecord) -> str:
    """What to do about a group that is back on the cluster that it left: never where its position is the one in use."""
    left = record.leg.direction.origin
    return (
        f"stop its consumers on the {left} for good, and see to what was processed twice; then delete the group on the"
        f" {left} (kafka-consumer-groups.sh --delete --group {record.group}): its position on the"
        f" {record.leg.direction.destination} is the one to keep"
    )


# -- what is astray -------------------------------------------------------------------------------------------------


def astray(ctx: Context, *, stopped_seconds: float = STOPPED_SECONDS) -> dict[str, str]:
    """Group -> what is wrong with where it runs now: on both sides, or (``stopped_seconds`` after its last step, and
    if hooks stopped it) on neither. Raises CouldNotFindOut if a cluster does not answer."""
    return {**back_where_they_left(ctx), **_not_moved_astray(ctx, stopped_seconds)}


def back_where_they_left(ctx: Context, records: Sequence[GroupRecord] | None = None) -> dict[str, str]:
    """Group -> what it does, or did, on the cluster that it left since it was moved (the source; the target, if it was
    rolled back); groups that rest there are left out.

    ``records``: of which groups (by default, of all); those that were not moved are not looked at. A few requests for
    all of them. Raises CouldNotFindOut if a cluster does not answer.
    """
    every = list(GroupRecord.all(ctx.journal).values()) if records is None else records
    found: dict[str, str] = {}
    for direction in Direction:
        moved = {record.group: record for record in every if _rests_at_origin(record, direction)}
        if moved:
            cluster = ctx.cluster(direction.origin)
            states, commits = cluster.group_states(list(moved)), cluster.committed_of(list(moved))
            found |= {g: _what_came_back(record, states[g], commits.get(g, {})) for g, record in moved.items()}
    return {group: what for group, what in sorted(found.items()) if what}


def _rests_at_origin(record: GroupRecord, direction: Direction) -> bool:
    return record.leg.is_done and record.leg.direction is direction and not record.has(Step.UNDOING)


def _what_came_back(record: GroupRecord, state: GroupState, commits: Commits) -> str:
    side = record.leg.direction.origin
    found = [f"has {len(state.members)} members on the {side}"] if state.members else []
    then = {move.tp: move.origin for move in record.translations}
    changed = changed_at_origin(record.translations, commits)
    if changed:
        rows = listed(f"{tp} ({then[tp]} -> {commits[tp].offset})" for tp in changed)
        found.append(f"committed again on the {side}: {rows}")
    return " and ".join(found)


def _not_moved_astray(ctx: Context, stopped_seconds: float) -> dict[str, str]:
    records = GroupRecord.all(ctx.journal).values()
    back = {record.group: record for record in records if record.has(Step.UNDONE)}
    stopped = {record.group: record for record in records if record.is_stopped and ctx.plan.stop_hooks(record.group)}
    if not (back or stopped):
        return {}
    here, there = (cluster.group_states([*back, *stopped]) for cluster in (ctx.source, ctx.target))
    found = {
        group: _there_again(ctx, record, (here if record.leg.direction is Direction.REVERSE else there)[group])
        for group, record in back.items()
    }
    for group, record in stopped.items():
        if here[group].is_empty and there[group].is_empty:
            found[group] = _on_neither(ctx, record, stopped_seconds)
    return {group: what for group, what in found.items() if what}


def _on_neither(ctx: Context, record: GroupRecord, stopped_seconds: float) -> str:
    """That a group was stopped and is empty on both sides; empty if its last step was a moment ago."""
    last = max(at for step in record.steps if (at := record.at(step)) is not None)
    if ctx.clock.now() - last < timedelta(seconds=stopped_seconds):
        return ""
    return f"was stopped, and runs on neither side (last step at {last:%Y-%m-%d %H:%M:%S} UTC)"


def _there_again(ctx: Context, record: GroupRecord, there: GroupState) -> str:
    """What a group does where its newest move was to lead it, which was undone; empty if nothing."""
    leg = record.leg
    if there.members:
        return f"was moved back, and has {len(there.members)} members on the {leg.direction.destination}"
    try:
        require_not_ahead_at_destination(reverse.seen_by(ctx, leg.direction, leg.generation), record)
    except CommittedSince as error:
        return f"was moved back, and has committed on the {leg.direction.destination} since: {error.partitions}"
    return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmoved:
    """A group that the plan selects and that reads its topics, but was not moved."""

    members: int
    was_moved_back: bool

    def __str__(self) -> str:
        members = f"{self.members} members on the source" if self.members else "no members"
        return f"{members}, moved back" if self.was_moved_back else members


def unmoved(ctx: Context) -> dict[str, Unmoved]:
    """Each group that the plan selects and that reads its topics, but was not moved.

    Above all those that first appeared when the groups to move were listed already.
    """
    records = GroupRecord.all(ctx.journal)
    names = [group for group in selected_groups(ctx) if group not in records or not records[group].is_moved]
    return {
        group: Unmoved(
            members=len(view.state.members),
            was_moved_back=group in records and (records[group].has(Step.UNDONE) or records[group].was_rolled_back),
        )
        for group, view in view_groups(ctx, names, is_stable=False).items()
        if view.is_concerned
    }


# -- checks of the stop gate ----------------------------------------------------------------------------------------


def check(ctx: Context) -> tuple[CheckResult, ...]:
    """Whether groups that were not moved run where they should, and whether all were moved, as named checks."""
    return _checked(ctx, CHECK_SIDES, _check_sides), _checked(ctx, CHECK_MOVED, _check_moved)


def check_back(ctx: Context) -> CheckResult:
    """No moved group is active again on the cluster that it left, as a named check."""
    return _checked(ctx, CHECK_BACK, _check_back)


def check_went_back(ctx: Context) -> CheckResult:
    """No group stands on the source by an undo or a rollback, as a named check of whoever gives the way back up."""
    return _checked(ctx, CHECK_WENT_BACK, _check_went_back)


def _checked(ctx: Context, name: str, look: Callable[[Context], CheckResult]) -> CheckResult:
    try:
        return look(ctx)
    except CouldNotFindOut as error:
        return CheckResult.unchecked(name, error.message, remedy=error.remedy)


def _check_back(ctx: Context) -> CheckResult:
    found = back_where_they_left(ctx)
    if found:
        evidence = listed(f"{group} {what}" for group, what in found.items())
        records = GroupRecord.of(ctx.journal, sorted(found)).values()
        remedy = listed((f"{record.group}: {remedy_back(record)}" for record in records), separator="; ")
        return CheckResult.failed(CHECK_BACK, evidence, remedy=remedy)
    return CheckResult.passed(CHECK_BACK, "no commit and no member there since they were moved")


def _check_sides(ctx: Context) -> CheckResult:
    found = _not_moved_astray(ctx, 0.0)
    if found:
        return CheckResult.failed(CHECK_SIDES, _rows(found), remedy=REMEDY_STOPPED)
    return CheckResult.passed(CHECK_SIDES, "none is stopped, and none runs on the target as well")


def _check_moved(ctx: Context) -> CheckResult:
    """A group with members fails: they would continue to read a source that nobody writes to."""
    found = unmoved(ctx)
    active = {group: left for group, left in found.items() if left.members and not left.was_moved_back}
    if not found:
        return CheckResult.passed(CHECK_MOVED, "none is left on the source")
    verdict = Verdict.FAIL if active else Verdict.WARN
    return CheckResult(name=CHECK_MOVED, verdict=verdict, evidence=_rows(active or found), remedy=REMEDY_UNMOVED)


def _check_went_back(ctx: Context) -> CheckResult:
    found = {group: left for group, left in unmoved(ctx).items() if left.was_moved_back}
    if not found:
        return CheckResult.passed(CHECK_WENT_BACK, "none")
    remedy = (
        "after `undo`, move it again (`cutover --group GROUP`); after `rollback`, take producers back, too (`switch"
        " --back`), and all of it forward again; or delete the group on the source, if nobody needs it"
    )
    return CheckResult.failed(CHECK_WENT_BACK, _rows(found), remedy=remedy)


def _rows(found: Mapping[str, object]) -> str:
    return listed(f"{group}: {found[group]}" for group in sorted(found))


class Lookout:
    """Looks for groups astray now and then, while something else is waited for, and names each that is new."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._looked = float("-inf")
        self.found: dict[str, str] = {}
        """Group -> what was wrong with it at the last look."""

    def look(self) -> dict[str, str]:
        """What is new since the look before; nothing where it is too early for another one."""
        ctx = self._ctx
        if ctx.clock.monotonic() < self._looked + EVERY_SECONDS:
            return {}
        self._looked = ctx.clock.monotonic()
        try:
            found = astray(ctx)
        except MigrationError as error:
            # Whoever waits waits for something else, and looks again soon.
            ctx.log(f"cannot find out whether every group runs on one side only: {error.message}")
            return {}
        new = {group: what for group, what in found.items() if self.found.get(group) != what}
        self.found = found
        for group, what in sorted(new.items()):
            ctx.log(f"group {group} {what}")
        return new
