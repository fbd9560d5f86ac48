"""Cancelling on real brokers: topics go, a mirror that is late writes nothing, and the migration can begin again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.errors import MigrationError, Refused, TakenOver
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.kafka.cluster import Cluster, Role
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.link import claim
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import cancel, mirror
from kafka_migration.topics import create
from kafka_migration.wire.batch import readdress
from tests.copy.bench import Bench, assert_same, records
from tests.copy.test_interleavings import FENCED, QUICK, SMALL_BATCHES
from tests.kafka_tools import ToSend, create_topics, log_ends, produce
from tests.waiting import wait_until
from tests.wire.made import made_batch, wired


def _cluster(side: Role, servers: str) -> Cluster:
    return Cluster(side, ClusterConnection(conn_id=side, properties={"bootstrap.servers": servers}))


@contextmanager
def migration(source: str, target: str) -> Iterator[tuple[Context, Bench]]:
    """Created and pinned: one topic that it made, and one that it adopted."""
    name = f"cancel-{uuid.uuid4().hex[:8]}"
    made, adopted = f"{name}.made", f"{name}.adopted"
    create_topics(source, {made: 2, adopted: 1}, {"retention.ms": "-1"})
    create_topics(target, {adopted: 1})
    link = LinkState.on_target(name, {"bootstrap.servers": target}, create=True)
    topics = {"include": [made, adopted], "adopt": [adopted]}
    ctx = Context(
        plan=restore_plan({"version": 1, "name": name, "source": "a", "target": "b", "topics": topics}),
        source=_cluster("source", source),
        target=_cluster("target", target),
        journal=Journal(MemoryStore(), name),
        link=link,
    )
    try:
        create.apply(ctx)
        mirror.pin(ctx)
        yield ctx, Bench(link, {made: 2, adopted: 1}, source, target)
    finally:
        for part in (link, ctx.source, ctx.target):
            part.close()


def test_topics_are_gone_the_late_mirror_writes_nothing_and_the_migration_begins_again(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "LATE_SECONDS", 0.5)
    with migration(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers) as (ctx, it):
        made, adopted = it.topics
        ends: list[MigrationError] = []

        def run() -> None:
            """A mirror that nobody can ask to end, and that reports nothing."""
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            link.wanted = lambda: (Desired.RUN, {})  # type: ignore[method-assign]
            link.record_run = lambda value: None  # type: ignore[method-assign]
            try:
                Bench(link, it.topics, it.source, it.target).mirror(settings=QUICK).run()
            except MigrationError as error:
                ends.append(error)
            finally:
                link.close()

        for topic, partitions in it.topics.items():
            produce(it.source, topic, records(100, partitions, 1), **SMALL_BATCHES)
        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: sum(at.records for at in it.link.positions().values()) == 200, "both topics are copied")
        last = it.link.fences()[max(it.link.fences())]
        position = it.link.positions()[TopicPartition(adopted, 0)]
        done = cancel.run(ctx, by="ada").value
        assert {one.topic: str(one.action) for one in done.topics} == {made: "delete", adopted: "leave"}
        assert set(ctx.target.topics(list(it.topics))) == {adopted}
        before = log_ends(it.target, {adopted: 1})
        produce(it.source, adopted, records(100, 1, 2), **SMALL_BATCHES)
        thread.join(60)
        assert [type(end) in (TakenOver, Refused) for end in ends] == [True]
        with wired(it.target, adopted) as wire:
            late = readdress(
                made_batch([b"late"]),
                producer_id=last.producer_id,
                producer_epoch=last.producer_epoch,
                sequence=position.records,
            )
            ((answer,),) = wire.append({TopicPartition(adopted, 0): late})
            assert answer.error == FENCED
        assert log_ends(it.target, {adopted: 1}) == before
        with pytest.raises(Refused, match="was cancelled by ada"):
            mirror.check(ctx)
        with pytest.raises(Refused, match="sealed"):
            it.mirror(settings=QUICK).run(until_caught_up=True)
        # Anew, without the topic that others have.
        again = Context(
            plan=restore_plan(ctx.plan.snapshot() | {"topics": {"include": [made]}}),
            source=ctx.source,
            target=ctx.target,
            journal=ctx.journal,
            link=ctx.link,
        )
        cancel.begin_again(again)
        create.apply(again)
        mirror.pin(again)
        it.topics = {made: 2}
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records, assert_same(it)) == ((), 100, 100)


def test_topic_into_which_somebody_else_wrote_keeps_every_topic(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    with migration(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers) as (ctx, it):
        made, _ = it.topics
        produce(it.source, made, records(100, 2, 1), **SMALL_BATCHES)
        it.mirror(settings=QUICK).run(until_caught_up=True)
        # Not idempotent: no broker remembers who wrote it.
        produce(it.target, made, [ToSend(b"foreign", partition=1)])
        with pytest.raises(Refused, match=rf"no topic was deleted, .* {made}-1: a batch of producer -1"):
            cancel.run(ctx, by="ada")
        assert set(ctx.target.topics(list(it.topics))) == set(it.topics)
        cancel.run(ctx, by="ada", keep_topics=True)
        assert set(ctx.target.topics(list(it.topics))) == set(it.topics)
        assert ctx.journal.holders(it.topics) == {}
