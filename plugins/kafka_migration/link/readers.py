"""Which topics of the target have readers without a group of Kafka's, whose positions were translated and written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_KIND = "positions"


def note(ctx: Context, topics: Iterable[str], *, output: str) -> None:
    """Note that positions in ``topics`` of the target are about to be written to ``output``: offsets there must not
    come to mean other records from then on."""
    pinned, wanted = ctx.link.topics(), set(topics)
    ctx.journal.record_all(
        _KIND,
        {
            name: {"output": output, "at": ctx.stamp(), "topic_id": str(pinned[name].target_id)}
            for name in sorted(wanted & pinned.keys())
        },
    )


def of(ctx: Context, topics: Iterable[str]) -> dict[str, str]:
    """Where, and when, positions in ``topics`` were written last, in words, by topic; none of a topic that was made
    again since."""
    pinned, wanted = ctx.link.topics(), set(topics)
    return {
        name: f"{value['output']}, at {value['at']}"
        for name, value in ctx.journal.all(_KIND).items()
        if name in wanted and name in pinned and value["topic_id"] == str(pinned[name].target_id)
    }
