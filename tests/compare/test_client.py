"""How the reader's connections take apart what comes in: into frames, in place, however it comes."""

from __future__ import annotations

import random
import socket
import struct
from types import SimpleNamespace
from typing import Any

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.sasl import SaslBytesRequest

from kafka_migration.compare.reader.client import _READ_BYTES, _Parser, _Transport

SIZES = (0, 1, 3, 50, 1_000, _READ_BYTES - 1, _READ_BYTES, _READ_BYTES + 1, 200_000)


class _Socket:
    """Gives some of ``stream`` each time, or nothing yet."""

    def __init__(self, stream: bytes, chance: random.Random) -> None:
        self._stream, self._chance, self._at = memoryview(stream), chance, 0
        self.wakes_at = 1

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        assert option == socket.SO_RCVLOWAT
        self.wakes_at = value

    @property
    def would_wake(self) -> bool:
        """Whether as much as is waited for will come."""
        return self._at + self.wakes_at <= len(self._stream)

    def recv_into(self, space: memoryview) -> int:
        if self._at == len(self._stream) or self._chance.random() < 0.3:
            raise BlockingIOError
        size = min(len(space), len(self._stream) - self._at, self._chance.choice((1, 2, 3, 7, 100, 5_000, 1 << 20)))
        space[:size] = self._stream[self._at : self._at + size]
        self._at += size
        return size


def _transport(stream: bytes, chance: random.Random, parser: KafkaProtocol | None) -> Any:
    made = _Transport.__new__(_Transport)
    made._protocol, made.space = SimpleNamespace(parser=parser), memoryview(bytearray(_READ_BYTES))
    made._sock = _Socket(stream, chance)
    return made


@pytest.mark.parametrize("seed", range(40))
def test_frames_hold_what_was_sent_in_whatever_pieces_it_comes(seed: int) -> None:
    chance = random.Random(seed)
    frames = [chance.randbytes(chance.choice(SIZES)) for _ in range(12)]
    parser = KafkaProtocol(client_id="test")
    for _ in frames:
        parser.send_request(SaslBytesRequest(b"x"))
    transport = _transport(b"".join(struct.pack(">i", len(one)) + one for one in frames), chance, parser)
    found: list[bytes | memoryview] = []
    while len(found) < len(frames):
        read, error = transport._sock_recv()
        assert error is None
        found += [answer.auth_bytes for _, answer in parser.receive_bytes(read)]
        assert len(found) == len(frames) or transport._sock.would_wake
    # What comes next may be as small as can be.
    assert transport._sock.wakes_at == 1
    assert [bytes(one) for one in found] == frames
    # Mechanisms of SASL decode theirs.
    assert all(isinstance(one, bytes) for one in found if len(one) < _READ_BYTES)


def _answer(version: int, topics: list[list[bytes]], *, aborted: int = 0, leader: bool = False) -> FetchResponse:
    """An answer to a fetch, of topics whose partitions have these records."""
    kind, of = FetchResponse.FetchableTopicResponse, FetchResponse.FetchableTopicResponse.PartitionData
    tags = {"current_leader": of.LeaderIdAndEpoch(version=version, leader_id=4, leader_epoch=9)} if leader else {}
    partitions = [
        [
            of(
                version=version,
                partition_index=n,
                error_code=0,
                high_watermark=500,
                last_stable_offset=400,
                log_start_offset=3,
                aborted_transactions=[of.AbortedTransaction(version=version, producer_id=n, first_offset=7)] * aborted,
                preferred_read_replica=-1,
                records=records,
                **tags,
            )
            for n, records in enumerate(topic)
        ]
        for topic in topics
    ]
    responses = [kind(version=version, topic="t" * 200, partitions=each) for each in partitions]
    return FetchResponse(version=version, throttle_time_ms=1, error_code=0, session_id=0, responses=responses)


_RECORDS = random.Random(5).randbytes(3 * _READ_BYTES)


@pytest.mark.parametrize("version", range(4, 13))
@pytest.mark.parametrize(
    ("topics", "more", "is_view"),
    [
        ([[_RECORDS]], {}, True),
        ([[_RECORDS]], {"aborted": 3}, True),
        ([[_RECORDS]], {"leader": True}, True),
        ([[b"few"]], {}, False),
        ([[_RECORDS, _RECORDS[:9]]], {}, False),
        ([[_RECORDS], [_RECORDS[:9]]], {}, False),
        ([], {}, False),
    ],
)
def test_records_of_a_large_answer_are_where_they_came_in_and_all_else_is_as_the_base_reads_it(
    version: int, topics: list[list[bytes]], more: dict[str, Any], is_view: bool
) -> None:
    has_tags = "leader" in more
    if has_tags and version < 12:
        return
    answer = _answer(version, topics, **more)
    found, expected = list[Any](), list[Any]()
    for make in (_Parser, KafkaProtocol):
        parser = make(client_id="test")
        asked = FetchRequest(version=version)
        correlation = parser.send_request(asked)
        answer.with_header(correlation_id=correlation)
        (expected if make is KafkaProtocol else found).extend(
            parser.receive_bytes(answer.encode(framed=True, header=True))
        )
    assert [one.to_dict() for _, one in found] == [one.to_dict() for _, one in expected]
    views = [isinstance(p.records, memoryview) for _, one in found for t in one.responses for p in t.partitions]
    assert any(views) == (is_view and not has_tags)


def test_end_of_a_connection_and_one_that_was_closed_meanwhile_are_its_errors() -> None:
    transport = _transport(b"", random.Random(0), KafkaProtocol(client_id="test"))
    transport._sock = SimpleNamespace(recv_into=lambda _space: 0)
    assert "disconnected" in str(transport._sock_recv()[1])
    transport._protocol = None
    read, error = transport._sock_recv()
    assert (bytes(read), type(error).__name__) == (b"", "KafkaConnectionError")
