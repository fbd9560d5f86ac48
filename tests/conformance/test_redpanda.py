"""What Redpanda tests of its shadow links (redpanda-data/redpanda, tests/rptest/tests/cluster_linking_e2e_test.py),
demanded of this mirror. A shadow topic keeps the source's offsets, since it is written past the protocol; here offsets
differ, and each must lead to the very record all the same."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.skips import START
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import seal
from kafka_migration.steps import mirror, recopy, stop
from kafka_migration.steps.cutover import Fate
from kafka_migration.topics import restore
from tests.conformance.scene import Scene, scene
from tests.kafka_tools import ToSend, delete_records, produce, read_all, set_topic_config, stable_ends
from tests.proxy import FETCH, PRODUCE, Frame, Proxy
from tests.waiting import wait_until

NOW = 1_790_000_000_000


@pytest.fixture
def it(source_cluster: Any, target_cluster: Any) -> Iterator[Scene]:
    with scene(source_cluster, target_cluster, stopped=["app"]) as found:
        yield found


# -- where the copy begins --------------------------------------------------------------------------------------------


def _trimmed(it: Scene) -> str:
    """Two partitions of 1,000 records, a second apart, of which the first 300 are gone, as are their batches."""
    topic = it.make("orders", 2)
    rows = [ToSend(b"%d" % n, b"k", n % 2, NOW + 1000 * (n // 2)) for n in range(2000)]
    produce(it.source, topic, rows, **{"batch.num.messages": 64})
    delete_records(it.source, {TopicPartition(topic, p): 300 for p in (0, 1)})
    return topic


@pytest.mark.parametrize(
    ("start", "first"),
    [
        ("earliest", 300),
        ("latest", 1000),
        (datetime.fromtimestamp((NOW + 700_000) / 1000, UTC).isoformat(), 700),
        (datetime.fromtimestamp((NOW + 699_001) / 1000, UTC).isoformat(), 700),
        (datetime.fromtimestamp(NOW / 1000, UTC).isoformat(), 300),
        (datetime.fromtimestamp((NOW + 10**9) / 1000, UTC).isoformat(), 1000),
    ],
    ids=["earliest", "latest", "timestamp", "between two", "before all", "after all"],
)
def test_copy_begins_where_the_plan_says(source_cluster: Any, target_cluster: Any, start: str, first: int) -> None:
    """ShadowLinkCustomStartOffsetSelectionTests.test_starting_offset: earliest, latest and a timestamp, of a topic
    whose beginning was deleted. There a whole batch may come along; here it is the very record, and stays it over
    restarts, and for a copy afresh."""
    with scene(source_cluster, target_cluster, mirror={"start": start}) as it:
        topic = _trimmed(it)
        tps = [TopicPartition(topic, p) for p in (0, 1)]
        it.begin()
        _assert_begins(it, tps, first=first, end=1000)
        rows = [ToSend(b"later %d" % n, b"k", n % 2, NOW) for n in range(100)]
        produce(it.source, topic, rows)
        mirror.pin(it.ctx)
        _assert_begins(it, tps, first=first, end=1050)
        left_out = {skip.halt for skips in it.ctx.link.skips().values() for skip in skips}
        assert left_out == (set() if first == 300 else {START})

        # What somebody else writes halts it; the copy afresh begins where the first one did.
        produce(it.target, topic, [ToSend(b"foreign", None, 0)])
        produce(it.source, topic, rows)
        assert it.copy().halted == (tps[0],)
        recopy.apply(it.ctx, [topic])
        _assert_begins(it, tps, first=first, end=1100)


def _assert_begins(it: Scene, tps: list[TopicPartition], *, first: int, end: int) -> None:
    """The target holds what the source has from ``first`` to ``end``, and offsets before it lead to it."""
    assert it.copy().halted == ()
    topics = {tps[0].topic: len(tps)}
    here, there = read_all(it.source, topics), read_all(it.target, topics)
    maps = it.ctx.link.offset_maps()
    for tp in tps:
        kept = [row for row in here[tp] if row.offset >= first]
        assert [row.without_offset() for row in there[tp]] == [row.without_offset() for row in kept]
        assert [maps[tp].to_target(row.offset) for row in kept] == [row.offset for row in there[tp]]
        assert maps[tp].source_end == end
        # What lies before leads to where the first record copied is the next to be read.
        assert all(
            maps[tp].to_target(at) <= min(row.offset for row in there[tp]) for at in range(300, first) if there[tp]
        )


def test_time_inside_transactions_copies_what_is_committed_behind_it(source_cluster: Any, target_cluster: Any) -> None:
    """test_starting_offset at a time that lies inside of transactions: an aborted one stays out as a whole, though it
    began before, and of a committed one comes what is as young."""
    begin = datetime.fromtimestamp((NOW + 15_000) / 1000, UTC).isoformat()
    with scene(source_cluster, target_cluster, mirror={"start": begin}) as it:
        topic = it.make("orders", 1)
        tp = TopicPartition(topic, 0)
        writers = []
        for name in ("aborted", "committed"):
            writer = Producer({"bootstrap.servers": it.source, "transactional.id": it.name(name), "linger.ms": 0})
            writer.init_transactions(30)
            writer.begin_transaction()
            writers.append((name, writer))
        for n in range(20):
            name, writer = writers[n % 2]
            writer.produce(topic, b"%s %d" % (name.encode(), n), timestamp=NOW + 1000 * n)
            assert writer.flush(30) == 0
        writers[0][1].abort_transaction(30)
        writers[1][1].commit_transaction(30)
        it.begin()
        assert it.copy().records == 3
        found = read_all(it.target, {topic: 1})[tp]
        assert [row.value for row in found] == [b"committed 15", b"committed 17", b"committed 19"]
        assert {skip.end for skip in it.ctx.link.skips()[tp]} == {15}


def test_partitions_and_topics_that_come_later_are_copied_whole(source_cluster: Any, target_cluster: Any) -> None:
    """test_starting_offset, of what appears while the mirror runs from `latest`: none of it is passed over."""
    fields: dict[str, Any] = {"mirror": {"start": "latest", "follow_new_topics": True}}
    with scene(source_cluster, target_cluster, **fields) as it:
        topic = it.make("orders", 1)
        it.write(topic, 50)
        it.begin()
        with it.mirroring() as live:
            it.until_caught_up()
            admin = AdminClient({"bootstrap.servers": it.source})
            admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
            wait_until(lambda: len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 2, "partitions")
            it.topics[topic] = 2
            it.until_led(topic)
            late = it.make("late", 2)
            for name in (topic, late):
                it.write(name, 40, first=50)
            wait_until(lambda: late in it.ctx.link.topics(), "the new topic joins")
            it.until_caught_up()
        assert live.error is None
        found = read_all(it.target, it.topics)
        assert [len(found[TopicPartition(topic, p)]) for p in (0, 1)] == [20, 20]
        assert [len(found[TopicPartition(late, p)]) for p in (0, 1)] == [20, 20]


# -- truncation -------------------------------------------------------------------------------------------------------


def test_topic_whose_beginning_is_gone_is_read_by_a_group_from_where_it_begins(it: Scene) -> None:
    """ShadowLinkingReplicationTests.test_replication_with_truncated_topic: 9,000 of 10,000 records are left, and a
    consumer group reads as many. Here it reads exactly those, and a commit in what is gone leads to the first."""
    topic, group = it.make("orders", 1), it.name("app")
    tp = TopicPartition(topic, 0)
    it.write(topic, 10_000)
    it.commit(group, {tp: 400})
    delete_records(it.source, {tp: 1000})
    it.begin()
    assert it.copy().records == 9_000
    assert it.move(group)[0].outcome is Fate.MOVED
    after = it.read("target", group, topic)
    assert after == {tp: [b"%d" % n for n in range(1000, 10_000)]}


def test_what_is_deleted_behind_the_copy_neither_halts_nor_moves_anything(it: Scene) -> None:
    """ShadowLinkingReplicationTests.test_auto_prefix_trimming, where the shadow is trimmed as well. Here it is not:
    what was copied stays until the migration is over, and a group that stands in it goes on there."""
    topic, group = it.make("orders", 5), it.name("app")
    tps = [TopicPartition(topic, p) for p in range(5)]
    it.begin()
    with it.mirroring() as live:
        for round_, trim in enumerate((1000, 1001, 1200, 1500)):
            it.write(topic, 5 * 400 if round_ else 5 * 1000, first=10_000 * round_)
            it.until_caught_up()
            if not round_:
                it.commit(group, dict.fromkeys(tps, 990))
                places = it.translated(group)
                copied = {tp: [row.value for row in rows] for tp, rows in read_all(it.target, it.topics).items()}
            delete_records(it.source, dict.fromkeys(tps, trim))
        it.until_caught_up()
        assert it.translated(group) == places
    assert live.error is None
    assert it.ctx.link.halts() == {}
    assert it.ctx.link.skips() == {}
    found = read_all(it.target, it.topics)
    for tp in tps:
        assert len(found[tp]) == 2200
        assert [row.value for row in found[tp][:1000]] == copied[tp]
    assert it.move(group)[0].outcome is Fate.MOVED
    assert {len(values) for values in it.read("target", group, topic).values()} == {1210}


# -- times ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_consumer_that_begins_at_a_time_begins_at_the_same_record(it: Scene, kind: str) -> None:
    """ShadowLinkingReplicationTests.test_replication_timestamps_match: consuming from a timestamp gives the same
    records with the same times. Here so of every record's time, one before and one after it, and all batches joined."""
    topic = it.make("orders", 1, **{"message.timestamp.type": kind})
    tp = TopicPartition(topic, 0)
    it.begin()
    with it.mirroring():
        it.until_caught_up()
        small: dict[str, Any] = {"linger.ms": 0, "batch.num.messages": 3}
        for at in range(0, 100, 10):
            it.write(topic, 10, first=at, **small)
        it.until_caught_up()
    assert it.assert_same() == 100
    here = read_all(it.source, {topic: 1})[tp]
    offsets = it.ctx.link.offset_maps()[tp]
    for time_ in {row.timestamp + more for row in here for more in (-1, 0, 1)}:
        wanted = offsets.to_target(it.ctx.source.first_since([tp], time_)[tp])
        assert it.ctx.target.first_since([tp], time_)[tp] == wanted


