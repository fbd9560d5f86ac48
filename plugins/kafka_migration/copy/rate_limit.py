"""How much a task may send right now: nothing while the mirror is paused, its share of the throttle otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable

_BURST_SECONDS = 0.25
"""What was not sent for so long may be sent at once: smaller, and a busy loop would not reach its rate."""


class RateLimit:
    """A token bucket of bytes. What was sent may exceed it by one batch, which is then paid for by waiting."""

    def __init__(
        self,
        *,
        is_paused: bool,
        bytes_per_second: int | None,
        owed: int = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``owed`` bytes were sent too many before, and are paid for first."""
        self.is_paused, self._clock = is_paused, clock
        self._rate, self._tokens, self._at = bytes_per_second, -float(owed), clock()

    def set_rate(self, bytes_per_second: int | None) -> None:
        """From now on at most so much; None for no limit. What is owed at the rate before is dropped."""
        self._rate, self._tokens, self._at = bytes_per_second, 0.0, self._clock()

    def room(self, most: int) -> int:
        """Bytes that a request may hold now, at most ``most``; 0: none may be sent."""
        if self.is_paused:
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


class RateDebt:
    """What the mirror sent beyond its throttle, in bytes, from one copy round to the next.

    Without it each round would begin with a batch on credit.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bytes, self._at = 0.0, clock()
        self._rate: int | None = None

    def add(self, size: int) -> None:
        """So many bytes were copied since the last look."""
        self._bytes += size

    def now(self, bytes_per_second: int | None) -> int:
        """What is owed now, at the throttle that is in force from now on. Another rate than before forgives all."""
        at, before = self._at, self._rate
        self._at, self._rate = self._clock(), bytes_per_second
        if bytes_per_second is None or before != bytes_per_second:
            self._bytes = 0.0
        else:
            self._bytes = max(0.0, self._bytes - (self._at - at) * bytes_per_second)
        return int(self._bytes)


def rate_share(bytes_per_second: int | None, part: float) -> int | None:
    """One task's ``part`` (at most 1) of a rate of the whole mirror; None: no limit."""
    return None if bytes_per_second is None else max(1, int(bytes_per_second * part))
