"""Records older than the broker's memory of producers (case A), and sources that are compacted while they are copied.

A broker forgets a producer by the timestamp of its last record, and then takes any sequence from it. What the fence and
the broker's memory no longer keep out must be explained by the link, or halt by name.
"""

import threading
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kafka_migration.domain.types import Halt, TopicPartition
from tests.copy.bench import assert_same, bench, records
from tests.copy.test_interleavings import QUICK, SMALL_BATCHES, Appends, errors_of
from tests.kafka_tools import ToSend, produce, read_all
from tests.proxy import END_TXN, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import until_forgotten, wired

OLD = 1_700_000_000_000


@pytest.fixture
def topic() -> str:
    return f"forgotten-{uuid.uuid4().hex[:8]}"


def test_old_records_through_lost_answers_and_restarts_are_copied_exactly(source_cluster, forgetful, topic):
    with bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: 2}) as it:
        appends, answers, lost = Appends(it), [], []

        def on_response(frame: Frame) -> bool | None:
            if frame in appends:
                answers.append(frame)
                if len(answers) % 7 == 3:
                    lost.append(frame)
                    frame.connection.cut()
                    return False
            return None

        tp = TopicPartition(topic, 0)
        for seed in range(3):
            produce(it.source, topic, records(600, 2, seed), **SMALL_BATCHES)
            with Proxy(on_response=on_response) as proxy:
                assert it.mirror(settings=QUICK, target_through=proxy).run(until_caught_up=True).halted == ()
            with wired(it.target, topic) as wire:
                until_forgotten(wire, tp)
            if seed == 0:
                forgetful.restart()
        assert len(lost) > 3
        assert assert_same(it) == 1_800


@pytest.mark.parametrize("lands", ["before the next attempt's first batch", "after everything"])
def test_late_request_that_a_forgetful_broker_takes_halts_by_name(source_cluster, forgetful, topic, lands):
    """Neither the marker nor the sequence keeps it out any more. It must not pass for progress."""
    tp = TopicPartition(topic, 0)
    with (
        bench(source_cluster.bootstrap_servers, forgetful.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1), **SMALL_BATCHES)
        appends, held, landed = Appends(it), list[Frame](), list[Frame]()
        answered, state = threading.Event(), {"appends": 0, "fenced": False}

        def release() -> None:
            until_forgotten(wire, tp)
            held[0].connection.deliver(held[0])
            assert answered.wait(180)
            assert errors_of(landed[0]) == [0], "it was taken"

        def on_request(frame: Frame) -> bool | None:
            if frame.api == END_TXN and held:
                state["fenced"] = True
            if frame in appends:
                state["appends"] += 1
                if not held and state["appends"] == 3:
                    held.append(frame)
                    frame.connection.cut_client()
                    return False
                if state["fenced"] and not landed and lands.startswith("before"):
                    release()
            return None

        def on_response(frame: Frame) -> None:
            if held and frame.request is held[0]:
                landed.append(frame)
                answered.set()

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            mirror = it.mirror(settings=QUICK, target_through=proxy)
            if lands.startswith("before"):
                with pytest.raises(Exception, match="nothing is left to copy"):
                    mirror.run(until_caught_up=True)
            else:
                mirror.run(until_caught_up=True)
                assert assert_same(it) == 200
                release()
                with pytest.raises(Exception, match="nothing is left to copy"):
                    it.mirror().run(until_caught_up=True)
        assert it.link.halts()[tp].reason == Halt.FOREIGN_WRITER


@pytest.fixture
def eager_cleaner(source_cluster) -> Iterator[None]:
    """The source's log cleaner looks several times a second instead of every 15 s."""
    admin = AdminClient({"bootstrap.servers": source_cluster.bootstrap_servers})

    def alter(operation: AlterConfigOpType) -> None:
        entry = ConfigEntry("log.cleaner.backoff.ms", "200", incremental_operation=operation)
        broker = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        (done,) = admin.incremental_alter_configs([broker]).values()
        done.result(30)

    alter(AlterConfigOpType.SET)
    yield
    alter(AlterConfigOpType.DELETE)


