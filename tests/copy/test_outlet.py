"""What a task sends, to whom, and when; and what it makes of answers. Brokers answer when the test says so."""

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.future import Future

from kafka_migration.copy.lease import Hold, Lease
from kafka_migration.copy.orders import Assignment, Limits
from kafka_migration.copy.rate_limit import RateLimit
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.outlet import Outlet
from kafka_migration.copy.task.partition import PartitionCopy, Stand
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.wire.cluster import Leader, WireCluster
from kafka_migration.wire.fetch_request import Fetched
from kafka_migration.wire.produce_request import Appended, LeanProduceResponse
from tests.wire.made import made_batch

TP, OTHER, THIRD = (TopicPartition("t", p) for p in range(3))
FENCE_END = 8
NOT_LEADER = 6


class Gauge(RateLimit):
    """A rate_limit that counts how often a sender looked whether something may be sent."""

    looks = 0

    def room(self, most: int) -> int:
        self.looks += 1
        return super().room(most)


class Tail:
    """A links topic in which nothing happens."""

    is_current = True

    async def poll(self) -> list[tuple[bytes, bytes]]:
        return []


@dataclass
class Request:
    """A produce request under way."""

    node: int
    partitions: set[TopicPartition]
    allowed: Callable[[], bool]
    future: Future = field(default_factory=Future)

    def answer(
        self, errors: dict[TopicPartition, int] | None = None, *, at: int = FENCE_END, throttle_ms: int = 0
    ) -> None:
        """By default every batch landed at ``at``."""
        codes = dict.fromkeys(self.partitions, 0) if errors is None else errors
        answers = [Appended(tp, code, -1 if code else at, "") for tp, code in codes.items()]
        self.future.success(LeanProduceResponse(answers, throttle_ms))


class Target(WireCluster):
    """The cluster, without a connection: what is sent is kept in ``requests``, unless the connection is not ready."""

    def __init__(self, loop: Loop) -> None:
        super().__init__(loop.net, {"bootstrap_servers": "127.0.0.1:9"}, "target")
        self.requests: list[Request] = []
        self.refused = 0
        self.is_ready = True

    def begin(self, request: Any, node: int | None, *, allowed: Callable[[], bool], **_: Any) -> Future:  # type: ignore[override]
        if not self.is_ready:
            self.refused += 1
            return Future().failure(kafka_errors.NodeNotReadyError())
        assert node is not None
        parts = {TopicPartition(topic, at) for topic, found in request._topics.items() for at, _ in found}
        self.requests.append(Request(node, parts, allowed))
        return self.requests[-1].future

    def lead(self, leaders: dict[TopicPartition, Leader]) -> None:
        """As a refresh that finds these leaders."""
        self.leaders |= leaders
        self.moves += 1


class World:
    """An outlet over partitions, each of which has three batches of one record queued."""

    def __init__(
        self,
        *tps: TopicPartition,
        limits: Limits | None = None,
        rate_limit: Gauge | None = None,
        hold: Hold | None = None,
        armed: bool = False,
        alone: TopicPartition | None = None,
    ) -> None:
        self.loop, self.now = Loop(), 1000.0
        self.target, limits = Target(self.loop), limits or Limits()
        self.rate_limit = rate_limit or Gauge(is_paused=False, bytes_per_second=None)
        self.lease = Lease(Tail(), "shop", 10, clock=lambda: self.now)  # type: ignore[arg-type]
        self.copies = {tp: _copy(tp, limits, is_alone=tp == alone) for tp in tps}
        self.target.lead(dict.fromkeys(tps, Leader(1, -1)))
        for copy in self.copies.values():
            copy.armed_by = Leader(1, -1) if armed else None
        hold = hold or Hold({}, None)
        self.outlet = Outlet(self.loop, self.target, self.copies, limits, self.rate_limit, self.lease, hold)

    def run(self, work: Callable[["World"], Any], *, has_lease: bool = True) -> None:
        """Run ``work`` beside the outlet."""

        async def both() -> None:
            if has_lease:
                await self.lease.renew()
            self.outlet.start()
            await work(self)
            self.loop.ending = True

        try:
            self.loop.run(both)
        finally:
            self.loop.close()

    async def until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < deadline, f"not within 30 s: {what}"
            self.outlet.start()
            self.loop.wake()
            await self.loop.woken(0.01)

    async def until_sent(self, count: int) -> list[Request]:
        """The requests, once there are as many as that."""
        await self.until(lambda: len(self.target.requests) >= count, f"{count} requests")
        return self.target.requests

    async def nothing_more_than(self, count: int) -> None:
        """Once the senders have looked about them a few times, there are as many requests as that and no more."""
        before = self.rate_limit.looks
        await self.until(lambda: self.rate_limit.looks > before + 3, "the sender looks whether it may send")
        assert len(self.target.requests) == count


