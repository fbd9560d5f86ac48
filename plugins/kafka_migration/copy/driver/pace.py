"""When a copy round has run long enough: between two of them nothing is copied, so one that is caught up goes on.

But not while a partition in it waits in vain: one that does not move, or whose task has no slot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

from kafka_migration.domain.types import Position, TopicPartition

LONGEST_SECONDS = 600.0
"""A round ends after so long in any case: only then what it did becomes part of the driver's own account."""
_AROUND_SECONDS, _AROUND_OFFSETS = 5.0, 1_000
SMALL_BACKLOG = 50_000
"""Records that a task copies while another one would still begin."""
_TASK_RECORDS_PER_SECOND, _TASK_BYTES_PER_SECOND, _TASK_PARTITIONS = 10_000, 16 * 1024 * 1024, 500
"""What one task carries easily, records coming one by one."""
_MEASURABLE_SECONDS = 10.0
LARGE_BYTES = 1024 * 1024
"""What most topics take in one batch at most (max.message.bytes)."""


class Pace:
    """One round's, from its beginning at ``positions``. It is to last ``seconds`` while there is a backlog."""

    def __init__(
        self,
        positions: Mapping[TopicPartition, Position],
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._positions, self._seconds, self._clock, self._began = dict(positions), seconds, clock, clock()
        self._moves_since: float | None = None

    def see(self, reported: Mapping[TopicPartition, Position]) -> None:
        """Look, often, whether anything was copied yet. ``reported`` are the newest positions."""
        if self._moves_since is None and any(
            tp in reported and reported[tp].source > before.source for tp, before in self._positions.items()
        ):
            self._moves_since = self._clock()

    def is_to_end(self, ends: Mapping[TopicPartition, int], reported: Mapping[TopicPartition, Position]) -> bool:
        """True if there is a backlog to share out anew: more than what arrives between two reports of the tasks.

        ``ends`` are the source's. Not before the tasks have copied for half of the round: where Spark begins late, the
        next one would do so, too, and partitions that do not move are found apart.
        """
        now = self._clock()
        if self._moves_since is None or now - self._moves_since < self._seconds / 2:
            return False
        copied = lag = 0
        for tp, before in self._positions.items():
            at = reported.get(tp, before)
            copied += max(0, at.source - before.source)
            lag += max(0, ends.get(tp, 0) - max(at.source, before.source))
        rate = copied / max(1.0, now - self._began)
        return lag > _AROUND_OFFSETS + rate * _AROUND_SECONDS


class Standstill:
    """Finds partitions that have something to copy and do not move, over all rounds of a run."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """``seconds`` is how long a partition may stand; after each alarm twice as long, until it moves."""
        self._seconds, self._clock = seconds, clock
        self._since: dict[TopicPartition, tuple[int, float, int]] = {}

    def look(self, lagging: Mapping[TopicPartition, int], *, at_least: float = 0.0) -> list[TopicPartition]:
        """Those of ``lagging`` (with their source positions) that stand for too long; all others are forgotten. For
        ``at_least`` so many seconds each may stand.
        """
        now, standing = self._clock(), []
        for tp in self._since.keys() - lagging.keys():
            del self._since[tp]
        for tp, at in lagging.items():
            before, since, alarms = self._since.get(tp, (-1, now, 0))
            if before != at:
                self._since[tp] = (at, now, 0)
            elif now - since >= max(at_least, min(LONGEST_SECONDS, self._seconds * 2**alarms)):
                self._since[tp] = (at, now, alarms + 1)
                standing.append(tp)
        return standing

    def forget(self) -> None:
        """Nobody may move just now."""
        self._since.clear()


class Slots:
    """How many tasks run side by side: ``streams``, if Spark has as many slots. ``known`` are those that Spark reports,
    if it does.

    What was only seen (fewer tasks began than were ordered) counts for the length of the longest round: slots may come.

    What is caught up and gets little goes through as few tasks as carry it. Each task asks the brokers for itself, so
    two of them make twice the requests for the same records; where clients and brokers share their cores, every record
    then waits for that.
    """

    def __init__(self, streams: int, known: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.streams = streams if known is None else max(1, min(streams, known))
        self._clock, self._seen, self._until = clock, self.streams, clock()
        self._records_per_second = self._bytes_per_second = 0.0

    def only(self, slots: int) -> None:
        """So many tasks began, the others still wait."""
        self._seen, self._until = slots, self._clock() + LONGEST_SECONDS

    def copied(self, records: int, size: int, seconds: float) -> None:
        """A round of so many seconds copied so much."""
        rates = records / max(1.0, seconds), size / max(1.0, seconds)
        if seconds < _MEASURABLE_SECONDS:
            # Half of it was the start of its tasks.
            rates = max(rates[0], self._records_per_second), max(rates[1], self._bytes_per_second)
        self._records_per_second, self._bytes_per_second = rates

    def wanted(self, backlog: int, partitions: int) -> int:
        """Into how many shares a round is split that begins with ``backlog`` records to copy."""
        if backlog > SMALL_BACKLOG:
            return self.now
        busy = max(
            self._records_per_second / _TASK_RECORDS_PER_SECOND,
            self._bytes_per_second / _TASK_BYTES_PER_SECOND,
            partitions / _TASK_PARTITIONS,
        )
        return min(self.now, max(1, math.ceil(busy)))

    @property
    def now(self) -> int:
        """How many shares can be copied side by side."""
        return min(self.streams, self._seen) if self._clock() < self._until else self.streams
