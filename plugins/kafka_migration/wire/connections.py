"""kafka-python's connections, with fewer copies on the way of a fetched record: it has been copied four times there.

What they do, and when, stays theirs; only how bytes get from the socket into a response, and from a request into the
socket, is done anew here.
"""

from __future__ import annotations

import logging
import ssl
import time
from typing import Any

import kafka.errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaSSLTransport, KafkaTCPTransport
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

from kafka_migration.wire.selector import READ, Selector

log = logging.getLogger(__name__)

_READ_BYTES = 512 * 1024
_PREFIX_BYTES = 4


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """As its base on a :class:`Selector`, but sockets are read as soon as there is something, plain ones by half a
    megabyte and not by 4 KiB (TLS hands out 16 KiB at most), and written to at once; frames are filled from views.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        transport.__class__ = {KafkaTCPTransport: _Plain, KafkaSSLTransport: _Tls}[type(transport)]
        return transport

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        """The connection to a node, begun if there is none yet."""
        connection = super().get_connection(node_id, **options)
        if type(connection.connection_made) is not _Made:
            connection.connection_made = _Made(connection)
        return connection


class _Direct:
    """What is read is handed on at once, and what is written is sent at once as far as the socket takes it: without a
    coroutine that waits for either."""

    _net: Selector

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


class _Plain(_Direct, KafkaTCPTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes | memoryview, Exception | None]:
        parser = getattr(self._protocol, "parser", None)
        space = parser.space() if isinstance(parser, _Protocol) else None
        return _receive(self._sock, to_the_end=False) if space is None else _receive_into(self._sock, space)


class _Tls(_Direct, KafkaSSLTransport):  # type: ignore[misc]
    def _sock_recv(self) -> tuple[bytes, Exception | None]:
        # What is decrypted already does not make the socket readable.
        return _receive(self._sock, to_the_end=True)


class _Made:
    """Called once a connection has its transport, before anything was sent."""

    def __init__(self, connection: KafkaConnection) -> None:
        self._connection = connection

    def __call__(self, transport: Any) -> None:
        connection = self._connection
        KafkaConnection.connection_made(connection, transport)
        if connection.parser is not None:
            connection.parser = _Protocol(
                client_id=connection.config["client_id"],
                receive_message_max_bytes=connection.config["receive_message_max_bytes"],
                ident=connection.parser._ident,
            )


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
                # Nearly always all there was; if not, the selector says so.
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