def test_consumer_that_begins_at_a_time_before_the_migration_misses_nothing(it: Scene) -> None:
    """test_replication_timestamps_match, of records that are older than the copy: a fence's marker has the time of the
    fence, so brokers may name it instead of a record behind it. It is never behind the record."""
    topic = it.make("orders", 1)
    tp = TopicPartition(topic, 0)
    rows = [ToSend(b"%d" % n, None, 0, 1_664_453_149_000 + 7 * n) for n in range(100)]
    produce(it.source, topic, rows)
    it.begin()
    it.copy()
    assert it.assert_same() == 100
    there = read_all(it.target, {topic: 1})[tp]
    for row in there:
        assert it.ctx.target.first_since([tp], row.timestamp)[tp] <= row.offset
    assert [row.timestamp for row in there] == [row.timestamp for row in rows]


# -- groups -----------------------------------------------------------------------------------------------------------


@contextmanager
def _writing(it: Scene, topics: Sequence[str]) -> Iterator[None]:
    """A producer that writes on, in turn to each of `topics`, to every second one in transactions."""
    over, problems = threading.Event(), list[BaseException]()

    def write() -> None:
        try:
            for first in range(1000, 10**6, 60):
                for number, topic in enumerate(topics):
                    if over.wait(0.05):
                        return
                    it.write(topic, 60, transactions=number % 2 == 1, first=first)
        except BaseException as error:  # the test's main thread raises it
            problems.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    if problems:
        raise problems[0]


