"""What changes beneath a mirror that runs: each change is seen within seconds, and only what it concerns halts."""

import re
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.controls import Pause
from kafka_migration.domain.errors import NotAuthorized, Refused
from kafka_migration.domain.held_open import KEEPS_RECORDS
from kafka_migration.domain.types import Desired, Halt, TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.link import seal
from kafka_migration.migration.context import Context
from kafka_migration.migration.joined import join
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import controls, mirror, recopy
from kafka_migration.topics import create, restore
from kafka_migration.wire.batch import batches
from tests.copy.bench import BRIEF, Bench, ThreadRunner, assert_same, records
from tests.copy.test_watching import running
from tests.kafka_tools import (
    ToSend,
    create_topics,
    delete_records,
    delete_topic,
    produce,
    read_all,
    set_topic_config,
)
from tests.waiting import wait_until

#: Epochs so long that nothing is found out by the beginning of the next one.
LONG = Settings(streams=2, epoch_seconds=300, follow_seconds=1, limits=Limits(**BRIEF))


@dataclass
class Made:
    """A migration whose topics were created by the create phase, and a bench over it."""

    ctx: Context
    bench: Bench
    topics: dict[str, int]
    told: list[str] = field(default_factory=list)
    links: list[LinkState] = field(default_factory=list)

    def grown(self, partitions: Mapping[str, int]) -> Bench:
        """The bench, with the topics as they are by now."""
        self.topics.update(partitions)
        return Bench(self.ctx.link, self.topics, self.bench.source, self.bench.target)

    def add_partitions(self, topic: str, count: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.bench.source})
        admin.create_partitions([NewPartitions(topic, count)])[topic].result(30)
        wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == count, "partitions")

    def growth(self) -> create.TargetGrowth:
        """With a link of its own, since the mirror is another thread."""
        link = LinkState.on_target(self.ctx.link.name, {"bootstrap.servers": self.bench.target})
        self.links.append(link)
        ctx = replace(self.ctx, link=link)
        return create.TargetGrowth(ctx, mirror.pin)


def _cluster(side: str, servers: str) -> Cluster:
    return Cluster(side, ClusterConnection(conn_id=side, properties={"bootstrap.servers": servers}))  # type: ignore[arg-type]


@contextmanager
def made(source: str, target: str, topics: dict[str, int], **plan: object) -> Iterator[Made]:
    create_topics(source, topics, {"retention.ms": "-1"})
    prefix = next(iter(topics)).partition(".")[0]
    name = f"link-{uuid.uuid4().hex[:8]}"
    link = LinkState.on_target(name, {"bootstrap.servers": target}, create=True)
    document = {"version": 1, "name": name, "source": "a", "target": "b", "topics": {"include": [rf"{prefix}\..*"]}}
    ctx = Context(
        plan=restore_plan({**document, **plan}),
        source=_cluster("source", source),
        target=_cluster("target", target),
        journal=Journal(MemoryStore(), name),
        link=link,
    )
    found = Made(ctx, Bench(link, topics, source, target), dict(topics))
    ctx.log = found.told.append
    try:
        create.apply(ctx)
        mirror.pin(ctx)
        yield found
    finally:
        for state in (*found.links, link):
            state.close()
        for cluster in (ctx.source, ctx.target):
            cluster.close()


@pytest.fixture
def prefix() -> str:
    return f"changes-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[EmbeddedKafka]:
    """A source whose brokers fetch by names, not by topic ids, and whose metadata a ZooKeeper holds."""
    with EmbeddedKafka(name="old", version="2.8") as cluster:
        yield cluster


# `make test` reads and adopts topics of old brokers in tests/kafka/test_old_releases.py.
@pytest.fixture(params=["4.3", pytest.param("2.8", marks=pytest.mark.long)])
def any_source(request: pytest.FixtureRequest) -> EmbeddedKafka:
    """A source of today, and an old one."""
    fixture = "source_cluster" if request.param == "4.3" else "old_cluster"
    return request.getfixturevalue(fixture)  # type: ignore[no-any-return]


