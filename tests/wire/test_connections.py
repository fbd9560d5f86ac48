"""Responses come out of our frames as out of kafka-python's, however the bytes are cut."""

import random
import socket
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import kafka.errors as kafka_errors
import pytest
from kafka.future import Future
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.parser import KafkaProtocol
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from kafka_migration.wire.connections import Connections, _Protocol
from kafka_migration.wire.selector import Selector

VERSION, FETCH_VERSION = 9, 12
CONFIG = {"client_id": "mirror", "receive_message_max_bytes": 1_000_000}


def _response(correlation: int, message: str) -> bytes:
    response = ProduceResponse(
        version=VERSION,
        responses=[
            ProduceResponse.TopicProduceResponse(
                version=VERSION,
                name="t",
                partition_responses=[
                    ProduceResponse.TopicProduceResponse.PartitionProduceResponse(
                        version=VERSION,
                        index=1,
                        error_code=2,
                        base_offset=correlation,
                        log_append_time_ms=-1,
                        log_start_offset=0,
                        record_errors=[],
                        error_message=message,
                    )
                ],
            )
        ],
        throttle_time_ms=0,
    )
    response.with_header(correlation_id=correlation)
    return bytes(response.encode(framed=True, header=True))


def _asked(protocol: KafkaProtocol, count: int) -> None:
    for _ in range(count):
        protocol.send_request(
            ProduceRequest(version=VERSION, transactional_id=None, acks=-1, timeout_ms=1, topic_data=[])
        )
    protocol.send_bytes()


@pytest.mark.parametrize("seed", range(5))
def test_same_responses_as_of_the_base_however_bytes_are_cut(seed: int) -> None:
    chance = random.Random(seed)
    messages = ["x" * chance.choice([0, 1, 200, 255, 256, 257, 5_000]) for _ in range(30)]
    data = b"".join(_response(n, message) for n, message in enumerate(messages, 1))
    base, ours = KafkaProtocol(**CONFIG), _Protocol(**CONFIG)
    for protocol in (base, ours):
        _asked(protocol, len(messages))
    expected = base.receive_bytes(data)
    got = []
    while data:
        count = chance.choice([1, 2, 3, 4, 5, 50, 700, 20_000])
        got += ours.receive_bytes(data[:count])
        data = data[count:]
    assert [(number, str(it)) for number, it in got] == [(number, str(it)) for number, it in expected]
    told = [it.responses[0].partition_responses[0] for _, it in got]
    assert [it.error_message for it in told] == messages
    assert [it.base_offset for it in told] == list(range(1, 31))


def _fetched(correlation: int, records: bytes) -> bytes:
    topic = FetchResponse.FetchableTopicResponse
    part = topic.PartitionData(
        partition_index=1,
        error_code=0,
        high_watermark=9,
        last_stable_offset=9,
        log_start_offset=0,
        aborted_transactions=None,
        preferred_read_replica=-1,
        records=records,
    )
    response = FetchResponse(
        version=FETCH_VERSION,
        throttle_time_ms=0,
        error_code=0,
        session_id=0,
        responses=[topic(topic="t", partitions=[part])],
    )
    response.with_header(correlation_id=correlation)
    return bytes(response.encode(framed=True, header=True))


@pytest.mark.parametrize("seed", range(5))
def test_large_answers_are_read_straight_into_their_frames(seed: int) -> None:
    chance = random.Random(seed)
    sizes = [chance.choice([0, 100, 32_767, 32_768, 600_000, 2_000_000]) for _ in range(12)]
    contents = [chance.randbytes(size) for size in [*sizes, 1_500_000]]
    data = b"".join(_fetched(n, records) for n, records in enumerate(contents, 1))
    ours = _Protocol(**{**CONFIG, "receive_message_max_bytes": 4_000_000})
    for _ in contents:
        ours.send_request(FetchRequest(version=FETCH_VERSION, topics=[]))
    got, straight = [], 0
    while data:
        count, space = chance.choice([3, 70_000, 500_000, 900_000]), ours.space()
        if space is None:
            piece: bytes | memoryview = data[:count]
        else:
            size = min(count, len(space), len(data))
            space[:size] = data[:size]
            piece, straight = space[:size], straight + 1
        got += ours.receive_bytes(piece)
        data = data[len(piece) :]
    assert [number for number, _ in got] == list(range(1, len(contents) + 1))
    assert [bytes(it.responses[0].partitions[0].records or b"") for _, it in got] == contents
    assert straight


