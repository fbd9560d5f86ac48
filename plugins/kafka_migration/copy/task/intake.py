"""The source's side of a task: one fetching coroutine per broker, and what errors of a fetch mean."""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

import kafka.errors as kafka_errors

from kafka_migration.copy.orders import Limits
from kafka_migration.copy.rate_limit import RateLimit
from kafka_migration.copy.task.fairness import FetchOrder
from kafka_migration.copy.task.loop import Loop
from kafka_migration.copy.task.partition import PartitionCopy, Stand
from kafka_migration.domain.codes import FENCED_LEADER_EPOCH, OFFSET_OUT_OF_RANGE, STALE_LEADER, UNAUTHORIZED
from kafka_migration.domain.errors import AuthenticationFailed, CouldNotFindOut, NotAuthorized
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Halt, TopicPartition
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster, code_name
from kafka_migration.wire.configs import can_be_empty
from kafka_migration.wire.fetch import FetchSession, fetch
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.suspects import Suspects

log = logging.getLogger(__name__)

_LONG_POLL_MS, _HELD_POLL_MS, _SHORT_POLL_MS = 5_000, 1_000, 50
"""Brokers answer as soon as there is anything. The long one is for when there is nothing: then each request names every
partition, and thousands of them ten times a second would cost half a core."""
_LITTLE_BYTES = 64 * 1024
_GATHER_SECONDS, _GATHER_SHARE = 0.003, 0.5
"""The longest pause before asking again for little, and its length as a share of the work since the last one. Asking
costs most of a millisecond, whether it brings one record or ten: without a pause, a trickle of some thousand records a
second takes a whole core, and then each waits for the one before it."""
_TROUBLE_SECONDS = 10.0
_TROUBLED_SECONDS = 0.05
_REJECTED_SECONDS = 5.0
"""Before credentials are tried again that a broker rejects: some count such attempts, and lock the account."""

Written = Callable[[list[tuple[PartitionCopy, list[RunOpening]]]], Awaitable[None]]


