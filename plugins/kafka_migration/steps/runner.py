"""Running a step, for every face: ask its gate, record in the journal that it runs, do it, record how it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.errors import Retryable
from kafka_migration.domain.waiting import Rejections
from kafka_migration.inventory import plan_changes
from kafka_migration.migration import cancellation
from kafka_migration.migration.history import phase
from kafka_migration.steps import outlook
from kafka_migration.steps.step import Decision, Step
from kafka_migration.steps.table import step_named

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def run(ctx: Context, name: str, *, part: str = "", **options: Any) -> Decision:
    """Run step ``name`` with ``options`` of its own. ``part`` distinguishes waves, and tasks that run one step side by
    side.

    The gate of the step is asked first, and before that nothing is written, not even internal topics. In a dry run the
    gate's answer is progress, and nothing is recorded. Raises Refused for a plan that the migration may not go on with
    (:mod:`kafka_migration.inventory.plan_changes`), NotApproved where the gate is shut, and what the step raises.
    """
    step = step_named(name)
    if step.writes:
        plan_changes.require(ctx, joins=step.gate == "plan")
        if step.gate != "plan":
            # What begins the migration also begins it again.
            cancellation.require_none(ctx)
    if step.gate:
        options["passed"] = outlook.ask_gate(ctx, GateName(step.gate))
    # Before internal topics are made: where there is no way back, nothing is.
    seen = step.seen(ctx)
    if not step.writes:
        return step.verbs.run(seen, **options)
    ctx.make_state()
    with phase(ctx, name + part) as account:
        decision = step.verbs.run(step.seen(ctx), **options)
        account.ends(decision.exit_code, _summary(decision), **decision.evidence)
    return decision


def wait(ctx: Context, name: str, *, part: str = "") -> Decision:
    """Wait until step ``name`` is decided, for as long as the plan gives it; a cluster that is away is waited for.
    ``part`` as :func:`run` has it."""
    step = step_named(name)
    if step.writes:
        plan_changes.require(ctx)
        cancellation.require_none(ctx)
        decision = _decided(ctx, step)
        # Proved once more, and acted on.
        return decision if decision.exit_code else run(ctx, name, part=part)
    with phase(ctx, name + part) as account:
        decision = _decided(ctx, step)
        account.ends(decision.exit_code, _summary(decision), **decision.evidence)
    return decision


def _decided(ctx: Context, step: Step) -> Decision:
    watch, began, limit = step.verbs.Wait(step.seen(ctx)), ctx.clock.monotonic(), step.seconds(ctx.plan)
    rejections = Rejections(ctx.clock)
    while True:
        try:
            if decision := watch.look():
                return decision
            rejections.last(None)
        except Retryable as error:
            if rejections.last(error):
                raise
            # A broker that restarts is no reason to give up, as long as there is time.
            ctx.log(str(error))
        waited = ctx.clock.monotonic() - began
        if limit is not None and waited > limit:
            return watch.too_late(f"gave up after {waited:.0f} s")
        ctx.clock.sleep(watch.interval_seconds)


def _summary(decision: Decision) -> str:
    return decision.message.partition("\n")[0]
