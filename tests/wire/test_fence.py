"""Fences on a real broker: what they bind, what they do not, and what a dead author leaves behind."""

import functools
import random
import threading
import time
import uuid

import pytest
from confluent_kafka.admin import AdminClient
from kafka.protocol.producer import AddPartitionsToTxnRequest

from kafka_migration.domain.errors import CouldNotFindOut, TakenOver
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire import fence
from kafka_migration.wire.batch import BatchHeader, readdress
from kafka_migration.wire.cluster import LATEST, WireCluster
from tests.chaos.administration import move_leaders
from tests.kafka_tools import create_topics, read_all, topic_ids
from tests.proxy import FETCH, Frame, Proxy
from tests.waiting import UNDER_LOAD, wait_until
from tests.wire.made import Wire, made_batch, wired

OUT_OF_ORDER, FENCED = 45, 47
_COORDINATORS = "__transaction_state"


@pytest.fixture
def topic():
    return f"fence-{uuid.uuid4().hex[:8]}"


class Link:
    """A transactional id of its own and the partitions it writes to."""

    def __init__(self, wire: Wire, topic: str, partitions: int = 2) -> None:
        self.wire, self.name = wire, f"tests.{topic}"
        self.tps = [TopicPartition(topic, p) for p in range(partitions)]
        self.seen: list[tuple[TopicPartition, BatchHeader]] = []

    def identity(self) -> Identity:
        found: Identity = self.wire(fence.take_identity, self.name, deadline=time.monotonic() + 30)
        return found

    def write_markers(self, identity: Identity) -> None:
        self.wire(fence.write_markers, self.name, identity, self.tps, deadline=time.monotonic() + 30)

    def await_completion(self, identity: Identity, *, seconds: float = 30) -> None:
        self.wire(fence.await_completion, self.name, identity, deadline=time.monotonic() + seconds)

    def ends(self) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = self.wire(
            WireCluster.list_offsets, self.tps, LATEST, deadline=time.monotonic() + 30
        )
        return found

    def await_markers(
        self,
        identity: Identity,
        starts: tuple[int, int] = (0, 0),
        *,
        seconds: float = 30,
        ends: dict[TopicPartition, int] | None = None,
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = self.wire(
            fence.await_markers,
            identity,
            dict(zip(self.tps, starts, strict=True)),
            self._sees,
            deadline=time.monotonic() + seconds,
            ends=ends,
        )
        return found

    def _sees(self, tp: TopicPartition, header: BatchHeader) -> bool:
        self.seen.append((tp, header))
        return True

    def fence(self) -> tuple[Identity, dict[TopicPartition, int]]:
        identity = self.identity()
        self.write_markers(identity)
        return identity, self.await_markers(identity)

    def append(self, identity: Identity, sequence: int, *, count: int = 3, partition: int = 0) -> tuple[int, int]:
        batch = readdress(
            made_batch([b"v"] * count),
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            sequence=sequence,
        )
        ((answer,),) = self.wire.append({self.tps[partition]: batch})
        return answer.error, answer.base_offset


@pytest.fixture
def link(target_cluster, topic):
    create_topics(target_cluster.bootstrap_servers, {topic: 2})
    with wired(target_cluster.bootstrap_servers, topic) as wire:
        yield Link(wire, topic)


def test_each_fence_has_the_next_epoch_and_a_marker_in_every_partition(link, target_cluster, topic):
    first, markers = link.fence()
    assert markers == dict.fromkeys(link.tps, 0)
    second, markers = link.fence()
    assert markers == dict.fromkeys(link.tps, 1)
    assert (second.producer_id, second.producer_epoch) == (first.producer_id, first.producer_epoch + 1)
    assert all(rows == [] for rows in read_all(target_cluster.bootstrap_servers, {topic: 2}).values())
    assert {header.is_control for _, header in link.seen} == {True}


def test_behind_the_marker_the_earlier_epoch_is_refused_and_the_new_one_begins_at_sequence_zero(link):
    old, _ = link.fence()
    assert link.append(old, 0) == (0, 1)
    new, markers = link.fence()
    assert markers[link.tps[0]] == 4
    assert link.append(old, 3)[0] == FENCED
    assert link.append(old, 0, partition=1)[0] == FENCED, "also where it never wrote"
    assert link.append(new, 3)[0] == OUT_OF_ORDER
    assert link.append(new, 0) == (0, 5)
    assert link.append(new, 3) == (0, 8)
    assert link.append(new, 9)[0] == OUT_OF_ORDER


def test_next_epoch_without_a_marker_fences_nothing(link):
    old, _ = link.fence()
    link.identity()
    assert link.append(old, 0) == (0, 1)


def test_transaction_that_a_dead_author_left_open_is_ended_by_the_next_fence(link):
    first, _ = link.fence()
    dead = link.identity()
    add = AddPartitionsToTxnRequest(
        max_version=3,
        v3_and_below_transactional_id=link.name,
        v3_and_below_producer_id=dead.producer_id,
        v3_and_below_producer_epoch=dead.producer_epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=link.tps[0].topic, partitions=[0, 1])
        ],
    )
    link.wire(
        fence._ask_coordinator,
        link.name,
        add,
        functools.partial(fence._add_partitions_error, link.wire.cluster),
        time.monotonic() + 30,
    )
    link.seen.clear()
    alive, markers = link.fence()
    assert alive.producer_epoch > dead.producer_epoch
    assert {header.producer_id for _, header in link.seen} == {first.producer_id}, "all of them markers of this link"
    assert link.append(alive, 0) == (0, markers[link.tps[0]] + 1)
    assert link.append(dead, 0)[0] == FENCED