COMPACTED = {
    "cleanup.policy": "compact",
    "segment.ms": "100",
    "min.cleanable.dirty.ratio": "0.0001",
    "delete.retention.ms": "0",
    "min.compaction.lag.ms": "0",
}


class Compacted:
    """A compacted topic whose batches the test removes as a whole, each in a segment of its own."""

    def __init__(self, servers: str, topic: str) -> None:
        self._servers, self._topic, self._batches = servers, topic, 0

    def batch(self, keys: str, *, idempotent: bool = False) -> None:
        """One batch with these keys. Its timestamp rolls the segment before it."""
        self._batches += 1
        rows = [
            ToSend(b"%d-%d" % (self._batches, n), key.encode(), timestamp=OLD + self._batches * 1_000)
            for n, key in enumerate(keys)
        ]
        produce(self._servers, self._topic, rows, **{"enable.idempotence": idempotent})

    def await_batches(self, *expected: tuple[int, int, int]) -> None:
        """Until the log holds these batches: base offset, next offset, records."""

        def stored() -> list[tuple[int, int, int]]:
            return [(h.base_offset, h.next_offset, h.records) for h, _ in wire.stored(TopicPartition(self._topic, 0))]

        with wired(self._servers, self._topic) as wire:
            wait_until(lambda: stored() == list(expected), f"compacted to {expected}")


def test_source_whose_batches_are_removed_and_emptied_is_copied_and_translated_exactly(
    source_cluster, target_cluster, topic, eager_cleaner
):
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=COMPACTED) as it:
        log = Compacted(it.source, topic)
        log.batch("abc")
        log.batch("xyz")  # replaced below: gone without a trace
        log.batch("uvw", idempotent=True)  # replaced below: emptied, kept for its producer's state
        log.batch("def")
        log.batch("xyz")
        log.batch("uvw")
        log.batch("last")
        log.await_batches((0, 3, 3), (6, 9, 0), (9, 12, 3), (12, 15, 3), (15, 18, 3), (18, 22, 4))
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records) == ((), 16)
        assert assert_same(it) == 16
        found = it.link.offset_maps()[tp]
        behind = found.to_target(9)
        assert [found.to_target(offset) for offset in range(3, 10)] == [behind] * 7
        assert [len(found), found.to_target(22)] == [2, found.target_end]


def test_source_that_is_compacted_between_two_runs_is_gone_on_with_at_the_right_record(
    source_cluster, target_cluster, topic, eager_cleaner
):
    """Case B: counting records from the beginning of the log would point to another one now."""
    tp = TopicPartition(topic, 0)
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}, config=COMPACTED) as it:
        log = Compacted(it.source, topic)
        for keys in ("abc", "def", "def", "ghi", "jkl"):
            log.batch(keys)
        # A gap in the middle already: two runs, so records since the fence do not count offsets.
        log.await_batches((0, 3, 3), (6, 9, 3), (9, 12, 3), (12, 15, 3))
        assert it.mirror(settings=QUICK).run(until_caught_up=True).records == 12
        copied = read_all(it.target, it.topics)[tp]
        log.batch("abc")
        log.batch("ghi")
        log.batch("mno")
        log.batch("mno")  # replaces a batch that was never copied
        log.batch("p")
        log.await_batches((6, 9, 3), (12, 15, 3), (15, 18, 3), (18, 21, 3), (24, 27, 3), (27, 28, 1))
        outcome = it.mirror(settings=QUICK).run(until_caught_up=True)
        assert (outcome.halted, outcome.records) == ((), 10)
        source, target = read_all(it.source, it.topics)[tp], read_all(it.target, it.topics)[tp]
        assert [row.without_offset() for row in target[:12]] == [row.without_offset() for row in copied]
        found, by_offset = it.link.offset_maps()[tp], {row.offset: row for row in target}
        for row in source:
            assert by_offset[found.to_target(row.offset)].without_offset() == row.without_offset()
        assert [row.value for row in target[12:]] == [row.value for row in source if row.offset >= 15]
