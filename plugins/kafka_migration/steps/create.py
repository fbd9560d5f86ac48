"""Create targets: every topic of the plan on the target, and a first look at the groups that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.groups import looks
from kafka_migration.topics import create
from kafka_migration.topics.create import Created

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def apply(ctx: Context) -> Created:
    """Create (or adopt) what is missing; a second call changes nothing. Raises what
    :func:`kafka_migration.topics.create.apply` raises."""
    created = create.apply(ctx)
    if not ctx.dry_run:
        # Members may be gone at cutover: what they subscribed to but never committed would be unknown then.
        looks.take(ctx, [name for name in ctx.source.groups() if ctx.plan.groups.matches(name)])
    return created
