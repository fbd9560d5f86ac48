"""Brokers that are gone for long, on either side: what they hold waits, all else goes on, and a mirror can begin."""

import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import Settings
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.state.link import LinkTopic, Wish
from tests.copy.bench import BRIEF, OPEN_ENDED, Bench, assert_same, bench, records
from tests.copy.test_watching import LONG, Running, running
from tests.kafka_tools import create_topics, produce, topic_ids
from tests.proxy import PRODUCE, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import wired

GONE = 2
TWO = {"min.insync.replicas": "2"}


@pytest.fixture
def topics() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"absent-{name}-waits", f"absent-{name}-goes"


@pytest.fixture
def cluster(three: EmbeddedKafka) -> Iterator[EmbeddedKafka]:
    yield three
    if GONE not in three.pids:
        three.restart(GONE)


@contextmanager
def two_topics(three: str, other: str, side: str, topics: tuple[str, str], *, replicas: list[int]) -> Iterator[Bench]:
    """The first topic has its replicas on ``replicas`` of the three brokers, the second on one that stays."""
    waits, goes = topics
    servers = (three, other) if side == "source" else (other, three)
    extra: dict[str, Any] = {"target_config": TWO} if len(replicas) > 1 else {}
    with bench(*servers, {waits: 1}, **extra | {f"{side}_brokers": replicas}) as it:
        for end, config in (("source", {"retention.ms": "-1"}), ("target", OPEN_ENDED)):
            create_topics(getattr(it, end), {goes: 1}, config, brokers=[3] if end == side else None)
        ids = [topic_ids(at, [goes])[goes] for at in (it.source, it.target)]
        pinned = LinkTopic(name=goes, source_id=ids[0], target_id=ids[1])
        it.link.pin(source_cluster="source", target_cluster="target", topics=[pinned], at="")
        yield Bench(it.link, dict.fromkeys(topics, 1), it.source, it.target)


@contextmanager
def running_again(it: Bench) -> Iterator[Running]:
    it.link.wish(Wish(desired=Desired.RUN, reason="the test goes on", at=""))
    with running(it, LONG) as live:
        yield live


def _until(live: Running, topic: str, offset: int) -> None:
    what = f"{topic} is copied up to {offset}"
    wait_until(lambda: live.copied(topic) == offset or live.error, what)
    assert live.error is None


def _told(it: Bench) -> str:
    return str((it.link.run() or {}).get("waiting", ""))


def _until_told(it: Bench, why: str) -> None:
    """The link's state gives ``why`` as the reason to wait."""
    wait_until(lambda: why in _told(it), lambda: f"{why} in the link's state: {_told(it)}")


def _waits(live: Running) -> Callable[[], bool]:
    return lambda: any("1 partitions wait" in text for text in live.said)


def test_request_that_dies_with_the_only_broker_of_its_topic_waits_and_the_others_go_on(
    cluster, source_cluster, topics
):
    """Also in a mirror that begins meanwhile; and when the broker is back, nothing is lost or doubled."""
    waits, goes = topics
    servers = (cluster.bootstrap_servers, source_cluster.bootstrap_servers)
    with two_topics(*servers, "target", topics, replicas=[GONE]) as it:
        armed, killed, wanted = threading.Event(), threading.Event(), topic_ids(it.target, [waits])[waits].bytes

        def on_response(frame: Frame) -> bool | None:
            if armed.is_set() and frame.api == PRODUCE and frame.request is not None:
                if not frame.request.mentions(wanted):
                    return None
                if not killed.is_set():
                    cluster.kill(GONE)
                    killed.set()
                frame.connection.cut()
                return False
            return None

        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with Proxy(on_response=on_response) as proxy, running(it, LONG, target_through=proxy) as live:
            _until(live, waits, 100)
            _until(live, goes, 100)
            armed.set()
            produce(it.source, waits, records(100, 1, 2))
            assert killed.wait(180)
            produce(it.source, goes, records(100, 1, 3))
            wait_until(_waits(live), "it is told")
            _until(live, goes, 200)
            _until_told(it, "no leader that answers")
        assert live.error is None
        with running_again(it) as live:
            produce(it.source, goes, records(100, 1, 4))
            _until(live, goes, 300)
            assert _waits(live)()
            cluster.restart(GONE)
            _until(live, waits, 200)
            wait_until(lambda: not _told(it), "nobody waits")
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 500


def test_mirror_begins_and_copies_up_to_the_ends_though_a_broker_of_the_source_comes_late(
    cluster, target_cluster, topics
):
    servers = (cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    settings = Settings(streams=2, epoch_seconds=5, limits=Limits(**BRIEF))
    with two_topics(*servers, "source", topics, replicas=[GONE]) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        assert it.mirror(settings=settings).run(until_caught_up=True).records == 200
        for topic in topics:
            produce(it.source, topic, records(100, 1, 2))
        cluster.kill(GONE)
        said, back = list[str](), threading.Thread(target=cluster.restart, args=(GONE,))

        def log(text: str) -> None:
            said.append(text)
            # Not before the other one is copied, and it is all that is left.
            if it.link.positions()[TopicPartition(topics[1], 0)].source == 200 and back.ident is None:
                back.start()

        try:
            ended = it.mirror(settings=settings, log=log).run(until_caught_up=True)
        finally:
            back.join(60)
        assert (ended.reason, ended.records, ended.halted) == ("caught_up", 200, ())
        assert any("the source has no leader that answers; the others go on" in text for text in said)
        assert assert_same(it) == 400


def test_partition_with_too_few_replicas_in_sync_waits_and_stays_out_of_the_fences_of_others(
    cluster, source_cluster, topics
):
    """Its marker could not be written, and until it was no other partition could be fenced."""
    waits, goes = topics
    servers = (cluster.bootstrap_servers, source_cluster.bootstrap_servers)
    with two_topics(*servers, "target", topics, replicas=[1, GONE]) as it, wired(it.target, waits) as wire:

        def in_sync() -> int:
            wire.refresh(waits)
            return wire.cluster.replicas[TopicPartition(waits, 0)].in_sync

        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with running(it, LONG) as live:
            _until(live, waits, 100)
            cluster.kill(GONE)
            wait_until(lambda: in_sync() == 1, "one is left")
            produce(it.source, waits, records(100, 1, 2))
            wait_until(_waits(live), "it is told")
            wait_until(lambda: "min.insync.replicas" in _told(it), "it stands in the link's state")
            produce(it.source, goes, records(100, 1, 3))
            _until(live, goes, 200)
        assert live.error is None
        with running_again(it) as live:
            produce(it.source, goes, records(100, 1, 4))
            _until(live, goes, 300)
            cluster.restart(GONE)
            _until(live, waits, 200)
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 500
