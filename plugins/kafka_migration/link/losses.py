"""What of a migration's topics is not copied, for people: the skips of its links, as their offset maps have them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka_migration.domain.skips import START
from kafka_migration.link import reverse

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def all_losses(ctx: Context) -> list[dict[str, Any]]:
    """Those of ``ctx``'s link, and of every link that has begun behind it."""
    return [loss for here in reverse.all_begun(ctx) for loss in losses(here)]


def losses(ctx: Context) -> list[dict[str, Any]]:
    """One entry for each stretch of offsets that a person, or the plan, gave up, as JSON types.

    They are offsets of ``side``, the cluster that the link copies from. ``start`` is where the copy really stood: it
    may have come further than was known when its halt was lifted.
    """
    found = []
    skips = ctx.link.skips()
    maps = ctx.link.offset_maps(skips)
    for tp, mine in sorted(skips.items()):
        ends = [run.source + run.length for run in maps[tp].runs()] if tp in maps else []
        for skip in mine:
            copied = max((end for end in ends if end <= skip.end), default=0)
            start = max(skip.start, copied)
            found.append(
                {
                    "topic": tp.topic,
                    "partition": tp.partition,
                    "side": str(ctx.direction.origin),
                    "start": start,
                    "end": skip.end,
                    "offsets": skip.end - start,
                    "halt": skip.halt,
                    "detail": skip.detail,
                    "by": skip.by,
                    "at": skip.at,
                }
            )
    return found


def sentence(loss: dict[str, Any]) -> str:
    """One of them in words."""
    what = f"{loss['side']} offsets {loss['start']}..{loss['end']} ({loss['offsets']:,} at most)"
    fate = f"were given up by {loss['by']} at {loss['at'][:19].replace('T', ' ')} UTC, after {loss['halt']}"
    if loss["halt"] == START:
        fate = f"are not copied: {loss['detail']}"
    return f"{loss['topic']}-{loss['partition']}: {what} {fate}"
