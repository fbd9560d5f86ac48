"""The workflow of a migration as a table: read it top to bottom, and you know what happens, when, and how to undo it.

The DAGs of a plan, there and back, are built from these rows, one task each (one per batch of groups where the row is
batched, one per wave of a plan that names waves), with the edges that ``after`` gives; the commands and ``run`` go
through the same rows. What the columns mean is in :class:`kafka_migration.steps.step.Step`; how to add a row, in
docs/architecture.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import Direction
from kafka_migration.steps.step import Step

if TYPE_CHECKING:
    from kafka_migration.plans.model import Plan

MINUTE, HOUR, DAY = 60.0, 3_600.0, 86_400.0


def _seconds_of_a_batch(plan: Plan) -> float:
    """How long the move of one batch of groups may take."""
    hooks = [*plan.consumers.stop, *plan.consumers.start]
    # A group that cannot be moved after all is started again, by hooks that were counted for the target.
    hooks += plan.consumers.start
    running = sum(hook.http.timeout_seconds if hook.http else hook.command_timeout for hook in hooks)
    # Waited for: to be mirrored, before and after it stops, and to be empty; then its first sign of life.
    each = running + 3 * plan.consumers.wait_seconds + plan.cutover.rest_seconds + MINUTE
    return plan.cutover.batch_size * each + 30 * MINUTE


def _seconds_of_a_watch(plan: Plan) -> float:
    """How long groups may take until they are active where they were moved to."""
    return plan.cutover.watch_seconds + 5 * MINUTE


def _seconds_of_lag(plan: Plan) -> float:
    """How long a mirror may take to catch up."""
    return plan.lag_gate.deadline_seconds


def _seconds_of_a_switch(plan: Plan) -> float:
    """How long producers may be on their way, or a fence that is left may take to be lifted."""
    return HOUR + (plan.producers.hook_seconds if plan.producers else 0.0)


#: What is done, in order. Before ``create_targets`` nothing is written; before ``cut_over`` no client is touched.
STEPS: tuple[Step, ...] = (
    Step(
        name="inventory_and_preflight",
        after=(),
        does="list what the plan means on the source, and check both clusters",
        passes_if="no check fails; one that could not run is no pass",
        undo="nothing to undo: it only reads",
        module="check",
        seconds=lambda _plan: 30 * MINUTE,
    ),
    Step(
        name="approve_plan",
        after=("inventory_and_preflight",),
        does="show a person the inventory and the checks, and wait for an answer",
        passes_if="approved, and the plan and the source are still as shown",
        undo="nothing to undo; a rejection ends the run",
        approval="plan",
        until_it_passes=True,
    ),
    Step(
        name="create_targets",
        after=("approve_plan",),
        does="create every topic on the target, with its configs, retention disabled while mirroring",
        passes_if="each topic is absent on the target, or of this migration's making",
        undo="delete the topics that this migration created",
        module="create",
        seconds=lambda _plan: 2 * HOUR,
        writes=True,
        gate="plan",
    ),
    Step(
        name="mirror",
        after=("create_targets",),
        does="copy record batches on Spark, until it is stopped",
        passes_if="every record arrives once, in its order; a partition where that cannot be held halts",
        undo="stop it; what it copied does no harm on the target",
        spark="submission",
        writes=True,
    ),
    Step(
        name="watch_lag",
        after=("create_targets",),
        does="wait until the mirror has caught up",
        passes_if="replication lag stayed at or under the threshold for some samples in a row",
        undo="nothing to undo: it only reads",
        module="watch_lag",
        seconds=_seconds_of_lag,
        waits=True,
    ),
    Step(
        name="validate",
        after=("watch_lag",),
        does="read both clusters again with another reader, and compare",
        passes_if="source and target hold the same records, segment by segment",
        undo="nothing to undo: it only reads",
        module="validate",
        seconds=lambda _plan: 2 * DAY,
        writes=True,
        spark="session",
    ),
    Step(
        name="approve_cutover",
        after=("validate",),
        does="show a person lag, verdict and groups, and wait for an answer",
        passes_if="approved, and the evidence is still as shown",
        undo="nothing to undo; a rejection stops the mirror and ends the run",
        approval="cutover",
        until_it_passes=True,
        by_wave=True,
    ),
    Step(
        name="cut_over",
        after=("approve_cutover",),
        does="for each group: stop it on the source, translate its commits, start it on the target",
        # Asked by the step itself, before each group.
        passes_if="the cutover gate is open, the group is empty on both clusters, and its commits are unchanged",
        undo="move a group back alone, as long as it has committed nothing new on the target",
        module="cutover",
        seconds=_seconds_of_a_batch,
        writes=True,
        batched=True,
        by_wave=True,
    ),
    Step(
        name="watch_groups",
        after=("cut_over",),
        does="watch the moved groups on the target",
        passes_if="each commits past its translated offset, or stands at the end with its members",
        undo="nothing to undo: it only reads",
        module="watch_groups",
        # Each group has a time of its own; this much more, and the watch itself is not working.
        seconds=_seconds_of_a_watch,
        waits=True,
        after_failures=True,
        by_wave=True,
    ),
    Step(
        name="stop_mirror",
        after=("cut_over", "watch_groups"),
        does="wait until producers have left the source, then drain the mirror, end it and seal it",
        passes_if="source log ends are still, and no lag remains",
        undo="mirror --unseal: it goes on where it ended",
        module="stop",
        seconds=lambda plan: plan.drain.deadline_seconds,
        waits=True,
        writes=True,
        until_it_passes=True,
    ),
    Step(
        name="validate_end",
        after=("stop_mirror",),
        does="compare once more, now up to the ends that the seal has fixed",
        passes_if="source and target hold the same records, to the last one",
        undo="nothing to undo: it only reads",
        module="validate",
        seconds=lambda _plan: 2 * DAY,
        writes=True,
        spark="session",
    ),
    Step(
        name="restore",
        after=("validate_end",),
        does="give the target topics their sources' retention, compaction and timestamp type",
        passes_if="the mirror is sealed, and the target shows the configs",
        undo="mirror --unseal disables retention again; records that expired meanwhile are gone",
        module="restore",
        seconds=lambda _plan: 2 * HOUR,
        writes=True,
    ),
    Step(
        name="release",
        after=("restore", "mirror"),
        does="give up the migration's locks on its topics",
        passes_if="no mirror may write any more, and no group is in the middle of its move",
        undo="create takes the topics again, if no other migration has them by then",
        module="release",
        seconds=lambda _plan: 30 * MINUTE,
        writes=True,
    ),
    Step(
        name="report",
        after=("release",),
        does="write down what was moved, by whose approval, with counts, digests and pauses",
        passes_if="every step before it has succeeded",
        undo="nothing to undo",
        module="report",
        seconds=lambda _plan: 30 * MINUTE,
    ),
)


#: Before ``create_targets``, where a plan names schema registries: records must find their schemas.
SCHEMAS = Step(
    name="copy_schemas",
    after=("approve_plan",),
    does="copy what the target's schema registry lacks of the source's, by the same ids",
    passes_if="no id or version is taken there, and each is read back",
    undo="`schemas --undo` deletes what was made",
    module="schemas",
    seconds=lambda _plan: HOUR,
    writes=True,
    gate="plan",
)


#: What stands in the place of ``stop_mirror`` where a plan has its producers switched by a step; where they come first,
#: before groups are moved.
SWITCH: tuple[Step, ...] = (
    Step(
        name="approve_producers",
        after=("cut_over", "watch_groups"),
        does="show a person the fence's checks, whom it denies, hooks and lag, and wait for an answer",
        passes_if="approved, and the evidence is still as shown",
        undo="nothing to undo; a rejection ends the run, and producers stay on the source",
        approval="producers",
        until_it_passes=True,
    ),
    Step(
        name="switch_producers",
        after=("approve_producers",),
        does="fence producers, drain the mirror to the proved ends, seal it, arm the way back, start producers",
        passes_if="nobody wrote behind the fence, all is copied, and the journal has the point of no return",
        undo="before the point of no return it undoes itself; behind it `rollback` and `switch --back`",
        module="switch",
        seconds=_seconds_of_a_switch,
        writes=True,
    ),
    Step(
        name="lift_fence",
        after=("switch_producers",),
        does="lift a fence that still stands before the point of no return, so that producers write to the source",
        passes_if="no fence stands, or producers were switched",
        undo="nothing to undo",
        module="unfence",
        seconds=_seconds_of_a_switch,
        is_teardown=True,
    ),
)


#: The way back, of clients that have gone on on the target. Before ``rollback`` no client is touched.
BACK: tuple[Step, ...] = (
    Step(
        name="check_rollback",
        after=(),
        does="see what stands on the target, and whether it can go back: the cut, hooks, the fence on the target",
        passes_if="something stands there, and the way back is open or can be opened",
        undo="nothing to undo: it only reads",
        module="check_back",
        seconds=lambda _plan: 30 * MINUTE,
        direction=Direction.REVERSE,
    ),
    Step(
        name="reverse_mirror",
        after=("check_rollback",),
        does="copy to the source what is written on the target since the cut, until it is stopped",
        passes_if="every record arrives once, in its order; a partition where that cannot be held halts",
        undo="stop it; the source's topics keep every record until producers are back, or the migration is completed",
        spark="submission",
        writes=True,
        direction=Direction.REVERSE,
    ),
    Step(
        name="watch_reverse_lag",
        after=("check_rollback",),
        does="wait until the reverse mirror has caught up",
        passes_if="its replication lag stayed at or under the threshold for some samples in a row",
        undo="nothing to undo: it only reads",
        module="watch_lag",
        seconds=_seconds_of_lag,
        waits=True,
        direction=Direction.REVERSE,
    ),
    Step(
        name="approve_rollback",
        after=("watch_reverse_lag",),
        does="show a person the reverse link's lag and who stands where, and wait for an answer",
        passes_if="approved, and the evidence is still as shown",
        undo="nothing to undo; a rejection stops the reverse mirror that this DAG has started, and ends the run",
        approval="rollback",
        until_it_passes=True,
    ),
    Step(
        name="rollback",
        after=("approve_rollback",),
        does="for each group: stop it on the target, translate its commits, start it on the source",
        # Asked by the step itself, before each group.
        passes_if="the rollback gate is open, the group is empty on both clusters, and its records are mirrored back",
        undo="forward again: the next generation of the link, by `mirror` and `cutover`",
        module="rollback",
        seconds=_seconds_of_a_batch,
        writes=True,
        batched=True,
        # Each lifts what keeps groups from reading on the source, by one claim.
        in_turn=True,
        direction=Direction.REVERSE,
    ),
    Step(
        name="watch_rolled_back",
        after=("rollback",),
        does="watch the groups on the source",
        passes_if="each commits past its translated offset, or stands at the end with its members",
        undo="nothing to undo: it only reads",
        module="watch_groups",
        seconds=_seconds_of_a_watch,
        waits=True,
        after_failures=True,
    ),
    Step(
        name="switch_producers_back",
        after=("rollback", "watch_rolled_back"),
        does="fence producers on the target, drain and seal the reverse link, start producers on the source",
        passes_if="nobody wrote behind the fence, all is mirrored back, and the journal has the point of no return",
        undo="before the point of no return it undoes itself; behind it: forward again, by the next generation",
        module="switch",
        seconds=_seconds_of_a_switch,
        writes=True,
        direction=Direction.REVERSE,
    ),
    Step(
        name="lift_target_fence",
        after=("switch_producers_back",),
        does="lift a fence that still stands before the point of no return, so that producers write to the target",
        passes_if="no fence stands, or producers were switched back",
        undo="nothing to undo",
        module="unfence",
        seconds=_seconds_of_a_switch,
        is_teardown=True,
        direction=Direction.REVERSE,
    ),
    replace(STEPS[-1], after=("switch_producers_back",)),
)


def rows_back(plan: Plan) -> tuple[Step, ...]:
    """The rows of the way back of ``plan``, with the approval: producers go back only where the plan has some."""
    return BACK if plan.producers else without(BACK, {"switch_producers_back", "lift_target_fence"})


def workflow_back(plan: Plan) -> tuple[Step, ...]:
    """As :func:`workflow`, of the way back: all groups of the plan, not by wave."""
    return _asked(rows_back(plan), plan)


def rows_of(plan: Plan) -> tuple[Step, ...]:
    """The rows of ``plan``, with all approvals."""
    rows = _with_producers(plan)
    if plan.schemas is None:
        return rows
    at = [row.name for row in rows].index("create_targets")
    return (*rows[:at], SCHEMAS, *_after({"approve_plan": (SCHEMAS.name,)}, rows[at:]))


def _with_producers(plan: Plan) -> tuple[Step, ...]:
    if plan.producers is None or not plan.producers.in_workflow:
        return STEPS
    names = [row.name for row in STEPS]
    moves, stop = names.index("approve_cutover"), names.index("stop_mirror")
    before, groups, behind = STEPS[:moves], STEPS[moves:stop], STEPS[stop + 1 :]
    if plan.producers.first:
        rows = (
            *before,
            *_after({"cut_over": ("validate",), "watch_groups": ()}, SWITCH),
            *_after({"validate": ("switch_producers",)}, groups),
            *_after({"stop_mirror": ("cut_over", "watch_groups")}, behind),
        )
    else:
        rows = (*before, *groups, *SWITCH, *_after({"stop_mirror": ("switch_producers",)}, behind))
    # Released topics have no way back: that is given up by a person, with `complete`, once nobody needs it.
    return without(rows, {"release"})


def _after(instead: Mapping[str, tuple[str, ...]], rows: Iterable[Step]) -> Iterator[Step]:
    """``rows`` that wait for others ``instead`` of those."""
    for row in rows:
        yield replace(row, after=tuple(name for before in row.after for name in instead.get(before, (before,))))


def workflow(plan: Plan) -> tuple[Step, ...]:
    """The rows that apply to ``plan``: without the approvals that it does not ask for, their neighbours joined; and
    once for each wave that it names. Computed waves show at run time only: their rows are not expanded here."""
    rows = _asked(rows_of(plan), plan)
    return by_waves(rows, [wave.name for wave in plan.waves.given]) if plan.waves and plan.waves.given else rows


def _asked(rows: Sequence[Step], plan: Plan) -> tuple[Step, ...]:
    return without(rows, {row.name for row in rows if row.approval and not plan.asks(row.approval)})


def by_waves(rows: Sequence[Step], waves: Iterable[str]) -> tuple[Step, ...]:
    """``rows`` with those that are done by wave once for each of ``waves``, in their order. A wave begins once all has
    succeeded that rows after the waves wait for in the one before it."""
    inner = [row for row in rows if row.by_wave]
    ends = [row.name for row in inner if any(row.name in other.after for other in rows if not other.by_wave)]
    found: list[Step] = []
    ids: dict[str, str] = {}
    for row in rows:
        if not row.by_wave:
            # `ids` are of the last wave by now, or there was none yet.
            found.append(replace(row, after=tuple(ids.get(name, name) for name in row.after)))
            continue
        if row is not inner[0]:
            continue
        for wave in waves:
            before = [ids[name] for name in ends if ids]
            ids = {one.name: replace(one, wave=wave).id for one in inner}
            for one in inner:
                after = [by for name in one.after for by in ([ids[name]] if name in ids else before or [name])]
                found.append(replace(one, wave=wave, after=tuple(dict.fromkeys(after))))
    return tuple(found)


def without(rows: Iterable[Step], left_out: set[str]) -> tuple[Step, ...]:
    """``rows``, which are in order, without those named; what came after one comes after its predecessors instead."""
    after: dict[str, tuple[str, ...]] = {}
    kept = []
    for row in rows:
        # In order, so the predecessors of a row are settled before it.
        joined = [n for name in row.after for n in (after[name] if name in left_out else (name,))]
        after[row.name] = tuple(dict.fromkeys(joined))
        if row.name not in left_out:
            kept.append(replace(row, after=after[row.name]))
    return tuple(kept)


def step_named(name: str) -> Step:
    """The row called ``name``. Raises KeyError."""
    return {row.name: row for row in (SCHEMAS, *BACK, *SWITCH, *STEPS)}[name]
