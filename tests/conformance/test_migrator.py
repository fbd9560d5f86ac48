"""What Redpanda Migrator tests of the groups that it moves (redpanda-data/connect, internal/impl/redpanda/migrator,
migrator_groups_integration_test.go), demanded of this mirror. The migrator finds a group's place by timestamps, and
needs them to rise; here times mean nothing for it, and no group is put anywhere but at its very record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.steps.cutover import Fate
from tests.conformance.scene import Scene, scene
from tests.kafka_tools import ToSend, commit, create_topics, delete_records, delete_topic, produce, read_all

COUNT = 10
GROUPS = [f"at-{n}" for n in range(COUNT + 1)]
#: The time of record n, in milliseconds.
TIMES: dict[str, Callable[[int], int]] = {
    "monotonic": lambda n: 1000 * n,
    "sub-millisecond": lambda n: n // 4,
    "all alike": lambda _n: 1_790_000_000_000,
    "non-monotonic": lambda n: 1000 * (3 + n if n < COUNT // 2 else 2 + n - COUNT // 2),
    "falling": lambda n: 1000 * (COUNT - n),
}


@pytest.fixture
def it(source_cluster: Any, target_cluster: Any) -> Iterator[Scene]:
    with scene(source_cluster, target_cluster, stopped=GROUPS) as found:
        yield found


def _values(it: Scene, side: str, tp: TopicPartition, since: int) -> list[bytes | None]:
    servers = it.source if side == "source" else it.target
    return [row.value for row in read_all(servers, {tp.topic: it.topics[tp.topic]})[tp] if row.offset >= since]


@pytest.mark.parametrize("kind", TIMES)
def test_group_at_any_record_is_moved_to_it_whatever_times_the_records_have(it: Scene, kind: str) -> None:
    """TestIntegrationGroupsOffsetSync: monotonic, monotonic sub millisecond timestamp, non-monotonic. There a commit of
    offset 0 is not synced, and records of one millisecond need a header that tells them apart; here each of eleven
    groups, from before the first record to behind the last, is moved, and is where it was."""
    topic = it.make("orders", 1)
    tp = TopicPartition(topic, 0)
    # The target's offsets are others: behind a copy that was begun before, and its fence.
    it.write(topic, 7)
    it.begin()
    it.copy()
    delete_records(it.source, {tp: 7})
    produce(it.source, topic, [ToSend(b"r%d" % n, None, 0, TIMES[kind](n)) for n in range(COUNT)])
    assert it.copy().records == COUNT
    for n, group in enumerate(GROUPS):
        it.commit(it.name(group), {tp: 7 + n})
    assert {outcome.outcome for outcome in it.move(*map(it.name, GROUPS))} == {Fate.MOVED}
    for n, group in enumerate(GROUPS):
        (place,) = it.committed("target", it.name(group)).values()
        assert place != 7 + n, "target offsets are others"
        assert _values(it, "target", tp, place) == [b"r%d" % rest for rest in range(n, COUNT)]


def test_group_of_which_one_partition_was_truncated_is_moved_exactly_in_both(it: Scene) -> None:
    """TestIntegrationGroupsOffsetSync, monotonic truncated: the source lost what stands before the commit, and there
    only the other partition is synced. Here both are, since the map knows what was copied; so is a group that stands in
    what is lost, though nobody can read there any more."""
    topic = it.make("orders", 2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    it.write(topic, 20)
    it.begin()
    it.copy()
    it.commit(it.name("at-0"), {first: 2, second: 3})
    it.commit(it.name("at-1"), {first: 1, second: 3})
    delete_records(it.source, {first: 2})
    moved = it.move(it.name("at-0"), it.name("at-1"))
    assert [outcome.outcome for outcome in moved] == [Fate.MOVED] * 2
    for group, stood in (("at-0", 2), ("at-1", 1)):
        places = it.committed("target", it.name(group))
        assert _values(it, "target", first, places[first]) == [b"%d" % n for n in range(2 * stood, 20, 2)]
        assert _values(it, "target", second, places[second]) == [b"%d" % n for n in range(7, 20, 2)]


@pytest.mark.parametrize("offset", [11, 10**9])
def test_group_beyond_the_end_is_not_moved(it: Scene, offset: int) -> None:
    """TestIntegrationGroupsOffsetSync, monotonic, 6: beyond the partition's end, nothing is synced. Here that is said,
    and the group's other partition is not moved without it."""
    topic, group = it.make("orders", 2), it.name("at-0")
    it.write(topic, 20)
    it.begin()
    it.copy()
    it.commit(group, {TopicPartition(topic, 0): offset, TopicPartition(topic, 1): 5})
    (outcome,) = it.move(group)
    assert outcome.outcome is Fate.REFUSED
    assert str(offset) in outcome.reason
    assert it.committed("target", group) == {}


def test_group_ahead_of_the_copy_waits_for_it_and_is_never_put_before_its_place(it: Scene) -> None:
    """TestIntegrationGroupsOffsetSync, monotonic data missing: the group is synced to the end that the target has, and
    reads on from there twice. Here it is not moved until its record is there."""
    topic, group = it.make("orders", 1), it.name("at-0")
    tp = TopicPartition(topic, 0)
    it.write(topic, 10)
    it.begin()
    it.copy()
    it.write(topic, 10, first=10)
    it.commit(group, {tp: 16})
    assert it.move(group)[0].outcome is Fate.REFUSED
    assert it.committed("target", group) == {}
    it.copy()
    assert it.move(group)[0].outcome is Fate.MOVED
    assert _values(it, "target", tp, it.committed("target", group)[tp]) == [b"%d" % n for n in range(16, 20)]


def test_group_that_is_ahead_on_the_target_is_not_set_back(it: Scene) -> None:
    """TestIntegrationGroupsOffsetSync, no rewind dst. Here it is told, too, as two groups of one name may well be two
    groups; only the plan's own word sets it back."""
    topic, group = it.make("orders", 1), it.name("at-0")
    tp = TopicPartition(topic, 0)
    it.write(topic, 20)
    it.begin()
    it.copy()
    it.commit(group, {tp: 5})
    place = it.ctx.link.offset_maps()[tp].to_target(12)
    commit(it.target, group, {tp: place})
    (outcome,) = it.move(group)
    assert outcome.outcome is Fate.REFUSED
    assert it.committed("target", group) == {tp: place}


def test_commits_of_topics_that_are_not_migrated_or_gone_are_told_and_left(it: Scene) -> None:
    """TestIntegrationListGroupOffsets (topic filtering) and its like: only what belongs to the migration is moved. Here
    what stays behind is said with the group."""
    topic, gone, group = it.make("orders", 1), it.make("gone", 1), it.name("at-0")
    outside = f"other-{it.prefix}"
    for name in (topic, gone):
        it.write(name, 10)
    create_topics(it.source, {outside: 1})
    produce(it.source, outside, [ToSend(b"x")])
    places = {TopicPartition(name, 0): 1 for name in (topic, gone, outside)}
    it.commit(group, places)
    it.begin()
    it.copy()
    delete_topic(it.source, gone)
    del it.topics[gone]
    (outcome,) = it.move(group)
    assert outcome.outcome is Fate.MOVED
    assert outside in " ".join(outcome.flags)
    assert {tp.topic for tp in it.committed("target", group)} == {topic}
