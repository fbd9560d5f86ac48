"""Leader changes and unclean elections: what was confirmed on one broker is not there on the next."""

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition
from kafka_migration.domain.types import Halt, Identity, TopicPartition
from kafka_migration.state.link import LinkTopic
from tests.chaos.administration import move_leaders
from tests.copy.bench import OPEN_ENDED, Bench, assert_same, bench, records
from tests.copy.test_interleavings import QUICK, SMALL_BATCHES, Appends
from tests.copy.test_watching import LONG, running
from tests.kafka_tools import ToSend, create_topics, log_ends, produce, read_all, topic_ids
from tests.losing import UNCLEAN, lose, until_alone
from tests.proxy import FETCH, PRODUCE, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import until_forgotten, wired


@pytest.fixture
def topic() -> str:
    return f"three-{uuid.uuid4().hex[:8]}"


def test_old_records_through_leader_changes_and_cut_connections_are_copied_exactly(lossy, source_cluster, topic):
    with bench(source_cluster.bootstrap_servers, lossy.bootstrap_servers, {topic: 2}, target_brokers=[1, 2]) as it:
        produce(it.source, topic, records(2_000, 2, 1), **SMALL_BATCHES)
        appends, answers, moved = Appends(it), list[Frame](), threading.Event()

        def on_response(frame: Frame) -> bool | None:
            if frame in appends:
                answers.append(frame)
                if len(answers) % 9 == 4:
                    frame.connection.cut()
                    return False
                if len(answers) == 14:
                    threading.Thread(target=fail_over, daemon=True).start()
                    assert moved.wait(180)
            return None

        def fail_over() -> None:
            lossy.kill(1)
            moved.set()
            lossy.restart(1)

        with Proxy(on_response=on_response) as proxy:
            assert it.mirror(settings=QUICK, target_through=proxy).run(until_caught_up=True).halted == ()
        assert moved.is_set()
        assert assert_same(it) == 2_000


@pytest.mark.parametrize("side", ["source", "target"])
def test_leaders_that_move_while_it_copies_are_followed(three, source_cluster, topic, side):
    """By the cluster's own election, nobody dies: each answers that it leads no more, and requests under way fail."""
    on, others = dict[str, Any]({f"{side}_brokers": [1, 2, 3]}), source_cluster.bootstrap_servers
    clusters = (three.bootstrap_servers, others) if side == "source" else (others, three.bootstrap_servers)
    with bench(*clusters, {topic: 4}, **on) as it:
        produce(it.source, topic, records(2_000, 4, 1), **SMALL_BATCHES)
        servers, wanted = three.bootstrap_servers, FETCH if side == "source" else PRODUCE
        answers, moved, written, chance = list[Frame](), list[int](), list[int](), random.Random(1)
        ids = [topic_id.bytes for topic_id in topic_ids(servers, [topic]).values()]

        def on_response(frame: Frame) -> None:
            if frame.api == wanted and frame.request is not None and frame.request.mentions(*ids):
                answers.append(frame)
                if len(answers) in (3, 12):
                    moved.append(move_leaders(servers, [topic], chance))
                    produce(it.source, topic, records(500, 4, len(answers)), **SMALL_BATCHES)
                    written.append(500)

        # A little at a time, so that it is in the middle when they move.
        limits = replace(QUICK.limits, partition_fetch_bytes=6_000, partition_queue_bytes=6_000)
        with Proxy(on_response=on_response) as proxy:
            it_through: dict[str, Any] = {f"{side}_through": proxy}
            mirror = it.mirror(settings=replace(QUICK, limits=limits), **it_through)
            assert mirror.run(until_caught_up=True).halted == ()
        # The mirror may be done with what it found before.
        wait_until(lambda: len(written) == 2, "the records of both moves are written")
        assert len(moved) == 2
        assert min(moved) > 0
        it.mirror(settings=QUICK).run(until_caught_up=True)
        assert assert_same(it) == 3_000


