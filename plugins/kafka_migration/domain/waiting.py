"""Trying again until a deadline: the one loop of everything that a cluster shows a moment later than it was done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from kafka_migration.domain.errors import AuthenticationFailed, MigrationError


class Clock(Protocol):
    """Time as far as waiting needs it; the module ``time`` is one."""

    def monotonic(self) -> float:
        """Seconds that never run backwards."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


def tries(clock: Clock, *, seconds: float, pause: float) -> Iterator[None]:
    """Turns of a loop that looks for something: at least one, then one every ``pause`` seconds until ``seconds`` are
    over. Leave the loop once it is found; what follows the loop is for the deadline."""
    deadline = clock.monotonic() + seconds
    while True:
        yield
        if clock.monotonic() > deadline:
            return
        clock.sleep(pause)


#: Credentials are changed on several machines, one after the other: so long that may take.
REJECTED_SECONDS = 300.0


class Rejections:
    """Credentials that a cluster rejects, over many looks: no broker that comes back heals that."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since: float | None = None

    def last(self, error: MigrationError | None) -> bool:
        """Whether nothing but rejections was seen for too long by now; ``error`` is what the newest look came to."""
        if not isinstance(error, AuthenticationFailed):
            self._since = None
            return False
        now = self._clock.monotonic()
        self._since = now if self._since is None else self._since
        return now - self._since >= REJECTED_SECONDS