def _copied(it: Bench, tp: TopicPartition) -> int:
    at = it.link.positions().get(tp)
    return 0 if at is None else at.source


def _until_copied(it: Bench, offsets: Mapping[TopicPartition, int]) -> None:
    wait_until(lambda: all(_copied(it, tp) == end for tp, end in offsets.items()), "copied")


def _until_halted(it: Made, *tps: TopicPartition) -> None:
    """These, and no other."""
    wait_until(
        lambda: it.ctx.link.halted() >= set(tps),
        lambda: f"{tps} halted; halts {it.ctx.link.halts()}, positions {it.ctx.link.positions()}",
    )
    assert it.ctx.link.halted() == set(tps)


# -- what is added ----------------------------------------------------------------------------------------------------


def test_partitions_that_are_added_join_the_mirror_that_runs(any_source, target_cluster, prefix):
    topic, other = f"{prefix}.grows", f"{prefix}.stays"
    servers = (any_source.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1, other: 1}) as it:
        for name in (topic, other):
            produce(it.bench.source, name, records(100, 1, 1))
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {TopicPartition(topic, 0): 100, TopicPartition(other, 0): 100})
            it.add_partitions(topic, 3)
            produce(it.bench.source, topic, records(300, 3, 2))
            grown = it.grown({topic: 3})
            _until_copied(grown, {TopicPartition(topic, 0): 200, **{TopicPartition(topic, p): 100 for p in (1, 2)}})
            assert len(live.runner.orders) == 2, "an epoch before, and one after"
        assert live.error is None
        assert it.ctx.link.halts() == {}
        assert assert_same(grown) == 500
        assert it.ctx.journal.read("topic", topic)["spec"]["partitions"] == 3  # type: ignore[index]
        assert [drift.what for drift in create.verify(it.ctx)] == []


def test_partition_that_may_not_be_added_halts_alone_and_goes_on_once_it_may(
    source_cluster, target_cluster, prefix, monkeypatch
):
    topic = f"{prefix}.denied"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1}) as it:
        produce(it.bench.source, topic, records(100, 1, 1))

        def denied(name: str, _partitions: int) -> None:
            raise NotAuthorized("target", "Alter", f"topic {name}")

        monkeypatch.setattr(it.ctx.target, "create_partitions", denied)
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {TopicPartition(topic, 0): 100})
            it.add_partitions(topic, 2)
            tp = TopicPartition(topic, 1)
            _until_halted(it, tp)
            produce(it.bench.source, topic, records(100, 2, 2))
            halt = it.ctx.link.halts()[tp]
            assert halt.reason == Halt.NO_PARTITION
            assert "Alter" in halt.detail
            _until_copied(it.bench, {TopicPartition(topic, 0): 150})
            monkeypatch.undo()
            (done,) = controls.resume_halted(it.ctx, at=[(tp, 0)], by="ada")
            assert done.given_up == 0
            grown = it.grown({topic: 2})
            _until_copied(grown, {tp: 50})
        assert live.error is None
        assert assert_same(grown) == 200
        assert it.ctx.link.skips() == {}


@pytest.mark.parametrize("follows", [True, False])
def test_new_topics_that_match_join_if_the_plan_says_so(source_cluster, target_cluster, prefix, follows):
    topic, new, foreign = f"{prefix}.old", f"{prefix}.new", f"other-{prefix}.new"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1}, mirror={"follow_new_topics": follows}) as it:
        produce(it.bench.source, topic, records(50, 1, 1))
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {TopicPartition(topic, 0): 50})
            for name in (foreign, new):
                create_topics(it.bench.source, {name: 2}, {"retention.ms": "-1"})
                produce(it.bench.source, name, records(100, 2, 3))
            produce(it.bench.source, topic, records(50, 1, 2))
            _until_copied(it.bench, {TopicPartition(topic, 0): 100})
            if follows:
                grown = it.grown({new: 2})
                _until_copied(grown, {TopicPartition(new, p): 50 for p in (0, 1)})
                assert assert_same(grown) == 200
                assert it.ctx.journal.holders([new]) == {new: it.ctx.plan.name}
        assert live.error is None
        assert set(it.ctx.link.topics()) == ({topic, new} if follows else {topic})
        assert it.ctx.target.topics([foreign]) == {}


