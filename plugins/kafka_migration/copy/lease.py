"""What a task may still send, and when: its lease, and the hold after a fence (docs/mirror.md, rule 7).

A fence binds an earlier attempt only as long as brokers remember it. They forget a producer by the timestamps of its
records, so behind old records an attempt that was fenced may write again. Hence an attempt stops by itself, soon after
it could last be sure that nobody else runs the link; and its successor waits that long before it makes brokers forget.
No clocks of two machines are compared: each side only measures a stretch of its own time, that begins with the same
record of the links topic.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafka_migration.domain import ledger
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.keyed import KeyedTail


def seconds_passed() -> float:
    """Seconds since an arbitrary moment, counted on while the process is stopped or the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class Lease:
    """The right of one task to send: for ``seconds`` from its newest look at the link's state.

    It counts from *before* that look. What a rival wrote until then would have been seen, and what it writes later
    ends the lease at the next look, or by time. Nothing may be sent before the first look, so a task that connects
    (again) to a link that was sealed or taken over meanwhile sends nothing.
    """

    def __init__(
        self, tail: KeyedTail, link: str, seconds: float, *, clock: Callable[[], float] = seconds_passed
    ) -> None:
        self._tail, self._seconds, self._clock = tail, seconds, clock
        self._attempts, self._seal = ledger.link_key(link, "attempt", ""), ledger.link_key(link, "seal")
        self._began, self._until = clock(), float("-inf")
        self._before, self._is_last = self._until, False
        self.lost = ""

    @property
    def holds(self) -> bool:
        """True if something may be sent right now."""
        return not self.lost and self._clock() < self._until

    @property
    def lapsed_seconds(self) -> float:
        """For how long nothing may be sent, for want of a look at the link's state."""
        return max(0.0, self._clock() - max(self._until, self._began + self._seconds))

    async def renew(self) -> list[tuple[bytes | None, bytes | None]]:
        """Look at the link's state; what has come since the last look. Trouble leaves the lease as it is."""
        began = self._clock()
        entries = await self._tail.poll()
        for key, value in entries:
            if key is None or value is None:
                continue
            if key == self._seal:
                self.lost = "the link was sealed"
            elif key.startswith(self._attempts) and ledger.decode(value, where=key.decode())["state"] == "running":
                # Whoever claims the link does so before its fence, also the driver that gave this task up for lost.
                self.lost = "another attempt claimed the link"
        if self._tail.is_current and not self._is_last:
            self._before, self._until = self._until, began + self._seconds
        return entries

    def let_lapse(self) -> None:
        """No look renews it any more, and the newest one, which saw the recall, has not: whoever recalled this task
        counts from there, and takes it for dead a lease later."""
        if not self._is_last:
            self._until, self._is_last = self._before, True


class Hold:
    """Which batches must wait: those whose append could make the broker forget the fence while it is still needed.

    A partition is held for so many ``seconds`` from now. Meanwhile it takes records that are at most ``young_ms`` old:
    behind them brokers remember the producer, and with it the fence, for longer than the hold lasts. None: it takes
    nothing, since nobody knows for how long brokers remember.
    """

    def __init__(
        self,
        seconds: Mapping[TopicPartition, float],
        young_ms: int | None,
        *,
        clock: Callable[[], float] = seconds_passed,
        wall_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        now = clock()
        self._until = {tp: now + for_ for tp, for_ in seconds.items() if for_ > 0}
        self._young_ms, self._clock, self._wall_ms = young_ms, clock, wall_ms

    def forbids(self, tp: TopicPartition, max_timestamp: int) -> bool:
        """True if a batch of ``tp`` whose newest record is of ``max_timestamp`` may not be sent yet."""
        until = self._until.get(tp)
        if until is None:
            return False
        if self._clock() >= until:
            del self._until[tp]
            return False
        return self._young_ms is None or max_timestamp < self._wall_ms() - self._young_ms
