"""The workflow of a migration as a table: read it top to bottom, and you know what happens, when, and how to undo it.

The DAG of a plan is built from these rows, one task each (one per batch of groups where it says so), with the edges
that ``after`` gives. What a row does is in the phase module named beside it; the command line runs the same code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from kafka_migration.plans.model import Plan

ApprovalGate = Literal["plan", "cutover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One row. ``name`` is the task's id and ``after`` the rows that must have succeeded.

    ``gate`` is what must be so before it counts as passed, ``undo`` how its effect is taken back. ``approval`` names
    the gate of the plan's ``approvals`` that decides whether the row is there at all. ``runs_on``: it goes on beside
    what follows, which does not wait for its end. ``batched``: it is done by one task per batch of groups.
    ``after_failures``: it is done also when batches before it have failed: the others' groups were moved.
    """

    name: str
    after: tuple[str, ...]
    does: str
    gate: str
    undo: str
    approval: ApprovalGate | None = None
    runs_on: bool = False
    batched: bool = False
    after_failures: bool = False

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"a phase is named by a plain word, not {self.name!r}")
        if self.name in self.after:
            raise ValueError(f"phase {self.name} cannot come after itself")


#: What is done, in order. Before ``create_targets`` nothing is written; before ``cut_over`` no client is touched.
PHASES: tuple[Phase, ...] = (
    Phase(
        name="take_snapshot",
        after=(),
        does="note the plan as it is now: the run works from this, whatever becomes of the file",
        gate="the plan is valid",
        undo="nothing to undo",
    ),
    Phase(
        name="inventory_and_preflight",
        after=("take_snapshot",),
        does="list what the plan means on the source, and check both clusters",
        gate="no check fails; one that could not run is no pass",
        undo="nothing to undo: it only reads",
    ),
    Phase(
        name="approve_plan",
        after=("inventory_and_preflight",),
        does="show a person the inventory and the checks, and wait for an answer",
        gate="approved, and the plan and the source are still as shown",
        undo="nothing to undo; a rejection ends the run",
        approval="plan",
    ),
    Phase(
        name="create_targets",
        after=("approve_plan",),
        does="create every topic on the target, with its configs, retention held open",
        gate="each topic is absent on the target, or of this migration's making",
        undo="delete the topics that this migration created",
    ),
    Phase(
        name="mirror",
        after=("create_targets",),
        does="copy record batches on Spark, until it is stopped",
        gate="every record arrives once, in its order; a partition where that cannot be held halts",
        undo="stop it; what it copied does no harm on the target",
        runs_on=True,
    ),
    Phase(
        name="watch_lag",
        after=("create_targets",),
        does="wait until the mirror has caught up",
        gate="replication lag stayed at or under the threshold for some samples in a row",
        undo="nothing to undo: it only reads",
    ),
    Phase(
        name="validate",
        after=("watch_lag",),
        does="read both clusters again with another reader, and compare",
        gate="source and target hold the same records, segment by segment",
        undo="nothing to undo: it only reads",
    ),
    Phase(
        name="approve_cutover",
        after=("validate",),
        does="show a person lag, verdict and groups, and wait for an answer",
        gate="approved, and the evidence is still as shown",
        undo="nothing to undo; a rejection stops the mirror and ends the run",
        approval="cutover",
    ),
    Phase(
        name="cut_over",
        after=("approve_cutover",),
        does="for each group: stop it on the source, translate its commits, start it on the target",
        gate="the group is empty on both clusters and its commits rest",
        undo="move a group back alone, as long as it has committed nothing new on the target",
        batched=True,
    ),
    Phase(
        name="watch_groups",
        after=("cut_over",),
        does="watch the moved groups on the target",
        gate="each commits past its translated offset, or stands at the end with its members",
        undo="nothing to undo: it only reads",
        after_failures=True,
    ),
    Phase(
        name="stop_mirror",
        after=("cut_over", "watch_groups"),
        does="wait until producers have left the source, then drain the mirror, end it and seal it",
        gate="source log ends are still, and no lag remains",
        undo="mirror --unseal: it goes on where it ended",
    ),
    Phase(
        name="report",
        after=("stop_mirror", "mirror"),
        does="write down what was moved, by whose approval, with counts, digests and pauses",
        gate="every phase before it has succeeded",
        undo="nothing to undo",
    ),
)


def workflow(plan: Plan) -> tuple[Phase, ...]:
    """The rows that apply to ``plan``: without the approvals that it does not ask for, their neighbours joined."""
    return without(PHASES, {row.name for row in PHASES if row.approval and not getattr(plan.approvals, row.approval)})


def without(rows: Iterable[Phase], left_out: set[str]) -> tuple[Phase, ...]:
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


def phase_named(name: str) -> Phase:
    """The row called ``name``. Raises KeyError."""
    return {row.name: row for row in PHASES}[name]
