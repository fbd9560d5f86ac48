"""A mirror stopped by SIGSTOP that wakes when the link is no longer its own.

The broker forgets producers within two seconds, and the records are years old: the fence alone keeps nothing out here.
What does is the lease, which is looked at before every single write.
"""

import array
import fcntl
import os
import signal
import termios
import threading
import time
import uuid
from pathlib import Path

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.types import TopicPartition
from tests.copy.bench import Bench, assert_same, bench, records
from tests.copy.frozen import Elsewhere
from tests.copy.test_interleavings import QUICK, SMALL_BATCHES, Appends
from tests.kafka_tools import ToSend, log_ends, produce
from tests.proxy import API_VERSIONS, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import until_forgotten, wired

SENDS_AGAIN_AFTER = 4.0


@pytest.fixture
def topic() -> str:
    return f"frozen-{uuid.uuid4().hex[:8]}"


def _freeze_in_the_middle(it: Bench, first: Elsewhere) -> None:
    """Stopped with batches in its hands that it has not sent."""
    wait_until(lambda: log_ends(it.target, it.topics) > 21, first.said or "the copy has begun")
    os.kill(first.process.pid, signal.SIGSTOP)
    assert log_ends(it.target, it.topics) < 150, "far from its end"


def _wake(first: Elsewhere) -> int:
    os.kill(first.process.pid, signal.SIGCONT)
    return first.process.wait(180)


def test_mirror_that_wakes_after_another_took_over_sends_nothing_and_gives_way(
    source_cluster, forgetful, topic, tmp_path: Path
):
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1), **SMALL_BATCHES)
        with Elsewhere(it, tmp_path / "log", throttle_bytes_per_second=2_000) as first:
            _freeze_in_the_middle(it, first)
            assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
            assert assert_same(it) == 200
            until_forgotten(wire, tp)
            end = log_ends(it.target, it.topics)
            assert (_wake(first), "TakenOver" in first.said) == (3, True), first.said
        assert log_ends(it.target, it.topics) == end
        assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
        assert assert_same(it) == 200


def test_mirror_that_wakes_after_the_seal_sends_nothing(source_cluster, forgetful, topic, tmp_path: Path):
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1), **SMALL_BATCHES)
        with Elsewhere(it, tmp_path / "log", throttle_bytes_per_second=2_000) as first:
            _freeze_in_the_middle(it, first)
            it.mirror(settings=QUICK).run(until_caught_up=True)
            sealed = it.seal()
            assert sealed.ends == {tp: it.link.positions()[tp].target}
            until_forgotten(wire, tp)
            assert (_wake(first), "sealed" in first.said) == (1, True), first.said
        assert log_ends(it.target, it.topics) == sealed.ends[tp] + 1, "the marker is the last thing there"
        with pytest.raises(Refused, match="was sealed"):
            it.mirror().run()
        assert it.seal().ends[tp] >= sealed.ends[tp]
        assert assert_same(it) == 200


def _unread(sock_fd: int) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(sock_fd, termios.FIONREAD, size)
    return size[0]


def test_mirror_that_wakes_in_the_middle_of_a_request_sends_no_more_of_it(
    source_cluster: EmbeddedKafka, forgetful: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """The rest of the request stands behind a look at the clock, as its beginning did."""
    partitions = 8
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: partitions}) as it,
        wired(it.target, topic) as wire,
    ):
        big = (ToSend(os.urandom(9_000), partition=n % partitions, timestamp=1_700_000_000_000) for n in range(2_400))
        produce(it.source, topic, big, **{"batch.size": 900_000})
        appends, seen, stuck = Appends(it), list[Frame](), threading.Event()
        go_on = threading.Event()

        def on_request(frame: Frame) -> bool | None:
            if frame in appends:
                seen.append(frame)
                if len(seen) == 2:  # what is sent after it fills the connection, and more
                    stuck.set()
                    assert go_on.wait(180)
                    return False
            return None

        with (
            Proxy(on_request=on_request, receive_bytes=65_536) as proxy,
            Elsewhere(it, tmp_path / "log", proxy) as first,
        ):
            assert stuck.wait(180), first.said
            waiting = [0]

            def is_full() -> bool:
                waiting.append(_unread(seen[1].connection.client_fileno()))
                return waiting[-1] > 0 and len(waiting) > 20 and len(set(waiting[-20:])) == 1

            wait_until(is_full, "the connection takes no more")
            os.kill(first.process.pid, signal.SIGSTOP)
            assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
            assert assert_same(it) == 2_400
            for p in range(partitions):
                until_forgotten(wire, TopicPartition(topic, p))
            end = log_ends(it.target, it.topics)
            go_on.set()
            assert _wake(first) == 3, first.said
        assert log_ends(it.target, it.topics) == end
        assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
        assert assert_same(it) == 2_400


def test_mirror_whose_connection_opens_slowly_sends_nothing_over_it_once_another_took_over(
    source_cluster: EmbeddedKafka, forgetful: EmbeddedKafka, topic: str, tmp_path: Path
) -> None:
    """It loses its connection between two requests, and the network lets the new one wait until the fence is
    forgotten."""
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1), **SMALL_BATCHES)
        appends, is_cut, is_slow, go_on = Appends(it), threading.Event(), threading.Event(), threading.Event()

        def on_response(frame: Frame) -> bool | None:
            if frame in appends and not is_cut.is_set():
                is_cut.set()
                frame.connection.answer_and_cut(frame)
                return False
            if frame.api == API_VERSIONS and is_cut.is_set():
                is_slow.set()
                assert go_on.wait(180)
            return None

        with (
            Proxy(on_response=on_response) as proxy,
            Elsewhere(it, tmp_path / "log", proxy, throttle_bytes_per_second=2_000) as first,
        ):
            wait_until(is_slow.is_set, "a new connection is being opened")
            wants_more = time.monotonic() + SENDS_AGAIN_AFTER
            wait_until(lambda: time.monotonic() > wants_more, "its throttle lets it send the next batch")
            assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
            assert assert_same(it) == 200
            until_forgotten(wire, tp)
            end = log_ends(it.target, it.topics)
            go_on.set()
            assert (first.process.wait(180), "TakenOver" in first.said) == (3, True), first.said
        assert log_ends(it.target, it.topics) == end
        assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
        assert assert_same(it) == 200
