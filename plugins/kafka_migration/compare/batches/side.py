"""One side of a segment as batches: fetched ahead, their checksums verified, without what no consumer would see."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import kafka.errors as kafka_errors
from kafka.future import Future

from kafka_migration.compare.reading import CannotRead, Unanswered, fetch_size
from kafka_migration.domain.codes import (
    INCONSISTENT_TOPIC_ID,
    OFFSET_OUT_OF_RANGE,
    UNAUTHORIZED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.aborted import aborted_batches, is_left_out
from kafka_migration.wire.batch import BatchHeader, CorruptBatch, batches, verify_crc
from kafka_migration.wire.cluster import WireCluster, code_name
from kafka_migration.wire.configs import can_be_empty
from kafka_migration.wire.fetch import (
    fetch,
)
from kafka_migration.wire.fetch_request import Fetched, FetchFrom

_FINAL = UNAUTHORIZED | {OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION}
_WAIT_MS = 500
_PAUSE_SECONDS = 0.2


class Block(NamedTuple):
    """A batch, or a message of an old format. Its records stand from offset ``first`` on, at the earliest."""

    first: int
    header: BatchHeader
    batch: memoryview


class Side:
    """Batches of one partition that hold offsets from ``start`` up to, and without, ``end``.

    ``committed``: as a consumer of committed records sees them, without what was aborted. The first batch may begin
    before ``start``, and the last may reach beyond ``end``. Of ``left_out`` (spans of offsets, in order) nothing is
    read but what shares a batch with others: it may be damaged. A leader that does not answer is waited for,
    ``seconds`` long. :attr:`bytes` counts what was fetched.
    """

    def __init__(
        self,
        cluster: WireCluster,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        committed: bool,
        seconds: float,
        left_out: Sequence[tuple[int, int]] = (),
    ) -> None:
        self._cluster, self._tp, self._committed, self._seconds = cluster, tp, committed, seconds
        self._start, self._at, self._end, self._left_out = start, start, end, left_out
        self._pass_over()
        self._ahead: Future | None = None
        self._silent_since: float | None = None
        self.bytes = 0

    async def next(self) -> list[Block] | None:
        """The batches of the next answer, which may be none; None at the end.

        The answer behind it is asked for meanwhile. Raises CannotRead, and ClusterUnreachable if no broker of the
        cluster answers.
        """
        if self._at >= self._end:
            return None
        answer = await self._answer()
        self.bytes += len(answer.records)
        found = self._blocks(answer)
        self._pass_over()
        if found is None:
            await self._nothing(answer)
        else:
            self._silent_since = None
        if self._at < self._end:
            self._ahead = self._cluster.net.call_soon_with_future(self._fetch)
        return found or []

    def drop(self) -> None:
        """Nobody waits for what was asked for ahead."""
        if self._ahead is not None:
            self._ahead.add_errback(lambda _error: None)
            self._ahead = None

    async def _answer(self) -> Fetched:
        until = time.monotonic() + self._seconds
        while True:
            try:
                ahead, self._ahead = self._ahead, None
                answer = await ahead if ahead is not None else await self._fetch()
                if answer is not None and not answer.error:
                    return answer
                problem = "no leader" if answer is None else code_name(answer.error)
                if answer is not None and answer.error in _FINAL:
                    raise self._unread(problem)
            except kafka_errors.KafkaError as error:
                problem = str(error) or type(error).__name__
            if time.monotonic() > until:
                raise Unanswered(self._unread(f"no answer for {self._seconds:g} s: {problem}").message)
            await self._cluster.net.sleep(_PAUSE_SECONDS)
            await self._cluster.refresh([self._tp.topic])

    async def _fetch(self) -> Fetched | None:
        if self._tp not in self._cluster.leaders:
            await self._cluster.refresh([self._tp.topic])
        leader = self._cluster.leaders.get(self._tp)
        if leader is None:
            return None
        size = fetch_size(self._at - self._start, self._end - self._at, self.bytes)
        answers = await fetch(
            self._cluster,
            leader.node,
            [FetchFrom(self._tp, self._at, size)],
            max_wait_ms=_WAIT_MS,
            max_bytes=size,
            committed=self._committed,
        )
        # None at all is a quota's doing.
        return answers[0] if answers else None

    def _blocks(self, answer: Fetched) -> list[Block] | None:
        """What of the answer is to be compared; None if it holds no batch at all."""
        aborted = aborted_batches(answer.records, answer.aborted) if answer.aborted else frozenset[int]()
        found, came = [], False
        try:
            for header, batch in batches(answer.records):
                came = True
                if header.next_offset <= self._at:
                    continue
                first = header.base_offset if header.magic == 2 else self._at
                if first >= self._end:
                    self._at = self._end
                    break
                if any(low <= first and header.next_offset <= high for low, high in self._left_out):
                    self._at = header.next_offset
                    continue
                if header.magic == 2:
                    verify_crc(header, batch)
                self._at = header.next_offset
                if not is_left_out(header, aborted):
                    found.append(Block(first, header, batch))
        except CorruptBatch as error:
            raise self._unread(str(error)) from error
        return found if came else None

    def _pass_over(self) -> None:
        for low, high in self._left_out:
            if low <= self._at < high:
                self._at = high

    async def _nothing(self, answer: Fetched) -> None:
        """The answer had room for a batch and holds none: the log ends before what was pinned, or compaction has
        removed all up to its end (brokers before 4.0 remove even the last batch; KAFKA-17076), or the broker is late
        with what lies in remote storage. It counts once the answer comes twice.
        """
        now = time.monotonic()
        if self._silent_since is None:
            self._silent_since = now
            return
        upper = answer.last_stable_offset if self._committed else answer.high_watermark
        if upper < self._end:
            raise self._unread(f"the log ends at {upper} by now, before the pinned end {self._end}")
        try:
            if await can_be_empty(self._cluster, self._tp.topic):
                self._at = self._end
                return
        except (CouldNotFindOut, kafka_errors.KafkaError) as error:
            raise self._unread(str(error)) from error
        if now - self._silent_since > self._seconds:
            raise self._unread(f"the broker sends nothing, although the log goes on to {upper}")
        await self._cluster.net.sleep(_PAUSE_SECONDS)

    def _unread(self, problem: str) -> CannotRead:
        return CannotRead(f"{self._cluster.role}: {self._tp} from offset {self._at} on: {problem}")
