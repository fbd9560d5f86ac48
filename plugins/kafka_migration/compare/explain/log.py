"""Logs read again in the driver, as bytes: a few megabytes at a time, and decoded only where a batch has no twin.

What it classifies, other readers have found. It shares the decoding of batches with the mirror
(:mod:`kafka_migration.wire`), but nothing of what the mirror makes of them.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, Protocol

import kafka.errors as kafka_errors

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import Record
from kafka_migration.domain.codes import OFFSET_OUT_OF_RANGE
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.handlers import Handle, HandlerFailed, HandlerOf
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.aborted import aborted_batches, is_left_out
from kafka_migration.wire.batch import CODEC, HEADER_BYTES, BatchHeader, next_batch, verify_crc
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster, code_name
from kafka_migration.wire.configs import can_be_empty
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.handled import handled_record
from kafka_migration.wire.join import Piece
from kafka_migration.wire.old_formats import old_messages
from kafka_migration.wire.records import raw_records
from kafka_migration.wire.selector import Selector

_FETCH_BYTES = 4 << 20
_WAIT_MS = 250
_PATIENCE_SECONDS = 60.0
_PAUSE_SECONDS = 0.2
_RAW_BYTES = 1 << 20


class Expired(CouldNotFindOut):
    """Records that are to be read have left the log."""


class Chunk:
    """A batch's records from ``start`` to ``end`` (not included), not decoded yet. ``newest`` is their largest
    timestamp, None if the header has none."""

    __slots__ = ("batch", "end", "first", "header", "is_whole", "start")

    def __init__(self, header: BatchHeader, batch: memoryview, start: int, end: int) -> None:
        self.header, self.batch, self.start, self.end = header, batch, start, end
        self.first = header.base_offset
        self.is_whole = start <= header.base_offset and header.next_offset <= end and header.is_gapless

    @property
    def newest(self) -> int | None:
        return None if self.header.max_timestamp < 0 else self.header.max_timestamp

    def is_twin(self, other: Chunk) -> bool:
        """Whether both hold the very same records, by their bytes: all of the batch on both sides."""
        mine, its = self.header, other.header
        return (
            self.is_whole
            and other.is_whole
            and mine.size == its.size
            and mine.records == its.records
            and mine.base_timestamp == its.base_timestamp
            and not (mine.is_log_append_time or its.is_log_append_time)
            and mine.attributes & CODEC == its.attributes & CODEC
            and self.batch[HEADER_BYTES:] == other.batch[HEADER_BYTES:]
        )

    def records(self) -> Iterator[Record]:
        """Its records. Raises CorruptBatch."""
        header = self.header
        stamped = header.max_timestamp if header.is_log_append_time else None
        for raw in raw_records(header, self.batch):
            offset = header.base_offset + raw.offset_delta
            if self.start <= offset < self.end:
                stamp = header.base_timestamp + raw.timestamp_delta if stamped is None else stamped
                yield Record(offset, stamp, raw.rest)


class Old:
    """The same of messages of a format before v2, decoded already."""

    __slots__ = ("_records", "is_whole", "newest")

    def __init__(self, records: list[Record]) -> None:
        self._records, self.is_whole = records, False
        self.newest: int | None = None

    def records(self) -> Iterator[Record]:
        return iter(self._records)


Chunks = Iterator[Chunk | Old]


class Log(Protocol):
    """One side's logs (:class:`LogReader`)."""

    def chunks(self, tp: TopicPartition, start: int, end: int) -> Chunks: ...

    def ends(self, tp: TopicPartition) -> tuple[int, int]: ...


