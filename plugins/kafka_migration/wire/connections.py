"""kafka-python's connections, with fewer copies on the way of a fetched record: it has been copied four times there.

What they do, and when, stays theirs; only how bytes get from the socket into a response, and from a request into the
socket, is done in another way here.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future
from kafka.net.connection import KafkaConnection
from kafka.net.inet import create_connection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

from kafka_migration.wire.selector import READ, Selector

log = logging.getLogger(__name__)

_READ_BYTES = 512 * 1024
_PREFIX_BYTES = 4
_DROP_WHAT_IS_UNSENT = struct.pack("ii", 1, 0)


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """As its base on a :class:`Selector`, but sockets are read as soon as there is something, plain ones by half a
    megabyte and not by 4 KiB (TLS hands out 16 KiB at most), and written to at once; frames are filled from views.

    With ``stuck_seconds``, no byte leaves this machine's kernel once its connection is closed, by whatever end of the
    process, and a connection on which nothing is acknowledged for so long is closed, also while the process is stopped
    (where the system knows TCP_USER_TIMEOUT).
    """

    def __init__(self, net: Selector, *, stuck_seconds: float | None = None, **config: Any) -> None:
        self._stuck_seconds = stuck_seconds
        self.last_failure: Exception | None = None
        super().__init__(net, **config)

    async def _connect(self, node: Any, conn: Any, *args: Any, **options: Any) -> None:
        """As its base, which only writes to a log why a connection could not be made."""
        await super()._connect(node, conn, *args, **options)
        if not isinstance(conn.init_future.exception, kafka_errors.KafkaTimeoutError) or self.last_failure is None:
            # The last try is cut off by the bootstrap's own end; why those before it failed says more.
            self.last_failure = conn.init_future.exception

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        """As its base, of our own classes."""
        options, proxy = self.config["socket_options"], self.config["proxy_url"]
        sock = await create_connection(self._net, node.host, node.port, options, proxy_url=proxy, timeout_at=timeout_at)
        tls = {name: value for name, value in self.config.items() if name.startswith("ssl_")}
        make = partial(_Tls, **tls) if self.ssl_enabled else _Plain
        transport = make(self._net, sock, host=node.host)
        try:
            await transport.handshake()
        except Exception as error:
            raise kafka_errors.KafkaConnectionError(f"Handshake failed: {error}") from error
        if self._stuck_seconds is not None:
            transport._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DROP_WHAT_IS_UNSENT)
            transport.stuck_seconds = self._stuck_seconds
            transport.bear(0.0)
        return transport

    def send_while(self, allowed: Callable[[], bool], request: Any, node_id: Any, timeout_ms: int | None) -> Future:
        """Send a request now or not at all, and no byte of it once ``allowed`` returns false.

        Raises NodeNotReadyError, with nothing sent, while the connection is being opened, authenticates again or is
        throttled: its base keeps some requests until that is over. Where the socket does not take all of a request at
        once, the rest is given up with the connection as soon as it is not allowed any more.
        """
        connection = self.get_connection(node_id)
        if not connection.connected or connection.paused or connection._reauth.is_reauthenticating:
            raise kafka_errors.NodeNotReadyError(f"{connection} takes nothing yet")
        connection.transport.allowed = allowed
        return connection.send_request(request, request_timeout_ms=timeout_ms)

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        """The connection to a node, begun if there is none yet."""
        connection = super().get_connection(node_id, **options)
        # The base names the class of its connections in the middle of all that it does with a new one.
        connection.__class__ = _Connection
        return connection

    def throttled_seconds(self, node_id: Any) -> float:
        """For how long the node's quota forbids to send anything to it; 0 if it does not."""
        connection = self._conns.get(node_id)
        return max(0.0, connection._throttle_time - time.monotonic()) if connection is not None else 0.0


