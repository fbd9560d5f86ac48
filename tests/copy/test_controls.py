"""Commands to a running mirror, measured from outside by log ends: each in the epoch that runs.

Within two seconds on a machine with time to spare; an epoch is sixty times that.
"""

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import confluent_kafka
import pytest

from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.domain.controls import Pause, Throttle
from kafka_migration.domain.errors import MigrationError, TakenOver
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.state.link import LinkState, Wish
from tests.copy.bench import Bench, ThreadRunner, assert_same, bench
from tests.kafka_tools import ToSend, log_ends, produce
from tests.waiting import UNDER_LOAD, wait_until

SECONDS = 2.0
AT = "2026-01-01T00:00:00.000+00:00"


@pytest.fixture
def topic() -> str:
    return f"controls-{uuid.uuid4().hex[:8]}"


class Running:
    """A mirror that runs in a thread, with connections of its own to its link's state."""

    def __init__(self, it: Bench) -> None:
        self.bench, self.runner = it, ThreadRunner()
        self.outcome: MirrorEnd | None = None
        self.error: MigrationError | None = None
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        link = LinkState.on_target(self.bench.link.name, {"bootstrap.servers": self.bench.target})
        settings = Settings(streams=2, epoch_seconds=120)
        try:
            self.outcome = self.bench.mirror(self.runner, settings=settings, link=link).run()
        except MigrationError as error:
            self.error = error
        finally:
            link.close()

    def ended(self, seconds: float = 30.0) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()


@contextmanager
def running(it: Bench) -> Iterator[Running]:
    found = Running(it)
    try:
        yield found
    finally:
        with suppress(MigrationError):
            it.link.wish(Wish(desired=Desired.STOP, reason="the test is over", at=AT))
        assert found.ended()


@contextmanager
def writing(it: Bench, topic: str, partitions: int) -> Iterator[None]:
    """A producer that never rests."""
    over, unsent = threading.Event(), list[int]()

    def write() -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": it.source, "linger.ms": 5})
        n = 0
        while not over.wait(0.02):
            for _ in range(20):
                producer.produce(topic, b"%d" % n, partition=n % partitions)
                n += 1
            producer.poll(0)
        unsent.append(producer.flush(30))

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
    assert unsent == [0]


def last_growth(read: Callable[[], int], *, still_for: float) -> float:
    """When (monotonic) the value that `read` tells grew last, once it has stood still for so many seconds."""
    seen, at = read(), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, at
        now = read()
        if now != seen:
            seen, at = now, time.monotonic()
        return time.monotonic() - at > still_for

    wait_until(is_still, f"no growth for {still_for} s")
    return at


def test_pause_and_resume_take_effect_within_two_seconds_in_the_same_epoch(source_cluster, target_cluster, topic):
    with (
        bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it,
        running(it) as mirror,
    ):
        with writing(it, topic, 2):
            wait_until(lambda: log_ends(it.target, it.topics) > 200, "records flow")
            asked = time.monotonic()
            it.link.pause(Pause(by="ada", at=AT, reason="a test"))
            assert last_growth(lambda: log_ends(it.target, it.topics), still_for=2.5) - asked < UNDER_LOAD * SECONDS
            paused_at = log_ends(it.target, it.topics)
            assert log_ends(it.source, it.topics) > paused_at + 500, "producers wrote on"
            it.link.resume(by="ada", at=AT)
            wait_until(
                lambda: log_ends(it.target, it.topics) > paused_at, "it goes on", deadline_seconds=UNDER_LOAD * SECONDS
            )
        # Ends differ by the fence's marker in each partition.
        wait_until(lambda: log_ends(it.target, it.topics) == log_ends(it.source, it.topics) + 2, "all is copied")
        assert len(mirror.runner.orders) == 1, "one epoch, from beginning to end"
        assert assert_same(it) > 700


