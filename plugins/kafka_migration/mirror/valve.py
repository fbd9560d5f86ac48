"""How much a task may send right now: nothing while the mirror is paused, its share of the throttle otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_SECONDS = 0.25
"""What was not sent for so long may be sent at once: smaller, and a busy loop would not reach its rate."""


class Valve:
    """A token bucket of bytes. What was sent may exceed it by one batch, which is then paid for by waiting."""

    def __init__(
        self, *, is_open: bool, bytes_per_second: int | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.is_open, self._clock = is_open, clock
        self._rate, self._tokens, self._at = bytes_per_second, 0.0, clock()

    def throttle(self, bytes_per_second: int | None) -> None:
        """From now on at most so much; None for no limit. Debts of the rate before are dropped."""
        self._rate, self._tokens, self._at = bytes_per_second, 0.0, self._clock()

    def room(self, most: int) -> int:
        """Bytes that a request may hold now, at most ``most``; 0: none may be sent."""
        if not self.is_open:
            return 0
        if self._rate is None:
            return most
        now = self._clock()
        burst = max(1.0, self._rate * _BURST_SECONDS)
        self._tokens = min(burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        return min(most, max(0, int(self._tokens)))

    def spend(self, size: int) -> None:
        """So many bytes are on their way; negative if they came back."""
        if self._rate is not None:
            self._tokens -= size
