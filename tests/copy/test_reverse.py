"""The way back, on real brokers: what is written on the target behind the seal arrives on the source, once and in
order, and the forward link's state stays as it was."""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer

from kafka_migration.domain import ledger
from kafka_migration.domain import seal as kept_seal
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.link import reverse, seal, stragglers
from kafka_migration.link.lag import LagMeter
from kafka_migration.link.losses import all_losses
from kafka_migration.migration.context import Context
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import TopicStore
from kafka_migration.steps import controls, mirror
from kafka_migration.wire import fetch
from tests.copy.bench import ThreadRunner, records
from tests.copy.test_changes import Made, made
from tests.kafka_tools import delete_records, log_ends, produce, read_all, set_topic_config
from tests.waiting import wait_until


@pytest.fixture
def topic() -> str:
    return f"back-{uuid.uuid4().hex[:8]}.orders"


@contextmanager
def sealed(source: str, target: str, topic: str, **plan: object) -> Iterator[tuple[Made, Context]]:
    """A migration whose topic of two partitions was copied and sealed, and how it opens its reverse link."""
    opened: list[LinkState] = []

    def open_link(direction: Direction, generation: int) -> LinkState:
        name = direction.own(found.ctx.plan.name, generation)
        opened.append(LinkState.on_target(name, {"bootstrap.servers": target}))
        return opened[-1]

    with made(source, target, {topic: 2}, **plan) as found:
        ctx = replace(found.ctx, on_open_link=open_link)
        produce(source, topic, records(200, 2, seed=1))
        mirror.apply(ctx, ThreadRunner(), until_caught_up=True)
        seal.apply(ctx)
        try:
            yield found, ctx
        finally:
            for link in opened:
                link.close()


def forward_state(ctx: Context, target: str) -> dict[str, Any]:
    """All that stands in the links topic under the forward link's name, its maps, and its reports."""
    store = TopicStore(TopicLog({"bootstrap.servers": target}, ledger.LINKS_TOPIC))
    name = ctx.link.name
    items = {key: value for key, value in store.items(name).items() if key == name or key.startswith(f"{name}/")}
    store.close()
    maps = {
        tp: (found.source_end, found.target_end, list(found.runs())) for tp, found in ctx.link.offset_maps().items()
    }
    return {"links": items, "maps": maps, "progress": ctx.link.progress()}


def test_what_is_written_behind_the_seal_goes_back_once_and_the_forward_links_state_stays(
    source_cluster, target_cluster, topic
):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with sealed(source, target, topic) as (found, ctx):
        forward, kept = forward_state(ctx, target), ctx.journal.read(kept_seal.KIND, kept_seal.NAME)
        back = reverse.arm(ctx)
        assert (back.origin, back.destination, back.home) == (ctx.target, ctx.source, ctx.target)
        assert back.link.transactional_id != ctx.link.transactional_id
        assert LagMeter(back).read().total == 0, "what stands on both sides is not copied back"
        produce(target, topic, records(100, 2, seed=2))
        assert LagMeter(back).read().total == 100
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).records == 100
        produce(target, topic, records(50, 2, seed=3))
        again = reverse.arm(ctx)
        assert mirror.apply(again, ThreadRunner(), until_caught_up=True).records == 50
        there, here, maps = read_all(target, {topic: 2}), read_all(source, {topic: 2}), again.link.offset_maps()
        for tp, rows in here.items():
            assert [row.without_offset() for row in there[tp]] == [row.without_offset() for row in rows], tp
            behind = zip(there[tp][100:], rows[100:], strict=True)
            assert all(maps[tp].to_target(new.offset) == copy.offset for new, copy in behind), tp
        assert LagMeter(again).read().total == 0
        seal.apply(again)
        with pytest.raises(Refused, match=f"link {again.link.name} was sealed"):
            mirror.apply(again, ThreadRunner())
        assert forward_state(ctx, target) == forward
        assert ctx.journal.read(kept_seal.KIND, kept_seal.NAME) == kept
        assert found.bench.link is ctx.link


def test_record_of_a_straggler_on_the_source_halts_its_partition_of_the_reverse_link(
    source_cluster, target_cluster, topic
):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with sealed(source, target, topic) as (_, ctx):
        produce(source, topic, records(1, 1, seed=4))
        back = reverse.arm(ctx)
        produce(target, topic, records(100, 2, seed=2))
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).halted == (TopicPartition(topic, 0),)
        assert {tp: halt.reason for tp, halt in back.link.halts().items()} == {
            TopicPartition(topic, 0): Halt.FOREIGN_WRITER
        }
        assert not ctx.link.halts()