@pytest.mark.parametrize("with_failures", [False, True], ids=["quiet", "cut connections"])
def test_groups_that_go_on_translate_at_every_moment_and_are_moved_exactly(it: Scene, with_failures: bool) -> None:
    """ShadowLinkConsumeGroupsMirroringTest.test_continuous_group_sync: twenty groups go on at random in six topics of
    120 partitions while they are written and mirrored; their states are found equal again within two minutes, also
    while the network fails; then they are failed over, and begin at the right record. Here every state is equal as soon
    as the records are there, and no group reads a record twice, or misses one."""
    chance = random.Random(7)
    topics = [it.make(f"topic-{n}", 20) for n in range(6)]
    groups = [it.name(f"group-{n}") for n in range(20)]
    for number, topic in enumerate(topics):
        it.write(topic, 1000, transactions=number % 2 == 1)
    it.begin()
    began = stable_ends(it.source, it.topics)
    at: dict[str, dict[TopicPartition, int]] = {group: {} for group in groups}
    told: list[tuple[TopicPartition, int, int]] = []
    frames = count()
    cuts = 0

    def cut(frame: Frame) -> bool | None:
        nonlocal cuts
        if frame.request is None or frame.api not in (FETCH, PRODUCE) or not with_failures:
            return None
        # By number, not by chance: on a busy machine few frames carry everything.
        if next(frames) % 50 != 10:
            return None
        cuts += 1
        frame.connection.cut()
        return False

    with Proxy(on_response=cut) as proxy, it.mirroring(source_through=proxy, target_through=proxy) as live:
        with _writing(it, topics):
            for _ in range(5):
                here = read_all(it.source, it.topics)
                touched = set()
                for _ in range(10):
                    group, topic = chance.choice(groups), chance.choice(topics)
                    for tp in (tp for tp in here if tp.topic == topic):
                        # Forward only, as consumers go; up to the very end that was read.
                        ahead = [row.offset for row in here[tp] if row.offset >= at[group].get(tp, 0)]
                        at[group][tp] = chance.choice([*ahead, here[tp][-1].offset + 1])
                    it.commit(group, at[group])
                    touched.add(group)
                for group in sorted(touched):
                    told += [(tp, at[group][tp], place) for tp, place in it.until_translated(group).items()]
        it.until_caught_up()
        assert live.thread.is_alive(), "it was one run, all the time"
        assert bool(cuts) == with_failures
        moved = [group for group in groups if at[group]]
        settings = it.ctx.plan.cutover.model_copy(update={"stopped_groups": tuple(moved)})
        it.ctx = replace(it.ctx, plan=it.ctx.plan.model_copy(update={"cutover": settings}))
        assert {outcome.outcome for outcome in it.move(*moved)} == {Fate.MOVED}
    here, there = read_all(it.source, it.topics), read_all(it.target, it.topics)
    assert any(committed > began[tp] for tp, committed, _ in told), "of records that came while it was mirrored"
    for tp, committed, place in told:
        left = [row.value for row in here[tp] if row.offset >= committed]
        assert [row.value for row in there[tp] if row.offset >= place] == left, (tp, committed)
    for group in moved[:3]:
        after = it.read("target", group, *sorted({tp.topic for tp in at[group]}))
        assert after == {tp: [row.value for row in here[tp] if row.offset >= at[group][tp]] for tp in after}