def _copy(tp: TopicPartition, limits: Limits, *, is_alone: bool = False) -> PartitionCopy:
    assignment = Assignment(
        partition=tp,
        position=Position(source=0, target=FENCE_END, fence=5, records=0),
        continues=0,
        fence_end=FENCE_END,
        closes=6,
        topic_key="key",
        producer_id=77,
        producer_epoch=5,
        source_topic_id=uuid.UUID(int=1),
        target_topic_id=uuid.UUID(int=2),
        source_epoch=3,
        join_bytes=0,
        is_alone=is_alone,
    )
    copy = PartitionCopy(assignment, limits)
    batches = b"".join(made_batch([b"v"], base_offset=n) for n in range(3))
    assert copy.take(Fetched(tp, 0, batches, 3, 3, 0, None)) == []
    return copy


def _in_all(requests: list[Request], tp: TopicPartition) -> list[int]:
    """Whom the requests with ``tp`` went to."""
    return [request.node for request in requests if tp in request.partitions]


# -- when something may be sent -------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_first_look_at_the_links_state_nor_after_the_lease() -> None:
    async def work(it: World) -> None:
        await it.nothing_more_than(0)
        await it.lease.renew()
        (request,) = await it.until_sent(1)
        it.now += 10
        request.answer()
        await it.nothing_more_than(1)
        assert it.copies[TP].records == 1, "an answer counts, whenever it comes"
        await it.lease.renew()
        await it.until_sent(2)

    World(TP).run(work, has_lease=False)


def test_request_that_still_lies_in_its_connection_when_the_lease_ends_may_not_be_written() -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        assert request.allowed()
        it.now += 10
        assert not request.allowed()

    World(TP).run(work)


@pytest.mark.parametrize("alone", [TP, OTHER, THIRD])
def test_batch_that_never_got_a_clear_answer_is_a_request_of_its_own(alone: TopicPartition) -> None:
    async def work(it: World) -> None:
        requests = await it.until_sent(2)
        assert sorted(map(sorted, (it.partitions for it in requests))) == sorted(
            [[alone], sorted({TP, OTHER, THIRD} - {alone})]
        )

    World(TP, OTHER, THIRD, alone=alone).run(work)


def test_paused_mirror_sends_nothing() -> None:
    async def work(it: World) -> None:
        await it.nothing_more_than(0)
        it.rate_limit.is_paused = False
        await it.until_sent(1)

    World(TP, rate_limit=Gauge(is_paused=True, bytes_per_second=None)).run(work)


def test_partition_that_is_held_waits_and_the_others_do_not() -> None:
    now = [0.0]
    hold = Hold({TP: 40.0}, None, clock=lambda: now[0])

    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        assert request.partitions == {OTHER}
        now[0] = 40.0
        assert _in_all(await it.until_sent(2), TP) == [1]

    World(TP, OTHER, hold=hold).run(work)


def test_what_a_connection_did_not_take_is_sent_later_as_it_was_and_costs_no_room() -> None:
    size = len(made_batch([b"v"]))
    now = [0.0]
    # Room for one batch, once: nothing comes after it.
    rate_limit = Gauge(is_paused=False, bytes_per_second=4 * size, clock=lambda: now[0])
    now[0] = 1.0

    async def work(it: World) -> None:
        it.target.is_ready = False
        await it.until(lambda: it.target.refused > 2, "it is tried again")
        it.target.is_ready = True
        (request,) = await it.until_sent(1)
        request.answer()
        await it.until(lambda: it.copies[TP].records, "it has landed")
        assert it.copies[TP].stand is Stand.RUN, "the first batch went first"
        await it.nothing_more_than(1)

    World(TP, rate_limit=rate_limit).run(work)


def test_broker_gets_only_so_many_requests_before_it_answers() -> None:
    # Each request holds one batch: more do not fit.
    limits = Limits(in_flight_requests=2, request_bytes=1)

    async def work(it: World) -> None:
        first, _ = await it.until_sent(2)
        await it.nothing_more_than(2)
        first.answer()
        await it.until_sent(3)

    World(TP, OTHER, THIRD, limits=limits).run(work)


