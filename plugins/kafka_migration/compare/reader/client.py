"""One cluster as record level asks it: who leads a partition, and what stands in its log. By kafka-python's client.

Nothing of the mirror's wire layer is in it. Requests are begun, and their answers waited for: of both clusters, and of
several fetches, on one loop in one thread.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import kafka.errors as kafka_errors
import numpy as np
from kafka.future import Future
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.parser import KafkaProtocol

from kafka_migration.compare.decode.plain import unsigned
from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable, reason_of
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.domain.types import TopicPartition

_RECEIVE_MAX_BYTES = 256 * 1024 * 1024
_READ_BYTES = 1 << 16
#: Of a large answer so much is waited for at once: to be woken takes longer than to read what there is.
_WAKE_BYTES = 1 << 19
_WAIT_MS = 500
#: By names: the oldest brokers that have records of format v2, and the newest version without topic ids.
_OLDEST, _NEWEST = 4, 12
#: Versions of fetches since which answers have more.
_LOG_STARTS, _SESSIONS, _PREFERRED, _FLEXIBLE = 5, 7, 11, 12
_FETCH_AGAIN_SECONDS = 0.1


def _records_in(frame: memoryview, version: int) -> tuple[int, int, int] | None:
    """Where an answer to a fetch of one partition has the length of its records, where they begin, and where they end;
    None if it is another answer (protocol guide, "Fetch")."""
    is_flexible, at = version >= _FLEXIBLE, 4

    def count(size: int) -> int:
        """A length or count of so many bytes, or a varint which is larger by 1."""
        nonlocal at
        if not is_flexible:
            at += size
            return int.from_bytes(frame[at - size : at], "big", signed=True)
        number, at = unsigned(frame, at)
        return number - 1

    try:
        if is_flexible and count(0) != -1:  # tags
            return None
        at += 10 if version >= _SESSIONS else 4
        if count(4) != 1:
            return None
        name = count(2)
        at += name
        if count(4) != 1:
            return None
        at += 30 if version >= _LOG_STARTS else 22
        aborted = max(0, count(4))
        at += aborted * (17 if is_flexible else 16) + (4 if version >= _PREFERRED else 0)
        length_at = at
        size = count(4)
    except IndexError:
        return None
    # Behind them is no more than that there are no tags: of the partition, of the topic, and of all.
    return (length_at, at, at + size) if size > 0 and at + size + 3 * is_flexible == len(frame) else None


class _Parser(KafkaProtocol):  # type: ignore[misc]
    """As its base, which clears the room for an answer first, and copies it twice. The records of a large one are a
    view of what was received, and no copy."""

    _frame: memoryview | None = None
    _filled = 0

    @property
    def space(self) -> memoryview:
        """Where what comes next goes: the rest of an answer, or of the four bytes that say how long one is."""
        return memoryview(self._header if self._frame is None else self._frame)[self._filled :]

    def receive_bytes(self, data: bytes | memoryview) -> list[Any]:
        """What ``data`` completes, which may stand in :attr:`space` already: numbers of requests, each with its answer.
        Raises kafka-python's errors."""
        found = list[Any]()
        rest = memoryview(data)
        while True:
            frame, space = self._frame, self.space
            size = min(len(space), len(rest))
            if rest.obj is not space.obj:
                space[:size] = rest[:size]
            rest, self._filled = rest[size:], self._filled + size
            if size < len(space):
                return found
            self._filled, self._frame = 0, None
            if frame is None:
                length = int.from_bytes(self._header, "big", signed=True)
                self._validate_frame_size(length)
                self._frame = np.empty(length, np.uint8).data
            else:
                found.append(self._process_response(frame))

    def _process_response(self, frame: memoryview) -> Any:
        asked: Any = self.in_flight_requests[0] if self.in_flight_requests else None
        is_fetch = getattr(asked, "request_api_key", None) == FetchRequest.API_KEY
        if len(frame) < _READ_BYTES or not is_fetch or not (place := _records_in(frame, asked.request_api_version)):
            return super()._process_response(_joined(frame))
        length_at, begin, end = place
        # Its base takes apart what is around them.
        nothing = b"\x01" if asked.request_api_version >= _FLEXIBLE else bytes(4)
        found = super()._process_response(_joined(frame[:length_at], nothing, frame[end:]))
        found[1].responses[0].partitions[0].records = frame[begin:end]
        return found


def _joined(*parts: bytes | memoryview) -> KafkaBytes:
    """``parts``, one behind the other, as kafka-python's decoders take them."""
    whole = b"".join(parts)
    found = KafkaBytes(len(whole))
    found[:] = whole
    return found


