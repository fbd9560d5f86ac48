"""A fetch request, within a session or without, and its response, whose records stay in the frame they came in."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka.protocol.consumer import FetchRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.lean import INT32, LeanRequest, Reader, TopicIds, Writer

_EPOCH_SINCE, _NO_REPLICA_SINCE = 12, 15
_CONSUMER = INT32.pack(-1)
_BODY = struct.Struct(">iiibii")
_WANTED = struct.Struct(">iiqiqi")
_WANTED_WITHOUT_EPOCH = struct.Struct(">iiqqi")
_BEGIN = struct.Struct(">ihi")
_ANSWER = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qq")
_DIVERGING, _DIVERGING_TAG = struct.Struct(">iq"), 0
_UNKNOWN_START = -1
_NOTHING = (b"\x01\xff\xff\xff\xff\x01\x00", b"\x00\xff\xff\xff\xff\x01\x00")
"""Of an answer in a flexible version: no aborted transactions (or null), no other replica, no records, no tags."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one fetch returns of one partition. ``records`` are raw batches; ends are -1 where an error hides them.

    ``diverging_end`` is set when the leader's log ends before our position at ``last_epoch``: it was truncated.
    ``aborted`` are the aborted transactions among them, by producer id and first offset; only asked for ``committed``.
    """

    partition: TopicPartition
    error: int
    records: bytes | memoryview
    high_watermark: int
    last_stable_offset: int
    log_start: int
    diverging_end: int | None
    aborted: tuple[tuple[int, int], ...] = ()


class FetchFrom(NamedTuple):
    """Where to fetch one partition: ``offset``, at most about ``max_bytes``, and the leader epoch of what was read
    last (-1 if unknown), by which the broker recognises a truncated log."""

    partition: TopicPartition
    offset: int
    max_bytes: int
    last_epoch: int = -1


@dataclass(frozen=True, slots=True)
class LeanFetchResponse:
    """All of its answers, and how long the broker asks to be left alone. Of a session, ``error`` is why there is no
    answer at all, and ``session`` is its id (0: the broker keeps none)."""

    answers: list[Fetched]
    throttle_time_ms: int
    error: int
    session: int


NO_SESSION = (0, -1)


class FetchOptions(NamedTuple):
    """How long the broker may wait, for how much, how much it may send, and whether it ends before the first open
    transaction (KIP-98). ``session`` is its id with the number of this request in it (KIP-227)."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed: bool
    session: tuple[int, int] = NO_SESSION


class LeanFetchRequest(LeanRequest):
    """``wanted`` topic by topic, each partition with its leader's epoch; a topic may stand there several times.
    ``forgotten`` leave the session."""

    API_KEY = FetchRequest.API_KEY
    FLEXIBLE_SINCE = 12
    IDS_SINCE = 13
    NEWEST = min(17, FetchRequest.max_version)
    min_version = 11

    def __init__(
        self,
        wanted: Sequence[tuple[str, Sequence[tuple[FetchFrom, int]]]],
        ids: TopicIds,
        options: FetchOptions,
        forgotten: Sequence[TopicPartition] = (),
    ) -> None:
        super().__init__(ids)
        self._wanted, self._options, self._forgotten = wanted, options, forgotten

    def write(self, to: Writer) -> None:
        options = self._options
        if self.version < _NO_REPLICA_SINCE:
            to.put(_CONSUMER)
        to.put(
            _BODY.pack(
                options.max_wait_ms, options.min_bytes, options.max_bytes, int(options.committed), *options.session
            )
        )
        to.count(len(self._wanted))
        for topic, partitions in self._wanted:
            self.write_topic(to, topic)
            to.count(len(partitions))
            for want, leader_epoch in partitions:
                to.put(self._partition(want, leader_epoch))
                to.end()
            to.end()
        to.count(len(self._forgotten))
        for topic, index in self._forgotten:
            self.write_topic(to, topic)
            to.count(1)
            to.put(INT32.pack(index))
            to.end()
        to.text("")  # no rack
        to.end()

    def _partition(self, want: FetchFrom, leader_epoch: int) -> bytes:
        index, offset, size = want.partition.partition, want.offset, want.max_bytes
        if self.version < _EPOCH_SINCE:
            return _WANTED_WITHOUT_EPOCH.pack(index, leader_epoch, offset, _UNKNOWN_START, size)
        return _WANTED.pack(index, leader_epoch, offset, want.last_epoch, _UNKNOWN_START, size)

    def read(self, reader: Reader) -> LeanFetchResponse:
        throttle_time_ms, error, session = reader.unpack(_BEGIN)
        answers: list[Fetched] = []
        for _ in range(reader.count()):
            topic = self.read_topic(reader)
            answers.extend(_answer(reader, topic, error) for _ in range(reader.count()))
            reader.tags()
        reader.tags()
        return LeanFetchResponse(answers, throttle_time_ms, error, session)


def _answer(reader: Reader, topic: str, error_of_all: int) -> Fetched:
    """The next partition's."""
    index, error, high_watermark, last_stable, start = reader.unpack(_ANSWER)
    if reader.flexible and (reader.has(_NOTHING[0]) or reader.has(_NOTHING[1])):
        # Nearly all of them, where there are many partitions and little comes.
        return Fetched(
            TopicPartition(topic, index), error or error_of_all, b"", high_watermark, last_stable, start, None
        )
    aborted = []
    for _ in range(reader.count()):
        aborted.append(reader.unpack(_ABORTED))
        reader.tags()
    reader.unpack(INT32)  # a replica to read from: we ask leaders only
    records = reader.data()
    diverging_end = None
    for tag, content in reader.tags():
        if tag == _DIVERGING_TAG and len(content) >= _DIVERGING.size:
            end = _DIVERGING.unpack_from(content)[1]
            diverging_end = end if end >= 0 else None
    return Fetched(
        TopicPartition(topic, index),
        error or error_of_all,
        records,
        high_watermark,
        last_stable,
        start,
        diverging_end,
        tuple(aborted),
    )
