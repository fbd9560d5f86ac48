"""One task of the mirror: tails its partitions from source to target until its copy round ends.

Runs inside a Spark task (or any Python process) on a single event loop with three sets of connections: fetches from
the source (:mod:`~kafka_migration.copy.task.intake`), appends to the target
(:mod:`~kafka_migration.copy.task.outlet`), and state
(openings written ahead, progress, commands) beside them, so that a long fetch never holds up an answer. Nothing
here decides what is safe; that is :mod:`kafka_migration.copy.task.partition`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from kafka_migration.copy.lease import Hold, Lease
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.copy.rate_limit import RateLimit, rate_share
from kafka_migration.copy.task.intake import Intake
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.outlet import Outlet
from kafka_migration.copy.task.partition import PartitionCopy
from kafka_migration.domain import ledger
from kafka_migration.domain.direction import HOME
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, NotAuthorized
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Desired, Halt, Receipt, TopicPartition
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.keyed import KeyedAppender, KeyedTail

log = logging.getLogger(__name__)

_PROGRESS_BYTES_PER_SECOND, _PROGRESS_PATIENCE = 65_536, 30.0
_FAREWELL_SECONDS, _URGENT_SECONDS = 1.0, 0.5
#: Commands are looked for so often, and for so long, once one was announced that somebody waits for.
_ALERT_SECONDS, _ALERT_FOR_SECONDS = 0.02, 120.0


class CopyTask:
    """Copies the partitions of its orders; :meth:`run` returns their receipts."""

    def __init__(self, orders: TaskOrders) -> None:
        self.orders, self.limits = orders, orders.limits
        self.loop = Loop()
        self.source = WireCluster(self.loop.net, orders.source, orders.direction.origin)
        self.target = WireCluster(
            self.loop.net,
            orders.target,
            orders.direction.destination,
            in_flight=orders.limits.in_flight_requests,
            stuck_seconds=orders.limits.answer_seconds,
        )
        # By another name, so that a quota which slows the data down does not hold up leases.
        home = orders.target if orders.home is None else orders.home
        of_state = {**home, "client_id": f"kafka-migration.{orders.link}.state"}
        self.state = WireCluster(self.loop.net, of_state, HOME)
        hold = Hold({a.partition: a.hold_seconds for a in orders.assignments}, orders.young_ms)
        self.copies = {
            a.partition: PartitionCopy(a, orders.limits, partial(hold.forbids, a.partition)) for a in orders.assignments
        }
        for copy in self.copies.values():
            _load_handler(copy)
        for a in orders.assignments:
            # What the link has pinned, not what has the name now: a recreated topic must answer with an error.
            self.source.pinned[a.partition.topic] = a.source_topic_id
            self.target.pinned[a.partition.topic] = a.target_topic_id
        self.state.pinned.update(orders.state_ids)
        self.rate_limit = RateLimit(
            is_paused=orders.is_paused,
            bytes_per_second=self.limits.throttle_bytes_per_second,
            owed=orders.owed_bytes,
        )
        self.intake = Intake(self.loop, self.source, self.copies, self.limits, self.rate_limit, self._write_ahead)
        tail = KeyedTail(self.state, TopicPartition(ledger.LINKS_TOPIC, 0), orders.commands_from)
        self.lease = Lease(tail, orders.link, orders.limits.lease_seconds)
        self.outlet = Outlet(self.loop, self.target, self.copies, self.limits, self.rate_limit, self.lease, hold)
        self._writing = 0
        self._recalled = self._is_urgent = self._drains = False
        self._alert_until = 0.0
        self._commands: dict[bytes, Callable[[dict[str, Any]], None]] = {
            ledger.link_key(orders.link, "desired"): self._on_desired,
            ledger.link_key(orders.link, "recall"): self._on_recall,
            ledger.link_key(orders.link, ledger.PAUSE): self._on_pause,
            ledger.link_key(orders.link, ledger.THROTTLE): self._on_throttle,
        }
        self._reported: dict[TopicPartition, ledger.Told] = {}
        self._report_from_ms = 0
        self._openings = KeyedAppender(
            self.state, ledger.OFFSET_MAP_TOPIC, partitions=ledger.PARTITIONS[ledger.OFFSET_MAP_TOPIC]
        )
        self._progress = KeyedAppender(
            self.state, ledger.PROGRESS_TOPIC, partitions=ledger.PARTITIONS[ledger.PROGRESS_TOPIC]
        )

    def run(self) -> list[Receipt]:
        """Copy until the round ends, a command ends it, or nothing is left to do.

        Raises the error of a cluster that cannot be reached or does not permit what is needed. Whatever happened to
        single partitions stands in their receipts.
        """
        try:
            self.loop.run(self._run)
        finally:
            for cluster in (self.source, self.target, self.state):
                cluster.close()
            self.loop.close()
        return [copy.receipt() for copy in self.copies.values()]

    async def _run(self) -> None:
        for cluster in (self.source, self.target, self.state):
            await cluster.ensure_connected()
        await self.intake.refresh()
        await self.outlet.refresh()
        links = TopicPartition(ledger.LINKS_TOPIC, 0)
        await self.state.wait_for_leaders([links], deadline=time.monotonic() + 30)
        ends_at = time.monotonic() + self.orders.seconds
        reporting = self.loop.spawn(self._report_progress)
        helpers = [self.loop.spawn(self._obey_commands), self.loop.spawn(self._keep_leaders)]
        await self._copy_until(ends_at)
        await self._send_runs_ahead()
        self.loop.ending = True
        await self._settle()
        # A hint, and the driver that recalled this task goes on without.
        await self.loop.ended(reporting, _FAREWELL_SECONDS if self._recalled else 60)
        for helper in helpers:
            # Not worth waiting for: a source that does not answer must not keep the round from its end.
            await self.loop.ended(helper, 0.5)
        if self.loop.error is None and reporting.is_done:
            last = self.loop.spawn(self._write_progress)
            await self.loop.ended(last, _FAREWELL_SECONDS if self._recalled else _PROGRESS_PATIENCE)

    async def _copy_until(self, ends_at: float) -> None:
        while not self.loop.ending and not self._recalled and time.monotonic() < ends_at:
            self.intake.start()
            self.outlet.start()
            for copy in self.copies.values():
                copy.settle_halt()
            if all(copy.is_done for copy in self.copies.values()):
                break
            # Not woken: that is thousands of times a second, and each time every partition is looked at.
            await self.loop.rest(min(0.01 if self._drains else 0.1, max(0.001, ends_at - time.monotonic())))

    async def _send_runs_ahead(self) -> None:
        """Fetch no more, and for some seconds send what runs were written ahead for: dropped, it takes a fence, in
        each round of a backlog with gaps, and a producer has 32,766 of them (docs/mirror.md, Limits). So with what
        handlers have made: a slow one would handle the same records in each round."""
        self.intake.is_closed = self.outlet.is_urgent = True
        began = time.monotonic()
        while not self.loop.ending and not self.rate_limit.is_paused:
            if time.monotonic() > began + (_URGENT_SECONDS if self._is_urgent else self.limits.flush_seconds):
                break
            if self._recalled and not self.lease.holds:
                # For good: nothing more may be sent.
                break
            if not any(copy.is_dear for tp, copy in self.copies.items() if tp in self.target.leaders):
                break
            self.outlet.start()
            await self.loop.rest(0.02)

    async def _settle(self) -> None:
        """Leave nothing behind that could still count: whoever's requests are not all answered, or whose openings are
        not durable although they were sent, gets a fence. An opening that lands behind it is void, as one of a task
        that was killed: none of its records stands before the fence.
        """
        for copy in self.copies.values():
            copy.drop_queue()
        until = time.monotonic() + self.limits.silent_seconds
        # Others stand still meanwhile, in all tasks.
        await self.outlet.settle(self.limits.settle_seconds, bears_quotas=not self._is_urgent)
        while self._writing and self.loop.error is None and time.monotonic() < until:
            if self._state_throttled():
                until = time.monotonic() + self.limits.silent_seconds
            await self.loop.woken(0.05)
        self.loop.wake()

    def _state_throttled(self) -> float:
        """For how long a quota still forbids to ask the brokers for the link's state, or to write it."""
        return self.state.throttled_seconds(self.state.leaders)

    async def _write_ahead(self, openings: list[tuple[PartitionCopy, list[RunOpening]]]) -> None:
        """Make openings durable before the batches behind them are sent (docs/mirror.md, rule 6)."""
        entries = [
            (
                ledger.opening_key(self.orders.link, copy.assignment.topic_key, copy.partition.partition, opening),
                ledger.opening_value(opening),
            )
            for copy, new in openings
            for opening in new
        ]
        self._writing += 1
        try:
            await self._openings.put(entries, deadline=time.monotonic() + 60)
        finally:
            self._writing -= 1
        for copy, new in openings:
            copy.openings_are_durable(new)
        self.loop.wake()

    async def _keep_leaders(self) -> None:
        while not self.loop.ending:
            await self.loop.rest(0.2)
            if self.intake.needs_leaders:
                await self.intake.refresh()
            if self.outlet.needs_leaders:
                await self.outlet.refresh()

    async def _obey_commands(self) -> None:
        """End the round once the link's desired state changes, the driver recalls its tasks, or the lease is lost; copy
        up to where a drain ends; pause and throttle. Each look renews the lease."""
        while not self.loop.ending:
            for key, value in await self.lease.renew():
                if key is not None and value is not None and key in self._commands:
                    self._commands[key](ledger.decode(value, where=key.decode()))
            self.loop.ending = self.loop.ending or bool(self.lease.lost)
            if self.lease.lapsed_seconds > self.limits.overdue_seconds and not self._state_throttled():
                # No command of the driver reaches this task, not even its recall; or that has come, and by now the
                # driver takes it for dead.
                raise CouldNotFindOut(
                    f"{self.target.role}: appends were not answered in time after the copy round was recalled"
                    if self._recalled
                    else f"{HOME}: {ledger.LINKS_TOPIC} does not answer, so nothing may be sent",
                    remedy="run the mirror again",
                )
            self.loop.wake()
            is_alert = time.monotonic() < self._alert_until
            await self.loop.rest(_ALERT_SECONDS if is_alert else self.limits.command_seconds)
        self.loop.wake()

    def _on_desired(self, value: dict[str, Any]) -> None:
        ends = ledger.unpack_ends(value["ends"]) if value["desired"] == Desired.DRAIN else {}
        if ends:
            # Within this round: producers may be fenced until it is done, and another round takes a second to begin.
            self._drains = self.outlet.is_urgent = True
            for tp, copy in self.copies.items():
                copy.until = ends.get(tp, 0)
        elif self._drains or value["desired"] != Desired.RUN:
            self.loop.ending = True
        if value.get("news_due"):
            self._alert_until = time.monotonic() + _ALERT_FOR_SECONDS

    def _on_recall(self, value: dict[str, Any]) -> None:
        if value["epoch"] >= self.orders.round_id:
            # Earlier versions know no urgency.
            self._recalled, self._is_urgent = True, bool(value.get("is_urgent"))
            self.lease.let_lapse()

    def _on_pause(self, value: dict[str, Any]) -> None:
        self.rate_limit.is_paused = value["paused"]

    def _on_throttle(self, value: dict[str, Any]) -> None:
        self.rate_limit.set_rate(rate_share(value["bytes_per_second"], self.orders.part))

    async def _report_progress(self) -> None:
        while not self.loop.ending:
            await self.loop.rest(self.limits.progress_seconds)
            await self._write_progress()

    async def _write_progress(self) -> None:
        """All partitions of this task in one record, if one of them moved; less often if there are very many, unless
        the driver is waited for."""
        now = int(time.time() * 1000)
        news = self._news(now)
        if not news or (now < self._report_from_ms and not self._changes_state(news)):
            return
        self._reported |= news
        entries = ledger.progress_records(self.orders.link, str(self.orders.share), self._reported)
        self._report_from_ms = now + 1000 * sum(len(value) for _, value in entries) // _PROGRESS_BYTES_PER_SECOND
        try:
            await self._progress.put(entries, deadline=time.monotonic() + _PROGRESS_PATIENCE)
        except (CouldNotFindOut, NotAuthorized) as error:
            # A hint, and no more: the next record reports all of it again.
            log.warning("the copy's progress cannot be written: %s", error.message)
            self._reported, self._report_from_ms = {}, 0

    def _changes_state(self, news: Mapping[TopicPartition, ledger.Told]) -> bool:
        """True if a partition halted, or waits for a fence: the driver waits to see that."""
        return any(report.state != self._reported[tp].state for tp, report in news.items())

    def _news(self, now_ms: int) -> dict[TopicPartition, ledger.Told]:
        """The reports that differ from those written before in more than their time."""
        news = {}
        for tp, copy in self.copies.items():
            held, before = self.target.throttled_seconds([tp]), self._reported.get(tp)
            held_until = now_ms + int(1000 * held) if held else 0
            report = ledger.Told(copy.position, copy.bytes, copy.halt or str(copy.stand), now_ms, held_until)
            if before is None or report._replace(at_ms=before.at_ms) != before:
                news[tp] = report
        return news


def _load_handler(copy: PartitionCopy) -> None:
    """Have ``copy`` handle its records; where the handler is not here, nothing of it is copied."""
    handler = copy.assignment.handler
    try:
        copy.handle = None if handler is None else handler.load()
    except BadInput as error:
        copy.stop_after_queue(Halt.HANDLER, f"{error.message}; no record is at fault")


def run_task(orders: TaskOrders) -> Iterable[Receipt]:
    """Copy as ordered; see :class:`CopyTask`."""
    return CopyTask(orders).run()