class _Transport(KafkaTCPTransport):  # type: ignore[misc]
    """As its base, which reads four kilobytes at a time. A large answer is read to where it is decoded from, and in
    large pieces."""

    space: memoryview
    wakes_at = 1

    def _sock_recv(self) -> tuple[memoryview, Exception | None]:
        space, size = self.space, 0
        try:
            parser = self._protocol.parser
            parser.__class__ = _Parser
            if len(parser.space) >= len(space):
                space = parser.space
            # More may have come meanwhile, and to wait for it takes longer than to look.
            while size < len(space):
                size += (more := self._sock.recv_into(space[size:]))
                if not more:
                    return space[:size], kafka_errors.KafkaConnectionError("socket disconnected")
        except (BlockingIOError, InterruptedError):
            pass
        except Exception as error:  # also of a connection that was closed meanwhile
            return space[:size], kafka_errors.KafkaConnectionError(error)
        self._wake_at(len(parser.space) - size)
        return space[:size], None

    def _wake_at(self, left: int) -> None:
        """Wait for so much next, or for enough of it: of an answer that is there, for no more than the next one's
        first byte."""
        wanted = max(1, min(left, _WAKE_BYTES))
        if wanted != self.wakes_at:
            # Not every system can; it only takes longer.
            with suppress(OSError):
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self.wakes_at = wanted


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at=timeout_at)
        if type(transport) is KafkaTCPTransport:
            # The base names the class in the middle of all that it does.
            transport.__class__ = _Transport
            transport.space = memoryview(bytearray(_READ_BYTES))
        return transport


class Client:
    """Connections to one cluster. ``config`` are kafka-python's properties, and as ``topic_names`` how topics are
    called there, if it is otherwise than on the source; ``role`` is source or target."""

    def __init__(self, net: NetworkSelector, config: Mapping[str, Any], role: str) -> None:
        config = dict(config)
        self.role, self._net = role, net
        self._names: TopicNames = config.pop("topic_names", SAME)
        self._servers = str(config.get("bootstrap_servers", ""))
        self._manager = _Manager(
            net, **{"receive_message_max_bytes": _RECEIVE_MAX_BYTES, "reconnect_backoff_max_ms": 1_000, **config}
        )
        self._leaders: dict[TopicPartition, int] = {}
        #: Whether a request was not answered.
        self.has_failed = False

    def connect(self, seconds: float) -> None:
        """Reach any broker of the cluster. Raises ClusterUnreachable, or AuthenticationFailed."""
        try:
            self._manager.bootstrap(1000 * seconds)
        except kafka_errors.KafkaError as error:
            for broker in self._manager.cluster.bootstrap_brokers():
                failure = self._manager.auth_failure(broker.node_id)
                if failure is not None:
                    raise AuthenticationFailed(self.role, self._servers, str(failure)) from error
            raise ClusterUnreachable(self.role, self._servers, reason_of(error)) from error

    def close(self) -> None:
        """End all connections."""
        self._manager.close()

    def leaders(self, topics: Iterable[str], seconds: float) -> dict[TopicPartition, int]:
        """Who leads the partitions of ``topics``, by broker id. Raises kafka-python's errors."""
        kind = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=[kind(name=name) for name in sorted(map(self._names.on_target, topics))],
            allow_auto_topic_creation=False,
        )
        answer = self.wait(self._manager.send(request), seconds)
        return {
            TopicPartition(self._names.known_as(topic.name), partition.partition_index): partition.leader_id
            for topic in answer.topics
            for partition in topic.partitions
            if partition.leader_id >= 0
        }

    def look_for_leader(self, tp: TopicPartition, seconds: float) -> None:
        """Ask again who leads ``tp``. Raises kafka-python's errors."""
        self.forget_leader(tp)
        found = self.leaders([tp.topic], seconds)
        if tp not in found:
            raise kafka_errors.LeaderNotAvailableError()
        self._leaders.update(found)

    def forget_leader(self, tp: TopicPartition) -> None:
        """Whoever leads ``tp`` is to be looked for before the next fetch."""
        self._leaders.pop(tp, None)

    def knows(self, tp: TopicPartition) -> bool:
        """Whether a leader of ``tp`` is known."""
        return tp in self._leaders

    def begin_fetch(self, tp: TopicPartition, offset: int, size: int, *, committed: bool) -> Future:
        """Ask the leader for about ``size`` bytes from ``offset`` on: kafka-python's future of the partition's answer,
        which also fails where no leader is known. With ``committed`` it ends before the first open transaction."""
        kind = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=size,
            isolation_level=int(committed),
            session_id=0,
            session_epoch=-1,
            topics=[
                kind(
                    topic=self._names.on_target(tp.topic),
                    partitions=[
                        kind.FetchPartition(
                            partition=tp.partition,
                            current_leader_epoch=-1,
                            fetch_offset=offset,
                            last_fetched_epoch=-1,
                            partition_max_bytes=size,
                        )
                    ],
                )
            ],
            forgotten_topics_data=[],
            rack_id="",
            min_version=_OLDEST,
            max_version=_NEWEST,
        )
        if tp not in self._leaders:
            return Future().failure(kafka_errors.LeaderNotAvailableError())
        try:
            return self._manager.send(request, node_id=self._leaders[tp])
        except kafka_errors.KafkaError as error:
            return Future().failure(error)

    def wait(self, answer: Future, seconds: float) -> Any:
        """What ``answer`` becomes, within so many seconds. Raises kafka-python's errors."""
        until = time.monotonic() + seconds
        while not answer.is_done and time.monotonic() < until:
            self._net.poll(timeout_ms=1000 * max(0.0, until - time.monotonic()), future=answer)
        self.has_failed |= answer.exception is not None or not answer.is_done
        if not answer.is_done:
            answer.add_errback(lambda _error: None)
            raise kafka_errors.KafkaTimeoutError(f"no answer within {seconds:g} s")
        if answer.exception is not None:
            raise answer.exception
        return answer.value

    def pause(self) -> None:
        """A moment, in which the loop goes on."""
        self._net.poll(timeout_ms=1000 * _FETCH_AGAIN_SECONDS, future=Future())
