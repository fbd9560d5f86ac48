"""One partition's or one task's trouble on real brokers: what dies takes nothing else with it, and has an end."""

import threading
import time
import uuid
from dataclasses import replace
from typing import Any

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized
from kafka_migration.domain.ledger import PROGRESS_TOPIC
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.wire.keyed import KeyedAppender
from tests.copy.bench import ThreadRound, ThreadRunner, assert_same, bench, records
from tests.copy.test_watching import LONG, Running, running
from tests.kafka_tools import ToSend, log_ends, produce, topic_ids
from tests.proxy import FETCH, METADATA, PRODUCE, Frame, Proxy
from tests.waiting import UNDER_LOAD, wait_until

POISON = b"this one gets no answer"


@pytest.fixture
def topics() -> tuple[str, str]:
    name = uuid.uuid4().hex[:8]
    return f"isolated-{name}-a", f"isolated-{name}-b"


def _until(live: Running, topic: str, offset: int) -> None:
    what = f"{topic} is copied up to {offset}"
    wait_until(lambda: live.copied(topic) == offset or live.error, what)
    assert live.error is None


class OneDies(ThreadRound):
    """The task that copies topic b dies once it is told to, and has copied something."""

    def _work(self, orders: TaskOrders) -> None:
        super()._work(orders)
        if any(a.partition.topic.endswith("-b") for a in orders.assignments):
            self._receipts[:] = [it for it in self._receipts if not it.topic.endswith("-b")]
            raise CouldNotFindOut("its worker is gone")


class Perilous(ThreadRunner):
    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        self.orders.append(orders)
        return OneDies(orders) if len(self.orders) == 1 else ThreadRound(orders)


