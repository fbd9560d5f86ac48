"""When an epoch has run long enough: between two of them nothing is copied, so one that is caught up goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafka_migration.domain.types import Position, TopicPartition

LONGEST_SECONDS = 600.0
"""An epoch ends after so long in any case: only then what it did becomes part of the driver's own account."""
_AROUND_SECONDS, _AROUND_OFFSETS = 5.0, 1_000


class Pace:
    """One epoch's, from its beginning at ``positions``."""

    def __init__(
        self, positions: Mapping[TopicPartition, Position], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._positions, self._clock, self._began = dict(positions), clock, clock()

    def is_caught_up(self, ends: Mapping[TopicPartition, int], told: Mapping[TopicPartition, Position]) -> bool:
        """True if there is nothing to share out anew: what lags is what arrives while tasks tell how far they are.

        ``ends`` are the source's, ``told`` the newest positions. A backlog of more than some seconds' copying is one.
        """
        copied = lag = 0
        for tp, before in self._positions.items():
            now = told.get(tp, before)
            copied += max(0, now.source - before.source)
            lag += max(0, ends.get(tp, 0) - max(now.source, before.source))
        rate = copied / max(1.0, self._clock() - self._began)
        return lag <= _AROUND_OFFSETS + rate * _AROUND_SECONDS
