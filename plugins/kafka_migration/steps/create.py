"""Create targets: every topic of the plan on the target, and a first look at the groups that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.fence import fence
from kafka_migration.groups import looks
from kafka_migration.inventory.facts import plan_waves
from kafka_migration.migration.history import remember_beginning, remember_run
from kafka_migration.migration.joined import pending
from kafka_migration.steps import cancel
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create
from kafka_migration.waves.pinned import pin

if TYPE_CHECKING:
    from kafka_migration.approvals.passing import Passed
    from kafka_migration.migration.context import Context


def run(ctx: Context, *, passed: Passed | None = None, run_of_plan: str = "") -> Decision:
    """Create (or adopt) what is missing; a second call changes nothing. ``passed`` is what the plan gate was opened by.
    ``run_of_plan`` names the run of a DAG that is bound to this plan from now on, "" for a command.

    Raises what :func:`kafka_migration.topics.create.apply` raises.
    """
    bound = ctx.journal.read("run", run_of_plan) if run_of_plan else None
    cancel.begin_again(ctx, run_began=bound["at"] if bound else "")
    for change in pending(ctx):
        ctx.log(f"the plan has changed: {change}")
    if run_of_plan:
        remember_run(ctx, run_of_plan)
    if passed is not None:
        approved_by = passed.approval.approver if passed.approval else ""
        remember_beginning(ctx, passed.evidence.inventory, approved_by=approved_by)
        if passed.evidence.inventory is not None:
            pin(ctx, plan_waves(ctx, passed.evidence.inventory).waves)
    created = create.apply(ctx)
    if not ctx.dry_run:
        fence.keep_off_target(ctx)
        # Members may be gone at cutover: what they subscribed to but never committed would be unknown then.
        looks.take(ctx, [name for name in ctx.source.groups() if ctx.plan.groups.matches(name)])
    return Decision(
        facts={"topics": len(created.steps), "drift": len(created.drift)},
        notes=tuple(str(drift) for drift in created.drift),
        value=created,
    )