def test_author_whose_epoch_is_no_longer_the_newest_is_taken_over(link):
    old = link.identity()
    link.identity()
    with pytest.raises(TakenOver, match=link.name):
        link.write_markers(old)


def test_marker_that_never_comes_is_not_claimed(link):
    link.fence()
    with pytest.raises(CouldNotFindOut, match="2 partitions do not show"):
        link.await_markers(link.identity(), seconds=0.3)


def test_partition_of_which_enough_was_seen_is_not_waited_for(link):
    identity, _ = link.fence()
    link.append(identity, 0)
    never = Identity(identity.producer_id, identity.producer_epoch + 100)
    markers = link.wire(
        fence.await_markers, never, dict.fromkeys(link.tps, 0), lambda *_: False, deadline=time.monotonic() + 5
    )
    assert markers == {}


@pytest.mark.parametrize("needs_all", [False, True])
def test_topic_whose_fetches_lose_their_connection_holds_up_no_other_that_its_broker_leads(
    target_cluster, topic, needs_all
):
    names = [topic, *(f"{topic}-{n}" for n in range(6))]
    severed, *others = (TopicPartition(name, 0) for name in names)
    create_topics(target_cluster.bootstrap_servers, dict.fromkeys(names, 1))
    known = topic_ids(target_cluster.bootstrap_servers, [topic])[topic].bytes
    is_cut, unread = threading.Event(), dict[TopicPartition, str]()
    is_cut.set()

    def on_request(frame: Frame) -> bool | None:
        if is_cut.is_set() and frame.api == FETCH and frame.mentions(known):
            frame.connection.cut()
            return False
        return None

    with (
        Proxy(on_request=on_request) as proxy,
        wired(target_cluster.bootstrap_servers, *names, proxy_url=proxy.url) as wire,
    ):
        link = Link(wire, topic)
        link.tps = [severed, *others]
        identity = link.identity()
        link.write_markers(identity)
        if needs_all:
            threading.Timer(2, is_cut.clear).start()
        began = time.monotonic()
        markers = link.wire(
            fence.await_markers,
            identity,
            dict.fromkeys(link.tps, 0),
            lambda *_: True,
            deadline=began + 60,
            unread=None if needs_all else unread,
        )
        took = time.monotonic() - began
    if needs_all:
        assert markers == dict.fromkeys(link.tps, 0)
        assert took >= 2
    else:
        assert markers == dict.fromkeys(others, 0)
        assert list(unread) == [severed]
        assert took < fence.UNREAD_SECONDS * UNDER_LOAD


def test_everything_between_the_start_and_the_marker_is_shown_in_order(link):
    identity, _ = link.fence()
    sequences = [n * 3 for n in range(5)]
    for sequence in sequences:
        link.append(identity, sequence)
    newer = link.identity()
    link.write_markers(newer)
    link.seen.clear()
    link.await_markers(newer, (4, 0))
    shown = [header for tp, header in link.seen if tp == link.tps[0]]
    assert [h.base_sequence for h in shown if not h.is_control] == sequences[1:]
    assert fence.is_marker_of(shown[-1], newer)


def in_sync(servers: str, tp: TopicPartition) -> list[int]:
    """Nodes of the replicas that are in sync."""
    found = AdminClient({"bootstrap.servers": servers, "log_level": 0}).list_topics(tp.topic, timeout=30)
    return sorted(found.topics[tp.topic].partitions[tp.partition].isrs)


def test_markers_that_a_new_coordinator_writes_once_more_are_waited_for_and_the_last_one_counts(lossy):
    """One of them cannot be written yet, for want of a replica, so the fence is open when its coordinator changes."""
    servers, there, held = lossy.bootstrap_servers, f"fence-{uuid.uuid4().hex[:8]}", f"fence-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {there: 1}, brokers=[1, 3])
    create_topics(servers, {held: 1}, {"min.insync.replicas": "2"}, brokers=[1, 2])
    with wired(servers) as wire:
        wait_until(lambda: wire.refresh(there, held) == {}, "every broker knows the topics")
        link = Link(wire, there, 1)
        mine, other = link.tps[0], TopicPartition(held, 0)
        link.tps.append(other)
        link.fence()
        identity = link.identity()
        lossy.kill(2)
        wait_until(lambda: in_sync(servers, other) == [1], "broker 2 is out of sync")
        link.write_markers(identity)
        near = Link(wire, there, 1)
        wait_until(lambda: near.ends()[mine] == 2, "its marker is there")
        with pytest.raises(CouldNotFindOut, match="CONCURRENT_TRANSACTIONS"):
            link.await_completion(identity, seconds=0.5)
        move_leaders(servers, [_COORDINATORS], random.Random(1), share=1.0, onto=(1, 3))
        wait_until(lambda: near.ends()[mine] == 3, "the new coordinator writes it again")
        lossy.restart(2)
        link.await_completion(identity)
        ends = link.ends()
        link.seen.clear()
        markers = link.await_markers(identity, (0, 0), ends=ends)
        assert markers == {mine: 2, other: ends[other] - 1}
        assert [header.base_offset for tp, header in link.seen if tp == mine] == [0, 1, 2]
        assert link.append(identity, 0) == (0, 3), "right behind the last one"
