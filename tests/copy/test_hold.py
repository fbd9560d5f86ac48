"""Rule 7 on real brokers: behind records that are older than their memory, the hold keeps a fence from being forgotten.

A request of the attempt before is delivered after the fence. Without the hold the next attempt's first old records make
the broker forget both of them, and it would be taken.
"""

import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from kafka_migration.copy.driver.mirror import Mirror, Settings
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.batch import readdress
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.fence import await_completion, take_identity, write_markers
from kafka_migration.wire.produce import Append
from tests.copy.bench import BRIEF, OPEN_ENDED, SHORT, ThreadRound, ThreadRunner, assert_same, bench, records
from tests.copy.test_interleavings import FENCED, SMALL_BATCHES, Appends, errors_of
from tests.kafka_tools import ToSend, create_topics, produce
from tests.proxy import END_TXN, Frame, Proxy
from tests.waiting import wait_until
from tests.wire.made import Wire, is_forgotten, made_batch, until_forgotten, wired

LANDS_AFTER = 2.0
#: What a broker may need besides its replicas; of fresh records a fence is not held, and a loaded machine takes less.
CLOSED_SECONDS = {"old": SHORT["closed_seconds"], "fresh": 60.0}
HELD = {
    kind: Settings(
        streams=1,
        epoch_seconds=20,
        limits=Limits(progress_seconds=0.1, command_seconds=0.1, **{**SHORT, "closed_seconds": seconds}),
    )
    for kind, seconds in CLOSED_SECONDS.items()
}
#: How long one of old records is held: until a broker that has read the request has waited for its replicas.
HOLD_SECONDS = HELD["old"].limits.landing_seconds(1)


@pytest.fixture
def topic() -> str:
    return f"held-{uuid.uuid4().hex[:8]}"


def _fresh(count: int) -> Iterator[ToSend]:
    now = int(time.time() * 1000)
    for it in records(count, 1, 1):
        yield replace(it, timestamp=now)


@pytest.mark.parametrize("kind", ["old", "fresh"])
def test_request_that_lands_after_the_fence_is_refused_whatever_the_broker_forgets(
    source_cluster, target_cluster, remembering, topic, kind
):
    tp = TopicPartition(topic, 0)
    # For fresh records to be no trouble a broker has to remember for longer than a hold may last.
    target = remembering if kind == "old" else target_cluster
    with (
        bench(source_cluster.bootstrap_servers, target.bootstrap_servers, {topic: 1}) as it,
        wired(it.target, topic) as wire,
    ):
        produce(it.source, topic, records(200, 1, 1) if kind == "old" else _fresh(200), **SMALL_BATCHES)
        appends, held, landed = Appends(it), list[Frame](), list[Frame]()
        moments: dict[str, float] = {}
        delivered = threading.Event()

        def deliver() -> None:
            """As soon as the broker has forgotten the fence, or else in the middle of the hold."""
            until = time.monotonic() + LANDS_AFTER
            wait_until(
                lambda: time.monotonic() > until or (after_fence and is_forgotten(wire, tp)),
                "a moment to land",
            )
            held[0].connection.deliver(held[0])
            delivered.set()

        after_fence: list[Frame] = []
        late = threading.Thread(target=deliver, daemon=True)

        def on_request(frame: Frame) -> bool | None:
            if frame in appends:
                if "fence" in moments:
                    after_fence.append(frame)
                    moments.setdefault("first append", time.monotonic())
                else:
                    moments["append"] = time.monotonic()
                    if not held and len(seen) == 2:
                        held.append(frame)
                        frame.connection.cut_client()
                        return False
                    seen.append(frame)
            return None

        seen: list[Frame] = []

        def on_response(frame: Frame) -> None:
            if held and frame.request is not None and frame.request.api == END_TXN and "fence" not in moments:
                moments["fence"] = time.monotonic()
                late.start()
            if held and frame.request is held[0]:
                landed.append(frame)

        with Proxy(on_request=on_request, on_response=on_response) as proxy:
            outcome = it.mirror(settings=HELD[kind], target_through=proxy).run(until_caught_up=True)
            assert delivered.wait(180)
            wait_until(lambda: landed, "the late request is answered")
        assert set(errors_of(landed[0])) == {FENCED}
        assert outcome.halted == ()
        assert assert_same(it) == 200
        if kind == "old":
            # The hold counts from the loss of the connection, which a loaded machine may fence only seconds later.
            assert moments["first append"] - moments["append"] > HOLD_SECONDS - 0.5
        else:
            assert moments["first append"] - moments["fence"] < CLOSED_SECONDS[kind] / 2


class Holding(ThreadRunner):
    """Holds all partitions in the first rounds, each of which ends before its hold does."""

    def start(self, orders: list[TaskOrders]) -> ThreadRound:
        if len(self.orders) < 3:
            orders = [
                replace(share, seconds=1.0, assignments=tuple(replace(a, hold_seconds=60.0) for a in share.assignments))
                for share in orders
            ]
        return super().start(orders)


