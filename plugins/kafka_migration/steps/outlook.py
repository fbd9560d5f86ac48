"""What an approval leads to, for whoever is asked: the steps up to the next question, and how each is undone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import Evidence, GateName
from kafka_migration.approvals.passing import Passed
from kafka_migration.domain.errors import MigrationError
from kafka_migration.steps import table

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Gate -> the last step that follows, and those whose effect may have to be undone.
_FOLLOWING = {
    GateName.PLAN: ("approve_cutover", ("create_targets", "mirror")),
    GateName.CUTOVER: ("report", ("cut_over", "stop_mirror")),
    GateName.PRODUCERS: ("report", ("switch_producers",)),
    GateName.ROLLBACK: ("report", ("rollback", "switch_producers_back")),
}
#: The same of a wave: the mirror goes on for the others.
_OF_A_WAVE = {
    GateName.CUTOVER: ("watch_groups", ("cut_over",)),
    GateName.ROLLBACK: ("watch_rolled_back", ("rollback",)),
}


def evidence(ctx: Context, gate: GateName) -> Evidence:
    """The evidence of ``gate`` as it is now, with what follows an approval. Read-only; raises what looking raises."""
    until, undone = (_FOLLOWING if ctx.scope.is_whole else _OF_A_WAVE)[gate]
    every = table.rows_back(ctx.plan) if gate is GateName.ROLLBACK else table.rows_of(ctx.plan)
    names = [row.name for row in every]
    if gate is GateName.PRODUCERS and "approve_producers" not in names:
        # By the command switch, of which the workflow has no row.
        every, names, until = table.SWITCH, [row.name for row in table.SWITCH], "switch_producers"
    at = names.index(f"approve_{gate}")
    for following, of in (("approve_producers", GateName.CUTOVER), ("approve_cutover", GateName.PRODUCERS)):
        if gate is of and following in names[at:]:
            until, undone = following, undone[:1]
    rows = every[at + 1 : names.index(until) + 1]
    return replace(
        approvals.evidence(ctx, gate),
        next_steps=tuple(f"{row.name}: {row.does} (passes if: {row.passes_if})" for row in rows),
        undo=tuple(f"{name}: {table.step_named(name).undo}" for name in undone if name in names),
    )


def ask_gate(ctx: Context, gate: GateName) -> Passed | None:
    """Ask ``gate``, and report its answer. In a dry run a refusal is only reported, and the answer is None.

    Raises NotApproved, or what looking at the clusters raises.
    """
    try:
        passed = approvals.check(ctx, gate)
    except MigrationError as shut:
        if not ctx.dry_run:
            raise
        ctx.log(f"a real run would be refused: {shut.message}")
        return None
    ctx.log(f"{gate} gate: {passed.reason}")
    return passed