def test_task_that_dies_costs_the_others_neither_their_receipts_nor_a_fence(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    sound, dies = topics
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with running(it, LONG, Perilous()) as live:
            for topic in topics:
                _until(live, topic, 100)
            it.link.recall(live.runner.orders[0][0].round_id)
            wait_until(lambda: len(live.runner.orders) > 1, "the next epoch begins")
            for topic in topics:
                produce(it.source, topic, records(100, 1, 2))
                _until(live, topic, 200)
        assert (live.error, it.link.halts()) == (None, {})
        assert any("1 of 2 tasks died" in text for text in live.said)
        openings = it.link.openings()
        fences = {tp.topic: {opening.fence for opening in openings[tp]} for tp in openings}
        assert (len(fences[sound]), len(fences[dies])) == (1, 2)
        second = {a.partition.topic: a for share in live.runner.orders[1] for a in share.assignments}
        assert second[sound].hold_seconds == 0.0 < second[dies].hold_seconds
        assert assert_same(it) == 400


@pytest.mark.parametrize(
    "error",
    [CouldNotFindOut("nobody answers"), NotAuthorized("target", "Write", f"topic {PROGRESS_TOPIC}")],
    ids=["away", "forbidden"],
)
def test_progress_that_cannot_be_written_costs_no_epoch_and_is_written_once_it_can(
    source_cluster: EmbeddedKafka,
    target_cluster: EmbeddedKafka,
    topics: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    error: MigrationError,
) -> None:
    topic, is_down, refused, put = topics[0], threading.Event(), list[str](), KeyedAppender.put

    async def put_unless_down(appender: KeyedAppender, entries: Any, *, deadline: float) -> None:
        if is_down.is_set() and appender.topic == PROGRESS_TOPIC:
            refused.append(topic)
            raise error
        await put(appender, entries, deadline=deadline)

    monkeypatch.setattr(KeyedAppender, "put", put_unless_down)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        with running(it, LONG) as live:
            produce(it.source, topic, records(100, 1, 1))
            _until(live, topic, 100)
            is_down.set()
            produce(it.source, topic, records(100, 1, 2))
            wait_until(lambda: len(refused) >= 3 or live.error, "progress was to be written three times")
            # With the marker of the fence.
            wait_until(lambda: log_ends(it.target, {topic: 1}) == 201 or live.error, "all is copied all the same")
            is_down.clear()
            _until(live, topic, 200)
        assert (live.error, it.link.halts(), len(live.runner.orders)) == (None, {}, 1)
        assert assert_same(it) == 200


class KilledBy(ThreadRound):
    """A task that copies partition 2 of topic b dies before it has copied anything of it."""

    def _work(self, orders: TaskOrders) -> None:
        killers = [a for a in orders.assignments if a.partition == self.killer and a.position.source < 100]
        if killers:
            others = tuple(a for a in orders.assignments if a not in killers)
            super()._work(replace(orders, seconds=0.5, assignments=others))
            gone = {(a.partition.topic, a.partition.partition) for a in others}
            self._receipts[:] = [it for it in self._receipts if (it.topic, it.partition) not in gone]
            raise RuntimeError("segmentation fault")
        super()._work(orders)

    killer = TopicPartition("", 0)


def test_partition_that_kills_its_task_is_found_and_halted_and_all_others_are_copied(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    a, b = topics
    counts = {a: 2, b: 4}

    class Killed(KilledBy):
        killer = TopicPartition(b, 2)

    class Runner(ThreadRunner):
        def start(self, orders: list[TaskOrders]) -> ThreadRound:
            self.orders.append(orders)
            return Killed(orders)

    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, counts) as it:
        for topic, count in counts.items():
            produce(it.source, topic, records(100 * count, count, 1))
        with running(it, LONG, Runner()) as live:
            what = "the partition is halted"
            wait_until(lambda: it.link.halts() or live.error, what, deadline_seconds=120)
            assert live.error is None
            others = [TopicPartition(t, n) for t, c in counts.items() for n in range(c) if (t, n) != (b, 2)]
            wait_until(lambda: all(it.link.positions()[tp].source == 100 for tp in others), "all others are copied")
        assert live.error is None
        ((tp, halt),) = it.link.halts().items()
        assert (tp, halt.reason, halt.source_offset) == (TopicPartition(b, 2), Halt.UNREADABLE, 0)
        assert "RuntimeError: segmentation fault" in halt.detail


@pytest.mark.parametrize("is_for_good", [True, False], ids=["for good", "for a while"])
def test_batch_that_never_gets_an_answer_halts_alone_and_one_that_gets_it_at_last_does_not(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str], is_for_good: bool
) -> None:
    poisoned, goes = topics
    cut = threading.Event()

    def on_request(frame: Frame) -> bool | None:
        if frame.api == PRODUCE and POISON in frame.data and cut.is_set():
            frame.connection.cut()
            return False
        return None

    settings = replace(LONG, unclear_seconds=6.0 if is_for_good else 300.0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        cut.set()
        with Proxy(on_request=on_request) as proxy, running(it, settings, target_through=proxy) as live:
            for topic in topics:
                _until(live, topic, 100)
            produce(it.source, poisoned, [ToSend(POISON), ToSend(b"behind it")])
            wait_until(
                lambda: "no clear answer" in str((it.link.run() or {}).get("waiting")) or it.link.halts(),
                "it is named in the state",
            )
            if is_for_good:
                wait_until(lambda: it.link.halts() or live.error, "it halts")
            produce(it.source, goes, records(100, 1, 2))
            _until(live, goes, 200)
            if not is_for_good:
                cut.clear()
                _until(live, poisoned, 102)
        assert live.error is None
        if is_for_good:
            ((tp, halt),) = it.link.halts().items()
            assert (tp.topic, halt.reason, halt.source_offset) == (poisoned, Halt.REFUSED, 100)
            assert "at source offset 100 got no clear answer" in halt.detail
            assert live.copied(poisoned) == 100
        else:
            assert it.link.halts() == {}
            assert assert_same(it) == 302


def test_requests_that_are_too_large_together_get_through_one_by_one(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    counts = {topics[0]: 3}

    def on_request(frame: Frame) -> bool | None:
        if frame.api == PRODUCE and len(frame.data) > 60_000:
            frame.connection.cut()
            return False
        return None

    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, counts) as it:
        sent = [ToSend(b"x" * 40_000, None, n % 3) for n in range(30)]
        produce(it.source, topics[0], sent, **{"linger.ms": 0, "batch.num.messages": 1})
        settings = replace(LONG, streams=1)
        with Proxy(on_request=on_request) as proxy, running(it, settings, target_through=proxy) as live:
            wait_until(
                lambda: live.error or sum(at.source for at in it.link.positions().values()) == 30,
                "all is copied",
                deadline_seconds=120,
            )
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 30


def test_broker_that_answers_wrongly_of_a_topic_for_longer_than_ten_seconds_halts_nothing(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str]
) -> None:
    """To fetches and appends it says that it knows no such topic; its metadata say that it does."""
    wronged, goes = topics
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        ids = [topic_ids(at, [wronged])[wronged].bytes for at in (it.source, it.target)]
        wrong = threading.Event()

        others = {known: bytes(255 - byte for byte in known) for known in ids}

        def on_request(frame: Frame) -> bytes:
            data = frame.data
            if wrong.is_set() and frame.api in (PRODUCE, FETCH):
                for known, other in others.items():
                    data = data.replace(known, other)
            return data

        def on_response(frame: Frame) -> bytes:
            data = frame.data
            for known, other in others.items():
                data = data.replace(other, known)
            return data

        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        with (
            Proxy(on_request=on_request, on_response=on_response) as proxy,
            running(it, LONG, source_through=proxy, target_through=proxy) as live,
        ):
            for topic in topics:
                _until(live, topic, 100)
            wrong.set()
            # A fetch's error was believed after ten seconds.
            began, seed, slowest = time.monotonic(), 1, 0.0
            while time.monotonic() < began + 14:
                seed += 1
                produce(it.source, wronged, records(100, 1, seed))
                produce(it.source, goes, records(1_000, 1, seed))
                asked = time.monotonic()
                _until(live, goes, 100 + 1_000 * (seed - 1))
                slowest = max(slowest, time.monotonic() - asked)
                assert it.link.halts() == {}
            assert slowest < 5 * UNDER_LOAD, "the other topic goes on"
            wait_until(lambda: wronged in str((it.link.run() or {}).get("waiting")), "it waits by name")
            wrong.clear()
            _until(live, wronged, 100 * seed)
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 200 + 1_100 * (seed - 1)


