"""Holding a mirror back and letting it go on: pause, resume, throttle. Its tasks obey within two seconds.

They stand in the link's state, so that they also hold for a mirror which is started, or takes over, later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.controls import Controls, Pause, Throttle, rate_text
from kafka_migration.domain.direction import Direction
from kafka_migration.inventory import plan_changes
from kafka_migration.link import reverse
from kafka_migration.migration import completion

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def pause(ctx: Context, *, by: str, reason: str = "") -> Controls:
    """Stop fetching and sending; the mirror's processes stay. A second pause keeps the first one's name and time.

    Raises Refused before there is anything to mirror.
    """
    _require(ctx)
    if ctx.link.controls().pause is None:
        ctx.log(f"pause {_name(ctx)}: it neither fetches nor sends until `resume{_option(ctx)}`")
        if not ctx.dry_run:
            ctx.link.pause(Pause(by=by, at=ctx.stamp(), reason=reason))
    return ctx.link.controls()


def resume(ctx: Context, *, by: str) -> Controls:
    """Go on. Nothing happens if nobody has paused it. Raises Refused before there is anything to mirror."""
    _require(ctx)
    if ctx.link.controls().pause is not None:
        ctx.log(f"resume {_name(ctx)}")
        if not ctx.dry_run:
            ctx.link.resume(by=by, at=ctx.stamp())
    return ctx.link.controls()


def throttle(ctx: Context, bytes_per_second: int | None, *, by: str) -> Controls:
    """Send at most so much, over all tasks; None takes every throttle back. Raises Refused before there is anything."""
    _require(ctx)
    mirror = _name(ctx)
    off = f"take the throttle off {mirror}"
    ctx.log(off if bytes_per_second is None else f"throttle {mirror} to {rate_text(bytes_per_second)}")
    if not ctx.dry_run:
        ctx.link.throttle(Throttle(bytes_per_second=bytes_per_second, by=by, at=ctx.stamp()))
    return ctx.link.controls()


def _require(ctx: Context) -> None:
    """The reverse mirror needs no lock on topics: it runs also where they were released."""
    if ctx.direction is Direction.REVERSE:
        reverse.check(ctx)
        completion.require_none(ctx)
    else:
        plan_changes.to_mirror(ctx)


def _name(ctx: Context) -> str:
    return "the mirror" if ctx.direction is Direction.FORWARD else "the reverse mirror"


def _option(ctx: Context) -> str:
    return "" if ctx.direction is Direction.FORWARD else " --reverse"