def test_topics_of_a_plan_that_joins_are_copied_by_the_mirror_that_runs_and_it_keeps_its_own(
    source_cluster, target_cluster, prefix
):
    topic, wanted = f"{prefix}.old", f"joined-{prefix}"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1}) as it:
        join(it.ctx)
        produce(it.bench.source, topic, records(50, 1, 1))
        create_topics(it.bench.source, {wanted: 2}, {"retention.ms": "-1"})
        produce(it.bench.source, wanted, records(100, 2, 3))
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {TopicPartition(topic, 0): 50})
            corrected = {**it.ctx.plan.snapshot(), "topics": {"include": [wanted]}}
            ctx = replace(it.ctx, plan=restore_plan(corrected))
            join(ctx)
            create.apply(ctx)
            produce(it.bench.source, topic, records(50, 1, 2))
            it.ctx.link.select_also(ctx.plan.topics.matches)
            grown = it.grown({wanted: 2})
            _until_copied(grown, {TopicPartition(wanted, p): 50 for p in (0, 1)} | {TopicPartition(topic, 0): 100})
            assert assert_same(grown) == 200
        assert live.error is None
        assert [text for text in it.told if "goes on with the plan that joined" in text]


def test_new_topic_that_cannot_be_made_is_told_and_the_others_join(source_cluster, target_cluster, prefix):
    topic, taken, new = f"{prefix}.old", f"{prefix}.taken", f"{prefix}.wanted"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1}, mirror={"follow_new_topics": True}) as it:
        create_topics(it.bench.target, {taken: 1}, {})
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {TopicPartition(topic, 0): 0})
            for name in (taken, new):
                create_topics(it.bench.source, {name: 1}, {"retention.ms": "-1"})
                produce(it.bench.source, name, records(10, 1, 3))
            _until_copied(it.grown({new: 1}), {TopicPartition(new, 0): 10})
        assert live.error is None
        told = [text for text in it.told if taken in text]
        assert len(told) == 1
        assert "did not create it" in told[0]
        assert taken not in it.ctx.link.topics()


# -- what is taken away -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("gone_on", ["accept_loss", "at"])
def test_records_deleted_above_the_position_halt_their_partition_and_it_goes_on_when_a_person_says_so(
    any_source, target_cluster, prefix, gone_on
):
    topic = f"{prefix}.expired"
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    servers = (any_source.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 2}) as it:
        produce(it.bench.source, topic, records(200, 2, 1))
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 200
        it.ctx.link.pause(Pause(by="test", at=it.ctx.stamp()))
        with running(it.bench, LONG) as live:
            wait_until(lambda: bool(live.runner.orders), "an epoch begins, paused")
            produce(it.bench.source, topic, records(400, 2, 2))
            delete_records(it.bench.source, {tp: 150})
            it.ctx.link.resume(by="test", at=it.ctx.stamp())
            _until_halted(it, tp)
            halt = it.ctx.link.halts()[tp]
            assert (halt.reason, halt.source_offset) == (Halt.DATA_LOSS, 100)
            _until_copied(it.bench, {other: 300})
            if gone_on == "at":
                (done,) = controls.resume_halted(it.ctx, at=[(tp, 160)], by="ada")
            else:
                (done,) = controls.resume_halted(it.ctx, accept_loss=[topic], by="ada")
            assert (done.stands, done.given_up, done.still_there) == (
                (100, 60, 10) if gone_on == "at" else (100, 50, 0)
            )
            _until_copied(it.bench, {tp: 300})
        assert live.error is None
        assert it.ctx.link.halts() == {}
        ((skip,),) = it.ctx.link.skips().values()
        assert (skip.start, skip.end, skip.by, skip.halt) == (100, done.at, "ada", "DATA_LOSS")
        _assert_gap(it.bench, tp, copied=100, goes_on=done.at, end=300)


