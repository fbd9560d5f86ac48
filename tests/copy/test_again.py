"""A halted topic copied afresh on real brokers: deleted, created, pinned, and mirrored from where it began."""

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_migration.domain.errors import HaltedPartition, MigrationError, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.link.claim import Claim
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import recopy
from kafka_migration.topics import create
from tests.copy.bench import Bench, assert_same, records
from tests.copy.test_interleavings import QUICK, SMALL_BATCHES
from tests.kafka_tools import ToSend, create_topics, produce, topic_ids
from tests.waiting import wait_until


@pytest.fixture
def topic() -> str:
    return f"again-{uuid.uuid4().hex[:8]}"


def _cluster(side: str, servers: str) -> Cluster:
    return Cluster(side, ClusterConnection(conn_id=side, properties={"bootstrap.servers": servers}))  # type: ignore[arg-type]


@contextmanager
def half_halted(source: str, target: str, topic: str) -> Iterator[tuple[Context, Bench]]:
    """A migration of one topic of two partitions, created and copied; then somebody writes to the second."""
    create_topics(source, {topic: 2}, {"retention.ms": "-1", "max.message.bytes": "700000"})
    name = f"link-{uuid.uuid4().hex[:8]}"
    link = LinkState.on_target(name, {"bootstrap.servers": target}, create=True)
    plan = restore_plan({"version": 1, "name": name, "source": "a", "target": "b", "topics": {"include": [topic]}})
    ctx = Context(
        plan=plan,
        source=_cluster("source", source),
        target=_cluster("target", target),
        journal=Journal(MemoryStore(), name),
        link=link,
    )
    try:
        create.apply(ctx)
        ids = (topic_ids(source, [topic])[topic], topic_ids(target, [topic])[topic])
        pinned = LinkTopic(name=topic, source_id=ids[0], target_id=ids[1])
        link.pin(source_cluster="s", target_cluster="t", topics=[pinned], at="")
        it = Bench(link, {topic: 2}, source, target)
        produce(source, topic, records(200, 2, 1), **SMALL_BATCHES)
        assert it.mirror(settings=QUICK).run(until_caught_up=True).records == 200
        produce(target, topic, [ToSend(b"foreign", partition=1)])
        produce(source, topic, records(200, 2, 2), **SMALL_BATCHES)
        yield ctx, it
    finally:
        for part in (link, ctx.source, ctx.target):
            part.close()


def test_halted_topic_is_copied_afresh_and_a_late_word_of_the_first_copy_changes_nothing(
    source_cluster, target_cluster, topic
):
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with half_halted(*servers, topic) as (ctx, it):
        link, first = ctx.link, ctx.link.topics()[topic]
        assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == (TopicPartition(topic, 1),)
        void = link.halts()[TopicPartition(topic, 1)]
        recopy.apply(ctx, [topic])
        assert ctx.target.topic_configs([topic])[topic]["max.message.bytes"].value == "700000"
        # What a mirror would still say that saw its topic vanish.
        link.halt(TopicPartition(topic, 0), "TOPIC_MISSING", "", 1, 1, "", first.key)
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records, link.halts()) == ((), 400, {})
        assert assert_same(it) == 400
        assert void.topic_key == first.key != link.topics()[topic].key


@pytest.mark.parametrize("sees_the_claim", [True, False])
def test_mirror_that_runs_meanwhile_ends_and_halts_nothing_of_the_new_copy(
    source_cluster, target_cluster, topic, monkeypatch, sees_the_claim
):
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with half_halted(*servers, topic) as (ctx, it):
        ends: list[MigrationError] = []

        def run() -> None:
            link = LinkState.on_target(it.link.name, {"bootstrap.servers": it.target})
            try:
                Bench(link, it.topics, it.source, it.target).mirror(settings=QUICK).run()
            except MigrationError as error:
                ends.append(error)
            finally:
                link.close()

        thread = threading.Thread(target=run)
        thread.start()
        wait_until(lambda: it.link.halted() == {TopicPartition(topic, 1)}, "the second partition is halted")
        wait_until(lambda: it.link.positions()[TopicPartition(topic, 0)].source == 200, "the first one is copied")
        with monkeypatch.context() as patch:
            if not sees_the_claim:  # as one that has just looked for claims, and looks at its topic next
                patch.setattr(ctx.link, "claim", lambda *_, **__: None)
                patch.setattr(ctx.link, "end_attempt", lambda *_, **__: None)
                patch.setattr(Claim, "await_landing", lambda _: None)
            recopy.apply(ctx, [topic])
        produce(it.source, topic, records(200, 2, 3), **SMALL_BATCHES)
        thread.join(60)
        assert not thread.is_alive()
        assert [type(end) for end in ends] == [TakenOver if sees_the_claim else HaltedPartition]
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records, it.link.halts()) == ((), 600, {})
        assert assert_same(it) == 600
