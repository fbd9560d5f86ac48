"""Lift a fence that stands before the point of no return, once nobody works on the switch any more.

A switch lifts its fence itself. What is left here is the fence of one whose process was killed, and never tried again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_migration.fence import record
from kafka_migration.link import switched
from kafka_migration.link.switched import SwitchState
from kafka_migration.steps import fence, switch
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def run(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Lift that on the origin of ``ctx``'s link, if one stands. Raises what lifting it raises: producers may still be
    denied then."""
    ban = switch.ban_of(ctx)
    last, standing = switched.read(ctx), record.read(ctx, ban)
    if last is not None and last.is_served:
        return Decision(message=f"producers were switched: the fence on the {ctx.direction.origin} stays")
    if last is not None and last.state is SwitchState.SWITCHING:
        return switch.give_up(ctx, environ=environ)
    if standing is None or not standing.stands:
        return Decision(message="no fence stands")
    return fence.lift(ctx, ban, environ=environ)