def test_group_of_many_members_leaves_one_cluster_and_joins_the_other(it: Scene) -> None:
    """ShadowLinkConsumeGroupsMirroringTest.test_consumer_group_rebalance: ten consumers are stable on the source, and
    after the failover on the target. Here a producer writes on, and each record is read once, on one side."""
    topic, group = it.make("orders", 30), it.name("app")
    it.write(topic, 3000)
    it.begin()
    with it.mirroring():
        before = it.read("source", group, topic, members=10, most=60)
        it.write(topic, 3000, first=3000)
        assert it.move(group)[0].outcome is Fate.MOVED
        it.write(topic, 600, first=6000)
        it.until_caught_up()
        after = it.read("target", group, topic, members=10)
    it.assert_each_once(before, after)


# -- the end ----------------------------------------------------------------------------------------------------------


def test_producers_write_behind_the_last_mirrored_record_and_groups_read_on(it: Scene) -> None:
    """ShadowLinkTopicFailoverTests.test_producer_ids_failover, test_link_topic_failover and test_link_failover: after
    it producers write on the target, at the offsets that follow. Here so do idempotent and transactional ones, as the
    mirror's own right to write is over, and a group reads both parts in a row."""
    topic, group = it.make("orders", 2), it.name("app")
    it.write(topic, 200)
    before = it.read("source", group, topic, most=30)
    it.begin()
    with it.mirroring() as live:
        it.until_caught_up()
        assert it.move(group)[0].outcome is Fate.MOVED
        assert stop.apply(it.ctx).stopped
        live.thread.join(30)
    ends = {tp: max(row.offset for row in rows) for tp, rows in read_all(it.target, it.topics).items()}
    produce(it.target, topic, [ToSend(b"new %d" % n, None, n % 2) for n in range(20)], **{"enable.idempotence": True})
    producer = Producer({"bootstrap.servers": it.target, "transactional.id": group})
    producer.init_transactions(30)
    producer.begin_transaction()
    for n in range(10):
        producer.produce(topic, b"committed %d" % n, partition=n % 2)
    producer.commit_transaction(30)
    after = it.read("target", group, topic)
    for tp, values in it.all_values(topic).items():
        assert (before[tp] + after[tp])[:100] == values
        assert [value.split()[0] for value in after[tp][70:] if value is not None] == [b"new"] * 10 + [b"committed"] * 5
        assert min(row.offset for row in read_all(it.target, it.topics)[tp] if row.value == after[tp][70]) > ends[tp]