def test_throttle_takes_effect_within_two_seconds_over_the_whole_mirror_and_off_ends_it(
    source_cluster, target_cluster, topic
):
    rate, size, partitions = 200_000, 1_000, 4
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: partitions}) as it:
        backlog = [ToSend(b"x" * size, partition=n % partitions) for n in range(30_000)]
        produce(it.source, topic, backlog, **{"batch.size": 10_000})
        it.link.throttle(Throttle(bytes_per_second=5 * rate, by="ada", at=AT))
        with running(it) as mirror:
            copied = lambda: log_ends(it.target, it.topics) * size  # noqa: E731
            wait_until(lambda: copied() > 2 * rate, "records flow")
            it.link.throttle(Throttle(bytes_per_second=rate, by="ada", at=AT))
            obeyed_by = time.monotonic() + SECONDS
            wait_until(lambda: time.monotonic() > obeyed_by, "two seconds pass")
            began, before = time.monotonic(), copied()
            wait_until(lambda: copied() - before > 4 * rate, "four seconds' worth")
            measured = (copied() - before) / (time.monotonic() - began)
            assert 0.6 * rate < measured < 1.3 * rate
            it.link.throttle(Throttle(bytes_per_second=None, by="ada", at=AT))
            # At the rate before it would take two minutes and more.
            wait_until(lambda: copied() >= 30_000 * size, "all is copied, as fast as it can")
            assert len(mirror.runner.orders) == 1
        assert assert_same(it) == 30_000


@pytest.mark.parametrize(("wish", "reason"), [(Desired.STOP, "stopped"), (Desired.DRAIN, "drained")])
def test_paused_mirror_ends_within_two_seconds_of_being_asked_all_the_same(
    source_cluster, target_cluster, topic, wish, reason
):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        produce(it.source, topic, [ToSend(b"x")] * 100)
        with running(it) as mirror:
            wait_until(lambda: tp in it.link.progress() and it.link.positions()[tp].source == 100, "copied")
            it.link.pause(Pause(by="ada", at=AT))
            it.link.wish(Wish(desired=wish, ends={tp: 100} if wish is Desired.DRAIN else {}, at=AT))
            assert mirror.ended(UNDER_LOAD * SECONDS)
            assert mirror.outcome is not None
            assert mirror.outcome.reason == reason
        assert assert_same(it) == 100


def test_drain_is_copied_up_to_its_ends_by_the_round_that_runs(source_cluster, target_cluster, topic):
    """While producers are fenced: another round would take a second and more to begin. One task is done at once, and
    nobody takes it for dead while the other still copies."""
    size, ends = 1_000, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 3_000}
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, [ToSend(b"x"), *[ToSend(b"x" * size, partition=1)] * 3_000])
        it.link.throttle(Throttle(bytes_per_second=1_000_000, by="ada", at=AT))
        with running(it) as mirror:
            wait_until(lambda: log_ends(it.target, it.topics) > 200, "records flow")
            it.link.wish(Wish(desired=Desired.DRAIN, ends=ends, reason="test", at=AT))
            assert mirror.ended()
            assert mirror.outcome is not None
            assert (mirror.outcome.reason, mirror.outcome.rounds) == ("drained", 1)
        assert assert_same(it) == 3_001


def test_mirror_whose_drain_is_taken_back_copies_beyond_its_ends(source_cluster, target_cluster, topic):
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, [ToSend(b"x"), *[ToSend(b"x" * 1_000, partition=1)] * 3_000])
        it.link.throttle(Throttle(bytes_per_second=500_000, by="ada", at=AT))
        with running(it):
            wait_until(lambda: log_ends(it.target, it.topics) > 200, "records flow")
            it.link.wish(Wish(desired=Desired.DRAIN, ends={first: 1, second: 2_900}, reason="test", at=AT))
            # Nobody is told that the tasks have seen it, but that what is beyond the ends is copied afterwards.
            produce(it.source, topic, [ToSend(b"late")] * 100)
            it.link.wish(Wish(desired=Desired.RUN, reason="test", at=AT))
            it.link.throttle(Throttle(bytes_per_second=None, by="ada", at=AT))
            wait_until(
                lambda: {tp: at.source for tp, at in it.link.positions().items()} == {first: 101, second: 3_000},
                "all is copied",
            )
        assert assert_same(it) == 3_101


def test_pause_holds_over_a_takeover_and_the_paused_mirror_says_that_it_was_taken_over(
    source_cluster, target_cluster, topic
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        it.link.pause(Pause(by="ada", at=AT))
        produce(it.source, topic, [ToSend(b"x")] * 100)
        with running(it) as first:
            wait_until(it.link.fences, "the first has fenced")
            with running(it) as second:
                assert first.ended()
                assert isinstance(first.error, TakenOver)
                assert first.error.exit_code == 3
                wait_until(lambda: second.runner.orders, "the second runs")
                assert last_growth(lambda: log_ends(it.target, it.topics), still_for=1.0)
                # The marker of each fence, and nothing else.
                assert log_ends(it.target, it.topics) == 2
                it.link.resume(by="bob", at=AT)
                wait_until(lambda: log_ends(it.target, it.topics) == 102, "the second copies")
        assert assert_same(it) == 100
