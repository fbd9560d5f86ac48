"""Trying again until a deadline: the one loop of everything that a cluster shows a moment later than it was done."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol


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
