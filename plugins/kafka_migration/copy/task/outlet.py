"""The target's side of a task: one sending coroutine per broker, several requests in flight, no answer passed over."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial

from kafka_migration.copy.lease import Hold, Lease
from kafka_migration.copy.orders import Limits
from kafka_migration.copy.rate_limit import RateLimit
from kafka_migration.copy.task.fairness import FairBytes
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.partition import PartitionCopy, Prepared
from kafka_migration.domain.codes import STALE_LEADER
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.produce import Append
from kafka_migration.wire.produce_request import Appended

_NOT_READY_SECONDS = 1.0
_WINDOW_SECONDS, _LEAST_BYTES = 1.0, 64 * 1024
_LONGEST_REST_SECONDS = 0.5
#: By so much the best pace so far, and the shortest answer, count less with each answer: brokers change.
_AGES = 1.0001
#: For so many times as long as an answer was late nothing is sent. As long as it was late: the others waited 1.9 to 2.9
#: times as long as alone. Twice as long: no longer than alone, at little less of a rate (``make bench-fair``).
_RESTS = 2.0


class Window:
    """How much may be under way to one broker: all that ``limits`` allow, until an answer shows that the broker
    throttles; then one request at a time, of as much as its quota takes in about a second, until an answer comes
    without a throttle.

    A broker that throttles a client reads nothing more from its connection. What was sent meanwhile stays unread there,
    for as long as all of what came before it is worth: by the quota's rate, minutes for a few requests of full size.

    A task with a niceness gives way to others at brokers, too, which know nothing of it: an answer that comes later
    than by the best pace so far, and than the shortest one, was waited for behind others, who are given twice as
    much time for themselves.
    """

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits, self._clock = limits, clock
        self.requests, self.bytes = limits.in_flight_requests, limits.request_bytes
        self._pace = self._least = math.inf
        self._rests_until = 0.0

    @property
    def rest_seconds(self) -> float:
        """For how long nothing is to be sent."""
        return max(0.0, self._rests_until - self._clock())

    def appended(self, size: int, took_seconds: float) -> None:
        """All of a request of ``size`` bytes was appended, and answered after so long."""
        if self._limits.niceness:
            self._pace = min(self._pace * _AGES, took_seconds / size)
            self._least = min(self._least * _AGES, took_seconds)
            late = took_seconds - max(self._pace * size, self._least)
            self._rests_until = self._clock() + min(_RESTS * late, _LONGEST_REST_SECONDS)

    def answered(self, size: int, throttle_seconds: float) -> None:
        """A request of ``size`` bytes was answered, and the broker lets its client wait for so long."""
        if throttle_seconds > 0:
            self.requests = 1
            self.bytes = max(_LEAST_BYTES, min(self.bytes, int(size * _WINDOW_SECONDS / throttle_seconds)))
        elif self.bytes < self._limits.request_bytes:
            self.bytes = min(2 * self.bytes, self._limits.request_bytes)
        else:
            self.requests = self._limits.in_flight_requests


class Outlet:
    """Sends what ``copies`` have ready, in their order, while ``lease`` lasts and as far as ``hold`` lets it; without
    any rest where it ``is_urgent``."""

    def __init__(
        self,
        loop: Loop,
        target: WireCluster,
        copies: Mapping[TopicPartition, PartitionCopy],
        limits: Limits,
        rate_limit: RateLimit,
        lease: Lease,
        hold: Hold,
    ) -> None:
        self.loop, self.target, self.copies, self.limits, self.rate_limit = loop, target, copies, limits, rate_limit
        self.lease, self.hold = lease, hold
        self._busy: set[int] = set()
        self._fair = FairBytes()
        self._under_way: dict[Append, dict[TopicPartition, Prepared]] = {}
        self._windows: dict[int, Window] = {}
        self._not_ready: dict[int, float] = {}
        self._answered_at: dict[int, float] = {}
        # Since when the oldest request to a broker is the one that it works on, and how many were lost with it.
        self._oldest_since: dict[int, float] = {}
        self._lost: Counter[int] = Counter()
        self._lands: dict[Append, float] = {}
        self._newest_throttle: dict[int, float] = {}
        self.is_stale = self.is_urgent = False

    def start(self) -> None:
        """See that every broker which leads something of ours has its coroutine."""
        for node in {leader.node for tp, leader in self.target.leaders.items() if tp in self.copies} - self._busy:
            self._busy.add(node)
            self.loop.spawn(self._send_to, node)

    @property
    def needs_leaders(self) -> bool:
        """True if the newest metadata are out of date, or lack a leader."""
        return self.is_stale or any(tp not in self.target.leaders for tp in self.copies)

    async def refresh(self) -> None:
        """Ask who leads what."""
        self.is_stale = False
        await self.target.refresh({tp.topic for tp in self.copies})

    async def settle(self, seconds: float, *, bears_quotas: bool = True) -> None:
        """Await answers, as long as they come: a partition without an unanswered request needs no fence before the next
        round. A broker that has gone silent holds up nobody: its partitions get one. Unless this ``bears_quotas``,
        neither does one whose quota has us wait."""
        await self._await_answers(seconds, bears_quotas=bears_quotas)
        why = "no answer while its copy round ended"
        for append, request in self._under_way.items():
            lands, is_passing = self._lands_seconds(append), bool(self._throttled(append.node))
            for tp, prepared in request.items():
                self.copies[tp].unanswered(prepared, why, is_passing=is_passing, lands_seconds=lands)

    async def _await_answers(self, seconds: float, *, bears_quotas: bool) -> None:
        began = time.monotonic()
        while self._under_way and time.monotonic() < began + seconds:
            owing = {append.node for append in self._under_way}
            for node in owing:
                held = self._throttled(node)
                if held and bears_quotas:
                    # It answers, but later; that is no silence.
                    self._answered_at[node] = time.monotonic() + held
                    began = max(began, time.monotonic() + held - seconds)
            newest = max(max(began, self._answered_at.get(node, began)) for node in owing)
            if time.monotonic() > newest + self.limits.silent_seconds:
                break
            await self.loop.woken(0.1)

    async def _send_to(self, node: int) -> None:
        try:
            mine: list[PartitionCopy] = []
            known, window = -1, self._windows.setdefault(node, Window(self.limits))
            while not self.loop.ending:
                if known != self.target.moves:
                    known = self.target.moves
                    mine = self._led_by(node)
                if not mine:
                    return
                in_flight = sum(1 for append in self._under_way if append.node == node)
                request = {}
                rest = 0.0 if self.is_urgent else window.rest_seconds
                room = 0 if rest or self._throttled(node) else self.rate_limit.room(window.bytes)
                # The clock is looked at last, and once more before each write to the socket.
                if in_flight < window.requests and room and self.lease.holds:
                    request = self._next_request(node, mine, room)
                if not request:
                    await self.loop.woken(min(0.05, rest) if rest else 0.05)
                    continue
                append = Append(
                    self.target,
                    node,
                    {tp: p.data for tp, p in request.items()},
                    answer_seconds=self.limits.answer_seconds,
                    replicas_seconds=self.limits.replicas_seconds,
                    allowed=self._may_send,
                )
                if append.was_not_sent:
                    for tp, prepared in request.items():
                        self.copies[tp].not_sent(prepared)
                        self.rate_limit.spend(-len(prepared.data))
                    self._look_again(node)
                    await self.loop.woken(0.05)
                    continue
                self._not_ready.pop(node, None)
                if not in_flight:
                    # The first one on its connection, or behind what was answered.
                    self._oldest_since[node], self._lost[node] = time.monotonic(), 0
                self._under_way[append] = request
                append.then(partial(self._answered, append))
        finally:
            self._busy.discard(node)

    def _look_again(self, node: int) -> None:
        """A broker that takes nothing may be gone, and another one lead: nothing under way would show it."""
        since = self._not_ready.setdefault(node, time.monotonic())
        if time.monotonic() - since > _NOT_READY_SECONDS:
            self.is_stale = True
            del self._not_ready[node]

    def _throttled(self, node: int) -> float:
        return self.target.manager.throttled_seconds(node)

    def _may_send(self) -> bool:
        return self.lease.holds

    def _next_request(self, node: int, mine: list[PartitionCopy], room: int) -> dict[TopicPartition, Prepared]:
        """One batch each of as many partitions as fit ``room`` (one always does), in fair order."""
        blocked = {
            tp
            for append, request in self._under_way.items()
            # What is under way to the leader before must be answered first: otherwise two requests of a partition
            # would be on two connections, in no order, and the later one might be answered before the earlier.
            if append.node != node
            for tp in request
        }
        request: dict[TopicPartition, Prepared] = {}
        size = 0
        for copy in self._fair.order([c for c in mine if c.sendable is not None and c.partition not in blocked]):
            prepared = copy.queue[0]
            length = len(prepared.data)
            if request and (size + length > room or copy.assignment.is_alone):
                continue
            if self.hold.forbids(copy.partition, prepared.max_timestamp):
                continue
            request[copy.partition] = copy.sent()
            size += length
            self._fair.sent(copy.partition, length)
            if copy.assignment.is_alone:
                break
        self.rate_limit.spend(size)
        return request

    def _answered(self, append: Append, answers: list[Appended], throttle: float, error: Exception | None) -> None:
        """Called once per request, in the order of its connection, and before anything else can be sent after it."""
        try:
            waiting = self._under_way.pop(append)
            self._answered_at[append.node] = time.monotonic()
            # What an answer leaves out, a broker may still be busy with.
            lands = self.limits.closed_seconds
            if error is None:
                now, size = time.monotonic(), sum(len(prepared.data) for prepared in waiting.values())
                self._windows[append.node].answered(size, throttle)
                if not throttle and not any(answer.error for answer in answers):
                    self._windows[append.node].appended(size, now - self._oldest_since[append.node])
                self._oldest_since[append.node], self._lost[append.node] = now, 0
                self._newest_throttle[append.node] = throttle
            else:
                lands = self._lands_seconds(append)
            self._settle(waiting, answers, error, lands)
        except Exception as unexpected:  # kafka-python would swallow it
            self.loop.fail(unexpected)
        self.loop.wake()

    def _settle(
        self, waiting: dict[TopicPartition, Prepared], answers: list[Appended], error: Exception | None, lands: float
    ) -> None:
        for answer in answers:
            self.copies[answer.partition].answered(waiting.pop(answer.partition), answer)
            if answer.error in STALE_LEADER:
                self.target.forget_leaders([answer.partition])
        why = "the broker's answer left it out"
        if error is not None:
            why = str(error) or type(error).__name__
            self.target.forget_leaders(waiting)
        for tp, prepared in waiting.items():
            self.copies[tp].unanswered(prepared, why, lands_seconds=lands)

    def _lands_seconds(self, append: Append) -> float:
        """For how long from now a request may land that gets no answer. Asked for one after the other, in their order;
        of one that was waited for in vain again when its connection is closed."""
        if append not in self._lands:
            node, now = append.node, time.monotonic()
            before = self._lost[node]
            self._lost[node] += 1
            # A broker that throttles reads nothing meanwhile, behind each of them.
            muted = self._lost[node] * max(self._throttled(node), self._newest_throttle.get(node, 0.0))
            over = self._oldest_since.get(node, now) + self.limits.landing_seconds(before + 1)
            # A broker that was frozen until just now has the whole row before it.
            self._lands[append] = max(over - now, self.limits.landing_seconds(before)) + muted
        return self._lands[append]

    def _led_by(self, node: int) -> list[PartitionCopy]:
        mine = []
        for tp, copy in self.copies.items():
            leader = self.target.leaders.get(tp)
            if leader is not None and leader.node == node:
                copy.leader = leader
                mine.append(copy)
        return mine