class _Direct:
    """What is read is handed on at once, and what is written is sent at once as far as the socket takes it: without a
    coroutine that waits for either."""

    _net: Selector
    allowed: Callable[[], bool] | None = None
    """Asked before each write, until everything was written."""
    stuck_seconds: float | None = None
    """For how long nothing may be acknowledged; None: as long as the system likes."""

    def bear(self: Any, seconds: float) -> None:
        """For so much longer nothing may be acknowledged from now on."""
        if self.stuck_seconds is not None and self._sock is not None:
            milliseconds = round(1000 * (self.stuck_seconds + seconds))
            with suppress(AttributeError):  # not every system has it
                self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)

    def close(self: Any) -> None:
        """As its base, but what is unsent is dropped where nothing may be acknowledged for long: the base would go on
        sending it for as long as the loop turns, and leave the rest with the kernel until the process ends."""
        if self.stuck_seconds is not None:
            self._write_buffer.clear()
        super().close()  # type: ignore[misc]

    def resume_reading(self: Any) -> None:
        if not self._read:
            self._net.watch(self._sock, READ, self._readable)
        self._read = True

    def pause_reading(self: Any) -> None:
        self._read = False
        self._net.unregister_event(self._sock, READ)

    def _readable(self: Any) -> None:
        if not self._read:
            # Closing: what is still to be written goes out, nothing comes in.
            self._net.unregister_event(self._sock, READ)
            return
        data, error = self._sock_recv()
        if data:
            self.last_read = time.monotonic()
            try:
                self._protocol.data_received(data)
            except kafka_errors.KafkaProtocolError as problem:
                error = problem
            except Exception as problem:
                log.exception("%s: a response could not be handled", self)
                error = kafka_errors.KafkaConnectionError(problem)
        if error:
            self.abort(error=error)

    def write(self: Any, data: bytes) -> None:
        if not self._write or self._closed:
            raise RuntimeError("the transport is closed")
        self._write_buffer.append(data)
        if self._writing:
            return
        _, error = self._sock_send()
        self.last_write = time.monotonic()
        if error:
            # Not from here: whoever writes still expects a connection when this returns.
            self._net.call_soon(lambda: self.abort(error=error))
        elif self._write_buffer:
            self._writing = True
            self._write_task = self._net.call_soon(self._write_to_sock)

    def _sock_send(self: Any) -> tuple[int, Exception | None]:
        """Write what the socket takes: how many bytes that was, and why the connection is of no use any more, if so."""
        sent = 0
        try:
            while self._write_buffer:
                if self.allowed is not None and not self.allowed():
                    return sent, kafka_errors.KafkaConnectionError("the right to send ended before all was written")
                chunk = memoryview(self._write_buffer[0])
                size = self._sock.send(chunk)
                sent += size
                if size < len(chunk):
                    self._write_buffer[0] = chunk[size:]
                else:
                    self._write_buffer.popleft()
            self.allowed = None
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except Exception as raised:  # also of a socket that was closed meanwhile
            return sent, kafka_errors.KafkaConnectionError(raised)
        return sent, None


class _Plain(_Direct, KafkaTCPTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes | memoryview, Exception | None]:
        parser = getattr(self._protocol, "parser", None)
        space = parser.space() if isinstance(parser, _Protocol) else None
        return _receive(self._sock, to_the_end=False) if space is None else _receive_into(self._sock, space)


