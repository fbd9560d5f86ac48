"""Requests that kafka-python's connections send for us, encoded and decoded here: those that carry the copy.

The generic ones make an object for each topic and partition, and copy what they hold three times; at thousands of
partitions, or hundreds of requests a second, that was most of what the mirror did. Bytes are as in the Kafka protocol
guide; "flexible" versions (KIP-482) write counts as varints and end every structure with tagged fields.
"""

from __future__ import annotations

import struct
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import kafka.errors as kafka_errors

from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.wire.records import write_unsigned

Batch = bytes | bytearray | memoryview
_UUID_BYTES = 16
INT32 = struct.Struct(">i")
_INT16 = struct.Struct(">h")
_HEADER = struct.Struct(">hhih")
_NO_TAGS = b"\0"


class Writer:
    """Collects the parts of a request; nothing is copied until all are joined."""

    __slots__ = ("flexible", "parts")

    def __init__(self, *, flexible: bool) -> None:
        self.flexible, self.parts = flexible, list[Batch]()

    def put(self, *parts: Batch) -> None:
        """As they are."""
        self.parts += parts

    def count(self, number: int) -> None:
        """Of an array."""
        self.parts.append(write_unsigned(number + 1) if self.flexible else INT32.pack(number))

    def text(self, text: str | None) -> None:
        """A string, or null."""
        data = b"" if text is None else text.encode()
        if self.flexible:
            self.put(write_unsigned(0 if text is None else len(data) + 1), data)
        else:
            self.put(_INT16.pack(-1 if text is None else len(data)), data)

    def data(self, batch: Batch) -> None:
        """Bytes with their length in front."""
        self.put(write_unsigned(len(batch) + 1) if self.flexible else INT32.pack(len(batch)), batch)

    def end(self) -> None:
        """Of a structure: no tagged fields."""
        if self.flexible:
            self.parts.append(_NO_TAGS)


class Reader:
    """Walks over the bytes of a response. Raises ValueError at their end."""

    __slots__ = ("_at", "_data", "flexible")

    def __init__(self, data: memoryview, *, flexible: bool) -> None:
        self._data, self._at, self.flexible = data, 0, flexible

    def take(self, size: int) -> memoryview:
        """The next bytes, where they are."""
        at = self._at
        end = self._at = at + size
        if size < 0 or end > len(self._data):
            raise ValueError("a response ends early")
        return self._data[at:end]

    def unpack(self, fields: struct.Struct) -> tuple[Any, ...]:
        """The next numbers."""
        at = self._at
        self._at = at + fields.size
        if self._at > len(self._data):
            raise ValueError("a response ends early")
        return fields.unpack_from(self._data, at)

    def has(self, expected: bytes) -> bool:
        """True if just this comes next; then it is passed over."""
        end = self._at + len(expected)
        if self._data[self._at : end] != expected:
            return False
        self._at = end
        return True

    def unsigned(self) -> int:
        """The next varint."""
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def count(self) -> int:
        """Of an array; one that is null has none."""
        return max(0, self.unsigned() - 1 if self.flexible else self.unpack(INT32)[0])

    def text(self) -> str:
        """The next string; null is empty."""
        size = self.unsigned() - 1 if self.flexible else self.unpack(_INT16)[0]
        return str(self.take(max(0, size)), "utf-8")

    def data(self) -> memoryview:
        """The next bytes with a length in front, where they are; null is empty."""
        return self.take(self.count())

    def tags(self) -> Iterable[tuple[int, memoryview]]:
        """Tagged fields at the end of a structure: number and content of each."""
        if not self.flexible:
            return ()
        # Nearly never any.
        number = self.unsigned()
        return [(self.unsigned(), self.take(self.unsigned())) for _ in range(number)] if number else ()


class _Header:
    """What kafka-python asks of a sent request when its response comes; of the response's class and header, too."""

    __slots__ = ("_reader", "_request", "api_key", "api_version", "correlation_id")

    def __init__(self, request: LeanRequest, correlation_id: int) -> None:
        self._request, self.correlation_id = request, correlation_id
        self.api_key, self.api_version = request.API_KEY, request.version
        self._reader: Reader | None = None

    def get_response_class(self) -> _Header:
        """Who decodes it."""
        return self

    def parse_header(self, frame: bytearray) -> _Header:
        """The response's header: its ``correlation_id`` is for comparison."""
        reader = Reader(memoryview(frame), flexible=self._request.is_flexible)
        header = _Header(self._request, reader.unpack(INT32)[0])
        reader.tags()
        self._reader = reader
        return header

    def decode(self, _: Any) -> Any:
        """What follows the header. Raises KafkaProtocolError if it cannot be that: kafka-python would log all of it
        upon a ValueError, records included."""
        if self._reader is None:
            raise ValueError("the header comes first")
        try:
            return self._request.read(self._reader)
        except ValueError as error:
            raise kafka_errors.KafkaProtocolError(f"a response to {self._request} cannot be read: {error}") from error


