"""A produce request as kafka-python sends it, encoded in one piece: hundreds of them a second carry the copy.

The generic request makes an object for each topic and partition, and copies what they hold three times.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse

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


class _Header:
    """What kafka-python asks of a sent request when its response comes."""

    __slots__ = ("api_version", "correlation_id")
    api_key = ProduceRequest.API_KEY

    def __init__(self, correlation_id: int, api_version: int) -> None:
        self.correlation_id, self.api_version = correlation_id, api_version

    def get_response_class(self) -> Any:
        """Who decodes it."""
        return ProduceResponse[self.api_version]


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
        self.header = _Header(correlation_id, self.API_VERSION or 0)
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
