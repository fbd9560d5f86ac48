"""The migration's locks on its topics: who holds none may not write there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


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