@pytest.mark.parametrize("side", ["source", "target"])
def test_topic_whose_requests_always_lose_their_connection_waits_alone_and_goes_on_once_they_do_not(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str], side: str
) -> None:
    """All are led by one broker, and so a fetch names all that it has news of, and an append what is there."""
    severed, goes = topics
    counts = {severed: 1, goes: 1} | {f"{goes}-{n}": 1 for n in range(6)}
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, counts) as it:
        known = topic_ids(it.source if side == "source" else it.target, [severed])[severed].bytes
        is_cut = threading.Event()

        def on_request(frame: Frame) -> bool | None:
            if is_cut.is_set() and frame.api in (FETCH, PRODUCE) and frame.mentions(known):
                frame.connection.cut()
                return False
            return None

        for topic in counts:
            produce(it.source, topic, records(100, 1, 1))
        settings = replace(LONG, streams=1)
        with Proxy(on_request=on_request) as proxy, running(it, settings, None, **{f"{side}_through": proxy}) as live:
            for topic in counts:
                _until(live, topic, 100)
            is_cut.set()
            began, seed, slowest = time.monotonic(), 1, 0.0
            while time.monotonic() < began + 10:
                seed += 1
                produce(it.source, severed, records(100, 1, seed))
                produce(it.source, goes, records(100, 1, seed))
                asked = time.monotonic()
                _until(live, goes, 100 * seed)
                slowest = max(slowest, time.monotonic() - asked)
            assert slowest < 5 * UNDER_LOAD, "the others go on"
            assert live.copied(severed) < 100 * seed
            is_cut.clear()
            _until(live, severed, 100 * seed)
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 2 * 100 * seed + 600


@pytest.mark.parametrize("side", ["source", "target"])
def test_topic_that_all_brokers_called_another_one_goes_on_by_itself_once_they_know_it_again(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, topics: tuple[str, str], side: str
) -> None:
    doubted, goes = topics
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, dict.fromkeys(topics, 1)) as it:
        known = topic_ids(it.source if side == "source" else it.target, [doubted])[doubted].bytes
        wrong = threading.Event()

        def on_response(frame: Frame) -> bytes:
            other = bytes(255 - byte for byte in known)
            return frame.data.replace(known, other) if wrong.is_set() and frame.api == METADATA else frame.data

        for topic in topics:
            produce(it.source, topic, records(100, 1, 1))
        through: dict[str, Any] = {}
        with Proxy(on_response=on_response) as through[f"{side}_through"], running(it, LONG, **through) as live:
            for topic in topics:
                _until(live, topic, 100)
            wrong.set()
            wait_until(lambda: it.link.halts() or live.error, "it halts", deadline_seconds=UNDER_LOAD * 20)
            assert [(tp.topic, halt.reason) for tp, halt in it.link.halts().items()] == [(doubted, Halt.RECREATED)]
            for topic in topics:
                produce(it.source, topic, records(100, 1, 2))
            _until(live, goes, 200)
            assert live.copied(doubted) == 100
            wrong.clear()
            _until(live, doubted, 200)
        assert (live.error, it.link.halts()) == (None, {})
        assert assert_same(it) == 400
