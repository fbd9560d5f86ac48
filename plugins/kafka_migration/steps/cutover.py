"""Cutting consumer groups over: stop on the source, translate, write, read back, start on the target.

One group after the other, so that each pauses for its own move only. A group that cannot be moved is listed with its
reason, and the others are moved. What a group's move consists of is in :mod:`kafka_migration.groups.move`; moving one
back alone is ``undo``, as long as it has processed nothing on the target. From then on it is
:mod:`kafka_migration.steps.rollback`, which goes the same way in the other direction.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from kafka_migration.approvals import waves
from kafka_migration.approvals.cutover import CutoverGate
from kafka_migration.domain.direction import SOURCE, Direction, Side
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.groups import looks, watch
from kafka_migration.groups.hooks import HookCall
from kafka_migration.groups.move import POLL_SECONDS, Mover, phase_of
from kafka_migration.groups.proof import GroupNotEmpty, require_not_ahead_at_destination
from kafka_migration.groups.record import GroupRecord, Step, Translation
from kafka_migration.groups.translate import GroupView, selected_groups, view_groups
from kafka_migration.link import switched
from kafka_migration.link.ready import NotCopied, require_keeping_up
from kafka_migration.migration import completion
from kafka_migration.plans.hooks import Hook
from kafka_migration.steps import schemas
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: How long after its start a healthy group is waited for, to see its first commit when it happens. A sick one is the
#: watch's affair.
SEE_OFF_SECONDS = 30.0

#: Airflow's default limit of mapped task instances.
_MOST_BATCHES = 1024

_NOT_CONCERNED = "it has no committed offset of a topic of the plan, so it is not moved"


class GroupGate(Protocol):
    """What is asked before each group."""

    def ask(self) -> str:
        """Why the next group may be moved. Raises MigrationError if it may not."""


class Fate(enum.StrEnum):
    """What became of a group."""

    MOVED = "moved"
    ALREADY_MOVED = "already_moved"
    WOULD_MOVE = "would_move"
    NOT_CONCERNED = "not_concerned"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOutcome:
    """One group: what became of it and, where it was not moved, why, and what to do.

    ``not_copied`` is what keeps the groups after it from being tried. ``is_stopped``: its consumers were stopped, and
    run on neither side.
    """

    group: str
    outcome: Fate
    reason: str = ""
    remedy: str = ""
    members: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    translations: tuple[Translation, ...] = ()
    alive: bool = False
    pause_seconds: float | None = None
    exit_code: int = 0
    not_copied: NotCopied | None = None
    is_stopped: bool = False

    def as_dict(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "outcome": str(self.outcome),
            "reason": self.reason,
            "remedy": self.remedy,
            "members": list(self.members),
            "flags": list(self.flags),
            "positions": [move.as_dict() for move in self.translations],
            "alive": self.alive,
            "pause_seconds": self.pause_seconds,
            "is_stopped": self.is_stopped,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class CutoverResult:
    """All groups asked for, each with its outcome."""

    groups: tuple[GroupOutcome, ...]

    @property
    def exit_code(self) -> int:
        """0 all moved (or not concerned); 1 a group was refused; 3 none was, but one could not be found out about.

        3 also if one stands stopped on both sides, whatever became of the others: another try is due, and soon.
        """
        codes = {group.exit_code for group in self.groups}
        if any(group.is_stopped for group in self.groups):
            return CouldNotFindOut.exit_code
        return 1 if 1 in codes else max(codes, default=0)

    def as_dict(self) -> dict[str, Any]:
        return {"groups": [group.as_dict() for group in self.groups]}


def batches(ctx: Context) -> list[list[str]]:
    """The plan's groups, in batches; they are looked at once more, and a wave without any is begun."""
    groups = selected_groups(ctx)
    looks.take(ctx, groups)
    if not groups:
        # No batch will begin the wave.
        waves.begin(ctx)
    return in_batches(ctx, groups)


