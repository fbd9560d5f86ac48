"""A produce request with acks=all and without a transaction, and its response."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka.protocol.producer import ProduceRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.lean import INT32, Batch, LeanRequest, Reader, TopicIds, Writer

Parts = Sequence[tuple[int, Batch]]
"""Partitions of a topic, each with its batch."""

_ACKS_ALL = -1
_BODY = struct.Struct(">hi")
_ANSWER = struct.Struct(">ihqqq")
_NOTHING_MORE = b"\x01\x00\x00"
"""Of an answer in a flexible version: no errors of single records, no message, no tagged fields."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A broker's answer for one partition. ``base_offset`` is where the batch landed, if ``error`` is 0.

    ``log_append_time_ms`` is the timestamp that all of its records have got instead of their own, -1 if they kept them;
    ``log_start_offset`` where the partition's log begins now, -1 if the broker does not report it.
    """

    partition: TopicPartition
    error: int
    base_offset: int
    message: str
    log_append_time_ms: int = -1
    log_start_offset: int = -1


@dataclass(frozen=True, slots=True)
class LeanProduceResponse:
    """The answers of one response, and how long the broker asks to be left alone."""

    answers: list[Appended]
    throttle_time_ms: int


class LeanProduceRequest(LeanRequest):
    """``topics`` by name."""

    API_KEY = ProduceRequest.API_KEY
    FLEXIBLE_SINCE = 9
    IDS_SINCE = 13
    NEWEST = min(13, ProduceRequest.max_version)
    min_version = 8

    def __init__(self, topics: Mapping[str, Parts], ids: TopicIds, *, timeout_ms: int) -> None:
        super().__init__(ids)
        self._topics, self._timeout_ms = topics, timeout_ms

    def write(self, to: Writer) -> None:
        to.text(None)  # no transactional id
        to.put(_BODY.pack(_ACKS_ALL, self._timeout_ms))
        to.count(len(self._topics))
        for name, parts in self._topics.items():
            self.write_topic(to, name)
            to.count(len(parts))
            for index, batch in parts:
                to.put(INT32.pack(index))
                to.data(batch)
                to.end()
            to.end()
        to.end()

    def read(self, reader: Reader) -> LeanProduceResponse:
        answers: list[Appended] = []
        for _ in range(reader.count()):
            topic = self.read_topic(reader)
            answers.extend(_answer(reader, topic) for _ in range(reader.count()))
            reader.tags()
        return LeanProduceResponse(answers, reader.unpack(INT32)[0])


def _answer(reader: Reader, topic: str) -> Appended:
    """The next partition's."""
    index, error, base_offset, append_time, log_start = reader.unpack(_ANSWER)
    message = ""
    if not (reader.flexible and reader.has(_NOTHING_MORE)):
        for _ in range(reader.count()):
            reader.take(INT32.size)
            reader.text()
            reader.tags()
        message = reader.text()
        reader.tags()
    return Appended(TopicPartition(topic, index), error, base_offset, message, append_time, log_start)