# -- to whom --------------------------------------------------------------------------------------------------


def test_partition_whose_leader_moves_back_waits_for_the_answer_of_the_one_between() -> None:
    """Two connections have no order: what goes to the new leader might land before what the old one still has."""

    async def work(it: World) -> None:
        # Armed by node 1, a partition may have several requests under way there; the brokers tell no leader epoch.
        requests = await it.until_sent(4)
        assert sorted(request.node for request in requests) == [1, 1, 1, 2]
        it.target.lead({TP: Leader(1, -1)})
        await it.nothing_more_than(4)
        next(request for request in requests if request.node == 2).answer()
        await it.until_sent(5)
        assert _in_all(requests, TP) == [2, 1]

    it = World(TP, OTHER, armed=True)
    it.target.leaders[TP] = Leader(2, -1)
    it.run(work)


# -- answers --------------------------------------------------------------------------------------------------


def test_leader_that_is_none_any_more_is_forgotten_and_the_partition_unsettled() -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        assert request.partitions == {TP, OTHER}
        request.answer({TP: NOT_LEADER, OTHER: 0})
        await it.until(lambda: it.copies[OTHER].records, "the other has landed")
        assert it.copies[TP].stand is Stand.UNSETTLED
        assert (TP in it.target.leaders, OTHER in it.target.leaders) == (False, True)
        assert it.outlet.needs_leaders

    World(TP, OTHER).run(work)


def test_request_that_failed_leaves_all_its_partitions_unsettled_and_their_leaders_unknown() -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        request.future.failure(kafka_errors.KafkaConnectionError("the connection broke"))
        await it.until(lambda: not it.copies[TP].in_flight, "it is over")
        assert {copy.stand for copy in it.copies.values()} == {Stand.UNSETTLED}
        assert "the connection broke" in it.copies[TP].detail
        assert it.target.leaders == {}

    World(TP, OTHER).run(work)


def test_requests_of_a_lost_connection_may_land_one_behind_the_other() -> None:
    limits = Limits(in_flight_requests=3, request_bytes=1, answer_seconds=30.0, closed_seconds=5.0)

    async def work(it: World) -> None:
        first, second, third = await it.until_sent(3)
        first.answer()
        await it.until(lambda: it.copies[TP].records, "the first has landed")
        for request in (second, third):
            request.future.failure(kafka_errors.KafkaConnectionError("the connection broke"))
        await it.until(lambda: not it.copies[THIRD].in_flight, "both are over")

    it = World(TP, OTHER, THIRD, limits=limits)
    it.run(work)
    lands = [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER, THIRD)]
    # The replicas of one, and what the broker needs besides; then those of the next one.
    assert lands == [0.0, pytest.approx(25.0, abs=1.0), pytest.approx(45.0, abs=1.0)]


def test_each_connection_has_a_row_of_requests_of_its_own() -> None:
    async def work(it: World) -> None:
        for tp in (TP, OTHER, THIRD):
            (*_, request) = await it.until_sent(1 + [TP, OTHER, THIRD].index(tp))
            assert request.partitions == {tp}
            request.future.failure(kafka_errors.KafkaConnectionError("the connection broke"))
            await it.until(lambda tp=tp: not it.copies[tp].in_flight, "it is over")  # type: ignore[misc]
            it.target.lead(dict.fromkeys((TP, OTHER, THIRD), Leader(1, -1)))

    # One request at a time, of one batch.
    it = World(TP, OTHER, THIRD, limits=Limits(in_flight_requests=1, request_bytes=1))
    it.run(work)
    lands = [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER, THIRD)]
    assert lands == [pytest.approx(25.0, abs=1.0)] * 3


def test_broker_that_was_frozen_until_the_connection_was_lost_has_the_whole_row_before_it() -> None:
    limits = Limits(in_flight_requests=2, request_bytes=1)

    async def work(it: World) -> None:
        requests = await it.until_sent(2)
        # As if both had been sent long ago.
        it.outlet._oldest_since[1] -= 30.0
        for request in requests:
            request.future.failure(kafka_errors.KafkaConnectionError("no answer"))
        await it.until(lambda: not it.copies[OTHER].in_flight, "both are over")

    it = World(TP, OTHER, limits=limits)
    it.run(work)
    assert [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER)] == [5.0, 25.0]


