"""Which target topics go when a migration is cancelled: those that it created, and no other.

What it created is known by topic id, from the journal. A topic that was created just before a process died has an
intent alone, and is ours if it is empty and as declared. All else stays, and is named.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.domain.waiting import tries
from kafka_migration.topics.declared import ADOPTS, AGAIN, INTENT, KIND, Notes, existing_step
from kafka_migration.topics.specs import Declared

if TYPE_CHECKING:
    from kafka_migration.kafka.types import TopicDescription
    from kafka_migration.migration.context import Context

_GONE_WITHIN_SECONDS = 30.0


class Action(enum.StrEnum):
    """What is done with one target topic. ``GONE``: it is not there any more."""

    DELETE = "delete"
    LEAVE = "leave"
    GONE = "gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outgoing:
    """One target topic, what is done with it and, if it is left, why. ``topic_id`` and ``partitions`` are those of the
    topic that is there now."""

    topic: str
    action: Action
    why: str = ""
    topic_id: str = ""
    partitions: int = 0
    #: What the target calls it.
    here: str = ""

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the topic that is there now."""
        return tuple(TopicPartition(self.topic, partition) for partition in range(self.partitions))

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        if self.action is Action.DELETE:
            return f"delete {self.here or self.topic} on the target ({self.partitions} partitions)"
        return f"leave {self.topic}: {self.why or 'it is not on the target any more'}"

    def as_dict(self) -> dict[str, str]:
        """JSON types only."""
        return {"topic": self.topic, "action": str(self.action), "why": self.why}


def check(ctx: Context, *, keep: bool = False) -> tuple[Outgoing, ...]:
    """Every topic that this migration created or adopted, or was about to. ``keep``: none is deleted."""
    names = sorted({*ctx.journal.all(KIND), *ctx.journal.all(INTENT), *ctx.journal.all(AGAIN)})
    there, holders = ctx.target.topics(names), ctx.journal.holders(names)
    found = []
    for name in names:
        if name not in there:
            found.append(Outgoing(topic=name, action=Action.GONE))
            continue
        holder = holders.get(name, ctx.journal.migration)
        why = _not_ours(ctx, there[name])
        if holder != ctx.journal.migration:
            why = f"migration {holder} holds it by now"
        elif keep and not why:
            why = "topics are kept"
        found.append(
            Outgoing(
                topic=name,
                action=Action.LEAVE if why else Action.DELETE,
                why=why,
                topic_id=there[name].topic_id,
                partitions=there[name].partitions,
                here=ctx.target.topic_here(name),
            )
        )
    return tuple(found)


def _not_ours(ctx: Context, topic: TopicDescription) -> str:
    """Why the topic is not one that this migration created; "" if it is."""
    record, again = ctx.journal.read(KIND, topic.name), ctx.journal.read(AGAIN, topic.name)
    intent = ctx.journal.read(INTENT, topic.name)
    if record is not None and record["topic_id"] == topic.topic_id:
        return "" if record["created"] else "this migration adopted it, and did not create it"
    if again is not None and again["old_id"] == topic.topic_id:
        return ""
    if intent is not None and ADOPTS in intent:
        return "this migration was about to adopt it, and did not create it"
    if intent is not None and record is None:
        return existing_step(ctx, Declared.from_dict(topic.name, intent), topic, (), Notes.of(ctx)).problem
    return "somebody recreated it since: it is not the topic that this migration created"


def delete(ctx: Context, outgoing: Outgoing) -> None:
    """Delete that very topic; another one under its name stays."""
    existing = ctx.target.topics([outgoing.topic]).get(outgoing.topic)
    if existing is not None and existing.topic_id == outgoing.topic_id:
        ctx.target.delete_topics([outgoing.topic])


def await_gone(ctx: Context, deleted: Iterable[Outgoing]) -> None:
    """Until the target shows none of ``deleted`` any more. Raises CouldNotFindOut if that takes too long."""
    ids = {one.topic: one.topic_id for one in deleted}
    left: list[str] = []
    for _ in tries(ctx.clock, seconds=_GONE_WITHIN_SECONDS, pause=0.1):
        there = ctx.target.topics(sorted(ids)) if ids else {}
        left = [name for name, topic in there.items() if topic.topic_id == ids[name]]
        if not left:
            return
    raise CouldNotFindOut(
        f"target: topics were deleted, and are still there after {_GONE_WITHIN_SECONDS:g} s: {listed(left)}",
        remedy="check the brokers' logs, then run this again, which goes on from here",
    )
