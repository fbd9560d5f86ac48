"""How much may be under way to one broker, by how long its quota lets us wait.

A broker that holds a client back reads nothing more from its connection. What was sent meanwhile lies unread there, for
as long as all of what came before it is worth: by the quota's rate, minutes for a few requests of full size.
"""

from __future__ import annotations

from kafka_migration.copy.orders import Limits

_AIM_SECONDS = 1.0
_LEAST_BYTES = 64 * 1024


class Window:
    """All that ``limits`` allow, until an answer says that the broker throttles: then one request at a time, of as much
    as the quota takes in about a second, until an answer comes without a throttle."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.requests, self.bytes = limits.in_flight_requests, limits.request_bytes

    def answered(self, size: int, throttle_seconds: float) -> None:
        """A request of ``size`` bytes was answered, and the broker lets its client wait for so long."""
        if throttle_seconds > 0:
            self.requests = 1
            self.bytes = max(_LEAST_BYTES, min(self.bytes, int(size * _AIM_SECONDS / throttle_seconds)))
        elif self.bytes < self._limits.request_bytes:
            self.bytes = min(2 * self.bytes, self._limits.request_bytes)
        else:
            self.requests = self._limits.in_flight_requests