@pytest.fixture(scope="module")
def compacting_too() -> Iterator[EmbeddedKafka]:
    """A target whose cleaner looks for work five times a second, as the source's does."""
    with EmbeddedKafka(name="compacting-too", properties={"log.cleaner.backoff.ms": "200"}) as cluster:
        yield cluster


def test_compaction_of_both_sides_comes_to_the_same_state(compacting: Any, compacting_too: Any) -> None:
    """ShadowLinkingReplicationTests.test_replication_with_compaction: what was replicated is compacted by the target
    too, tombstones go, and in the end both sides hold the same. Here it is so after `restore`, and by then every record
    that the source still had was copied."""
    with scene(compacting, compacting_too) as it:
        settings = {
            "cleanup.policy": "compact",
            "segment.ms": "500",
            "min.cleanable.dirty.ratio": "0.0",
            "delete.retention.ms": "500",
            "max.compaction.lag.ms": "500",
        }
        topic = it.make("compacted", 1)
        chance = random.Random(3)
        rows = [
            ToSend(None if chance.random() < 0.4 else b"%d" % n, b"key-%d" % chance.randrange(60), 0)
            for n in range(1000)
        ]
        produce(it.source, topic, rows)
        it.begin()
        assert it.copy().records == 1000
        state = _state(it, it.source, topic)
        set_topic_config(it.source, topic, settings)
        seal.apply(it.ctx)
        restore.apply(it.ctx)

        def settled(servers: str) -> bool:
            # Only closed segments are cleaned: one more record closes what stands before it.
            produce(servers, topic, [ToSend(b"tick", b"tick")])
            found = read_all(servers, {topic: 1})[TopicPartition(topic, 0)]
            keys = [row.key for row in found if row.key != b"tick"]
            return len(keys) == len(set(keys)) and all(row.value is not None for row in found)

        for servers in (it.source, it.target):
            wait_until(lambda servers=servers: settled(servers), "compacted")
        assert _state(it, it.source, topic) == _state(it, it.target, topic) == state


def _state(it: Scene, servers: str, topic: str) -> dict[bytes | None, bytes]:
    found = read_all(servers, {topic: 1})[TopicPartition(topic, 0)]
    state = {row.key: row.value for row in found if row.key != b"tick"}
    return {key: value for key, value in state.items() if value is not None}