def test_new_leader_that_has_forgotten_the_producer_and_refuses_a_batch_is_sent_none_after_it(
    three, source_cluster, topic
):
    """Case C once more: it would take the second for the first, and leave a hole. What it knew is not what the one
    before knew, which had confirmed hundreds."""
    quiet, busy = TopicPartition(topic, 0), TopicPartition(topic, 1)
    settings = replace(QUICK, limits=replace(QUICK.limits, join_bytes=0))
    with (
        bench(source_cluster.bootstrap_servers, three.bootstrap_servers, {topic: 2}, target_brokers=[1, 2, 3]) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(400, 2, 1), **SMALL_BATCHES)
        appends, refused, moved, another = Appends(it), list[Frame](), threading.Event(), threading.Event()
        early = list[bool]()

        def copied() -> list[int]:
            at = it.link.positions()
            return [at[tp].source for tp in (quiet, busy) if tp in at]

        def on_request(frame: Frame) -> bytes | None:
            if frame not in appends or not moved.is_set():
                return None
            if refused:
                another.set()
                return None
            refused.append(frame)
            at = frame.data.rindex(b"xxxx")
            return frame.data[:at] + b"y" + frame.data[at + 1 :]

        def on_response(frame: Frame) -> None:
            if refused and (frame.connection, frame.correlation) == (refused[0].connection, refused[0].correlation):
                early.append(another.wait(3))

        with (
            Proxy(on_request=on_request, on_response=on_response) as proxy,
            running(it, settings, target_through=proxy) as mirror,
        ):
            wait_until(lambda: copied() == [200, 200], "all is copied")
            assert move_leaders(it.target, [topic], random.Random(4)) == 2
            # This one is refused by the leader before; for the other one's sake nobody asks who leads now.
            produce(it.source, topic, [ToSend(value=b"x", partition=1)])
            wait_until(lambda: copied() == [200, 201], "the new leaders are known")
            wire.refresh(topic)
            until_forgotten(wire, quiet)
            moved.set()
            produce(it.source, topic, records(400, 1, 2), **SMALL_BATCHES)
            wait_until(lambda: copied() == [600, 201] or it.link.halts(), "it is copied")
        assert early == [False], "nothing is sent before the first is answered"
        assert (mirror.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 801


@contextmanager
def tail_lost(source: str, lossy: Any, topic: str, count: int) -> Iterator[tuple[Bench, int]]:
    """100 records are on the target, which has lost ``count`` more, with the fence before them; and up to which target
    offset all was confirmed."""
    tp = TopicPartition(topic, 0)
    with bench(source, lossy.bootstrap_servers, {topic: 1}, target_config=UNCLEAN, target_brokers=[1, 2]) as it:
        produce(it.source, topic, records(100, 1, 1), **SMALL_BATCHES)
        it.mirror(settings=QUICK).run(until_caught_up=True)
        lossy.kill(2)
        until_alone(it.target, tp)
        produce(it.source, topic, records(count, 1, 2), **SMALL_BATCHES)
        it.mirror(settings=QUICK).run(until_caught_up=True)
        assert assert_same(it) == 100 + count
        confirmed = it.link.positions()[tp].target
        lose(lossy, it.target, tp)
        assert log_ends(it.target, it.topics) < confirmed
        yield it, confirmed


@pytest.mark.parametrize("moved", [False, True], ids=["no group was moved", "a group was moved"])
def test_target_that_lost_its_tail_is_copied_again_from_there_unless_a_group_depends_on_it(
    lossy, source_cluster, topic, moved
):
    tp = TopicPartition(topic, 0)
    with tail_lost(source_cluster.bootstrap_servers, lossy, topic, 100) as (it, confirmed):
        produce(it.source, topic, records(300, 1, 3), **SMALL_BATCHES)
        if not moved:
            end = log_ends(it.target, it.topics)
            assert it.mirror(settings=QUICK, may_rewind=lambda: True).run(until_caught_up=True).halted == ()
            assert assert_same(it) == 500
            ((rewound,),) = it.link.rewinds().values()
            assert (rewound["lost_from"], rewound["lost_to"]) == (end, confirmed)
            return
        with pytest.raises(HaltedPartition, match="nothing is left to copy"):
            it.mirror(settings=QUICK).run(until_caught_up=True)
        halt = it.link.halts()[tp]
        assert (halt.reason, str(confirmed) in halt.detail) == (Halt.LOG_REGRESSED, True)
        assert len(read_all(it.target, it.topics)[tp]) == 100, "nothing was added behind the hole"


def test_record_that_the_target_lost_is_copied_again_though_a_fence_that_came_to_nothing_left_a_marker_in_its_place(
    lossy, source_cluster, topic, monkeypatch
):
    with tail_lost(source_cluster.bootstrap_servers, lossy, topic, 1) as (it, confirmed):
        record, lost = it.link.record_fence, list[int]()

        def dies(fence: int, identity: Identity, *, at: str) -> None:
            if not lost:
                lost.append(fence)
                raise CouldNotFindOut("the author of the fence has died")
            record(fence, identity, at=at)

        monkeypatch.setattr(it.link, "record_fence", dies)
        with suppress(CouldNotFindOut):
            it.mirror(settings=QUICK, may_rewind=lambda: True).run(until_caught_up=True)
        assert it.mirror(settings=QUICK, may_rewind=lambda: True).run(until_caught_up=True).halted == ()
        assert lost
        assert assert_same(it) == 101
        ((rewound,),) = it.link.rewinds().values()
        assert rewound["lost_to"] == confirmed


@pytest.mark.timeout(150)  # without the leader epoch it never ends
@pytest.mark.parametrize("grown", ["below our position", "beyond our position"])
def test_source_that_was_truncated_between_two_runs_halts_by_name(lossy, target_cluster, topic, grown):
    """Its other records at offsets that were copied already, and behind them, must not pass for the continuation."""
    tp = TopicPartition(topic, 0)
    with bench(
        lossy.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=UNCLEAN, source_brokers=[1, 2]
    ) as it:
        produce(it.source, topic, records(100, 1, 1), **SMALL_BATCHES)
        lossy.kill(2)
        until_alone(it.source, tp)
        produce(it.source, topic, records(100, 1, 2), **SMALL_BATCHES)
        it.mirror(settings=QUICK).run(until_caught_up=True)
        assert assert_same(it) == 200
        lose(lossy, it.source, tp)
        produce(it.source, topic, records(50 if grown.startswith("below") else 150, 1, 3), **SMALL_BATCHES)
        with pytest.raises(HaltedPartition, match="nothing is left to copy"):
            _until_it_ends(it)
        assert it.link.halts()[tp].reason == Halt.TRUNCATED
        assert it.link.positions()[tp].source == 200
        assert len(read_all(it.target, it.topics)[tp]) == 200


def _until_it_ends(it: Bench) -> None:
    """Without an end of its own: the source's end may lie below the position."""
    it.mirror(settings=QUICK).run()


def test_source_that_is_truncated_under_a_running_mirror_halts_by_name_and_the_others_go_on(
    lossy, target_cluster, topic
):
    tp, other = TopicPartition(topic, 0), TopicPartition(f"{topic}-other", 0)
    with bench(
        lossy.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=UNCLEAN, source_brokers=[1, 2]
    ) as it:
        _add_topic(it, other.topic, source_brokers=[3])
        both = Bench(it.link, {topic: 1, other.topic: 1}, it.source, it.target)
        for name in both.topics:
            produce(it.source, name, records(100, 1, 1), **SMALL_BATCHES)
        with running(both, LONG) as live:
            wait_until(lambda: live.copied(topic) == live.copied(other.topic) == 100, "both are copied")
            lossy.kill(2)
            until_alone(it.source, tp)
            produce(it.source, topic, records(100, 1, 2), **SMALL_BATCHES)
            wait_until(lambda: live.copied(topic) == 200, "what one broker alone has is copied")
            lose(lossy, it.source, tp)
            produce(it.source, topic, records(50, 1, 3), **SMALL_BATCHES)
            wait_until(lambda: tp in it.link.halts(), "it halts")
            produce(it.source, other.topic, records(100, 1, 4), **SMALL_BATCHES)
            wait_until(lambda: live.copied(other.topic) == 200, "the other goes on")
        assert live.error is None
        assert {at: halt.reason for at, halt in it.link.halts().items()} == {tp: Halt.TRUNCATED}
        assert len(read_all(it.target, {topic: 1})[tp]) == 200


def _add_topic(it: Bench, name: str, *, source_brokers: list[int]) -> None:
    create_topics(it.source, {name: 1}, {"retention.ms": "-1"}, brokers=source_brokers)
    create_topics(it.target, {name: 1}, OPEN_ENDED)
    pinned = LinkTopic(
        name=name, source_id=topic_ids(it.source, [name])[name], target_id=topic_ids(it.target, [name])[name]
    )
    it.link.pin(source_cluster="source", target_cluster="target", topics=[pinned], at="")
