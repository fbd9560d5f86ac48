"""Copy a halted topic again: its target topic is deleted, created as it was, and pinned by its new id.

The offset map, positions and halts belong to the pinned ids, so they begin anew with the new topic, and what an earlier
run still writes is void. A mirror that runs is ended by a claim on the link, and what it sent has landed, before its
topic goes: brokers that take appends by name would put it into the new one. Only while no consumer has moved: an offset
on the target means nothing in another topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import TopicPartition, TopicSpec
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.kafka.errors import TopicExists
from kafka_migration.link import readers, seal, start
from kafka_migration.link.claim import claimed
from kafka_migration.state.link import LinkTopic
from kafka_migration.topics import create, delete, locks
from kafka_migration.topics.declared import AGAIN, HELD, INTENT, KEPT_OPEN, KIND, Action, TopicStep, mirrored
from kafka_migration.topics.delete import Outgoing
from kafka_migration.topics.specs import Declared
from kafka_migration.validation.record import KIND as VERDICT
from kafka_migration.validation.record import LATEST, kept

if TYPE_CHECKING:
    from kafka_migration.kafka.types import TopicDescription
    from kafka_migration.migration.context import Context


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """One topic to copy again: ``old_id`` is the target topic's that goes, ``declared`` the one that comes."""

    topic: str
    old_id: str
    declared: Declared
    halts: tuple[str, ...] = ()
    #: Where translated positions in it were written, if they were.
    positions: str = ""
    #: What the target calls it.
    here: str = ""

    def __str__(self) -> str:
        """One line for people: the same in a dry run and in earnest."""
        why = f" (halted: {', '.join(self.halts)})" if self.halts else " (begun before)"
        spec = self.declared.spec
        it = self.here if self.here not in ("", self.topic) else "it"
        void = f"; positions in it are void ({self.positions}): translate them again then" if self.positions else ""
        return (
            f"copy {self.topic} again{why}: delete {it} on the target, create it with {spec.partitions} partitions and"
            f" its configs, and mirror it from where it began{void}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, and for the journal."""
        return {"topic": self.topic, "old_id": self.old_id} | self.declared.as_dict()


def check(ctx: Context, topics: Sequence[str], *, unsealed: bool = False) -> tuple[Again, ...]:
    """What would be done. Changes nothing. ``unsealed``: a seal does not matter, since it is removed afterwards.

    Raises BadInput for a topic that is not of this migration, Refused for one that is not halted, or that a moved group
    reads (they are named), or that this migration does not hold any more; NotAuthorized for one that it may not create.
    """
    ours = {**ctx.journal.all(AGAIN), **mirrored(ctx)}
    for topic in topics:
        if topic not in ours:
            raise BadInput(
                f"{topic} is not a topic of migration {ctx.plan.name}",
                field="--again",
                value=topic,
                remedy="`status` names the halted partitions of this migration",
            )
    if not ctx.is_first:
        raise Refused(
            "this link goes on behind an earlier cut: a topic that was copied again from the source's beginning would"
            " hold what lies before that cut twice over",
            remedy="`resume --at`, where `status` names it, goes on where a partition halted; else exclude the topic"
            " from the plan, and migrate it by a plan of its own",
        )
    # Before the mirror's own check: of a run that died no topic may be left that the mirror knows of.
    locks.require_held(ctx, list(topics))
    if not unsealed:
        seal.check(ctx)
    _refuse_moved(ctx, topics)
    return tuple(_one(ctx, topic) for topic in dict.fromkeys(topics))


def apply(ctx: Context, topics: Sequence[str], *, unsealed: bool = False) -> tuple[Again, ...]:
    """Do it; the mirror then copies these topics from where it began. Killed anywhere, the next call converges."""
    todo = check(ctx, topics, unsealed=unsealed)
    for again in todo:
        ctx.log(str(again))
    if not ctx.dry_run:
        with claimed(ctx) as claim:
            claim.await_landing()
            # Somebody may have moved a group meanwhile.
            todo = check(ctx, topics, unsealed=unsealed)
            for again in todo:
                _renew(ctx, again)
    return todo


def _one(ctx: Context, topic: str) -> Again:
    note, positions = ctx.journal.read(AGAIN, topic), readers.of(ctx, [topic]).get(topic, "")
    here = ctx.target.topic_here(topic)
    if note is not None:
        declared = Declared.from_dict(topic, note)
        return Again(topic=topic, old_id=note["old_id"], declared=declared, positions=positions, here=here)
    halts = tuple(f"{tp} {halt.reason}" for tp, halt in sorted(ctx.link.halts().items()) if tp.topic == topic)
    if not halts:
        raise Refused(
            f"topic {topic} is not halted, so there is nothing to copy again", remedy="run `mirror` without --again"
        )
    source = ctx.source.topics([topic]).get(topic)
    if source is None:
        raise Refused(
            f"topic {topic} does not exist on the source any more",
            remedy="exclude it from the plan, or create it on the source",
        )
    record = ctx.journal.read(KIND, topic) or {}
    if not record.get("topic_id"):
        raise Refused(
            f"the target's brokers give topics no ids (before Kafka 2.8), so topic {topic} cannot be distinguished from"
            " the one that would replace it",
            remedy=f"delete {ctx.target.topic_here(topic)} on the target, and migrate it under a plan of another name",
        )
    declared = _declared(ctx, source, record)
    # Asked while the topic is there: one that may be deleted and not created would be gone for good.
    with suppress(TopicExists):
        ctx.target.create_topics([declared.spec], dry_run=True)
    return Again(topic=topic, old_id=record["topic_id"], declared=declared, halts=halts, positions=positions, here=here)


def _declared(ctx: Context, source: TopicDescription, record: dict[str, Any]) -> Declared:
    """The target topic as it is to be created again: as it is now or, if it is gone, as it was created."""
    kept = Declared.from_dict(source.name, record)
    existing = ctx.target.topics([source.name]).get(source.name)
    # One that was restored knows what it was before: its retention is to be disabled again.
    held = {name: value for name, value in record.get(HELD, kept.spec.configs).items() if name in KEPT_OPEN}
    spec = _as_it_is(ctx, existing) if existing is not None else kept.spec
    # The source's partitions of now: one that the target lacked was a reason to halt.
    spec = TopicSpec(
        name=source.name,
        partitions=source.partitions,
        replication_factor=spec.replication_factor,
        configs=dict(sorted((spec.configs | held).items())),
    )
    return replace(kept, spec=spec, source_topic_id=source.topic_id)


def positions_on_target(ctx: Context, topics: Iterable[str]) -> set[str]:
    """Groups with positions in ``topics`` on the target: moved there, or with commits of their own.
    Raises NotAuthorized, CouldNotFindOut."""
    wanted, records = set(topics), GroupRecord.all(ctx.journal)
    undone = {group for group, record in records.items() if record.forward is record.leg and record.has(Step.UNDONE)}
    moved = {group for group, record in records.items() if group not in undone and _reads_on_target(record, wanted)}
    for group, commits in ctx.target.committed_of(ctx.target.groups()).items():
        # What a group was moved back from stays on the target, read by nobody, until its topic goes.
        void = _positions(records[group]) if group in undone else {}
        if wanted & {tp.topic for tp, commit in commits.items() if void.get(tp) != commit.offset}:
            moved.add(group)
    return moved


def _positions(record: GroupRecord) -> dict[TopicPartition, int]:
    return {move.tp: move.destination for move in record.translations}


def _reads_on_target(record: GroupRecord, topics: set[str]) -> bool:
    # From the translation on something may have been written, until it was undone.
    read = {move.tp.topic for move in record.translations} | record.subscription
    return record.has(Step.TRANSLATED) and bool(topics & read)


def _refuse_moved(ctx: Context, topics: Iterable[str]) -> None:
    topics = sorted(topics)
    moved = positions_on_target(ctx, topics)
    if moved:
        raise Refused(
            f"groups that read {', '.join(map(ctx.called_on_target, topics))} have positions on the target:"
            f" {', '.join(sorted(moved))}",
            remedy="move them back (`undo --group GROUP`), or delete the offsets of groups that never read there"
            " (kafka-consumer-groups.sh --delete-offsets); after that the topic can be copied again",
        )


def _renew(ctx: Context, again: Again) -> None:
    if ctx.journal.read(AGAIN, again.topic) is None:
        ctx.journal.record(AGAIN, again.topic, again.as_dict() | {"at": ctx.stamp()})
    old = Outgoing(topic=again.topic, action=delete.Action.DELETE, topic_id=again.old_id)
    delete.delete(ctx, old)
    delete.await_gone(ctx, [old])
    record = ctx.journal.read(KIND, again.topic)
    if record is None or record["topic_id"] == again.old_id:
        # As the create phase does it, so that its rules for interrupted runs hold: an intent, no record, the topic.
        ctx.journal.record(INTENT, again.topic, again.declared.as_dict() | {"at": ctx.stamp()})
        ctx.journal.forget(KIND, again.topic)
        create.make(ctx, TopicStep(action=Action.CREATE, declared=again.declared))
        record = ctx.journal.read(KIND, again.topic) or {}
    if ctx.journal.read(INTENT, again.topic) is not None:
        # A run died between its two last notes of the creation.
        ctx.journal.forget(INTENT, again.topic)
    if kept(ctx) is not None:
        # It was about records that are gone.
        ctx.journal.forget(VERDICT, LATEST)
    pinned = LinkTopic.of(again.topic, again.declared.source_topic_id, record["topic_id"])
    ctx.link.leave_out(start.kept(ctx, again.topic, source_id=str(pinned.source_id), key=pinned.key))
    ctx.link.pin_again([pinned], at=ctx.stamp())
    ctx.journal.forget(AGAIN, again.topic)


def _as_it_is(ctx: Context, existing: TopicDescription) -> TopicSpec:
    configs = ctx.target.topic_configs([existing.name])[existing.name]
    return TopicSpec(
        name=existing.name,
        partitions=existing.partitions,
        replication_factor=existing.replication_factor,
        configs={name: c.value for name, c in sorted(configs.items()) if c.is_explicit and c.value is not None},
    )
