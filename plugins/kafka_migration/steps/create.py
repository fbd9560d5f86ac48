"""Create targets: every topic of the plan on the target, and a first look at the groups that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.groups import looks
from kafka_migration.migration.history import remember_beginning
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create

if TYPE_CHECKING:
    from kafka_migration.approvals.passing import Passed
    from kafka_migration.migration.context import Context


def run(ctx: Context, *, passed: Passed | None = None) -> Decision:
    """Create (or adopt) what is missing; a second call changes nothing. ``passed`` is what the plan gate was opened by.

    Raises what :func:`kafka_migration.topics.create.apply` raises.
    """
    if passed is not None:
        remember_beginning(ctx, passed.evidence.inventory)
    created = create.apply(ctx)
    if not ctx.dry_run:
        # Members may be gone at cutover: what they subscribed to but never committed would be unknown then.
        looks.take(ctx, [name for name in ctx.source.groups() if ctx.plan.groups.matches(name)])
    return Decision(
        facts={"topics": len(created.steps), "drift": len(created.drift)},
        notes=tuple(str(drift) for drift in created.drift),
        value=created,
    )