def _assert_gap(it: Bench, tp: TopicPartition, *, copied: int, goes_on: int, end: int) -> None:
    """What was copied before and after the gap is the source's, and every offset translates."""
    there, offsets = read_all(it.target, it.topics)[tp], it.link.offset_maps([tp])[tp]
    here = {row.offset: row for row in read_all(it.source, it.topics)[tp]}
    assert len(there) == copied + end - goes_on
    behind = there[copied:]
    assert [row.without_offset() for row in behind] == [here[at].without_offset() for at in range(goes_on, end)]
    assert [offsets.to_target(at) for at in range(goes_on, end)] == [row.offset for row in behind]
    assert {offsets.to_target(at) for at in range(copied, goes_on)} == {behind[0].offset}
    assert [offsets.to_target(at) for at in range(copied)] == [row.offset for row in there[:copied]]
    assert offsets.to_source(behind[0].offset) == goes_on


def test_gap_stays_where_it_is_through_later_takeovers(source_cluster, target_cluster, prefix):
    topic = f"{prefix}.again"
    tp = TopicPartition(topic, 0)
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1, f"{prefix}.other": 1}) as it:
        produce(it.bench.source, topic, records(100, 1, 1))
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 100
        produce(it.bench.source, topic, records(100, 1, 2))
        delete_records(it.bench.source, {tp: 130})
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).halted == (tp,)
        controls.resume_halted(it.ctx, accept_loss=[f"{topic}:0"], by="ada")
        # Nothing is copied behind the gap yet: its end is the target's end.
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 70
        produce(it.bench.source, topic, records(100, 1, 3))
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 100
        _assert_gap(it.bench, tp, copied=100, goes_on=130, end=300)


def _make_again(servers: str, topics: dict[str, int]) -> None:
    """A ZooKeeper may know a topic for a moment longer than brokers show it."""

    def is_made() -> bool:
        try:
            create_topics(servers, topics, {"retention.ms": "-1"})
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    wait_until(is_made, "it is made again")


@pytest.mark.parametrize("side", ["source", "target"])
def test_topic_that_is_made_again_while_the_mirror_runs_halts_alone(request, any_source, target_cluster, prefix, side):
    topic, other = f"{prefix}.renewed", f"{prefix}.stays"
    tp, neighbour = TopicPartition(topic, 0), TopicPartition(other, 0)
    servers = (any_source.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1, other: 1}) as it:
        for name in (topic, other):
            produce(it.bench.source, name, records(100, 1, 1))
        with running(it.bench, LONG, growth=it.growth()) as live:
            _until_copied(it.bench, {tp: 100, neighbour: 100})
            where = it.bench.source if side == "source" else it.bench.target
            delete_topic(where, topic)
            # One partition more: those of another topic are none of the mirror's.
            _make_again(where, {topic: 2})
            produce(where, topic, records(100, 1, 2))
            _until_halted(it, tp)
            # A broker that is asked by names serves the new log, which is shorter, before metadata show another id.
            is_by_name = (request.node.callspec.params["any_source"], side) == ("2.8", "source")
            by_name = {Halt.TRUNCATED} if is_by_name else set()
            assert it.ctx.link.halts()[tp].reason in {Halt.RECREATED, *by_name}
            produce(it.bench.source, other, records(100, 1, 3))
            _until_copied(it.bench, {neighbour: 200})
            assert set(it.ctx.link.halts()) == {tp}
        assert live.error is None


