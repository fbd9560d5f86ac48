"""Journals as real migrations leave them, written through the code that writes them."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from pathlib import Path
from typing import Any

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import Evidence, GateName
from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.explain.result import Altered, Drilled, Example, Fault, Part
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality, PartitionResult, SegmentResult, ValidationResult
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.groups.record import GroupRecord, Step, Translation
from kafka_migration.kafka.types import TopicDescription
from kafka_migration.migration.context import Context
from kafka_migration.migration.history import phase, remember_beginning
from kafka_migration.state.link import LinkTopic
from kafka_migration.topics import create
from kafka_migration.topics.declared import topic_ids
from kafka_migration.validation.validate import Validation
from tests.steps.gates import Migration

ORDERS = (TopicPartition("shop.orders", 0), TopicPartition("shop.orders", 1))
PAYMENTS = TopicPartition("shop.payments", 0)


def approved(ctx: Context) -> Evidence:
    """The plan gate, by ada, who saw what is returned."""
    seen = approvals.evidence(ctx, GateName.PLAN)
    approvals.record(ctx, GateName.PLAN, seen.digest, "ada", seen_at=seen.taken_at)
    return seen


def created(shop: Migration) -> None:
    """Approved by ada, and created in half a minute."""
    ctx = shop.ctx()
    seen = approved(ctx)
    with phase(ctx, "create_targets") as run:
        remember_beginning(ctx, seen.inventory)
        result = create.apply(ctx)
        shop.clock.sleep(30)
        run.ends(0, topics=len(result.steps))


def pinned(ctx: Context) -> None:
    """Every topic of the target is one of the link."""
    here, there = ctx.source.topics(), ctx.target.topics()
    topics = [LinkTopic(name=name, source_id=_id(here[name]), target_id=_id(there[name])) for name in sorted(there)]
    ctx.link.pin(source_cluster="s", target_cluster="t", topics=topics, at=ctx.stamp())


def mirroring(shop: Migration) -> None:
    """Fenced once, and telling."""
    ctx = shop.ctx()
    pinned(ctx)
    ctx.link.record_fence(0, Identity(7, 0), at=ctx.stamp())
    ctx.link.record_run({"state": "running", "at": ctx.stamp(), "epoch": 1, "partitions": 3})


def _id(topic: TopicDescription) -> uuid.UUID:
    return uuid.uuid5(uuid.NAMESPACE_OID, topic.topic_id)


def validated(shop: Migration, verdict: Equality = Equality.EQUAL) -> None:
    """Every partition read and judged as ``verdict``."""
    equal(shop.ctx(), (*ORDERS, PAYMENTS), verdict)


def equal(ctx: Context, tps: Collection[TopicPartition], verdict: Equality = Equality.EQUAL) -> None:
    """As a validation of ``tps`` records that it has judged all of them as ``verdict``."""
    partitions = tuple(_judged(tp, verdict) for tp in tps)
    result = ValidationResult(
        id="v1",
        migration=ctx.plan.name,
        at=ctx.stamp(),
        level=Level.RECORD,
        segment_records=1000,
        partitions=partitions,
        seconds=4.0,
    )
    with phase(ctx, "validate") as run:
        ctx.journal.record("validation", "latest", _recorded(result, topic_ids(ctx, {tp.topic for tp in tps})))
        run.ends(result.exit_code, str(result.verdict))


def _recorded(result: ValidationResult, ids: dict[str, list[str | None]]) -> dict[str, Any]:
    suite = Expectations(success=True, failed=())
    validation = Validation(result=result, expectations=suite, folder=Path("reports"), topic_ids=ids)
    return {**validation.as_dict(with_segments=False), "earlier": [], "left_out": 0}


def _judged(tp: TopicPartition, verdict: Equality) -> PartitionResult:
    source = Digest(rows=100, total=0xABC, ordered=0xDEF, bytes=1000)
    target = source if verdict is Equality.EQUAL else Digest(rows=99, total=0xABD, ordered=0xDEE, bytes=990)
    segment = SegmentResult(segment=0, start=0, end=100, expected=100, source=source, target=target, verdict=verdict)
    return PartitionResult(
        topic=tp.topic,
        partition=tp.partition,
        source_start=0,
        source_end=100,
        target_start=1,
        target_end=101,
        expected=100,
        segments=(segment,),
        verdict=verdict,
        detail=segment.detail,
        is_read=True,
        drilled=None if verdict is not Equality.DIFFERENT else drilled(tp),
    )


def drilled(tp: TopicPartition) -> Drilled:
    """A lost record, and one whose value is another."""
    altered = Altered(part=Part.VALUE, at=3, source="41", target="61", source_bytes=4, target_bytes=4)
    place: dict[str, Any] = {"topic": tp.topic, "partition": tp.partition, "key": "6b3c"}
    return Drilled(
        topic=tp.topic,
        partition=tp.partition,
        counts={Fault.LOSS: 1, Fault.MUTATION: 1},
        examples=(
            Example(fault=Fault.LOSS, source_offset=40, target_offset=None, expected_target=41, **place),
            Example(fault=Fault.MUTATION, source_offset=70, target_offset=70, altered=(altered,), **place),
        ),
        notes=("no time was left for the rest",),
    )


def moved(shop: Migration, group: str = "shop.app", *, upto: Step = Step.ALIVE) -> None:
    """A group's steps, a second each."""
    record = GroupRecord.own(shop.ctx().journal, group, at=shop.ctx().stamp())
    positions = [
        Translation(tp=tp, source=40 + 10 * tp.partition, target=41 + 10 * tp.partition, policy="exact")
        for tp in ORDERS
    ]
    evidence: dict[Step, dict[str, Any]] = {
        Step.STOPPING: {"active_at": shop.clock.now().isoformat(), "members": 2},
        Step.TRANSLATED: {
            "positions": [it.as_dict() for it in positions],
            "target_before": [],
            "flags": ["partial: x"],
        },
        Step.READ_BACK: {
            "offsets": [{"topic": it.tp.topic, "partition": it.tp.partition, "offset": it.target} for it in positions]
        },
        Step.ALIVE: {"sign": "committed past its translated offset", "pause_seconds": 6.5},
    }
    for step in list(Step)[: list(Step).index(upto) + 1]:
        record.mark(step, shop.clock.now(), **evidence.get(step, {}))
        shop.clock.sleep(1)


def in_flight(shop: Migration) -> None:
    """Mirroring and validated; one group was moved, another one is stopped."""
    created(shop)
    mirroring(shop)
    validated(shop)
    moved(shop)
    moved(shop, "shop.slow", upto=Step.STOPPED)


def rolled_back(shop: Migration, group: str = "shop.app") -> None:
    """A moved group that was moved back from target offset 90 of the first partition to source offset 95."""
    record = GroupRecord.own(shop.ctx().journal, group, at=shop.ctx().stamp())
    record.take_leg(Direction.REVERSE, 1)
    (tp, *_) = ORDERS
    move = Translation.of(Direction.REVERSE, tp, origin=90, destination=95, policy="exact")
    record.mark(Step.STOPPING, shop.clock.now())
    record.mark(Step.TRANSLATED, shop.clock.now(), positions=[move.as_dict()], flags=[])
    offsets = [{"topic": tp.topic, "partition": tp.partition, "offset": 95}]
    record.mark(Step.READ_BACK, shop.clock.now(), offsets=offsets)


def read_alike(range_: PartitionRange) -> SegmentOutcome:
    """What was copied in ``range_``, as if it had been read, and both sides were the same."""
    both = Digest(rows=range_.records)
    return SegmentOutcome.of(0, range_, "batch", source=both, target=both)