def test_partition_whose_records_wait_takes_no_fence_in_each_round_and_none_waits_for_it(
    source_cluster, target_cluster, topic
):
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 1}) as it:
        producer = confluent_kafka.Producer({"bootstrap.servers": it.source, "transactional.id": topic, "log_level": 0})
        producer.init_transactions(30)
        for n in range(20):
            # A marker behind each record: each begins a run, which has to be written ahead.
            producer.begin_transaction()
            producer.produce(topic, b"%d" % n, timestamp=1_600_000_000_000 + n)
            producer.commit_transaction(30)
        began, runner = time.monotonic(), Holding()
        settings = Settings(streams=1, epoch_seconds=5, limits=Limits(**{**BRIEF, "flush_seconds": 60.0}))
        end = it.mirror(runner, settings=settings).run(until_caught_up=True)
        assert (end.rounds, end.fences, assert_same(it)) == (4, 1, 20)
        assert time.monotonic() - began < 60.0, "what may not be sent yet is not waited for at the end of a round"


def test_partition_that_has_nothing_under_way_is_not_held_for_longer_than_before():
    limits, seen = Limits(), dict[str, Any]()
    attempts = SimpleNamespace(closed=lambda them: seen.update(closed=them), answered=lambda them: seen.update(at=them))
    lost, idle, unclear = (TopicPartition("t", n) for n in range(3))
    receipts = [_receipt(idle, 0.0), _receipt(unclear, 7.0)]
    mirror = SimpleNamespace(settings=SimpleNamespace(limits=limits), _attempts=attempts)
    Mirror._await_landing(mirror, {lost, idle, unclear}, receipts)  # type: ignore[arg-type]
    assert seen == {"closed": {lost: limits.landing_seconds(5), unclear: 7.0}, "at": {idle}}


def _receipt(tp: TopicPartition, lands_seconds: float) -> Any:
    return SimpleNamespace(topic=tp.topic, partition=tp.partition, lands_seconds=lands_seconds)


def test_broker_takes_what_came_over_a_closed_connection_one_request_after_the_other(lossy, topic):
    """Each when the one before has its replicas, or has waited for them in vain: so late that the fence is forgotten,
    where old records are appended behind it, and in the time that a hold reckons with."""
    limits = Limits(answer_seconds=12.0, closed_seconds=5.0)
    fenced, slow = TopicPartition(topic, 0), TopicPartition(f"{topic}-slow", 0)
    create_topics(lossy.bootstrap_servers, {fenced.topic: 1}, OPEN_ENDED, brokers=[1, 2])
    create_topics(lossy.bootstrap_servers, {slow.topic: 1}, OPEN_ENDED | {"min.insync.replicas": "2"}, brokers=[1, 3])
    with (
        wired(lossy.bootstrap_servers, fenced.topic, slow.topic) as mine,
        wired(lossy.bootstrap_servers, fenced.topic, slow.topic) as late,
    ):
        before = fence(mine, topic, [fenced, slow])
        lossy.kill(3)
        closed = time.monotonic()

        async def send(cluster: WireCluster) -> list[bool]:
            requests = [{slow: made_by(before, 1)}, {fenced: made_by(before, 5)}]
            appends = [Append(cluster, 1, each, replicas_seconds=limits.replicas_seconds) for each in requests]
            await cluster.net.sleep(1.0)
            return [append.future.is_done for append in appends]

        assert late(send) == [False, False]
        late.close()
        after = fence(mine, topic, [fenced])
        ((answer,),) = mine.append({fenced: made_by(after, 2)})
        assert answer.error == 0
        until_forgotten(mine, fenced)
        end = mine.end(fenced)
        assert end == answer.base_offset + 2, "the late one has not landed yet"
        wait_until(lambda: mine.end(fenced) > end, "the late one lands behind the fence")
        landed = time.monotonic() - closed
        assert mine.end(fenced) == end + 5
    assert limits.closed_seconds < landed < limits.landing_seconds(2)


def made_by(identity: Identity, count: int) -> bytearray:
    """Old records."""
    return readdress(
        memoryview(made_batch([b"v"] * count)),
        producer_id=identity.producer_id,
        producer_epoch=identity.producer_epoch,
        sequence=0,
    )


def fence(wire: Wire, name: str, partitions: list[TopicPartition]) -> Identity:
    """The next fence of a transactional id whose coordinator is not the broker that dies."""
    until = time.monotonic() + 60
    identity: Identity = wire(take_identity, name, deadline=until)
    wire(write_markers, name, identity, partitions, deadline=until)
    wire(await_completion, name, identity, deadline=until)
    return identity
