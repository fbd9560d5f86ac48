"""Whether a migration is under way, by what stands on the target."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kafka_migration.domain.types import Desired
from kafka_migration.topics.declared import mirrored

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def nothing_to_copy(ctx: Context) -> bool:
    """Whether the link is sealed, and the plan has no topic that was never mirrored: a mirror has nothing to do."""
    return ctx.link.seal() is not None and mirrored(ctx).keys() <= ctx.link.topics().keys()


def was_taken_over(earlier: Collection[str], now: Mapping[str, bool]) -> bool:
    """Whether, of the link's attempts (True while they run), one is another mirror's than the one that was started when
    the attempts were ``earlier``, and runs: to start that one again would take the mirror from it."""
    new = {name: is_running for name, is_running in now.items() if name not in earlier}
    return len(new) > 1 and any(new.values())


def in_flight(ctx: Context) -> bool:
    """Whether topics were created for this migration and its mirror was not drained yet."""
    return bool(ctx.journal.all("topic")) and not was_drained(ctx)


def was_drained(ctx: Context) -> bool:
    """Whether the stop gate has ended the mirror: producers have left the source, and everything is copied."""
    run = ctx.link.run() or {}
    ended = run.get("state") == "ended" and run.get("reason") == "drained"
    return ctx.link.seal() is not None or (ended and ctx.link.wished().desired is Desired.DRAIN)