def test_damaged_batch_halts_and_the_offset_that_its_halt_names_leads_past_it(source_cluster, target_cluster, prefix):
    topic, other = f"{prefix}.damaged", f"{prefix}.stays"
    tp, neighbour = TopicPartition(topic, 0), TopicPartition(other, 0)
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 1, other: 1}) as it:
        for seed in range(3):
            produce(it.bench.source, topic, records(40, 1, seed), **{"batch.num.messages": 40})
        produce(it.bench.source, other, records(100, 1, 1))
        (log,) = source_cluster.data_dir.rglob(f"{topic}-0/00000000000000000000.log")
        heads = [header for header, _ in batches(log.read_bytes())]
        damaged = next(it for it in heads if it.base_offset >= 40)
        with log.open("r+b") as file:
            file.seek(sum(it.size for it in heads if it.base_offset <= damaged.base_offset) - 1)
            file.write(bytes([log.read_bytes()[file.tell()] ^ 1]))
        with running(it.bench, LONG) as live:
            _until_copied(it.bench, {neighbour: 100})
            _until_halted(it, tp)
            halt = it.ctx.link.halts()[tp]
            assert (halt.reason, halt.source_offset) == (Halt.CORRUPT, damaged.base_offset)
            named = re.search(r"the next batch begins at source offset (\d+)", halt.detail)
            assert named is not None
            assert int(named[1]) == damaged.next_offset
            (done,) = controls.resume_halted(it.ctx, at=[(tp, int(named[1]))], by="ada")
            assert done.given_up == damaged.records
            _until_copied(it.bench, {tp: 120})
        assert live.error is None
        assert it.ctx.link.halts() == {}
        there = read_all(it.bench.target, {topic: 1})[tp]
        assert len(there) == 120 - damaged.records
        assert it.ctx.link.offset_maps([tp])[tp].to_target(damaged.base_offset) == there[damaged.base_offset].offset


# -- what somebody else does on the target ----------------------------------------------------------------------------


@pytest.mark.parametrize("moves", [True, False])
def test_foreign_record_is_noticed_whether_the_mirror_writes_there_or_not(
    source_cluster, target_cluster, prefix, moves
):
    topic = f"{prefix}.foreign"
    tp, other = TopicPartition(topic, 0), TopicPartition(topic, 1)
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 2}) as it:
        produce(it.bench.source, topic, records(200, 2, 1))
        with running(it.bench, LONG) as live:
            _until_copied(it.bench, {tp: 100, other: 100})
            produce(it.bench.target, topic, [ToSend(b"foreign", partition=0)])
            if moves:
                produce(it.bench.source, topic, [ToSend(b"ours", partition=0)])
            _until_halted(it, tp)
            assert it.ctx.link.halts()[tp].reason == Halt.FOREIGN_WRITER
            produce(it.bench.source, topic, [ToSend(b"ours", partition=1)])
            _until_copied(it.bench, {other: 101})
            assert set(it.ctx.link.halts()) == {tp}
        assert live.error is None


def test_mirror_that_writes_all_the_time_suspects_nobody(source_cluster, target_cluster, prefix):
    topic = f"{prefix}.busy"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with made(*servers, {topic: 2}) as it, running(it.bench, LONG, ThreadRunner()) as live:
        sent, until = 0, time.monotonic() + 17  # three looks at the ends
        producer = Producer({"bootstrap.servers": it.bench.source, "linger.ms": 0})

        def trickles() -> bool:
            nonlocal sent
            producer.produce(topic, b"%d" % sent, partition=sent % 2)
            sent += 1
            return producer.flush(10) == 0 and time.monotonic() > until

        wait_until(trickles, "records trickle")
        assert len(live.runner.orders) == 1
        assert not any("a fence will show" in text for text in live.said)


