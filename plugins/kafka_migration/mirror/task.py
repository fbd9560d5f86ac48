"""One task of the mirror: tails its partitions from source to target until its epoch ends.

Runs inside a Spark task (or any Python process) on a single event loop with three sets of connections: fetches from
the source, appends to the target, and state (openings written ahead, progress, commands) beside them, so that a long
fetch never holds up an answer. Nothing here decides what is safe; that is :mod:`kafka_migration.mirror.partition`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.selector import NetworkSelector

from kafka_migration.domain import ledger
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Desired, Halt, Receipt, TopicPartition
from kafka_migration.mirror.orders import TaskOrders
from kafka_migration.mirror.partition import PartitionCopy, Prepared, Stand
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster, code_name
from kafka_migration.wire.fetch import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    NOT_LEADER,
    OFFSET_OUT_OF_RANGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Fetched,
    FetchFrom,
    fetch,
)
from kafka_migration.wire.keyed import KeyedAppender, KeyedTail
from kafka_migration.wire.produce import Append, Appended

log = logging.getLogger(__name__)

_STALE_LEADER = frozenset({NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, 5, 9, 56, 78})
_TOPIC_GONE = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID})
_LONG_POLL_MS, _SHORT_POLL_MS = 500, 50
_TOPIC_GONE_SECONDS = 10.0


class CopyTask:
    """Copies the partitions of its orders; :meth:`run` returns their receipts."""

    def __init__(self, orders: TaskOrders) -> None:
        self.orders, self.limits = orders, orders.limits
        self.net = NetworkSelector(slow_task_threshold_secs=0)
        self.source = WireCluster(self.net, orders.source, "source")
        self.target = WireCluster(self.net, orders.target, "target", in_flight=orders.limits.in_flight_requests)
        self.state = WireCluster(self.net, orders.target, "target")
        self.copies = {a.partition: PartitionCopy(a, orders.limits) for a in orders.assignments}
        self.ending = False
        self._busy: set[tuple[str, int]] = set()
        self._requests: dict[int, int] = {}
        self._wakers: list[Future] = []
        self._gone_since: dict[TopicPartition, float] = {}
        self._source_stale = False
        self._error: MigrationError | None = None
        self._told: dict[TopicPartition, tuple[int, str]] = {}
        self._openings = KeyedAppender(
            self.state, ledger.OFFSET_MAP_TOPIC, partitions=ledger.PARTITIONS[ledger.OFFSET_MAP_TOPIC]
        )
        self._progress = KeyedAppender(
            self.state, ledger.PROGRESS_TOPIC, partitions=ledger.PARTITIONS[ledger.PROGRESS_TOPIC]
        )
        self._commands = KeyedTail(self.state, TopicPartition(ledger.LINKS_TOPIC, 0), orders.commands_from)
        self._bytes_allowed, self._allowed_at = 0.0, time.monotonic()

    def run(self) -> list[Receipt]:
        """Copy until the epoch ends, a command says so, or nothing is left to do.

        Raises the error of a cluster that cannot be reached or does not permit what is needed. Whatever happened to
        single partitions stands in their receipts.
        """
        try:
            self.net.run(self._run)
        finally:
            for cluster in (self.source, self.target, self.state):
                cluster.close()
            self.net.close()
        if self._error is not None:
            raise self._error
        return [copy.receipt() for copy in self.copies.values()]

    async def _run(self) -> None:
        for cluster in (self.source, self.target, self.state):
            await cluster.ensure_connected()
        deadline = time.monotonic() + 30
        topics = {tp.topic for tp in self.copies}
        await self.source.refresh(topics)
        await self.target.refresh(topics)
        for copy in self.copies.values():
            # What the link has pinned, not what has the name now: a recreated topic must answer with an error.
            self.source.topic_ids[copy.partition.topic] = copy.assignment.source_topic_id
            self.target.topic_ids[copy.partition.topic] = copy.assignment.target_topic_id
        await self.state.wait_for_leaders([TopicPartition(ledger.LINKS_TOPIC, 0)], deadline=deadline)
        ends_at = time.monotonic() + self.orders.seconds
        helpers = [self._spawn(self._tell_progress), self._spawn(self._obey_commands), self._spawn(self._keep_leaders)]
        while not self.ending and time.monotonic() < ends_at:
            self._start_workers()
            for copy in self.copies.values():
                copy.settle_halt()
            if all(copy.is_done for copy in self.copies.values()):
                break
            await self._woken(min(0.1, max(0.001, ends_at - time.monotonic())))
        self.ending = True
        await self._settle()
        for helper in helpers:
            await helper
        if self._error is None:
            await self._write_progress()

    async def _settle(self) -> None:
        """Await all answers: a partition without an unanswered request needs no fence before the next epoch."""
        for copy in self.copies.values():
            copy.drop_queue()
        until = time.monotonic() + self.limits.settle_seconds
        while any(self._requests.values()) and time.monotonic() < until:
            await self._woken(0.1)
        for copy in self.copies.values():
            for prepared in list(copy.in_flight):
                copy.unanswered(prepared, f"no answer within {self.limits.settle_seconds:g} s of the epoch's end")
        self._wake()

    # -- workers ----------------------------------------------------------------------------------------------

    def _start_workers(self) -> None:
        """One fetching and one sending coroutine per broker that leads something of ours."""
        for side, cluster, work in (("source", self.source, self._fetch_from), ("target", self.target, self._send_to)):
            for node in {leader.node for tp, leader in cluster.leaders.items() if tp in self.copies}:
                if (side, node) not in self._busy:
                    self._busy.add((side, node))
                    self._spawn(work, node)

    async def _fetch_from(self, node: int) -> None:
        turn = 0
        try:
            while not self.ending:
                mine = [c for tp, c in self.copies.items() if self._leads(self.source, node, tp)]
                if not mine:
                    return
                wanted = [c for c in mine if c.wants_fetch]
                if not wanted:
                    await self._woken(0.05)
                    continue
                # Brokers fill a response in the order asked: turn it, so that heavy partitions do not starve others.
                turn = (turn + 1) % len(wanted)
                asked = [
                    FetchFrom(c.partition, c.fetch_offset, self.limits.partition_fetch_bytes, c.last_epoch)
                    for c in wanted[turn:] + wanted[:turn]
                ]
                patient = len(wanted) == sum(1 for c in mine if c.stand is Stand.RUN and c.halting is None)
                try:
                    answers = await fetch(
                        self.source,
                        node,
                        asked,
                        max_wait_ms=_LONG_POLL_MS if patient else _SHORT_POLL_MS,
                        max_bytes=self.limits.fetch_bytes,
                    )
                except kafka_errors.KafkaError as error:
                    if self.ending:
                        return
                    log.info("fetch from source broker %s: %s", node, error)
                    self._source_stale = True
                    await self._woken(0.2)
                    continue
                await self._take(answers)
        finally:
            self._busy.discard(("source", node))

    async def _take(self, answers: list[Fetched]) -> None:
        openings: list[tuple[PartitionCopy, list[RunOpening]]] = []
        for answer in answers:
            copy = self.copies[answer.partition]
            if answer.error:
                await self._fetch_error(copy, answer)
                continue
            self._gone_since.pop(answer.partition, None)
            new = copy.take(answer)
            if new:
                openings.append((copy, new))
        self._wake()
        if openings:
            self._spawn(self._write_ahead, openings)

    async def _write_ahead(self, openings: list[tuple[PartitionCopy, list[RunOpening]]]) -> None:
        """Make openings durable before the batches behind them are sent (MIRROR.md, rule 6)."""
        entries = [
            (
                ledger.opening_key(self.orders.link, copy.assignment.topic_key, copy.partition.partition, opening),
                ledger.opening_value(opening),
            )
            for copy, new in openings
            for opening in new
        ]
        await self._openings.put(entries, deadline=time.monotonic() + 60)
        for copy, new in openings:
            copy.openings_are_durable(new)
        self._wake()

    async def _fetch_error(self, copy: PartitionCopy, answer: Fetched) -> None:
        if answer.error == OFFSET_OUT_OF_RANGE:
            deadline = time.monotonic() + 10
            start = (await self.source.list_offsets([copy.partition], EARLIEST, deadline=deadline))[copy.partition]
            end = (await self.source.list_offsets([copy.partition], LATEST, deadline=deadline))[copy.partition]
            if copy.fetch_offset < start:
                copy.stop_after_queue(Halt.DATA_LOSS, f"the source's log now starts at {start}: retention was faster")
            elif copy.fetch_offset > end:
                copy.stop_after_queue(Halt.TRUNCATED, f"the source's log now ends at {end}, below our position")
        elif answer.error in _TOPIC_GONE:
            since = self._gone_since.setdefault(copy.partition, time.monotonic())
            problems = await self.source.refresh([copy.partition.topic])
            seen = self.source.topic_ids.get(copy.partition.topic)
            pinned = copy.assignment.source_topic_id
            self.source.topic_ids[copy.partition.topic] = pinned
            if not problems and seen is not None and seen != pinned:
                copy.stop_after_queue(Halt.RECREATED, "the source topic was deleted and created again")
            elif time.monotonic() - since > _TOPIC_GONE_SECONDS:
                copy.stop_after_queue(Halt.TOPIC_MISSING, f"the source says {code_name(answer.error)}")
            else:
                await self.net.sleep(0.1)
        else:
            if answer.error not in _STALE_LEADER:
                log.warning("fetch %s: %s", copy.partition, code_name(answer.error))
            self._source_stale = True
            await self.net.sleep(0.05)

    async def _send_to(self, node: int) -> None:
        try:
            while not self.ending:
                mine = [c for tp, c in self.copies.items() if self._leads(self.target, node, tp)]
                if not mine:
                    return
                if self._requests.get(node, 0) >= self.limits.in_flight_requests or not self._may_send():
                    await self._woken(0.05)
                    continue
                request = self._next_request(mine)
                if not request:
                    await self._woken(0.05)
                    continue
                under_way = Append(self.target, node, {tp: p.data for tp, p in request.items()}, topic_ids=None)
                if under_way.was_not_sent:
                    for tp, prepared in request.items():
                        self.copies[tp].not_sent(prepared)
                    await self._woken(0.05)
                    continue
                self._requests[node] = self._requests.get(node, 0) + 1
                under_way.then(partial(self._answered, node, request))
        finally:
            self._busy.discard(("target", node))

    def _next_request(self, mine: list[PartitionCopy]) -> dict[TopicPartition, Prepared]:
        """One batch each of as many partitions as fit, those that wait longest for their turn first."""
        request: dict[TopicPartition, Prepared] = {}
        size = 0
        for copy in sorted(mine, key=lambda c: c.bytes):
            prepared = copy.sendable
            if prepared is None or (request and size + len(prepared.data) > self.limits.request_bytes):
                continue
            request[copy.partition] = copy.sent()
            size += len(prepared.data)
        self._bytes_allowed -= size
        return request

    def _answered(
        self, node: int, request: dict[TopicPartition, Prepared], answers: list[Appended], error: Exception | None
    ) -> None:
        """Called once per request, in the order in which they were sent. What it raises, kafka-python would swallow."""
        self._requests[node] -= 1
        try:
            self._settle_request(request, answers, error)
        except Exception as unexpected:
            self._fail(unexpected)
        self._wake()

    def _settle_request(
        self, request: dict[TopicPartition, Prepared], answers: list[Appended], error: Exception | None
    ) -> None:
        waiting = dict(request)
        for answer in answers:
            self.copies[answer.partition].answered(waiting.pop(answer.partition), answer)
            if answer.error in _STALE_LEADER:
                self.target.leaders.pop(answer.partition, None)
        why = "the broker's answer left it out" if error is None else str(error) or type(error).__name__
        for tp, prepared in waiting.items():
            self.copies[tp].unanswered(prepared, why)

    def _may_send(self) -> bool:
        limit = self.limits.throttle_bytes_per_second
        if limit is None:
            return True
        now = time.monotonic()
        self._bytes_allowed = min(float(limit), self._bytes_allowed + (now - self._allowed_at) * limit)
        self._allowed_at = now
        return self._bytes_allowed > 0

    # -- beside the copy --------------------------------------------------------------------------------------

    async def _keep_leaders(self) -> None:
        while not self.ending:
            await self._woken_or(0.2)
            missing = any(tp not in self.source.leaders for tp in self.copies)
            if self._source_stale or missing:
                self._source_stale = False
                await self._refresh(self.source, {tp: c.assignment.source_topic_id for tp, c in self.copies.items()})
            if any(tp not in self.target.leaders for tp in self.copies):
                await self._refresh(self.target, {tp: c.assignment.target_topic_id for tp, c in self.copies.items()})

    @staticmethod
    async def _refresh(cluster: WireCluster, pinned: dict[TopicPartition, Any]) -> None:
        await cluster.refresh({tp.topic for tp in pinned})
        cluster.topic_ids.update({tp.topic: topic_id for tp, topic_id in pinned.items()})

    async def _obey_commands(self) -> None:
        """End the epoch as soon as the link's desired state changes or the driver recalls its tasks."""
        desired = ledger.link_key(self.orders.link, "desired")
        recall = ledger.link_key(self.orders.link, "recall")
        while not self.ending:
            for key, value in await self._commands.poll():
                if value is None:
                    continue
                if key == desired:
                    wanted = ledger.decode(value, where=desired.decode())["desired"]
                    self.ending = self.ending or wanted != Desired.RUN
                elif key == recall:
                    epoch = ledger.decode(value, where=recall.decode())["epoch"]
                    self.ending = self.ending or epoch >= self.orders.epoch
            await self._woken_or(self.limits.command_seconds)
        self._wake()

    async def _tell_progress(self) -> None:
        while not self.ending:
            await self._woken_or(self.limits.progress_seconds)
            await self._write_progress()

    async def _write_progress(self) -> None:
        now = int(time.time() * 1000)
        entries = []
        for tp, copy in self.copies.items():
            state = copy.halt or str(copy.stand)
            if self._told.get(tp) == (copy.source, state):
                continue
            self._told[tp] = (copy.source, state)
            value = ledger.progress_value(copy.position, bytes_copied=copy.bytes, state=state, at_ms=now)
            entries.append((ledger.progress_key(self.orders.link, tp), value))
        if entries:
            await self._progress.put(entries, deadline=time.monotonic() + 30)

    # -- the loop ---------------------------------------------------------------------------------------------

    @staticmethod
    def _leads(cluster: WireCluster, node: int, tp: TopicPartition) -> bool:
        leader = cluster.leaders.get(tp)
        return leader is not None and leader.node == node

    def _spawn(self, work: Any, *args: Any) -> Future:
        future = self.net.call_soon_with_future(work, *args)
        future.add_errback(self._fail)
        return future

    def _fail(self, error: BaseException) -> None:
        """A coroutine died: end the task in order; what it copied so far is in its receipts and progress."""
        if self._error is None:
            self._error = error if isinstance(error, MigrationError) else MigrationError(f"mirror task: {error!r}")
            log.error("mirror task ends: %s", error, exc_info=error)
        self.ending = True
        self._wake()

    def _wake(self) -> None:
        wakers, self._wakers = self._wakers, []
        for waker in wakers:
            if not waker.is_done:
                waker.success(None)

    async def _woken(self, seconds: float) -> None:
        """Until something happens, or ``seconds`` have passed."""
        waker = Future()
        self._wakers.append(waker)

        def ring() -> None:
            if not waker.is_done:
                waker.success(None)

        timer = self.net.call_later(seconds, ring)
        await waker
        self.net.cancel(timer)

    async def _woken_or(self, seconds: float) -> None:
        """``seconds`` of rest, cut short only by the task's end."""
        until = time.monotonic() + seconds
        while not self.ending and time.monotonic() < until:
            await self._woken(max(0.001, until - time.monotonic()))


def run_task(orders: TaskOrders) -> Iterable[Receipt]:
    """Copy as ordered; see :class:`CopyTask`."""
    return CopyTask(orders).run()
