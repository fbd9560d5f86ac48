"""A mirror stopped by SIGSTOP that wakes when the link is no longer its own.

The broker forgets producers within two seconds, and the records are years old: the fence alone keeps nothing out here.
What does is the lease, or, where the process wakes in the middle of a request, the account of target offsets.
"""

import array
import fcntl
import os
import signal
import termios
import threading
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

from kafka_migration.domain.errors import HaltedPartition, Refused
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.mirror.sealing import seal
from tests.kafka_tools import ToSend, log_ends, produce
from tests.mirror.bench import Bench, assert_same, bench, records
from tests.mirror.frozen import Elsewhere
from tests.mirror.test_interleavings import QUICK, SMALL_BATCHES, Appends, errors_of
from tests.proxy import Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import until_forgotten, wired


@pytest.fixture
def topic() -> str:
    return f"frozen-{uuid.uuid4().hex[:8]}"


def _freeze_in_the_middle(it: Bench, first: Elsewhere) -> None:
    """Stopped with batches in its hands that it has not sent."""
    wait_until(lambda: log_ends(it.target, it.topics) > 21, first.said or "the copy has begun", deadline_seconds=40)
    os.kill(first.process.pid, signal.SIGSTOP)
    assert log_ends(it.target, it.topics) < 150, "far from its end"


def _wake(first: Elsewhere) -> int:
    os.kill(first.process.pid, signal.SIGCONT)
    return first.process.wait(60)


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
            sealed = seal(it.link, {"bootstrap_servers": it.target})
            assert sealed.ends == {tp: it.link.positions()[tp].target}
            until_forgotten(wire, tp)
            assert (_wake(first), "sealed" in first.said) == (1, True), first.said
        assert log_ends(it.target, it.topics) == sealed.ends[tp] + 1, "the marker is the last thing there"
        with pytest.raises(Refused, match="was sealed"):
            it.mirror().run()
        assert seal(it.link, {"bootstrap_servers": it.target}).ends[tp] >= sealed.ends[tp]
        assert assert_same(it) == 200


def _unread(sock_fd: int) -> int:
    size = array.array("i", [0])
    fcntl.ioctl(sock_fd, termios.FIONREAD, size)
    return size[0]


def test_mirror_that_wakes_in_the_middle_of_a_request_is_found_out_and_halts_by_name(
    source_cluster, forgetful, topic, tmp_path: Path
):
    """The rest of the request leaves the process before it can look at any clock. This one may halt, never pass."""
    partitions = 8
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: partitions}) as it,
        wired(it.target, topic) as wire,
    ):
        big = (ToSend(os.urandom(9_000), partition=n % partitions, timestamp=1_700_000_000_000) for n in range(2_400))
        produce(it.source, topic, big, **{"batch.size": 900_000, "linger.ms": 1_000})
        appends, seen, stuck = Appends(it), list[Frame](), threading.Event()
        go_on = threading.Event()
        answered: list[Frame] = []

        def on_request(frame: Frame) -> bool | None:
            if frame in appends:
                seen.append(frame)
                if len(seen) == 2:  # what is sent after it fills the connection, and more
                    stuck.set()
                    assert go_on.wait(60)
                    return False
            return None

        def on_response(frame: Frame) -> None:
            if frame in appends:
                answered.append(frame)

        with (
            Proxy(on_request=on_request, on_response=on_response) as proxy,
            Elsewhere(it, tmp_path / "log", proxy) as first,
        ):
            assert stuck.wait(60), first.said
            waiting = [0]

            def is_full() -> bool:
                waiting.append(_unread(seen[1].connection.client_fileno()))
                return waiting[-1] > 0 and len(waiting) > 20 and len(set(waiting[-20:])) == 1

            wait_until(is_full, "the connection takes no more", deadline_seconds=30)
            os.kill(first.process.pid, signal.SIGSTOP)
            assert it.mirror(settings=QUICK).run(until_caught_up=True).halted == ()
            assert assert_same(it) == 2_400
            for p in range(partitions):
                until_forgotten(wire, TopicPartition(topic, p))
            before, whole = log_ends(it.target, it.topics), len(seen)
            go_on.set()
            assert len(seen) == whole
            assert _wake(first) == 3, first.said
            wait_until(lambda: len(answered) > 1, "the rest of the request has landed")
        assert set(errors_of(answered[-1])) == {0}, "the broker took it"
        assert log_ends(it.target, it.topics) > before
        harmed = {tp for tp in it.link.positions() if wire.end(tp) > it.link.positions()[tp].target}
        with suppress(HaltedPartition):  # if all are harmed
            it.mirror(settings=QUICK).run(until_caught_up=True)
        assert {tp: halt.reason for tp, halt in it.link.halts().items()} == dict.fromkeys(harmed, Halt.FOREIGN_WRITER)
        assert harmed
