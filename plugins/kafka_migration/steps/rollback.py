"""Rolling groups back to the source after they have processed records on the target: the cutover's way, reversed.

Stop on the target, prove that, translate, write on the source, read back, start there, watch. It needs the reverse
link, which copies to the source what was written on the target since the seal (:mod:`kafka_migration.link.reverse`): a
group goes on at its very next record, so that record has to be there. What is not mirrored back yet is waited for.

Before a group has processed anything on the target, ``undo`` returns it without any of this.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kafka_migration.approvals.passing import NotApproved
from kafka_migration.approvals.rollback import RollbackGate, selected
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.fence import fence
from kafka_migration.groups.move import Mover
from kafka_migration.inventory import plan_changes
from kafka_migration.link import reverse, switched
from kafka_migration.migration.context import WHOLE
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import CutoverResult
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def batches(back: Context) -> list[list[str]]:
    """All groups that stand on the target, or are on their way back, in batches. Raises Refused without a way back."""
    reverse.check(back)
    return cutover.in_batches(back, selected(back))


def run(back: Context, *, groups: Sequence[str] | None = None) -> Decision:
    """As :func:`apply`, as a step of the workflow. Raises Refused once nothing goes back by this link any more."""
    seal = back.link.seal()
    if seal is not None:
        raise Refused(
            f"the reverse link of {back.plan.name} was sealed at {seal.at}: producers were switched back, or are about"
            " to be",
            remedy="run `switch --back` to its end, if it was not; groups that stand on the source are there for good,"
            " or until the next `cutover`",
        )
    return cutover.decide(apply(back.before(), groups))


def apply(
    ctx: Context, groups: Sequence[str] | None = None, *, environ: Mapping[str, str] | None = None
) -> CutoverResult:
    """Move ``groups`` back to the source, or all that stand on the target, and list each with its outcome.

    Raises Refused where there is no way back or no approval (NotApproved), or where the plan is not the migration's,
    before anything is changed; what goes wrong with one group is in its outcome. With ``ctx.dry_run``, show the reverse
    link's lag, the steps, and what would refuse them.
    """
    plan_changes.require(ctx)
    switched.require_none_under_way(ctx)
    back = ctx.reverse()
    gate = RollbackGate(back)
    names = selected(back, groups)
    if ctx.dry_run:
        _show(ctx, gate)
    else:
        cutover.ask(gate, Mover(back, environ=environ), names)
    if not back.scope.is_whole and (others := set(selected(back.within(WHOLE))) - set(names)):
        ctx.log(f"not of wave {back.scope.key}, and left on the target: {listed(sorted(others))}")
    # What is denied to groups is of the whole plan.
    fence.let_groups_in(ctx.within(WHOLE))
    return cutover.apply(back, names, environ=environ, gate=gate)


def _show(ctx: Context, gate: RollbackGate) -> None:
    try:
        ctx.log(f"rollback gate: {gate.ask()}")
    except NotApproved as shut:
        ctx.log(f"a real run would be refused: {shut.message}")
