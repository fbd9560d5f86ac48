"""Whether a migration is under way, by what stands on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.types import Desired

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def in_flight(ctx: Context) -> bool:
    """Whether topics were created for this migration and its mirror was not drained yet."""
    return bool(ctx.journal.all("topic")) and not was_drained(ctx)


def was_drained(ctx: Context) -> bool:
    """Whether the stop gate has ended the mirror: producers have left the source, and everything is copied."""
    run = ctx.link.run() or {}
    ended = run.get("state") == "ended" and run.get("reason") == "drained"
    return ctx.link.seal() is not None or (ended and ctx.link.wished().desired is Desired.DRAIN)
