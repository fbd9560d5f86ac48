"""The network cuts where it is told to, and what it lets pass arrives as it was."""

import random
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from demo.brokers.ports import PortReservation
from tests.chaos.network import Network, Side
from tests.proxy import PRODUCE, Proxy
from tests.waiting import wait_until


class Broker:
    """Answers every request with the same correlation id and its size; keeps what it got."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.got: list[bytes] = []
        self.broken = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # A thread that waits in accept() does not notice that its socket is closed.
        with suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            stream = client.makefile("rb")
            while head := stream.read(4):
                (size,) = struct.unpack(">i", head)
                data = stream.read(size)
                if len(data) < size:
                    self.broken += 1
                    return
                self.got.append(data)
                answer = data[4:8] + struct.pack(">i", size) * 50
                client.sendall(struct.pack(">i", len(answer)) + answer)


class Client:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.settimeout(10)
        self.stream = self.socket.makefile("rb")

    def ask(self, number: int, payload: bytes = b"x" * 1000, api: int = PRODUCE) -> bytes | None:
        """The answer; None if the connection was cut before all of it was there."""
        data = struct.pack(">hhi", api, 9, number) + payload
        try:
            self.socket.sendall(struct.pack(">i", len(data)) + data)
            head = self.stream.read(4)
            if len(head) < 4:
                return None
            (size,) = struct.unpack(">i", head)
            answer = self.stream.read(size)
        except ConnectionError:
            return None
        return answer if len(answer) == size else None


@pytest.fixture
def broker() -> Iterator[Broker]:
    it = Broker()
    yield it
    it.close()


def cutting(side: Side, broker: Broker, where: str) -> list[bool]:
    """Which of some questions were answered while one connection is cut."""
    with Proxy(on_request=side.on_request, on_response=side.on_response, to=("127.0.0.1", broker.port)) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        told: list[list[str]] = []

        def cut() -> None:
            told.append(side.cut(where=where, count=1, apis=[PRODUCE], seconds=10, seed=1))

        thread = threading.Thread(target=cut)
        thread.start()
        wait_until(lambda: side._cuts.left, "the cut is due")
        answered = []
        for number in range(8):
            answered.append(Client(port).ask(number) is not None)
        thread.join(20)
        assert len(told[0]) == 1
        # What is late is still with the proxy.
        wait_until(lambda: len(broker.got) + broker.broken == 8, "everything has reached the broker")
    return answered


def test_request_cut_in_the_middle_never_reaches_the_broker(broker):
    assert cutting(Side(1), broker, "request").count(False) == 1
    assert (len(broker.got), broker.broken) == (7, 1)


def test_response_cut_in_the_middle_is_that_of_a_request_that_was_obeyed(broker):
    assert cutting(Side(1), broker, "response").count(False) == 1
    assert len(broker.got) == 8


def test_late_request_reaches_the_broker_after_its_connection_is_cut(broker):
    assert cutting(Side(1), broker, "late").count(False) == 1
    assert len(broker.got) == 8


def test_other_requests_are_not_cut(broker):
    side = Side(1)
    with Proxy(on_request=side.on_request, on_response=side.on_response, to=("127.0.0.1", broker.port)) as proxy:
        client = Client(int(proxy.url.rpartition(":")[2]))
        asking = threading.Thread(target=lambda: [client.ask(n, api=3) for n in range(50)])
        asking.start()
        assert side.cut(where="request", count=1, apis=[PRODUCE], seconds=0.3, seed=1) == []
        asking.join(20)
    assert len(broker.got) == 50


def test_topic_that_is_severed_loses_each_of_its_connections_and_others_none(broker: Broker) -> None:
    victim, other = bytes(range(16)) * 500, bytes(range(16, 32)) * 500
    side = Side(1)
    side.sever(ids=[victim[:16].hex()])
    with Proxy(on_request=side.on_request, on_response=side.on_response, to=("127.0.0.1", broker.port)) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        assert [Client(port).ask(n, payload) is None for n, payload in enumerate((victim, other, victim))] == [1, 0, 1]
        side.sever(ids=[])
        assert Client(port).ask(3, victim) is not None


def test_broker_that_is_spoilt_is_asked_for_other_topics_and_no_other_broker_is(broker: Broker) -> None:
    victim, other = bytes(range(16)), bytes(range(16, 32))
    side = Side(1)
    with Proxy(on_request=side.on_request, on_response=side.on_response, to=("127.0.0.1", broker.port)) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        for spoilt, payload in ((broker.port + 1, victim), (broker.port, victim), (broker.port, other), (0, victim)):
            side.spoil(ids=[victim.hex()] if spoilt else [], port=spoilt)
            assert Client(port).ask(1, payload) is not None
    assert [data[8:] in (victim, other) for data in broker.got] == [True, False, True, True]
    assert {len(data) for data in broker.got} == {24}


def test_what_passes_through_the_process_arrives_as_it_was_also_when_it_is_slow(broker):
    ports = PortReservation(1)
    (port,) = ports
    chance = random.Random(1)
    payloads = [chance.randbytes(size) for size in (0, 1, 5_000, 300_000)]
    with Network({"source": [(port, broker.port)], "target": []}) as network:
        client = Client(port)
        for slowness in (0.0, 0.05):
            network.slow("source", delay=slowness, bytes_per_second=5_000_000 if slowness else 0)
            for number, payload in enumerate(payloads):
                answer = client.ask(number, payload)
                assert answer is not None
                assert struct.unpack_from(">ii", answer) == (number, len(payload) + 8)
    ports.release()
    assert [data[8:] for data in broker.got] == payloads * 2


def test_answer_is_kept_back_until_it_may_go_on_and_others_pass(broker):
    ports = PortReservation(1)
    (port,) = ports
    with Network({"source": [], "target": [(port, broker.port)]}) as network:
        answers: list[bytes | None] = []
        asking = threading.Thread(target=lambda: answers.append(Client(port).ask(1, api=24)))
        kept: list[bool] = []
        keeping = threading.Thread(target=lambda: kept.append(network.keep_answer("target", 24, seconds=10)))
        keeping.start()
        # It may be asked for before it is kept: then it passes, and is asked for anew.
        asking.start()
        asking.join(0.5)
        while keeping.is_alive() and not asking.is_alive():
            asking = threading.Thread(target=lambda: answers.append(Client(port).ask(1, api=24)))
            asking.start()
            asking.join(0.5)
        keeping.join(15)
        assert kept == [True]
        assert asking.is_alive(), "its answer is kept"
        assert Client(port).ask(2) is not None
        network.release_answer("target")
        asking.join(30)
        assert not asking.is_alive()
        assert None not in answers
        assert network.keep_answer("target", 24, seconds=0.1) is False
    ports.release()


def test_broker_that_is_down_closes_its_clients(broker):
    side = Side(1)
    with Proxy(on_request=side.on_request, on_response=side.on_response, to=("127.0.0.1", broker.port)) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        assert Client(port).ask(1)
        broker.close()
        assert Client(port).ask(2) is None
