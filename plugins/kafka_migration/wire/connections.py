"""kafka-python's connections, reading as much at once as the socket holds."""

from __future__ import annotations

from typing import Any

import kafka.errors as kafka_errors
from kafka.net.manager import KafkaConnectionManager
from kafka.net.transport import KafkaTCPTransport

_READ_BYTES = 512 * 1024


class Connections(KafkaConnectionManager):  # type: ignore[misc]
    """As its base, but for how plain sockets are read: kafka-python takes 4 KiB a call, and a fetch has megabytes.

    TLS hands out 16 KiB at most, and stays as it is.
    """

    async def _build_transport(self, node: Any, timeout_at: float | None = None) -> Any:
        transport = await super()._build_transport(node, timeout_at)
        if type(transport) is KafkaTCPTransport:
            transport._sock_recv = lambda: _receive(transport._sock)
        return transport


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
    except OSError as raised:
        error = kafka_errors.KafkaConnectionError(raised)
    return b"".join(parts), error
