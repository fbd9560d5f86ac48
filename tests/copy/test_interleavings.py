"""What networks and brokers do to a running mirror: answers lost, requests that land late, brokers that restart.

Each test makes the interleaving happen (and asserts that it did), then compares source and target record by record.
"""

import random
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kafka.protocol.producer import ProduceResponse

from demo.brokers import EmbeddedKafka
from kafka_migration.copy.driver.mirror import MirrorEnd, Settings
from kafka_migration.copy.orders import Limits
from tests.copy.bench import SHORT, Bench, assert_same, bench, records
from tests.kafka_tools import log_ends, produce, topic_ids
from tests.proxy import ADD_PARTITIONS, END_TXN, PRODUCE, Connection, Frame, Proxy
from tests.waiting import wait_until

QUICK = Settings(streams=1, epoch_seconds=20, limits=Limits(progress_seconds=0.1, command_seconds=0.1, **SHORT))
CORRUPT, OUT_OF_ORDER, FENCED = 2, 45, 47
SMALL_BATCHES = {"batch.num.messages": 20}


@pytest.fixture
def topic() -> str:
    return f"between-{uuid.uuid4().hex[:8]}"


class Appends:
    """Recognises the mirror's appends to the topics of a bench, and their answers."""

    def __init__(self, it: Bench) -> None:
        self._ids = [topic_id.bytes for topic_id in topic_ids(it.target, it.topics).values()]

    def __contains__(self, frame: Frame) -> bool:
        asked = frame.request or frame
        return asked.api == PRODUCE and asked.mentions(*self._ids)


def errors_of(response: Frame) -> list[int]:
    """The error codes of a produce response, partition by partition."""
    decoded = ProduceResponse.decode(response.data, version=response.version, header=True)
    return [part.error_code for answer in decoded.responses for part in answer.partition_responses]


def test_answers_lost_after_the_append_double_nothing(source_cluster, target_cluster, topic):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 3}) as it:
        produce(it.source, topic, records(3_000, 3, 1), **SMALL_BATCHES)
        appends, answers, lost = Appends(it), [], []

        def on_response(frame: Frame) -> bool | None:
            if frame in appends:
                answers.append(frame)
                if len(answers) in (1, 4, 5, 11, 20):  # the very first, in the middle of several, two in a row
                    assert errors_of(frame) == [0] * len(errors_of(frame))
                    lost.append(frame)
                    frame.connection.cut()
                    return False
            return None

        with Proxy(on_response=on_response) as proxy:
            outcome = it.mirror(settings=QUICK, target_through=proxy).run(until_caught_up=True)
        assert len(lost) == 5
        assert outcome.halted == ()
        assert outcome.fences > 3
        assert assert_same(it) == 3_000


@pytest.mark.parametrize("lands", ["before the marker", "behind the marker"])
def test_request_of_a_cut_connection_that_lands_during_the_next_fence_doubles_nothing(
    source_cluster, target_cluster, topic, lands
):
    """The client has given up on it and read the log's end; the broker gets it only then (case F)."""
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(400, 2, 1), **SMALL_BATCHES)
        appends, held, landed = Appends(it), list[Frame](), list[Frame]()
        answered = threading.Event()
        state = {"appends": 0, "fenced": False}

        def release() -> None:
            held[0].connection.deliver(held[0])
            assert answered.wait(180)

        def on_request(frame: Frame) -> bool | None:
            if held and not landed and lands == "before the marker" and frame.api == ADD_PARTITIONS:
                release()  # the takeover has read the log's end already
            if frame.api == END_TXN and held:
                state["fenced"] = True
            if frame in appends:
                state["appends"] += 1
                if not held and state["appends"] == 3:
                    held.append(frame)
                    frame.connection.cut_client()
                    return False
                if held and not landed and state["fenced"] and lands == "behind the marker":
                    release()  # the next attempt has seen its marker, and is about to append
            return None

        def on_response(frame: Frame) -> bool | None:
            if held and frame.request is held[0]:
                landed.append(frame)
                answered.set()
            return None

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            outcome = it.mirror(settings=QUICK, target_through=proxy).run(until_caught_up=True)
        expected = 0 if lands == "before the marker" else FENCED
        assert set(errors_of(landed[0])) == {expected}
        assert outcome.halted == ()
        assert assert_same(it) == 400