class TestSettingsOfTheTarget:
    """Somebody sets back what the create phase set, while the mirror runs."""

    WATCHED = replace(LONG, held_open=KEEPS_RECORDS)

    def test_setting_that_endangers_records_halts_its_topic_and_it_goes_on_once_it_is_set_back(
        self, source_cluster, target_cluster, prefix
    ):
        topic, other = f"{prefix}.expires", f"{prefix}.stays"
        tps, neighbour = (TopicPartition(topic, 0), TopicPartition(topic, 1)), TopicPartition(other, 0)
        servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
        with made(*servers, {topic: 2, other: 1}) as it:
            for name, count in it.topics.items():
                produce(it.bench.source, name, records(100 * count, count, 1))
            with running(it.bench, self.WATCHED) as live:
                _until_copied(it.bench, dict.fromkeys((*tps, neighbour), 100))
                set_topic_config(it.bench.target, topic, {"retention.ms": "604800000"})
                # Harmless, and somebody else's business.
                set_topic_config(it.bench.target, other, {"segment.bytes": "20000000"})
                _until_halted(it, *tps)
                assert {halt.reason for halt in it.ctx.link.halts().values()} == {Halt.CONFIG_DRIFT}
                halt = it.ctx.link.halts()[tps[0]]
                assert (halt.source_offset, "retention.ms of the target topic is 604800000" in halt.detail) == (
                    100,
                    True,
                )
                at = [(tp, 100) for tp in tps]
                with pytest.raises(
                    Refused, match=r"(?s)configs under which copied records are deleted or altered.*set retention.ms=-1"
                ):
                    controls.resume_halted(it.ctx, at=at, by="ada")
                for name, count in it.topics.items():
                    produce(it.bench.source, name, records(50 * count, count, 2))
                _until_copied(it.bench, {neighbour: 150})
                set_topic_config(it.bench.target, topic, {"retention.ms": "-1"})
                assert {done.given_up for done in controls.resume_halted(it.ctx, at=at, by="ada")} == {0}
                _until_copied(it.bench, dict.fromkeys(tps, 150))
            assert live.error is None
            assert it.ctx.link.halts() == {}
            assert assert_same(it.bench) == 450

    def test_records_that_are_gone_by_then_are_copied_afresh_only(self, source_cluster, target_cluster, prefix):
        topic, other = f"{prefix}.expired", f"{prefix}.stays"
        tp, neighbour = TopicPartition(topic, 0), TopicPartition(other, 0)
        servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
        with made(*servers, {topic: 1, other: 1}) as it:
            for name in it.topics:
                produce(it.bench.source, name, records(100, 1, 1))
            with running(it.bench, self.WATCHED) as live:
                _until_copied(it.bench, {tp: 100, neighbour: 100})
                set_topic_config(it.bench.target, topic, {"cleanup.policy": "compact,delete"})
                _until_halted(it, tp)
                set_topic_config(it.bench.target, topic, {"cleanup.policy": "delete"})
                delete_records(it.bench.target, {tp: 20})
                with pytest.raises(Refused, match=r"(?s)records are gone on the target.*begins at 20.*mirror --again"):
                    controls.resume_halted(it.ctx, at=[(tp, 100)], by="ada")
            assert live.error is None
            # Set to something else once more: a copy afresh is held open all the same.
            set_topic_config(it.bench.target, topic, {"cleanup.policy": "compact", "retention.ms": "1000"})
            recopy.apply(it.ctx, [topic])
            it.ctx.link.wish(Wish(desired=Desired.RUN, reason="", at=""))
            with running(it.bench, self.WATCHED):
                _until_copied(it.bench, {tp: 100})
            assert assert_same(it.bench) == 200
            assert create.verify(it.ctx) == ()

    def test_records_deleted_on_the_target_halt_at_the_next_answer(self, source_cluster, target_cluster, prefix):
        topic, other = f"{prefix}.deleted", f"{prefix}.stays"
        tp, neighbour = TopicPartition(topic, 0), TopicPartition(other, 0)
        servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
        with made(*servers, {topic: 1, other: 1}) as it:
            for name in it.topics:
                produce(it.bench.source, name, records(100, 1, 1))
            # Not the first run: what it finds is where the log began then.
            assert it.bench.mirror(settings=self.WATCHED).run(until_caught_up=True).records == 200
            with running(it.bench, self.WATCHED) as live:
                wait_until(lambda: bool(live.runner.orders), "an epoch begins")
                delete_records(it.bench.target, {tp: 40})
                for name in it.topics:
                    produce(it.bench.source, name, records(50, 1, 2))
                _until_halted(it, tp)
                halt = it.ctx.link.halts()[tp]
                assert (halt.reason, "begins at 40 now" in halt.detail) == (Halt.LOG_REGRESSED, True)
                _until_copied(it.bench, {neighbour: 150})
                assert live.thread.is_alive()
            assert live.error is None

    def test_times_that_the_target_gives_halt_at_the_first_answer_and_a_copy_afresh_has_the_sources(
        self, source_cluster, target_cluster, prefix
    ):
        topic, other = f"{prefix}.stamped", f"{prefix}.stays"
        tp, neighbour = TopicPartition(topic, 0), TopicPartition(other, 0)
        servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
        with made(*servers, {topic: 1, other: 1}) as it:
            for name in it.topics:
                produce(it.bench.source, name, records(100, 1, 1))
            with running(it.bench, LONG) as live:
                _until_copied(it.bench, {tp: 100, neighbour: 100})
                set_topic_config(it.bench.target, topic, {"message.timestamp.type": "LogAppendTime"})
                for name in it.topics:
                    produce(it.bench.source, name, records(50, 1, 2))
                _until_halted(it, tp)
                halt = it.ctx.link.halts()[tp]
                assert (halt.reason, halt.source_offset) == (Halt.ALTERED, 100)
                assert "instead of their own" in halt.detail
                _until_copied(it.bench, {neighbour: 150})
            assert live.error is None
            with pytest.raises(Refused, match="mirror --again"):
                controls.resume_halted(it.ctx, at=[(tp, 150)], by="ada")
            recopy.apply(it.ctx, [topic])
            it.ctx.link.wish(Wish(desired=Desired.RUN, reason="", at=""))
            with running(it.bench, self.WATCHED):
                _until_copied(it.bench, {tp: 150})
            assert assert_same(it.bench) == 300


