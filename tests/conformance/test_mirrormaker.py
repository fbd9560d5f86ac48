"""What Kafka MirrorMaker 2 tests of itself (apache/kafka, connect/mirror), demanded of this mirror: not one record that
a moved group reads twice, where MirrorMaker bounds how many there may be; and every offset exact."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import lag
from kafka_migration.steps.cutover import Fate
from kafka_migration.validation import pins as validate_pins
from tests.conformance.scene import Scene, scene
from tests.kafka_tools import read_all
from tests.waiting import wait_until

PARTITIONS, PER_PARTITION = 10, 10
COUNT = PARTITIONS * PER_PARTITION


@pytest.fixture(params=[False, True], ids=["plain", "transactions"])
def transactions(request: pytest.FixtureRequest) -> bool:
    """As the suite itself is run a second time with a transactional producer
    (MirrorConnectorsIntegrationTransactionsTest); here each commit stands behind an abort."""
    return bool(request.param)


@pytest.fixture
def it(source_cluster: Any, target_cluster: Any) -> Iterator[Scene]:
    with scene(source_cluster, target_cluster, stopped=["app"]) as found:
        yield found


def test_group_fails_over_and_its_offsets_lead_back(it: Scene, transactions: bool) -> None:
    """MirrorConnectorsIntegrationBaseTest.testReplication: records arrive, a group fails over, and back.

    Here it goes on at the very record, and each of its later offsets leads back to the very record, too."""
    topic, group = it.make("orders", PARTITIONS), it.name("app")
    it.write(topic, COUNT, transactions=transactions)
    before = it.read("source", group, topic, most=4)
    it.begin()
    assert it.copy().records == COUNT
    assert [outcome.outcome for outcome in it.move(group)] == [Fate.MOVED]
    after = it.read("target", group, topic, most=3)
    it.assert_same()
    here = read_all(it.source, {topic: PARTITIONS})
    maps = it.ctx.link.offset_maps()
    for tp, at in it.committed("target", group).items():
        assert len(before[tp]) + len(after[tp]) == 7
        back = maps[tp].to_source(at)
        assert [row.value for row in here[tp] if row.offset < back] == before[tp] + after[tp]
    rest = it.read("target", group, topic)
    it.assert_each_once(before, after, rest)


def test_empty_partition_is_committed_and_its_first_record_is_read_once(it: Scene, transactions: bool) -> None:
    """MirrorConnectorsIntegrationBaseTest.testReplicationWithEmptyPartition: the group has an offset there, too.

    Here what is written there afterwards is read once as well."""
    topic, group = it.make("orders", PARTITIONS), it.name("app")
    empty = TopicPartition(topic, PARTITIONS - 1)
    it.write(topic, COUNT, partitions=range(PARTITIONS - 1), transactions=transactions)
    before = it.read("source", group, topic)
    it.begin()
    with it.mirroring():
        it.until_caught_up()
        assert it.move(group)[0].outcome is Fate.MOVED
        assert it.committed("target", group)[empty] == it.ctx.link.positions()[empty].target
        assert it.read("target", group, topic) == {tp: [] for tp in before}
        it.write(topic, 3, partitions=[empty.partition], transactions=transactions, first=COUNT)
        it.until_caught_up()
    after = it.read("target", group, topic)
    assert {tp: len(values) for tp, values in after.items() if values} == {empty: 3}
    it.assert_each_once(before, after)


def test_group_reads_nothing_twice_of_old_topics_and_of_one_that_came_later(
    source_cluster: Any, target_cluster: Any, transactions: bool
) -> None:
    """MirrorConnectorsIntegrationBaseTest.testOneWayReplicationWithAutoOffsetSync and …WithFrequentOffsetSyncs, whose
    redeliveries are bounded by offset.lag.max. Here there are none, and nothing is to be tuned."""
    follows = {"mirror": {"follow_new_topics": True}}
    with scene(source_cluster, target_cluster, stopped=["app"], **follows) as it:
        first, group = it.make("first", PARTITIONS), it.name("app")
        it.write(first, COUNT, transactions=transactions)
        before = it.read("source", group, first)
        it.begin()
        with it.mirroring():
            it.until_caught_up()
            assert len(it.translated(group)) == PARTITIONS
            second = it.make("second", PARTITIONS)
            it.write(second, COUNT, transactions=transactions)
            wait_until(lambda: second in it.ctx.link.topics(), "the new topic joins")
            before |= it.read("source", group, second)
            it.until_caught_up()
            assert it.move(group)[0].outcome is Fate.MOVED
            assert it.read("target", group, first, second) == {tp: [] for tp in before}
            for topic in (first, second):
                it.write(topic, 20, transactions=transactions, first=COUNT)
            it.until_caught_up()
        after = it.read("target", group, first, second)
        it.assert_each_once(before, after)


def test_no_offset_is_made_up_for_what_is_not_mirrored(it: Scene, transactions: bool) -> None:
    """MirrorConnectorsIntegrationBaseTest.testNoCheckpointsIfNoRecordsAreMirrored.

    Here the group is not moved either, in no partition, until all that it has read is there."""
    mirrored, late, group = it.make("mirrored", 2), it.make("late", 2), it.name("app")
    it.write(mirrored, 20, transactions=transactions)
    before = it.read("source", group, mirrored, late)
    it.begin()
    (outcome,) = it.move(group)
    assert (outcome.outcome, outcome.translations) == (Fate.REFUSED, ())
    assert it.committed("target", group) == {}
    it.copy()
    assert set(it.translated(group)) == set(before)
    it.write(late, 20, transactions=transactions, first=20)
    before |= it.read("source", group, late)
    (outcome,) = it.move(group)
    assert outcome.outcome is Fate.REFUSED
    assert "not copied" in outcome.reason or "beyond" in outcome.reason
    assert it.committed("target", group) == {}
    it.copy()
    assert it.move(group)[0].outcome is Fate.MOVED
    assert it.read("target", group, mirrored, late) == {tp: [] for tp in before}


def test_mirror_that_is_restarted_goes_on_and_so_does_the_group(it: Scene, transactions: bool) -> None:
    """MirrorConnectorsIntegrationBaseTest.testRestartReplication: after the restart the group's offsets are right
    again. Here what the restart begins with is not copied a second time, and the group reads nothing twice."""
    topic, group = it.make("orders", PARTITIONS), it.name("app")
    it.write(topic, COUNT, transactions=transactions)
    before = it.read("source", group, topic)
    it.begin()
    with it.mirroring() as first:
        it.until_caught_up()
        places = it.translated(group)
    assert first.error is None
    it.write(topic, COUNT, transactions=transactions, first=COUNT)
    read_on = it.read("source", group, topic, most=5)
    with it.mirroring() as second:
        it.until_caught_up()
        assert all(at > places[tp] for tp, at in it.translated(group).items())
        assert it.move(group)[0].outcome is Fate.MOVED
    assert second.error is None
    it.assert_each_once(before, read_on, it.read("target", group, topic))
    assert it.assert_same() == 2 * COUNT


def test_group_far_behind_the_copy_translates_wherever_it_goes(it: Scene, transactions: bool) -> None:
    """MirrorConnectorsIntegrationBaseTest.testOffsetTranslationBehindReplicationFlow: the copy is ten thousand records
    ahead; the group goes on to nine tenths of them, and is set back to one. There the checkpoints advance and rewind;
    here both are the place of the very record."""
    topic, group = it.make("orders", PARTITIONS), it.name("app")
    small: dict[str, Any] = {"batch.num.messages": 50}
    it.write(topic, 100 * COUNT, transactions=transactions, **small)
    it.begin()
    assert it.copy().records == 100 * COUNT
    here = read_all(it.source, {topic: PARTITIONS})
    there = read_all(it.target, {topic: PARTITIONS})
    for share in (0.001, 0.9, 0.1):
        index = int(100 * PER_PARTITION * share)
        it.commit(group, {tp: rows[index].offset for tp, rows in here.items()})
        assert it.translated(group) == {tp: rows[index].offset for tp, rows in there.items()}
    assert it.move(group)[0].outcome is Fate.MOVED
    after = it.read("target", group, topic)
    assert after == {tp: [row.value for row in rows[index:]] for tp, rows in here.items()}


def test_copy_from_latest_has_what_comes_after_its_first_run_and_nothing_else(
    source_cluster: Any, target_cluster: Any, transactions: bool
) -> None:
    """MirrorConnectorsIntegrationBaseTest.testReplicateFromLatest.

    Here a restart does not begin anew, offsets before the beginning translate to it, a group that has not read up to it
    is named to whoever approves its move, and nobody waits for, or compares, what is not copied."""
    with scene(source_cluster, target_cluster, stopped=["app"], mirror={"start": "latest"}) as it:
        topic, group = it.make("orders", PARTITIONS), it.name("app")
        it.write(topic, COUNT, transactions=transactions)
        it.read("source", group, topic, most=4)
        it.begin()
        first = it.all_values(topic)
        it.write(topic, COUNT, transactions=transactions, first=COUNT)
        assert it.copy().records == COUNT
        it.write(topic, COUNT, transactions=transactions, first=2 * COUNT)
        assert it.copy().records == COUNT, "what was written between two runs is copied"
        later = {tp: values[len(first[tp]) :] for tp, values in it.all_values(topic).items()}
        found = read_all(it.target, {topic: PARTITIONS})
        assert {tp: [row.value for row in rows] for tp, rows in found.items()} == later
        assert lag.LagMeter(it.ctx).read().total == 0
        for tp, place in it.translated(group).items():
            assert [row.value for row in found[tp] if row.offset >= place] == later[tp]
        (outcome,) = it.move(group)
        assert outcome.outcome is Fate.MOVED
        assert "never reads" in " ".join(outcome.flags)
        assert it.read("target", group, topic) == later
        pins = validate_pins.pin(it.ctx, found)
        assert not pins.unpinned
        for each in pins.ranges:
            ((start, end),) = each.left_out
            assert (start, each.records) == (each.source_start, len(later[each.tp]))
            assert end == each.runs[0].source or transactions


def test_nothing_is_made_or_written_on_the_source(it: Scene) -> None:
    """MirrorConnectorsIntegrationBaseTest.testOffsetSyncsTopicsOnTarget, where a setting moves one of MirrorMaker's
    internal topics to the target. Here the source is only read: no topic, no record, no group, no commit."""
    topic, group = it.make("orders", 2), it.name("app")
    it.write(topic, 40)
    it.read("source", group, topic, most=5)

    def seen() -> tuple[object, ...]:
        source = it.ctx.source
        tps = [TopicPartition(topic, p) for p in (0, 1)]
        # Other tests are at work on the same cluster.
        ours = (it.name(""), "kafka-migration")
        return (
            {name: found for name, found in source.topics().items() if name.startswith(ours)},
            {name for name in source.groups() if name.startswith(ours)},
            source.ends(tps),
            source.committed(group),
            source.topic_configs([topic]),
        )

    before = seen()
    it.begin()
    it.copy()
    assert it.move(group)[0].outcome is Fate.MOVED
    it.read("target", group, topic)
    assert seen() == before