@pytest.mark.parametrize("length", [-1, 1_000_001])
def test_impossible_length_is_refused(length: int) -> None:
    with pytest.raises(kafka_errors.InvalidReceiveError):
        _Protocol(**CONFIG).receive_bytes(length.to_bytes(4, "big", signed=True))


# -- what the kernel still holds --------------------------------------------------------------------------------


class _Lost:
    """Whose transport ended, and why."""

    def __init__(self) -> None:
        self.why: list[Exception | None] = []

    def connection_lost(self, error: Exception | None) -> None:
        self.why.append(error)


@pytest.fixture
def deaf() -> Iterator[socket.socket]:
    """A broker that takes connections, and reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def _opened(net: Selector, deaf: socket.socket, stuck_seconds: float) -> tuple[Any, _Lost, socket.socket]:
    host, port = deaf.getsockname()
    manager = Connections(net, stuck_seconds=stuck_seconds, bootstrap_servers=f"{host}:{port}")
    (node,) = manager.cluster.bootstrap_brokers()
    transport, lost = net.run(manager._build_transport, node), _Lost()
    transport.set_protocol(lost)
    return transport, lost, deaf.accept()[0]


def _turn_until(net: Selector, condition: Callable[[], bool]) -> None:
    async def turning() -> None:
        until = time.monotonic() + 30
        while not condition():
            assert time.monotonic() < until
            await net.sleep(0.02)

    net.run(turning)


def test_connection_on_which_nothing_is_acknowledged_is_given_up(deaf: socket.socket) -> None:
    net = Selector()
    transport, lost, _peer = _opened(net, deaf, 0.5)
    transport.write(bytes(64_000_000))
    _turn_until(net, lambda: bool(lost.why))
    assert lost.why[0] is not None


@pytest.mark.parametrize("closes", ["in order", "for an error"])
def test_what_was_not_sent_when_a_connection_closes_never_arrives(deaf: socket.socket, closes: str) -> None:
    net = Selector()
    transport, lost, peer = _opened(net, deaf, 30.0)
    transport.write(bytes(64_000_000))
    if closes == "in order":
        transport.close()
    else:
        transport.abort(error=kafka_errors.KafkaConnectionError("over"))
    assert lost.why, "at once: the loop may be over"
    with pytest.raises(ConnectionResetError):
        _turn_until(net, lambda: not peer.recv(1 << 20))


def test_no_byte_is_sent_once_it_is_not_allowed_any_more(deaf: socket.socket) -> None:
    net, looks = Selector(), iter([True, True])
    transport, lost, peer = _opened(net, deaf, 30.0)
    transport.allowed = lambda: next(looks, False)
    transport.write(bytes(64_000_000))
    assert not lost.why
    _turn_until(net, lambda: not peer.recv(1 << 20) or bool(lost.why))
    assert "right to send" in str(lost.why[0])


def test_append_is_not_queued_behind_a_connection_that_is_being_opened(deaf: socket.socket) -> None:
    """It would be written when that is over, whoever may write by then."""
    host, port = deaf.getsockname()
    manager = Connections(Selector(), bootstrap_servers=f"{host}:{port}")
    (node,) = manager.cluster.bootstrap_brokers()
    with pytest.raises(kafka_errors.NodeNotReadyError):
        manager.send_while(lambda: True, object(), node.node_id, 1_000)
    assert not manager.get_connection(node.node_id)._request_buffer


def test_what_is_under_way_to_a_broker_that_throttles_is_awaited_for_longer(deaf: socket.socket) -> None:
    host, port = deaf.getsockname()
    net = Selector()
    manager = Connections(net, bootstrap_servers=f"{host}:{port}")
    (node,) = manager.cluster.bootstrap_brokers()
    connection, borne = manager.get_connection(node.node_id), list[float]()
    connection.broker_version_data = SimpleNamespace(broker_version=(4, 0))
    connection.transport = SimpleNamespace(bear=borne.append, host_port=lambda: "there")
    before = time.monotonic() + 5.0
    timer = net.call_at(before, lambda: None)
    connection.in_flight_requests.append((1, Future(), time.monotonic(), before, timer))
    connection._maybe_throttle(SimpleNamespace(throttle_time_ms=40_000))
    ((_, _, _, later, _),) = connection.in_flight_requests
    assert timer.is_done
    assert later - before == pytest.approx(40.0, abs=1.0)
    assert manager.throttled_seconds(node.node_id) == pytest.approx(40.0, abs=1.0)
    assert borne == [pytest.approx(40.0, abs=1.0)]