class Intake:
    """Fetches for ``copies`` until it ``is_closed``, and hands openings of new runs to ``write_ahead``."""

    def __init__(
        self,
        loop: Loop,
        source: WireCluster,
        copies: Mapping[TopicPartition, PartitionCopy],
        limits: Limits,
        rate_limit: RateLimit,
        write_ahead: Written,
    ) -> None:
        self.loop, self.source, self.copies, self.limits, self.write_ahead = loop, source, copies, limits, write_ahead
        self.rate_limit = rate_limit
        self.is_stale = self.is_closed = False
        self._busy: set[int] = set()
        self._rejected: set[int] = set()
        self._fetch_order = FetchOrder()
        self._trouble: dict[TopicPartition, tuple[float, float]] = {}
        # Logs that a leader called cut, and which metadata that was by.
        self._cut: dict[TopicPartition, int] = {}
        # Topics of which nothing is compacted away: what their brokers do not send, they will.
        self._whole: set[str] = set()

    def start(self) -> None:
        """See that every broker which leads something of ours has its coroutine."""
        for node in self._leading() - self._busy:
            self._busy.add(node)
            self.loop.spawn(self._fetch_from, node)

    def _leading(self) -> set[int]:
        return {leader.node for tp, leader in self.source.leaders.items() if tp in self.copies}

    @property
    def needs_leaders(self) -> bool:
        """True if the newest metadata are out of date, or lack a leader."""
        return self.is_stale or any(tp not in self.source.leaders for tp in self.copies)

    @property
    def _is_over(self) -> bool:
        return self.is_closed or self.loop.ending

    async def refresh(self) -> None:
        """Ask who leads what."""
        self.is_stale = False
        await self.source.refresh({tp.topic for tp in self.copies})

    async def _fetch_from(self, node: int) -> None:
        worked, known, mine = time.thread_time(), -1, list[PartitionCopy]()
        session, suspects = FetchSession(self.source, node), Suspects()
        try:
            while not self._is_over:
                if known != self.source.moves:
                    known = self.source.moves
                    mine = [c for tp, c in self.copies.items() if self._leads(node, tp)]
                if not mine:
                    return
                wanted, size = self._wanted(mine)
                if suspects:
                    topics = suspects.next({c.partition.topic for c in wanted})
                    wanted = [c for c in wanted if c.partition.topic in topics]
                if not wanted:
                    await self.loop.woken(0.05)
                    continue
                if held := self.source.manager.throttled_seconds(node):
                    # Its quota is used up: what is asked before then is not even sent.
                    await self.loop.rest(held)
                    continue
                running = [c for c in mine if c.stand is Stand.RUN and c.halting is None]
                held_back = sum(1 for c in running if c.is_held)
                patience_ms = _HELD_POLL_MS if held_back else _LONG_POLL_MS
                # Of what is suspected the session knows nothing: to name it there would break that as well.
                ask = partial(fetch, self.source, node) if suspects.is_apart else session.fetch
                try:
                    answers = await ask(
                        [
                            FetchFrom(c.partition, c.fetch_offset, size, c.last_epoch)
                            for c in (self._fetch_order.order(wanted) if session.begins else wanted)
                        ],
                        # Nobody else is to be asked for meanwhile, unless room is made in a queue.
                        max_wait_ms=patience_ms if len(wanted) + held_back == len(running) else _SHORT_POLL_MS,
                        max_bytes=self.limits.fetch_bytes,
                        # Up to the last stable offset: a record that may still be taken back must not reach the target.
                        committed=True,
                    )
                except AuthenticationFailed as error:
                    # Like one that does not answer, as long as others let us in.
                    self._rejected.add(node)
                    if self._rejected >= self._leading():
                        raise
                    log.warning("fetch from source broker %s: %s", node, error.message)
                    self.is_stale = True
                    await self.loop.rest(_REJECTED_SECONDS)
                    continue
                except kafka_errors.KafkaError as error:
                    log.info("fetch from source broker %s: %s", node, error)
                    self.is_stale = True
                    if await self.source.answers(node):
                        suspects.failed({c.partition.topic for c in wanted})
                    else:
                        await self.loop.woken(0.2)
                    continue
                self._rejected.discard(node)
                if suspects:
                    suspects.answered({c.partition.topic for c in wanted})
                if self._is_over:
                    # What came too late is not taken: its openings would be written ahead for batches never sent.
                    return
                if not self.rate_limit.is_paused:
                    await self._take(answers)
                if sum(len(answer.records) for answer in answers) < _LITTLE_BYTES:
                    # A third of a core is left to others.
                    await self.loop.net.sleep(min(_GATHER_SECONDS, _GATHER_SHARE * (time.thread_time() - worked)))
                worked = time.thread_time()
        finally:
            session.close()
            self._busy.discard(node)

    def _wanted(self, mine: list[PartitionCopy]) -> tuple[list[PartitionCopy], int]:
        """What to ask for, and how many bytes of each. Nothing while the mirror is paused."""
        wanted, size = (
            [] if self.rate_limit.is_paused else [c for c in mine if c.wants_fetch],
            self.limits.partition_fetch_bytes,
        )
        if sum(c.queued_bytes for c in self.copies.values()) >= self.limits.task_queue_bytes:
            # The task holds enough. A little for those that have nothing: they shall not wait for the heavy ones.
            return [c for c in wanted if not c.queued_bytes], min(size, _LITTLE_BYTES)
        return wanted, size

    async def _take(self, answers: list[Fetched]) -> None:
        openings: list[tuple[PartitionCopy, list[RunOpening]]] = []
        troubled: list[tuple[PartitionCopy, int]] = []
        self._fetch_order.served([answer.partition for answer in answers if answer.records])
        is_empty = not any(answer.records for answer in answers)
        for answer in answers:
            copy = self.copies[answer.partition]
            if answer.error:
                troubled.append((copy, answer.error))
                continue
            self._trouble.pop(answer.partition, None)
            if answer.diverging_end is None:
                self._cut.pop(answer.partition, None)
            elif not self._is_cut(copy):
                troubled.append((copy, FENCED_LEADER_EPOCH))
                continue
            end = copy.found_nothing(answer) if is_empty else None
            if end is not None and copy.partition.topic not in self._whole:
                self.loop.spawn(self._pass_over_nothing, copy, end)
            if not answer.records and answer.diverging_end is None:
                continue
            new = copy.take(answer, self.limits.handling_seconds / (len(answers) * max(1, len(self._busy))))
            if new:
                openings.append((copy, new))
            if copy.handle is not None:
                # A handler may take its time: between two partitions the lease is renewed, and answers are taken.
                await self.loop.net.sleep(0)
                if self._is_over:
                    break
        if openings:
            self.loop.spawn(self.write_ahead, openings)
        self.loop.wake()
        out_of_range = [copy for copy, code in troubled if code == OFFSET_OUT_OF_RANGE]
        for copy, code in troubled:
            self._on_error(copy, code)
        if out_of_range:
            await self._out_of_range(out_of_range)
        if troubled:
            # Once for all of them: whoever asks again at once is refused again.
            self.is_stale = True
            await self.loop.woken(_TROUBLED_SECONDS)

    async def _pass_over_nothing(self, copy: PartitionCopy, end: int) -> None:
        try:
            if await can_be_empty(self.source, copy.partition.topic):
                copy.pass_over_nothing(end)
                self.loop.wake()
            else:
                self._whole.add(copy.partition.topic)
        except (CouldNotFindOut, kafka_errors.KafkaError) as error:
            # It is asked again: the broker goes on to send nothing.
            log.info("fetch %s: nothing up to offset %d: %s", copy.partition, end, error)

    def _on_error(self, copy: PartitionCopy, code: int) -> None:
        if code in UNAUTHORIZED:
            copy.forbid("source", "Read")
        elif code not in STALE_LEADER and code != OFFSET_OUT_OF_RANGE:
            # Also a topic that is gone, or another one now: the driver asks more brokers than this one.
            log.warning("fetch %s: %s", copy.partition, code_name(code))

    async def _out_of_range(self, copies: list[PartitionCopy]) -> None:
        """Find out where the logs begin and end by now: of all of them at once, since whole topics come and go."""
        tps, deadline = [copy.partition for copy in copies], time.monotonic() + 5
        try:
            starts = await self.source.list_offsets(tps, EARLIEST, deadline=deadline)
            ends = await self.source.list_offsets(tps, LATEST, deadline=deadline)
        except NotAuthorized as error:
            for copy in copies:
                if copy.partition.topic == error.topic:
                    copy.forbid("source", error.operation)
            return
        except CouldNotFindOut as error:
            log.info("fetch of %d partitions: %s", len(copies), error.message)
            return
        for copy in copies:
            await self._judge_range(copy, starts[copy.partition], ends[copy.partition])

    async def _judge_range(self, copy: PartitionCopy, start: int, end: int) -> None:
        tp, offset, is_lasting = copy.partition, copy.fetch_offset, self._is_lasting(copy.partition)
        if self._is_deposed(copy) and not (is_lasting and await self.source.reports({tp.topic})):
            # One that is cut off goes on for as long as no other broker answers.
            log.info("fetch %s: %d is out of range, by a leader of before", tp, offset)
        elif offset < start:
            copy.stop_after_queue(Halt.DATA_LOSS, f"the source's log now starts at {start}: retention was faster")
        elif offset > end:
            copy.stop_after_queue(Halt.TRUNCATED, f"the source's log now ends at {end}, below our position")
        elif is_lasting:
            copy.stop_after_queue(
                Halt.TRUNCATED, f"the source, which has {start} to {end}, does not know what stood before our position"
            )
        elif offset == start:
            # The broker knows nothing of our leader epoch any more, since all of its records are gone from the source.
            copy.last_epoch = -1

    def _is_deposed(self, copy: PartitionCopy) -> bool:
        """True if who leads by the newest metadata led before what was copied last was written: one that was cut off,
        and does not know that another one leads now. Its log proves nothing, while others may yet report who leads."""
        leader = self.source.leaders.get(copy.partition)
        return leader is not None and 0 <= leader.epoch < copy.last_epoch

    def _is_cut(self, copy: PartitionCopy) -> bool:
        """True if a leader has called the log cut twice, and who leads was asked in between: no halt is founded on one
        broker's word, and this one can only be lifted by copying all of it again."""
        tp, moves = copy.partition, self.source.moves
        if self._is_deposed(copy):
            self._cut.pop(tp, None)
            return False
        return self._cut.setdefault(tp, moves) != moves

    def _is_lasting(self, tp: TopicPartition) -> bool:
        """True if fetches of ``tp`` have brought nothing but such trouble for some time."""
        now = time.monotonic()
        since, newest = self._trouble.get(tp, (now, now))
        # Long ago, and not asked since (paused, or enough in the queue): that was another trouble.
        self._trouble[tp] = (now if now - newest > _TROUBLE_SECONDS else since, now)
        return now - self._trouble[tp][0] > _TROUBLE_SECONDS

    def _leads(self, node: int, tp: TopicPartition) -> bool:
        leader = self.source.leaders.get(tp)
        return leader is not None and leader.node == node
