"""The migration's locks on its topics: who holds none may not write there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.topics.declared import AGAIN, mirrored

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def begun(ctx: Context) -> list[str]:
    """The topics that may have been mirrored, whether they are held or not. Raises Refused if there are none."""
    topics = sorted(mirrored(ctx))
    if not topics and (left := sorted(ctx.journal.all(AGAIN))):
        raise Refused(
            f"copying {', '.join(left)} again was begun and has not finished",
            remedy=f"`mirror {' '.join(f'--again {topic}' for topic in left)}` finishes it, and mirrors",
        )
    if not topics:
        raise Refused(
            f"migration {ctx.plan.name} has no target topics yet",
            remedy="run `create` first; the mirror copies only into topics that this migration made or adopted",
        )
    return topics


def held(ctx: Context) -> list[str]:
    """The topics to mirror: those of the plan that this migration created or adopted.

    Raises Refused if there are none, or if it does not hold them any more.
    """
    topics = begun(ctx)
    require_held(ctx, topics)
    return topics


def require_held(ctx: Context, topics: list[str]) -> None:
    """Raise Refused if this migration does not hold ``topics`` any more: another one may write there."""
    holders = ctx.journal.holders(topics)
    lost = [
        f"{topic} ({holders.get(topic, 'released')})" for topic in topics if holders.get(topic) != ctx.journal.migration
    ]
    if lost:
        raise Refused(
            f"migration {ctx.plan.name} does not hold its topics any more: {listed(lost)}",
            remedy="run `create` to take them again, if no other migration has them by now; `stop --now` ends a"
            " mirror of it that still runs",
        )