@pytest.mark.parametrize("seed", [1])
def test_connections_cut_by_chance_at_every_place_lose_and_double_nothing(source_cluster, target_cluster, topic, seed):
    chance = random.Random(seed)
    moments = chance.sample(range(1, 70), 20)
    harm = {moment: ("request lost", "late", "answer lost", "all")[n % 4] for n, moment in enumerate(moments)}
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 4}) as it:
        produce(it.source, topic, records(6_000, 4, seed), **SMALL_BATCHES)
        appends, seen, unanswerable, done = Appends(it), list[Frame](), set[int](), list[str]()
        connections = set[Connection]()

        def on_request(frame: Frame) -> bool | None:
            connections.add(frame.connection)
            if frame not in appends:
                return None
            seen.append(frame)
            what = harm.get(len(seen), "")
            done.append(what)
            if what == "request lost":
                frame.connection.cut()
            elif what == "late":  # its client is gone; it is delivered when it happens to be
                frame.connection.cut_client()
                timer = threading.Timer(chance.uniform(0, 1.5), _deliver, (frame,))
                timer.daemon = True
                timer.start()
            elif what == "answer lost":
                unanswerable.add(id(frame))
            elif what == "all":
                for connection in list(connections):
                    connection.cut()
            return False if what in ("request lost", "late", "all") else None

        def on_response(frame: Frame) -> bool | None:
            if id(frame.request) in unanswerable:
                frame.connection.cut()
                return False
            return None

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            outcome = it.mirror(settings=QUICK, target_through=proxy, source_through=proxy).run(until_caught_up=True)
        assert {what: done.count(what) for what in set(harm.values())} == dict.fromkeys(harm.values(), 5)
        assert outcome.halted == ()
        assert assert_same(it) == 6_000


def _deliver(frame: Frame) -> None:
    try:
        frame.connection.deliver(frame)
    except OSError:
        return


def test_batches_that_are_refused_first_or_in_the_middle_of_several_leave_no_hole(
    source_cluster, target_cluster, topic
):
    """Case C: damaged on the way, they are refused, and what is sent after them must not take their place."""
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 2}) as it:
        produce(it.source, topic, records(1_600, 2, 1), **SMALL_BATCHES)
        appends, seen, refused = Appends(it), list[int](), list[Frame]()
        open_now, open_at_once, answers = set[int](), dict[int, int](), list[set[int]]()

        def on_request(frame: Frame) -> bytes | None:
            if frame not in appends:
                return None
            seen.append(frame.correlation)
            open_now.add(frame.correlation)
            open_at_once[len(seen)] = len(open_now)
            if len(seen) not in (1, 2, 8):
                return None
            refused.append(frame)
            at = frame.data.rindex(b"xxxx")
            return frame.data[:at] + b"y" + frame.data[at + 1 :]

        def on_response(frame: Frame) -> None:
            if frame in appends:
                open_now.discard(frame.correlation)
                answers.append(set(errors_of(frame)))

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            outcome = it.mirror(settings=QUICK, target_through=proxy).run(until_caught_up=True)
        assert len(refused) == 3
        assert [CORRUPT in answers[n] for n in (0, 1)] == [True, True]
        assert [open_at_once[n] for n in (1, 2)] == [1, 1], "behind a fence one at a time"
        assert max(open_at_once.values()) > 1
        assert any(OUT_OF_ORDER in codes for codes in answers), "some were sent after one that was refused"
        assert outcome.halted == ()
        assert outcome.fences >= 3
        assert assert_same(it) == 1_600


@contextmanager
def _in_the_middle(it: Bench, **more: object) -> Iterator[list[MirrorEnd]]:
    """A throttled mirror that has begun and is far from its end; its outcome once the block is left.

    It holds so little that it depends on both brokers all the time.
    """
    outcomes: list[MirrorEnd] = []
    limits = Limits(
        throttle_bytes_per_second=100_000,
        progress_seconds=0.1,
        command_seconds=0.1,
        partition_fetch_bytes=10_000,
        partition_queue_bytes=10_000,
        **SHORT,
    )
    mirror = it.mirror(settings=Settings(streams=1, epoch_seconds=10, limits=limits), **more)  # type: ignore[arg-type]
    thread = threading.Thread(target=lambda: outcomes.append(mirror.run(until_caught_up=True)), daemon=True)
    thread.start()
    wait_until(lambda: log_ends(it.target, it.topics) > 200, "the copy has begun")
    assert log_ends(it.target, it.topics) < 2_500
    yield outcomes
    thread.join(120)
    assert not thread.is_alive()


@pytest.mark.parametrize("side", ["source", "target"])
def test_broker_that_dies_in_the_middle_and_comes_back_is_borne(source_cluster, target_cluster, topic, side):
    # One of its own: everybody else is at work on the others.
    with EmbeddedKafka(name="mortal") as mortal:
        clusters = {"source": source_cluster, "target": target_cluster} | {side: mortal}
        servers = [clusters[name].bootstrap_servers for name in ("source", "target")]
        _bear_a_death(servers[0], servers[1], topic, mortal, flushed=side == "source")


def _bear_a_death(source: str, target: str, topic: str, mortal: EmbeddedKafka, *, flushed: bool) -> None:
    with bench(source, target, {topic: 2}) as it:
        produce(it.source, topic, records(3_000, 2, 1), **SMALL_BATCHES)
        with _in_the_middle(it) as outcomes:
            if not flushed:
                mortal.kill()  # nothing is flushed or handed over
            mortal.restart()
        assert [(outcome.reason, outcome.halted) for outcome in outcomes] == [("caught_up", ())]
        assert assert_same(it) == 3_000
