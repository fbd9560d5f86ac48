"""A proxy between clients and brokers that knows requests from responses, and does to them what networks do.

Clients reach it as an HTTP proxy (`proxy_url` of kafka-python), so brokers need not know of it; or it stands before one
broker (`to`), which advertises it. Hooks see every frame: they may let it pass, drop it, hold it (by not returning), or
cut the connection, of the client alone if they like, also in the middle of a frame: what was held can still be
delivered to the broker long after its client has given up.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

PRODUCE, FETCH, LIST_OFFSETS, METADATA, API_VERSIONS = 0, 1, 2, 3, 18
ADD_PARTITIONS, END_TXN, INIT_PRODUCER = 24, 26, 22


@dataclass(frozen=True)
class Frame:
    """One request, or one response with the request that it answers. `data` is without the length before it."""

    connection: "Connection" = field(repr=False)
    data: bytes = field(repr=False)
    api: int
    version: int
    correlation: int
    request: "Frame | None" = None

    def mentions(self, *names: bytes) -> bool:
        """True if any of `names` (topics, or ids of topics) stands in it."""
        return any(name in self.data for name in names)


Hook = Callable[[Frame], bool | bytes | None]


class Connection:
    """One client's connection to one broker."""

    def __init__(self, proxy: "Proxy", client: socket.socket, broker: socket.socket) -> None:
        self.proxy, self._client, self._broker = proxy, client, broker
        self._unanswered: dict[int, Frame] = {}
        self._broker_lock = threading.Lock()
        #: Whether the broker's side stays open when the client has gone, for what is to be delivered later.
        self.outlives_client = proxy.to is None

    def start(self) -> None:
        for work in (self._requests, self._responses):
            threading.Thread(target=work, daemon=True).start()

    def cut(self) -> None:
        """Close both sides."""
        self.cut_client()
        _close(self._broker)

    def cut_client(self) -> None:
        """Close the client's side only: the broker still answers what it gets."""
        _close(self._client)

    def client_fileno(self) -> int:
        """The descriptor of the client's side."""
        return self._client.fileno()

    def deliver(self, frame: Frame) -> None:
        """Send a request to the broker that was held back, whether its client is still there or not."""
        with self._broker_lock:
            self._unanswered[frame.correlation] = frame
            self._broker.sendall(struct.pack(">i", len(frame.data)) + frame.data)

    def answer_and_cut(self, frame: Frame) -> None:
        """Pass a response to the client, then close both sides."""
        self._client.sendall(struct.pack(">i", len(frame.data)) + frame.data)
        self.cut()

    def cut_in(self, frame: Frame, share: float) -> None:
        """Send that share of a frame (a request to the broker, a response to the client), and close both sides."""
        data = struct.pack(">i", len(frame.data)) + frame.data
        part = data[: max(1, min(len(data) - 1, int(len(data) * share)))]
        with contextlib.suppress(OSError):
            if frame.request is None:
                with self._broker_lock:
                    self._broker.sendall(part)
            else:
                self._client.sendall(part)
        self.cut()

    def _requests(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = _frame(self._client)
                api, version, correlation = struct.unpack_from(">hhi", data)
                frame = Frame(self, data, api, version, correlation)
                passed = self.proxy.on_request(frame)
                if isinstance(passed, bytes):
                    frame = replace(frame, data=passed)
                if passed is not False:
                    self.deliver(frame)
        if not self.outlives_client:
            _close(self._broker)
        # Else what the broker still has to say is heard to its end, for the hooks.

    def _responses(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                data = _frame(self._broker)
                (correlation,) = struct.unpack_from(">i", data)
                request = self._unanswered.pop(correlation)
                frame = Frame(self, data, request.api, request.version, correlation, request)
                passed = self.proxy.on_response(frame)
                if passed is not False:
                    shown = passed if isinstance(passed, bytes) else data
                    with contextlib.suppress(OSError):
                        self._client.sendall(struct.pack(">i", len(shown)) + shown)
        self.cut()


class Proxy:
    """Listens on a free port of 127.0.0.1, or on `port`. With `to`, a host and port, all connections lead there.

    Hooks return False to drop a frame, bytes to pass those instead, anything else lets it pass.
    """

    def __init__(
        self,
        *,
        on_request: Hook = lambda _: None,
        on_response: Hook = lambda _: None,
        to: tuple[str, int] | None = None,
        port: int = 0,
        receive_bytes: int | None = None,
    ) -> None:
        """`receive_bytes`: about how much it takes from a client ahead of what it passes on."""
        self.on_request, self.on_response = on_request, on_response
        self.to = to
        self._connections: list[Connection] = []
        self._listener = socket.create_server(("127.0.0.1", port))
        if receive_bytes is not None:
            self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)

    @property
    def url(self) -> str:
        """The `proxy_url` of clients."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> "Proxy":
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        _close(self._listener)
        for connection in self._connections:
            connection.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        try:
            broker = socket.create_connection(self.to or _asked_for(client))
            if self.to is None:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        except OSError:
            _close(client)
            return
        connection = Connection(self, client, broker)
        self._connections.append(connection)
        connection.start()


def _asked_for(client: socket.socket) -> tuple[str, int]:
    """Where an HTTP proxy is asked to connect to."""
    asked = b""
    while not asked.endswith(b"\r\n\r\n"):
        asked += _exactly(client, 1)
    host, _, port = asked.split(b" ", 2)[1].decode().rpartition(":")
    return host, int(port)


def _frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", _exactly(sock, 4))
    return _exactly(sock, size)


def _exactly(sock: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = sock.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionResetError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