class TopicIds:
    """Ids of topics by name, and names by id. ``are_known`` is false if one of them has none (0). ``here`` are the
    cluster's names, where it has others, and ``known_as`` leads back."""

    __slots__ = ("are_known", "by_name", "here", "known_as", "names")

    def __init__(self, by_name: Mapping[str, uuid.UUID], names: TopicNames = SAME) -> None:
        self.by_name = by_name
        self.here = {} if names.are_same else {name: names.on_target(name) for name in by_name}
        self.known_as = {here: name for name, here in self.here.items()}
        self.names = {topic_id.bytes: name for name, topic_id in by_name.items()}
        self.are_known = all(topic_id.int for topic_id in by_name.values())


class LeanRequest:
    """What kafka-python's connections use of a request. Its response is what :meth:`read` returns; that needs an
    attribute ``throttle_time_ms``.

    ``ids`` are those of all topics that it or its response names. Topics go by id where every one of them has one and
    the broker knows how (``IDS_SINCE``), and by name otherwise. ``NEWEST`` is the newest version that is known here.
    """

    API_KEY: ClassVar[int]
    FLEXIBLE_SINCE: ClassVar[int]
    IDS_SINCE: ClassVar[int]
    NEWEST: ClassVar[int]
    min_version: ClassVar[int]

    def __init__(self, ids: TopicIds) -> None:
        self.API_VERSION: int | None = None
        self.name = type(self).__name__
        self.max_version = self._max_version = self.NEWEST if ids.are_known else self.IDS_SINCE - 1
        self._ids = ids
        self._min_version = self.min_version
        self.header: _Header | None = None
        self._client_id = b""

    @abstractmethod
    def write(self, to: Writer) -> None:
        """The body."""

    @abstractmethod
    def read(self, reader: Reader) -> Any:
        """A response's body. Raises ValueError if it cannot be one."""

    @property
    def version(self) -> int:
        """As agreed with the broker."""
        if self.API_VERSION is None:
            raise ValueError(f"{self.name}: no version is agreed on yet")
        return self.API_VERSION

    def write_topic(self, to: Writer, name: str) -> None:
        """Which topic is meant."""
        if self.version >= self.IDS_SINCE:
            to.put(self._ids.by_name[name].bytes)
        else:
            to.text(self._ids.here.get(name, name))

    def read_topic(self, reader: Reader) -> str:
        """The name of the topic that comes next. Raises ValueError for one that was not asked for."""
        if self.version < self.IDS_SINCE:
            name = reader.text()
            return self._ids.known_as.get(name, name)
        topic_id = bytes(reader.take(_UUID_BYTES))
        if topic_id not in self._ids.names:
            raise ValueError("an answer for a topic that nobody asked for")
        return self._ids.names[topic_id]

    @property
    def is_flexible(self) -> bool:
        """Whether its version is."""
        return self.version >= self.FLEXIBLE_SINCE

    def expect_response(self) -> bool:
        """Always."""
        return True

    def with_header(self, *, correlation_id: int, client_id: str) -> None:
        """Under which id its response is awaited."""
        self.header, self._client_id = _Header(self, correlation_id), client_id.encode()

    def encode(self, *, framed: bool, header: bool) -> bytes:
        """All of it; kafka-python asks for no less."""
        if not (framed and header and self.header is not None):
            raise ValueError("a request is sent as a whole")
        to = Writer(flexible=self.is_flexible)
        to.put(
            b"",
            _HEADER.pack(self.API_KEY, self.version, self.header.correlation_id, len(self._client_id)),
            self._client_id,
        )
        to.end()
        self.write(to)
        to.parts[0] = INT32.pack(sum(map(len, to.parts)))
        return b"".join(to.parts)

    def __str__(self) -> str:
        return self.name
