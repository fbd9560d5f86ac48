"""Where the copy of a topic begins, if the plan does not want all of it (``mirror.start``).

What lies before is recorded in the link as not copied, as what a person gives up later is: the copy begins after it,
offsets in it translate to the first record after it, the validation leaves it out, and whoever approves the cutover is
shown it. The place is found once, when a topic is pinned; a plan that is changed later changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.skips import START, Skip
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.link import LinkTopic


def leave_out(ctx: Context, topics: Iterable[LinkTopic]) -> None:
    """Note what the plan leaves out of those of ``topics`` that are not pinned yet.

    To be called before they are: killed in between, nothing was copied, and the next call finds the places anew.
    Raises Refused where the plan begins at a time, and records have none.
    """
    begin, known = ctx.plan.mirror.start, ctx.link.topics()
    new = {topic.name: topic for topic in topics if topic.name not in known}
    if begin == "earliest" or not new:
        return
    tps = [tp for topic in ctx.origin.topics(sorted(new)).values() for tp in topic.topic_partitions]
    first = _first(ctx, begin, tps)
    found = {
        tp: Skip(
            start=ends.start,
            end=first[tp],
            halt=START,
            detail=f"the plan begins at {begin} (mirror.start)",
            by="the plan",
            at=ctx.stamp(),
            topic_key=new[tp.topic].key,
        )
        for tp, ends in ctx.origin.ends(tps, committed=True).items()
        if first[tp] > ends.start
    }
    for tp, skip in sorted(found.items()):
        ctx.log(f"{tp}: begins at source offset {skip.end}; {skip.offsets:,} offsets before it are not copied")
    ctx.link.leave_out(found)


def kept(ctx: Context, topic: str, *, source_id: str, key: str) -> dict[TopicPartition, Skip]:
    """What was left out of ``topic`` at its start, for the next copy into the target topic of that ``key``.

    Nothing if the source's topic is another one now: its offsets mean other records.
    """
    pinned = ctx.link.topics().get(topic)
    if pinned is None or str(pinned.source_id) != source_id:
        return {}
    return {
        tp: replace(skip, topic_key=key)
        for tp, skips in ctx.link.skips().items()
        if tp.topic == topic
        for skip in skips
        if skip.halt == START
    }


def _first(ctx: Context, begin: str, tps: list[TopicPartition]) -> Mapping[TopicPartition, int]:
    if begin == "latest":
        return {tp: log.end for tp, log in ctx.origin.ends(tps, committed=True).items()}
    found = ctx.origin.first_since(tps, round(datetime.fromisoformat(begin).timestamp() * 1000))
    untimed = sorted({tp.topic for tp in tps if tp not in found})
    if untimed:
        raise Refused(
            f"the plan begins at {begin} (mirror.start), and records of {', '.join(untimed[:5])} have no timestamps"
            " (message format v0)",
            remedy="set mirror.start to earliest or latest, or move these topics by a plan of their own",
        )
    return found