def in_batches(ctx: Context, groups: Sequence[str]) -> list[list[str]]:
    """``groups`` in batches of ``cutover.batch_size`` (more where that made too many batches for Airflow)."""
    size = max(ctx.plan.cutover.batch_size, -(-len(groups) // _MOST_BATCHES))
    return [list(groups[at : at + size]) for at in range(0, len(groups), size)]


def apply(
    ctx: Context,
    groups: Sequence[str] | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    gate: GroupGate | None = None,
) -> CutoverResult:
    """Move the plan's groups, or ``groups`` (BadInput for one that the plan does not select), and list each: the way of
    the context's link, through ``gate`` (by default that of the cutover).

    The gate is asked before each group. Raises NotApproved or CouldNotFindOut if it is shut before the first
    one, TakenOver, and what goes wrong before the first group; what goes wrong with one group is in its outcome. Groups
    that stand stopped are tried again in the end, and are started where they belong if the gate is shut by then.
    With ``ctx.dry_run``, show the steps and what would refuse them, and write nothing.
    """
    names = selected_groups(ctx, groups)
    started: list[str] = []

    def see_off() -> None:
        for group in list(started):
            if _shows_life(ctx, group):
                started.remove(group)

    # Before the gate, which is shut while any are missing.
    schemas.catch_up(ctx)
    mover = Mover(ctx, environ=environ, tick=see_off)
    gate = gate or CutoverGate(ctx)
    if not ctx.dry_run:
        ctx.log(f"{mover.phase} gate: {ask(gate, mover, names)}")
        waves.begin(ctx)
    views = view_groups(ctx, names, is_stable=False)
    outcomes: dict[str, GroupOutcome] = {}

    def move(group: str, behind: NotCopied | None) -> None:
        outcomes[group] = _outcome(ctx, mover, gate, views[group], behind)
        if outcomes[group].outcome is Fate.MOVED:
            started.append(group)

    behind = _behind(ctx, views)
    for group in names:
        move(group, behind)
        # What the mirror has not copied for one group, it has not for those after it: none of them is stopped.
        behind = behind or outcomes[group].not_copied
    for group in [group for group in names if outcomes[group].is_stopped]:
        move(group, None)
    deadline = ctx.clock.monotonic() + min(SEE_OFF_SECONDS, ctx.plan.cutover.watch_seconds)
    while started and ctx.clock.monotonic() < deadline:
        mover.sleep(POLL_SECONDS)
    return CutoverResult(groups=tuple(_with_record(ctx, outcomes[group]) for group in names))


def _shows_life(ctx: Context, group: str) -> bool:
    try:
        return watch.look(ctx, GroupRecord.load(ctx.journal, group)).life is watch.Life.ALIVE
    except CouldNotFindOut:
        # Only the measured pause depends on this look; the watch looks again, and reports.
        return False


def _behind(ctx: Context, views: Mapping[str, GroupView]) -> NotCopied | None:
    """Why no group may be stopped now, if there are groups to stop."""
    stoppable = [view for view in views.values() if ctx.plan.stop_hooks(view.group)]
    records = GroupRecord.of(ctx.journal, [view.group for view in stoppable])
    to_stop = [view for view in stoppable if not _is_there(ctx, records[view.group])]
    try:
        if to_stop:
            require_keeping_up(ctx, [tp for view in to_stop for tp in view.partitions])
    except NotCopied as error:
        return error
    return None


def _is_there(ctx: Context, record: GroupRecord) -> bool:
    """Whether the move by the context's link is done."""
    return record.leg.is_done and record.leg.is_of(ctx.direction, ctx.generation)


def _outcome(ctx: Context, mover: Mover, gate: GroupGate, view: GroupView, behind: NotCopied | None) -> GroupOutcome:
    group = view.group
    record = GroupRecord.load(ctx.journal, group)
    if not view.is_concerned and not record.steps and view.state.exists:
        return GroupOutcome(group=group, outcome=Fate.NOT_CONCERNED, reason=_NOT_CONCERNED, flags=view.flags)
    moved_before = _is_there(ctx, record) and (record.has(Step.ALIVE) or ctx.dry_run)
    try:
        _move(ctx, mover, gate, view, record, behind)
    except TakenOver:
        raise
    except MigrationError as error:
        return _not_moved(ctx, view, error)
    done = Fate.ALREADY_MOVED if moved_before else Fate.WOULD_MOVE if ctx.dry_run else Fate.MOVED
    return GroupOutcome(group=group, outcome=done, flags=view.flags)


def _move(
    ctx: Context, mover: Mover, gate: GroupGate, view: GroupView, record: GroupRecord, behind: NotCopied | None
) -> None:
    is_there = _is_there(ctx, record)
    if behind and not (is_there or record.is_stopped) and ctx.plan.stop_hooks(view.group):
        raise behind
    if not is_there:
        record.require_leg(ctx.direction, ctx.generation)
        log_steps(ctx, view.group)
    if not ctx.dry_run:
        ask(gate, mover, [view.group])
        mover.move(view.group)
    elif not is_there:
        mover.require_movable(view)


def ask(gate: GroupGate, mover: Mover, groups: Sequence[str]) -> str:
    """Ask the gate; if it is shut, what an earlier run left stopped of ``groups`` is started, and the error raised."""
    try:
        return gate.ask()
    except MigrationError as shut:
        for group in groups:
            mover.leave_running(group, shut)
        raise


def _not_moved(ctx: Context, view: GroupView, error: MigrationError) -> GroupOutcome:
    ctx.log(f"{view.group}: not moved: {error.message}")
    is_unknown, is_stopped = isinstance(error, CouldNotFindOut), _is_stopped(ctx, view.group)
    return GroupOutcome(
        group=view.group,
        outcome=Fate.FAILED if is_unknown else Fate.REFUSED,
        reason=error.message,
        remedy=_remedy(ctx, view.group, error, is_stopped=is_stopped),
        members=error.members if isinstance(error, GroupNotEmpty) else (),
        flags=view.flags,
        not_copied=error if isinstance(error, NotCopied) else None,
        exit_code=CouldNotFindOut.exit_code if is_unknown else Refused.exit_code,
        is_stopped=is_stopped,
    )


def _is_stopped(ctx: Context, group: str) -> bool:
    """Whether this migration stopped the group's consumers, and they run on neither side: to its best knowledge."""
    if not ctx.plan.stop_hooks(group) or not GroupRecord.load(ctx.journal, group).is_stopped:
        return False
    try:
        return ctx.source.group_state(group).is_empty and ctx.target.group_state(group).is_empty
    except CouldNotFindOut:
        return True


def _remedy(ctx: Context, group: str, error: MigrationError, *, is_stopped: bool) -> str:
    record = GroupRecord.load(ctx.journal, group)
    if record.has(Step.UNDONE) and record.evidence(Step.UNDONE, "because") == error.message:
        return f"{error.remedy}; its consumers were started on the {record.leg.direction.origin} again"
    if not is_stopped:
        return error.remedy
    # Of a wave, by its own approval.
    again = f"{phase_of(ctx)} --group {group}" + (f" --wave {ctx.scope.key}" if ctx.scope.key else "")
    stranded = f"its consumers were stopped and run on neither side: run `{again}` again soon"
    if ctx.direction is Direction.FORWARD:
        stranded += f", or `undo --group {group}`"
    return f"{error.remedy}; {stranded}" if error.remedy else stranded


def _with_record(ctx: Context, outcome: GroupOutcome) -> GroupOutcome:
    """``outcome`` with what the journal knows by now."""
    record = GroupRecord.load(ctx.journal, outcome.group)
    return replace(
        outcome,
        translations=record.translations,
        alive=record.has(Step.ALIVE),
        pause_seconds=record.evidence(Step.ALIVE, "pause_seconds"),
    )


def log_steps(ctx: Context, group: str) -> None:
    """What will be done with a group, in order: the same lines in a dry run and in a real one."""
    plan, here, there = ctx.plan, ctx.direction.origin, ctx.direction.destination

    def calls(hooks: tuple[Hook, ...], cluster: Side) -> str:
        phase = phase_of(ctx)
        found = (HookCall(hook=h, group=group, migration=plan.name, cluster=cluster, phase=phase) for h in hooks)
        return ", ".join(map(str, found)) or "nothing to run"

    stopped = " (declared stopped)" if group in plan.cutover.stopped_groups else ""
    ctx.log(f"{group}: stop its consumers on the {here}: {calls(plan.stop_hooks(group), here)}{stopped}")
    ctx.log(
        f"{group}: wait until it is empty on both clusters, and its commits unchanged for"
        f" {plan.cutover.rest_seconds:g} s unless it was seen with members"
    )
    ctx.log(f"{group}: translate its commits exactly, write them on the {there}, read them back and compare")
    ctx.log(f"{group}: start its consumers on the {there}: {calls(plan.start_hooks(group), there)}{stopped}")


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoResult:
    """A group that is the source's again."""

    group: str
    outcome: str
    hooks: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        return {"group": self.group, "outcome": self.outcome, "hooks": list(self.hooks)}


def undo(ctx: Context, group: str, *, environ: Mapping[str, str] | None = None) -> UndoResult:
    """Move one group back to the source, alone: its offsets there were never touched, and those that have expired are
    written again.

    Refused once it has committed past its translation on the target: what it processed there would be processed
    again; and where nobody writes to the source any more. Its offsets on the target stay; they are not ahead of
    anything. A kill at any step is finished by a rerun.
    """
    selected_groups(ctx, [group])
    # Before the claim, which ends whoever moves the group now.
    record = GroupRecord.load(ctx.journal, group)
    _require_own_leg(ctx, record)
    if record.has(Step.UNDONE):
        return UndoResult(group=group, outcome="already_undone")
    if not record.steps:
        raise Refused(
            f"group {group} was not touched by this migration",
            remedy="there is nothing to undo; check the group's name (`status` lists those that were moved)",
        )
    if not record.has(Step.UNDOING):
        _require_source_in_use(ctx, group)
    require_not_ahead_at_destination(ctx, record)
    stop, start = ctx.plan.stop_hooks(group), ctx.plan.start_hooks(group)
    mover = Mover(ctx, environ=environ)
    calls = [str(mover.call(h, group, "target", "undo")) for h in stop if record.has(Step.STARTING)]
    calls += [str(mover.call(h, group, "source", "undo")) for h in start]
    ctx.log(f"{group}: move back to the source: {', '.join(calls) or 'nothing to run'}")
    if ctx.dry_run:
        return UndoResult(group=group, outcome="would_undo", hooks=tuple(calls))
    mover.require_hooks(group, stop_on="target", start_on="source", phase="undo")
    record = GroupRecord.own(ctx.journal, group, at=ctx.stamp())
    # A rollback may have taken it up between that look and the claim.
    _require_own_leg(ctx, record)
    if not record.has(Step.UNDONE):
        mover.move_back(record)
    return UndoResult(group=group, outcome="undone", hooks=tuple(calls))


def _require_own_leg(ctx: Context, record: GroupRecord) -> None:
    """What another link has moved is not this one's to take back: its offsets stand on the other cluster."""
    record.require_leg(ctx.direction, ctx.generation)
    if record.steps and record.leg.direction is not ctx.direction:
        raise Refused(
            f"group {record.group} was moved back to the {record.leg.direction.destination} (rollback), and not forward"
            " again since",
            remedy="there is nothing to undo; `cutover` moves it forward again",
        )


def _require_source_in_use(ctx: Context, group: str) -> None:
    completion.require_none(ctx)
    switched.require_none_under_way(ctx)
    switch = switched.away_from(ctx, SOURCE)
    if switch is not None and not (ctx.plan.producers and ctx.plan.producers.first):
        raise Refused(
            f"group {group} would read a source to which no producer writes: {switch}",
            remedy=f"`rollback --group {group}` moves it there, once `mirror --reverse` has copied what it reads",
        )


def run(ctx: Context, *, groups: Sequence[str] | None = None) -> Decision:
    """Move the plan's groups, or ``groups``, as a step of the workflow."""
    return decide(apply(ctx, groups))


def decide(result: CutoverResult) -> Decision:
    """``result`` as the decision of a step."""
    left = [outcome for outcome in result.groups if outcome.exit_code]
    reasons = "; ".join(f"{outcome.group}: {outcome.reason}" for outcome in left)
    remedies = "".join(f"\n{o.group}: {o.outcome}: {o.reason}\n  remedy: {o.remedy}" for o in left)
    return Decision(
        exit_code=result.exit_code,
        message=f"{len(left)} of {len(result.groups)} groups were not moved: {reasons}{remedies}" if left else "",
        facts=dict(Counter(str(outcome.outcome) for outcome in result.groups)),
        value=result,
    )