@contextmanager
def open_logs(source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[tuple[LogReader, LogReader]]:
    """Readers of both clusters, by kafka-python's properties of their connections.

    The source is read as the mirror reads it, committed records only; on the target, whatever stands there counts.
    Raises ClusterUnreachable and AuthenticationFailed.
    """
    net = Selector()
    try:
        with ExitStack() as stack:
            readers = []
            for role, config in ((SOURCE, source), (TARGET, target)):
                cluster = WireCluster(net, config, role)
                stack.callback(cluster.close)
                cluster.connect()
                readers.append(LogReader(cluster, committed=role == SOURCE))
            yield readers[0], readers[1]
    finally:
        net.close()


class LogReader:
    """One cluster's logs. ``committed``: as a consumer of committed records sees them."""

    def __init__(self, cluster: WireCluster, *, committed: bool) -> None:
        self._cluster, self._committed = cluster, committed
        self.bytes = 0

    def uncommitted(self) -> LogReader:
        """The same logs with what no consumer of committed records sees."""
        return LogReader(self._cluster, committed=False)

    def chunks(self, tp: TopicPartition, start: int, end: int) -> Chunks:
        """What stands at ``start`` to ``end`` (not included).

        Raises Expired if the log does not reach back so far any more, and CouldNotFindOut for what cannot be read.
        """
        at, silent_since = start, math.inf
        while at < end:
            answer = self._fetch(tp, at)
            before = at
            for chunk, behind in self._cut(answer, start, end, before):
                at = behind
                if chunk is not None:
                    yield chunk
                if at >= end:
                    return
            if at != before:
                silent_since = math.inf
                continue
            if (answer.last_stable_offset if self._committed else answer.high_watermark) < end:
                raise CouldNotFindOut(
                    f"{tp}: the {self._cluster.role}'s log ends at {answer.high_watermark}, before {end}",
                    remedy="run this again",
                )
            if self._can_be_empty(tp):
                return
            # It holds records: its broker is late with them (remote storage).
            silent_since = min(silent_since, time.monotonic())
            if time.monotonic() - silent_since > _PATIENCE_SECONDS:
                raise CouldNotFindOut(
                    f"{tp}: the {self._cluster.role} sends nothing from offset {at} on, although its log goes on",
                    remedy="run this again",
                )
            self._cluster.net.run(lambda: self._cluster.net.sleep(_PAUSE_SECONDS))

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Log start and end now."""

        def ask(when: int) -> int:
            deadline = time.monotonic() + _PATIENCE_SECONDS
            found: dict[TopicPartition, int] = self._cluster.net.run(
                lambda: self._cluster.list_offsets([tp], when, deadline=deadline, committed=self._committed)
            )
            return found[tp]

        return ask(EARLIEST), ask(LATEST)

    def _can_be_empty(self, tp: TopicPartition) -> bool:
        try:
            return bool(self._cluster.net.run(lambda: can_be_empty(self._cluster, tp.topic)))
        except kafka_errors.KafkaError as error:
            raise CouldNotFindOut(
                f"{tp}: the {self._cluster.role} does not answer which configs the topic has: {error}",
                remedy="check that its brokers are up, then run this again",
            ) from error

    def _fetch(self, tp: TopicPartition, at: int) -> Fetched:
        deadline, why = time.monotonic() + _PATIENCE_SECONDS, ""
        while time.monotonic() < deadline:
            try:
                if tp not in self._cluster.leaders:
                    self._cluster.net.run(lambda: self._cluster.wait_for_leaders([tp], deadline=deadline))
                answer: Fetched = self._cluster.net.run(lambda: self._one(tp, at))
            except kafka_errors.KafkaError as error:
                why = str(error) or type(error).__name__
                self._again(tp)
                continue
            if answer.error == OFFSET_OUT_OF_RANGE:
                # The answer hides where the log begins.
                start, last = self.ends(tp)
                kind = Expired if start > at else CouldNotFindOut
                raise kind(
                    f"{tp}: offset {at} is not in the {self._cluster.role}'s log, which is {start}..{last} by now",
                    remedy="run this again",
                )
            if answer.error:
                why = code_name(answer.error)
                self._again(tp)
                continue
            self.bytes += len(answer.records)
            return answer
        raise CouldNotFindOut(
            f"{tp}: the {self._cluster.role} could not be read from offset {at} on: {why}",
            remedy="check that its brokers are up, then run this again",
        )

    async def _one(self, tp: TopicPartition, at: int) -> Fetched:
        node = self._cluster.leaders[tp].node
        wanted = [FetchFrom(tp, at, _FETCH_BYTES)]
        answers = await fetch(
            self._cluster, node, wanted, max_wait_ms=_WAIT_MS, max_bytes=_FETCH_BYTES, committed=self._committed
        )
        if not answers:
            # A quota's doing.
            raise kafka_errors.ThrottlingQuotaExceededError()
        return answers[0]

    def _again(self, tp: TopicPartition) -> None:
        self._cluster.forget_leaders([tp])
        self._cluster.net.run(lambda: self._cluster.net.sleep(_PAUSE_SECONDS))

    def _cut(self, answer: Fetched, start: int, end: int, since: int) -> Iterator[tuple[Chunk | Old | None, int]]:
        """Chunks of a fetch, each with the offset behind it; None for a batch that holds nothing to compare."""
        view, at = memoryview(answer.records), 0
        left_out = aborted_batches(view, answer.aborted) if answer.aborted else frozenset[int]()
        while (found := next_batch(view, at)) is not None:
            header, batch = found
            if header.magic != 2:
                piece, at = old_messages(view, at, since, _RAW_BYTES)
                kept = [record for record in _of_piece(piece) if start <= record.offset < end]
                yield (Old(kept) if kept else None), max(piece.end, since)
                continue
            at += header.size
            if header.next_offset <= since:
                continue
            if header.base_offset >= end:
                # Not looked at: what was given up may be damaged.
                yield None, header.next_offset
                continue
            verify_crc(header, batch)
            if is_left_out(header, left_out):
                yield None, header.next_offset
            else:
                yield Chunk(header, batch, start, end), header.next_offset


def _of_piece(piece: Piece) -> Iterator[Record]:
    if piece.batch is None:
        return
    runs = deque(piece.runs)
    shift = 0
    for raw in raw_records(piece.header, piece.batch):
        while runs and runs[0].before <= raw.offset_delta:
            first = runs.popleft()
            shift = first.source - first.before
        offset = raw.offset_delta + (shift if piece.runs else piece.header.base_offset)
        yield Record(offset, piece.header.base_timestamp + raw.timestamp_delta, raw.rest)


class HandledLog:
    """The source's logs, with each record as its topic's handler (``handler_of``) makes it: as the target should have
    it."""

    def __init__(self, log: Log, handler_of: HandlerOf) -> None:
        self._log, self._handler_of = log, handler_of
        self.ends: Callable[[TopicPartition], tuple[int, int]] = log.ends

    def chunks(self, tp: TopicPartition, start: int, end: int) -> Chunks:
        """What stands at ``start`` to ``end`` (not included). Raises what the log does, BadInput for a handler that is
        not here, and CouldNotFindOut where one fails."""
        found = self._log.chunks(tp, start, end)
        handler = self._handler_of(tp.topic)
        return found if handler is None else _handled(found, handler.load(), tp)


def _handled(chunks: Chunks, handle: Handle, tp: TopicPartition) -> Iterator[Chunk | Old]:
    for chunk in chunks:
        try:
            yield Old([*_each(chunk.records(), handle)])
        except HandlerFailed as error:
            raise CouldNotFindOut(f"{tp}: {error}", remedy="correct the handler") from error


def _each(records: Iterator[Record], handle: Handle) -> Iterator[Record]:
    for record in records:
        after = handled_record(handle, record.rest, record.timestamp, record.offset)
        if after is not None:
            yield Record(record.offset, *after)
