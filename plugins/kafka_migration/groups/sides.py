"""Where groups run, beside where they should: on one side each, for as long as the migration lasts.

Claims and proofs keep movers from starting a group twice. What they cannot keep away is a deployment that nobody
thought of, a hook that takes effect late, and a group that first appears when the others are moved. So everything that
waits while groups run looks for those, now and then: :class:`Lookout`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.listing import listed
from kafka_migration.groups import source_after
from kafka_migration.groups.proof import require_not_gone_on
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.groups.refusals import WentOn
from kafka_migration.groups.translate import selected_groups, view_groups

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Between two looks of a lookout: a group that comes back is named within a minute.
EVERY_SECONDS = 20.0
#: A group that stands stopped for so long is not about to be started by whoever moves it.
STOPPED_SECONDS = 60.0

CHECK_SIDES = "groups that were not moved run on the source, and there alone"
CHECK_MOVED = "every group of the plan was moved"
REMEDY_STOPPED = "`cutover --group NAME` moves it on, `undo --group NAME` starts it on the source again"
REMEDY_UNMOVED = (
    "move it (`cutover --group NAME`) while the mirror runs; or delete it on the source, or exclude it from the plan,"
    " if nobody needs it"
)


def astray(ctx: Context, *, stopped_seconds: float = STOPPED_SECONDS) -> dict[str, str]:
    """Group -> what is wrong with where it runs now: on both sides, or (``stopped_seconds`` after its last step, and
    if hooks stopped it) on neither. Raises CouldNotFindOut if a cluster does not answer."""
    return {**source_after.gone_on(ctx), **_not_moved_astray(ctx, stopped_seconds)}


def _not_moved_astray(ctx: Context, stopped_seconds: float) -> dict[str, str]:
    records = {group: it for group, it in GroupRecord.all(ctx.journal).items() if it.steps}
    back = {group: it for group, it in records.items() if it.has(Step.UNDONE)}
    stopped = {group: it for group, it in records.items() if it.is_stopped and ctx.plan.stop_hooks(group)}
    if not (back or stopped):
        return {}
    here, there = ctx.source.group_states(list(stopped)), ctx.target.group_states([*back, *stopped])
    found = {}
    for group, record in back.items():
        if there[group].members:
            found[group] = f"was moved back, and has {len(there[group].members)} members on the target"
            continue
        try:
            require_not_gone_on(ctx, record)
        except WentOn as error:
            found[group] = f"was moved back, and has gone on on the target: {error.partitions}"
    for group, record in stopped.items():
        last = max(at for step in record.steps if (at := record.at(step)) is not None)
        is_settled = ctx.clock.now() - last >= timedelta(seconds=stopped_seconds)
        if is_settled and here[group].is_empty and there[group].is_empty:
            found[group] = f"was stopped, and runs on neither side (last step at {last:%Y-%m-%d %H:%M:%S} UTC)"
    return found


def unmoved(ctx: Context) -> dict[str, str]:
    """Group -> what is known of it, for each that the plan selects and that reads its topics, but was not moved.

    Above all those that first appeared when the groups to move were listed already.
    """
    records = GroupRecord.all(ctx.journal)
    names = [it for it in selected_groups(ctx) if it not in records or not records[it].is_moved]
    found = {}
    for group, view in view_groups(ctx, names).items():
        if view.is_concerned:
            was_back = group in records and records[group].has(Step.UNDONE)
            members = f"{len(view.state.members)} members on the source" if view.state.members else "no members"
            found[group] = f"{members}{', moved back' if was_back else ''}"
    return found


def check(ctx: Context) -> tuple[CheckResult, ...]:
    """Both as named checks of the stop gate; moved groups that went on on the source have one of their own.

    A group that was not moved refuses if it has members: they would go on to read a source that nobody writes to.
    """
    return _checked(ctx, CHECK_SIDES, _check_sides), _checked(ctx, CHECK_MOVED, _check_moved)


def _checked(ctx: Context, name: str, look: Callable[[Context], CheckResult]) -> CheckResult:
    try:
        return look(ctx)
    except CouldNotFindOut as error:
        return CheckResult(name=name, verdict=Verdict.UNCHECKED, evidence=error.message, remedy=error.remedy)


def _check_sides(ctx: Context) -> CheckResult:
    found = _not_moved_astray(ctx, 0.0)
    if found:
        return CheckResult(name=CHECK_SIDES, verdict=Verdict.FAIL, evidence=_said(found), remedy=REMEDY_STOPPED)
    return CheckResult(name=CHECK_SIDES, verdict=Verdict.PASS, evidence="none was stopped, or is on the target as well")


def _check_moved(ctx: Context) -> CheckResult:
    found = unmoved(ctx)
    active = {group: said for group, said in found.items() if not said.startswith("no members") and "back" not in said}
    if active:
        return CheckResult(name=CHECK_MOVED, verdict=Verdict.FAIL, evidence=_said(active), remedy=REMEDY_UNMOVED)
    if found:
        return CheckResult(name=CHECK_MOVED, verdict=Verdict.WARN, evidence=_said(found), remedy=REMEDY_UNMOVED)
    return CheckResult(name=CHECK_MOVED, verdict=Verdict.PASS, evidence="none is left on the source")


def _said(found: dict[str, str]) -> str:
    return listed(f"{group}: {said}" for group, said in sorted(found.items()))


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
            ctx.tell(f"whether every group runs on one side is unknown: {error.message}")
            return {}
        new = {group: said for group, said in found.items() if self.found.get(group) != said}
        self.found = found
        for group, said in sorted(new.items()):
            ctx.tell(f"group {group} {said}")
        return new
