"""A produce request as kafka-python sends it, and its response: hundreds of them a second carry the copy.

The generic ones make an object for each topic and partition, and copy what they hold three times.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kafka.protocol.producer import ProduceRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.records import write_unsigned

Batch = bytes | bytearray | memoryview
Parts = Sequence[tuple[int, Batch]]
"""Partitions of a topic, each with its batch."""

BY_ID_SINCE = 13
_FLEXIBLE_SINCE = 9
_NO_TAGS = b"\0"
_ACKS_ALL = -1
_HEADER = struct.Struct(">hhih")
_BODY = struct.Struct(">hi")
_INT32 = struct.Struct(">i")


_ID_BYTES = 16
_ANSWER = struct.Struct(">ihqqq")
_NOTHING_MORE = b"\x01\x00\x00"
"""Of an answer: no errors of single records, no message, no tagged fields."""


@dataclass(frozen=True, slots=True)
class Appended:
    """A broker's answer for one partition. ``base_offset`` is where the batch landed, if ``error`` is 0."""

    partition: TopicPartition
    error: int
    base_offset: int
    message: str


@dataclass(frozen=True, slots=True)
class LeanProduceResponse:
    """The answers of one response, and how long the broker asks to be left alone."""

    answers: list[Appended]
    throttle_time_ms: int


class _Header:
    """What kafka-python asks of a sent request when its response comes; of the response's class, too."""

    __slots__ = ("_names", "_reader", "api_version", "correlation_id")
    api_key = ProduceRequest.API_KEY

    def __init__(self, correlation_id: int, api_version: int, names: Mapping[bytes, str]) -> None:
        self.correlation_id, self.api_version, self._names = correlation_id, api_version, names
        self._reader = _Reader(b"")

    def get_response_class(self) -> Any:
        """Who decodes it."""
        return self

    def parse_header(self, frame: Any) -> Any:
        """The response's header: its ``correlation_id`` is for comparison."""
        self._reader = _Reader(bytes(frame.read()))
        (correlation_id,) = _INT32.unpack(self._reader.take(_INT32.size))
        self._reader.skip_tags()
        return _Header(correlation_id, self.api_version, self._names)

    def decode(self, _: Any) -> LeanProduceResponse:
        """What follows the header. Raises ValueError if it cannot be a response."""
        reader, answers = self._reader, list[Appended]()
        for _ in range(reader.unsigned() - 1):
            topic = self._topic(reader)
            answers.extend(reader.answer(topic) for _ in range(reader.unsigned() - 1))
            reader.skip_tags()
        return LeanProduceResponse(answers, _INT32.unpack(reader.take(_INT32.size))[0])

    def _topic(self, reader: _Reader) -> str:
        if self.api_version < BY_ID_SINCE:
            return reader.text()
        topic_id = reader.take(_ID_BYTES)
        if topic_id not in self._names:
            raise ValueError("an answer for a topic that nobody asked for")
        return self._names[topic_id]


class _Reader:
    """Walks over the bytes of a response. Raises ValueError at their end."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        """The next bytes."""
        at = self._at
        self._at += size
        if size < 0 or self._at > len(self._data):
            raise ValueError("a produce response ends early")
        return self._data[at : self._at]

    def unsigned(self) -> int:
        """The next varint."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def text(self) -> str:
        """The next compact string; null is empty."""
        return self.take(max(0, self.unsigned() - 1)).decode()

    def skip_tags(self) -> None:
        """Past tagged fields."""
        for _ in range(self.unsigned()):
            self.unsigned()
            self.take(self.unsigned())

    def answer(self, topic: str) -> Appended:
        """The next partition's."""
        index, error, base_offset, _, _ = _ANSWER.unpack(self.take(_ANSWER.size))
        message = ""
        if self._data[self._at : self._at + len(_NOTHING_MORE)] == _NOTHING_MORE:
            self._at += len(_NOTHING_MORE)
        else:
            for _ in range(self.unsigned() - 1):
                self.take(4)
                self.text()
                self.skip_tags()
            message = self.text()
            self.skip_tags()
        return Appended(TopicPartition(topic, index), error, base_offset, message)


class LeanProduceRequest:
    """As ``ProduceRequest`` with acks=all and without a transaction: what kafka-python's connections use of one."""

    API_KEY = ProduceRequest.API_KEY
    name = ProduceRequest.name
    min_version = _min_version = _FLEXIBLE_SINCE
    max_version = ProduceRequest.max_version

    def __init__(self, topics: Mapping[tuple[str, uuid.UUID], Parts], *, timeout_ms: int, max_version: int) -> None:
        """``topics`` by name and id; the id names them from version 13 on. ``max_version`` is at least 9."""
        self.API_VERSION: int | None = None
        self._topics, self._timeout_ms, self._max_version = topics, timeout_ms, max_version
        self.header: _Header | None = None
        self._client_id = b""

    def expect_response(self) -> bool:
        """Always."""
        return True

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Under which id its response is awaited."""
        names = {topic_id.bytes: name for name, topic_id in self._topics}
        self.header = _Header(correlation_id, self.API_VERSION or 0, names)
        self._client_id = client_id.encode()

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """All of it; kafka-python asks for no less."""
        if not (framed and header and self.header is not None):
            raise ValueError("a produce request is sent as a whole")
        version = self.header.api_version
        out: list[Batch] = [
            b"",
            _HEADER.pack(self.API_KEY, version, self.header.correlation_id, len(self._client_id)),
            self._client_id,
            _NO_TAGS,
            write_unsigned(0),  # no transactional id
            _BODY.pack(_ACKS_ALL, self._timeout_ms),
            write_unsigned(len(self._topics) + 1),
        ]
        for (name, topic_id), parts in self._topics.items():
            out.append(
                topic_id.bytes if version >= BY_ID_SINCE else write_unsigned(len(name.encode()) + 1) + name.encode()
            )
            out.append(write_unsigned(len(parts) + 1))
            for index, batch in parts:
                out += (_INT32.pack(index), write_unsigned(len(batch) + 1), batch, _NO_TAGS)
            out.append(_NO_TAGS)
        out.append(_NO_TAGS)
        out[0] = _INT32.pack(sum(map(len, out)))
        return b"".join(out)

    def __str__(self) -> str:
        return f"LeanProduceRequest({sum(map(len, self._topics.values()))} partitions)"
