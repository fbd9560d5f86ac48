"""Whether clients use the target already, so that what was made there for them has to stay."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.direction import SOURCE
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.groups.record import GroupRecord
from kafka_migration.link import lifecycle, switched

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Clients may use such topics on the target, also where nothing here has moved them.
_IN_USE = (TopicState.SEALED, TopicState.SERVED, TopicState.COMPLETED)


def require_unused(ctx: Context, what: str) -> None:
    """Raise Refused while clients may need ``what`` this migration has made on the target, such as "these ACLs"."""
    moved = sorted(
        group for group, record in GroupRecord.all(ctx.journal).items() if record.is_moved or record.leg.is_unfinished
    )
    if moved:
        raise Refused(
            f"groups that were moved, or are being moved, may need {what} on the target: {listed(moved)}",
            remedy="move them back first (`undo --group GROUP`, or `rollback`)",
        )
    last = switched.last(ctx)
    if switched.away_from(ctx, SOURCE) is not None or (last is not None and last.is_unfinished):
        raise Refused(
            f"producers may need {what} on the target: {last}", remedy="switch them back first (`switch --back`)"
        )
    in_use = [topic for topic, state in sorted(lifecycle.read(ctx).items()) if state in _IN_USE]
    if in_use:
        raise Refused(
            f"clients may use these topics on the target, whoever moved them: {listed(in_use)}",
            remedy="while nobody does, `mirror --unseal` goes back; what is not wanted is removed by an administrator",
        )
