"""kafka-python's connections, with fewer copies on the way of a fetched record: it has been copied four times there.

What they do, and when, stays theirs; only how bytes get from the socket into a response is done anew here.
"""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
from kafka.net.connection import KafkaConnection
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport
from kafka.protocol.frame import KafkaBytes
from kafka.protocol.parser import KafkaProtocol

_READ_BYTES = 512 * 1024
_PREFIX_BYTES = 4
_SMALL_BYTES = 256
"""Up to this size a copy is cheaper than a view."""


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """As its base, but plain sockets are read by half a megabyte, not by 4 KiB, and frames are filled from views.

    TLS hands out 16 KiB at most, and is read as ever.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        if type(transport) is KafkaTCPTransport:
            transport._sock_recv = lambda: _receive(transport._sock)
        return transport

    def get_connection(self, node_id: Any, **options: Any) -> Any:
        """The connection to a node, begun if there is none yet."""
        connection = super().get_connection(node_id, **options)
        if type(connection.connection_made) is not _Made:
            connection.connection_made = _Made(connection)
        return connection


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


class _Frame(KafkaBytes):  # type: ignore[misc]
    """A response as it comes in."""

    _idx: int

    def read(self, nbytes: int | None = None) -> bytes:
        """The next ``nbytes``, or all that are left: copied once, where the base copies twice."""
        start = self._idx
        end = self._idx = len(self) if nbytes is None else min(start + nbytes, len(self))
        if end - start <= _SMALL_BYTES:
            return bytes(self[start:end])
        with memoryview(self) as view:
            return bytes(view[start:end])


class _Protocol(KafkaProtocol):  # type: ignore[misc]
    """Cuts what comes in into responses."""

    _receiving: bool

    def receive_bytes(self, data: bytes) -> list[tuple[int, Any]]:
        """As its base: ids and responses that are complete now. Raises its errors."""
        responses = []
        view, at, size = memoryview(data), 0, len(data)
        while at < size:
            if not self._receiving:
                count = min(_PREFIX_BYTES - self._header.tell(), size - at)
                self._header.write(view[at : at + count])
                at += count
                if self._header.tell() < _PREFIX_BYTES:
                    break
                length = int.from_bytes(self._header, "big", signed=True)
                self._validate_frame_size(length)
                self._rbuffer, self._receiving = _Frame(length), True
            count = min(len(self._rbuffer) - self._rbuffer.tell(), size - at)
            self._rbuffer.write(view[at : at + count])
            at += count
            if self._rbuffer.tell() < len(self._rbuffer):
                break
            self._receiving = False
            self._rbuffer.seek(0)
            responses.append(self._process_response(self._rbuffer))
            self._reset_buffer()
        return responses


def _receive(sock: Any) -> tuple[bytes, Exception | None]:
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
            if len(data) < _READ_BYTES:
                # Nearly always all there was; if not, the selector says so.
                break
    except (BlockingIOError, InterruptedError):
        pass
    except Exception as raised:  # also of a socket that was closed meanwhile
        error = kafka_errors.KafkaConnectionError(raised)
    return b"".join(parts), error