def test_request_behind_an_idle_minute_may_land_for_as_long_as_any() -> None:
    async def work(it: World) -> None:
        (first,) = await it.until_sent(1)
        first.answer()
        # As if that had been long ago.
        it.outlet._oldest_since[1] -= 60.0
        (_, second) = await it.until_sent(2)
        second.future.failure(kafka_errors.KafkaConnectionError("the connection broke"))
        await it.until(lambda: not it.copies[OTHER].in_flight, "it is over")

    it = World(TP, OTHER, limits=Limits(in_flight_requests=1, request_bytes=1))
    it.run(work)
    assert it.copies[OTHER].receipt().lands_seconds == pytest.approx(25.0, abs=1.0)


def test_requests_to_a_broker_that_throttles_may_land_later_by_each_of_its_pauses() -> None:
    """It reads nothing while a pause lasts, and may begin another one behind each request."""

    async def work(it: World) -> None:
        first, second, third = await it.until_sent(3)
        first.answer(throttle_ms=7_000)
        for request in (second, third):
            request.future.failure(kafka_errors.KafkaConnectionError("the connection broke"))
        await it.until(lambda: not it.copies[THIRD].in_flight, "both are over")

    it = World(TP, OTHER, THIRD, limits=Limits(in_flight_requests=3, request_bytes=1))
    it.run(work)
    lands = [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER, THIRD)]
    assert lands == [0.0, pytest.approx(25.0 + 7.0, abs=1.0), pytest.approx(45.0 + 2 * 7.0, abs=1.0)]


def test_requests_that_a_round_ends_without_may_land_one_behind_the_other() -> None:
    limits = Limits(in_flight_requests=2, request_bytes=1, silent_seconds=0.1)

    async def work(it: World) -> None:
        requests = await it.until_sent(2)
        await it.outlet.settle(0.1)
        # The task closes its connections behind it.
        for request in requests:
            request.future.failure(kafka_errors.KafkaConnectionError("closed"))

    it = World(TP, OTHER, limits=limits)
    it.run(work)
    lands = [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER)]
    assert lands == [pytest.approx(limits.landing_seconds(n), abs=2.0) for n in (1, 2)]


def test_partition_that_the_answer_leaves_out_is_unsettled() -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        request.answer({OTHER: 0})
        await it.until(lambda: it.copies[OTHER].records, "the other has landed")
        assert (it.copies[TP].stand, it.copies[TP].detail) == (Stand.UNSETTLED, "the broker's answer left it out")
        assert it.copies[OTHER].stand is Stand.RUN
        lands = [it.copies[tp].receipt().lands_seconds for tp in (TP, OTHER)]
        assert lands == [Limits().closed_seconds, 0.0], "the broker may be busy with it still"

    World(TP, OTHER).run(work)


def test_answer_that_cannot_be_understood_ends_the_task() -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        request.answer({THIRD: 0})
        await it.until(lambda: it.loop.ending, "the task ends")

    with pytest.raises(MigrationError, match="KeyError"):
        World(TP).run(work)


def test_end_of_an_epoch_awaits_answers_and_gives_up_on_those_that_do_not_come() -> None:
    async def work(it: World) -> None:
        first, second = await it.until_sent(2)
        for copy in it.copies.values():
            copy.drop_queue()
        it.loop.net.call_later(0.2, first.answer)
        began = time.monotonic()
        await it.outlet.settle(600.0)
        assert time.monotonic() < began + 60, "whoever is silent is not waited for"
        left = second.partitions
        assert {tp for tp, copy in it.copies.items() if copy.stand is Stand.UNSETTLED} == left
        assert all("no answer while its copy round ended" in it.copies[tp].detail for tp in left)
        second.answer()
        assert {it.copies[tp].records for tp in left} == {0}, "too late to count"

    World(TP, OTHER, limits=Limits(request_bytes=1)).run(work)


@pytest.mark.parametrize("bears_quotas", [True, False])
def test_answer_that_a_quota_holds_back_is_awaited_unless_others_wait_for_the_end_of_the_epoch(
    bears_quotas: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(it: World) -> None:
        (request,) = await it.until_sent(1)
        it.copies[TP].drop_queue()
        held_until = time.monotonic() + 2
        monkeypatch.setattr(it.target.manager, "throttled_seconds", lambda _: max(0.0, held_until - time.monotonic()))
        it.loop.net.call_later(2, request.answer)
        await it.outlet.settle(60.0, bears_quotas=bears_quotas)
        copy = it.copies[TP]
        assert (copy.records, copy.passing, copy.unclear) == ((1, 0, 0) if bears_quotas else (0, 1, 0))

    World(TP, limits=Limits(silent_seconds=0.5)).run(work)