class _Tls(_Direct, KafkaSSLTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        # What is decrypted already does not make the socket readable.
        return _receive(self._sock, to_the_end=True)


class _Connection(KafkaConnection):  # type: ignore[misc]
    """As its base, with our way of cutting responses; a broker's throttle delays no request beyond its time."""

    parser: KafkaProtocol
    in_flight_requests: deque[Any]

    def connection_made(self, transport: Any) -> None:
        """Called once it has its transport, before anything was sent."""
        super().connection_made(transport)
        self.parser = _Protocol(
            client_id=self.config["client_id"],
            receive_message_max_bytes=self.config["receive_message_max_bytes"],
            ident=self.parser._ident,
        )

    def _maybe_throttle(self, response: Any) -> None:
        """Throttled, a broker reads nothing from the connection: what is under way there is awaited for longer."""
        before = max(self._throttle_time, time.monotonic())
        super()._maybe_throttle(response)
        longer = self._throttle_time - before
        if longer <= 0:
            return
        self.transport.bear(longer)
        waiting, self.in_flight_requests = self.in_flight_requests, deque()
        for number, future, sent_at, timeout_at, timer in waiting:
            self.net.cancel(timer)
            later = timeout_at + longer
            late = self.net.call_at(later, partial(self._request_timed_out, future, sent_at, later))
            self.in_flight_requests.append((number, future, sent_at, later, late))


class _Protocol(KafkaProtocol):  # type: ignore[misc]
    """Cuts what comes in into responses."""

    _receiving: bool
    _rbuffer: Any

    def receive_bytes(self, data: bytes | memoryview) -> list[tuple[int, Any]]:
        """As its base: ids and responses that are complete now. Raises its errors."""
        responses = []
        view, at, size = memoryview(data), 0, len(data)
        frame: Any = self._rbuffer
        if self._receiving and view.obj is self._rbuffer:
            # Read straight into it.
            at = size
            frame.seek(frame.tell() + size)
            if frame.tell() == len(frame):
                responses.append(self._complete())
        while at < size:
            if not self._receiving:
                count = min(_PREFIX_BYTES - self._header.tell(), size - at)
                self._header.write(view[at : at + count])
                at += count
                if self._header.tell() < _PREFIX_BYTES:
                    break
                length = int.from_bytes(self._header, "big", signed=True)
                self._validate_frame_size(length)
                self._rbuffer, self._receiving = KafkaBytes(length), True
            count = min(len(self._rbuffer) - self._rbuffer.tell(), size - at)
            self._rbuffer.write(view[at : at + count])
            at += count
            if self._rbuffer.tell() < len(self._rbuffer):
                break
            responses.append(self._complete())
        return responses

    def space(self) -> memoryview | None:
        """Where to put what comes next, if that is a large part of a frame; :meth:`receive_bytes` then takes it."""
        if not self._receiving or len(self._rbuffer) - self._rbuffer.tell() < _READ_BYTES:
            return None
        return memoryview(self._rbuffer)[self._rbuffer.tell() :]

    def _complete(self) -> tuple[int, Any]:
        self._receiving = False
        self._rbuffer.seek(0)
        response = self._process_response(self._rbuffer)
        self._reset_buffer()
        return response  # type: ignore[no-any-return]


def _receive(sock: Any, *, to_the_end: bool) -> tuple[bytes, Exception | None]:
    """What the socket holds now, and why it is of no use any more, if so."""
    parts: list[bytes] = []
    error: Exception | None = None
    try:
        while True:
            data = sock.recv(_READ_BYTES)
            if not data:
                error = kafka_errors.KafkaConnectionError("socket disconnected")
                break
            parts.append(data)
            if len(data) < _READ_BYTES and not to_the_end:
                # Nearly always all there was; if not, the selector reports the socket as ready again.
                break
    except (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
        pass
    except Exception as raised:  # also of a socket that was closed meanwhile
        error = kafka_errors.KafkaConnectionError(raised)
    return parts[0] if len(parts) == 1 else b"".join(parts), error


def _receive_into(sock: Any, space: memoryview) -> tuple[bytes | memoryview, Exception | None]:
    """As :func:`_receive`, but into ``space``."""
    try:
        size = sock.recv_into(space)
    except (BlockingIOError, InterruptedError):
        return b"", None
    except Exception as raised:
        return b"", kafka_errors.KafkaConnectionError(raised)
    return space[:size], None if size else kafka_errors.KafkaConnectionError("socket disconnected")