# -- the end ----------------------------------------------------------------------------------------------------------


def test_restored_topic_keeps_what_its_source_would_keep(source_cluster, target_cluster, prefix):
    topic = f"{prefix}.restored"
    tp = TopicPartition(topic, 0)
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)

    def settings() -> dict[str, str | None]:
        found = it.ctx.target.topic_configs([topic])[topic]
        return {name: value.value for name, value in found.items() if value.is_explicit}

    with made(*servers, {topic: 1}) as it:
        produce(it.bench.source, topic, records(100, 1, 1))
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 100
        held = settings()
        changed = {"message.timestamp.type": "LogAppendTime", "retention.bytes": "1000000"}
        set_topic_config(it.bench.source, topic, changed)
        seal.apply(it.ctx)
        restore.apply(it.ctx)
        assert settings() == changed | {"retention.ms": "-1"}
        assert create.verify(it.ctx) == ()
        seal.undo(it.ctx)
        wait_until(lambda: settings() == held, "everything is held open again")
        set_topic_config(it.bench.source, topic, {"message.timestamp.type": "CreateTime"})
        produce(it.bench.source, topic, records(50, 1, 2))
        assert it.bench.mirror(settings=LONG).run(until_caught_up=True).records == 50
        assert assert_same(it.bench) == 150
        assert len(read_all(it.bench.target, {topic: 1})[tp]) == 150