def test_records_of_a_straggler_are_named_until_they_are_given_up_and_the_reverse_links_own_are_not(
    source_cluster, target_cluster, topic
):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    first, second = (TopicPartition(topic, n) for n in range(2))
    with sealed(source, target, topic) as (_, ctx):
        assert stragglers.look(ctx) == ()
        # Behind the seal, before there is a reverse link.
        produce(source, topic, records(3, 1, seed=4))
        (stray,) = stragglers.look(ctx)
        assert (stray.tp, stray.records) == (first, 3)
        assert [one.tp for one in stragglers.give_up(ctx, stragglers.look(ctx), by="ada")] == [first]
        assert stragglers.look(ctx) == ()
        back = reverse.arm(ctx)
        produce(target, topic, records(100, 2, seed=2))
        # The first partition halts before the straggler's records; its fences and what the second gets are its own.
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).halted == (first,)
        mirror.apply(back, ThreadRunner(), until_caught_up=True)
        assert stragglers.look(ctx) == ()
        # Its own records, though nothing is reported of them yet.
        ends = {tp: at.target for tp, at in back.link.positions().items()}
        found = fetch.read_headers(ctx.source.connection.kafka_python(), "source", {second: ends[second] - 40}, ends)
        own = {identity.producer_id for identity in back.link.fences().values()}
        assert {header.producer_id for header in found[second] if not header.is_control} <= own
        produce(source, topic, records(5, 2, seed=5))
        assert sorted((one.tp, one.records) for one in stragglers.look(ctx)) == [(first, 3), (second, 2)]


def test_reverse_link_begins_behind_a_seal_alone(source_cluster, target_cluster, topic):
    with made(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as found:
        with pytest.raises(Refused, match="is not sealed"):
            reverse.arm(found.ctx)
        link = LinkState.on_target(f"{topic}:reverse", {"bootstrap.servers": target_cluster.bootstrap_servers})
        unarmed = replace(found.ctx, link=link, direction=Direction.REVERSE)
        with pytest.raises(Refused, match="has not begun"):
            mirror.apply(unarmed, ThreadRunner())
        link.close()


def test_partition_that_halted_on_the_way_back_goes_on_behind_what_a_person_gives_up(
    source_cluster, target_cluster, topic
):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    tp, other = (TopicPartition(topic, n) for n in range(2))
    with sealed(source, target, topic) as (_, ctx):
        back = reverse.arm(ctx)
        produce(target, topic, records(100, 2, seed=2))
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).records == 100
        produce(target, topic, records(100, 2, seed=3))
        stands = back.link.positions()[tp].source
        delete_records(target, {tp: stands + 20})
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).halted == (tp,)
        assert back.link.halts()[tp].reason == Halt.DATA_LOSS
        (done,) = controls.resume_halted(back, accept_loss=[topic], by="ada")
        assert (done.stands, done.at, done.given_up) == (stands, stands + 20, 20)
        again = reverse.arm(ctx)
        assert mirror.apply(again, ThreadRunner(), until_caught_up=True).records == 30
        assert (again.link.halts(), LagMeter(again).read().total) == ({}, 0)
        there, here, maps = read_all(target, {topic: 2}), read_all(source, {topic: 2}), again.link.offset_maps()
        left = [row for row in there[tp] if row.offset >= stands + 20]
        copies = here[tp][-30:]
        assert [row.without_offset() for row in copies] == [row.without_offset() for row in left]
        # Who would read on within the gap reads on behind it.
        assert {maps[tp].to_target(at) for at in range(stands, stands + 20)} == {copies[0].offset}
        assert [row.without_offset() for row in here[other]] == [row.without_offset() for row in there[other]]
        (loss,) = all_losses(ctx)
        assert (loss["side"], loss["partition"], loss["start"], loss["end"]) == ("target", 0, stands, stands + 20)


def test_transaction_that_a_fence_cut_short_may_abort_behind_the_cut(source_cluster, target_cluster, topic):
    """Its partition was added, and what it wrote there refused: a marker stands behind the cut, and no record."""
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    tp = TopicPartition(topic, 0)
    with sealed(source, target, topic) as (_, ctx):
        set_topic_config(source, topic, {"max.message.bytes": "1000"})
        before = log_ends(source, {topic: 2})
        producer = Producer({"bootstrap.servers": source, "transactional.id": topic, "message.max.bytes": 1_000_000})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"x" * 5_000, partition=0)
        producer.flush(30)
        producer.abort_transaction(30)
        wait_until(lambda: log_ends(source, {topic: 2}) == before + 1, "the marker is there, alone")
        set_topic_config(source, topic, {"max.message.bytes": "1048588"})
        back = reverse.arm(ctx)
        produce(target, topic, records(100, 2, seed=2))
        assert mirror.apply(back, ThreadRunner(), until_caught_up=True).halted == ()
        assert stragglers.look(ctx) == ()
        there, here, maps = read_all(target, {topic: 2}), read_all(source, {topic: 2}), back.link.offset_maps()
        for new, copy in zip(there[tp][100:], here[tp][100:], strict=True):
            assert new.without_offset() == copy.without_offset()
            assert maps[tp].to_target(new.offset) == copy.offset
