"""The event loop of one task: its coroutines wake each other, and the first that dies ends the task in order."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future

from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.wire.selector import Selector

log = logging.getLogger(__name__)


class Loop:
    """``ending`` asks every coroutine to come to its end; ``error`` is why, if one of them died."""

    def __init__(self) -> None:
        self.net = Selector()
        self.ending = False
        self.error: MigrationError | None = None
        self._closed = False
        self._wakers: list[Future] = []
        self._resting: list[Future] = []

    def run(self, work: Callable[[], Any]) -> None:
        """Drive ``work`` to its end. Raises what it, or a coroutine beside it, died of, always as a MigrationError."""
        try:
            self.net.run(work)
        except Exception as error:
            self.fail(error)
        if self.error is not None:
            raise self.error

    def close(self) -> None:
        """End the loop; what still waits is dropped."""
        self._closed = True
        self.net.close()

    def spawn(self, work: Any, *args: Any) -> Future:
        """Run a coroutine beside the others."""
        future = self.net.call_soon_with_future(work, *args)
        future.add_errback(self.fail)
        return future

    def fail(self, error: BaseException) -> None:
        """Something died: end the task in order; what it copied so far stands in the link's state.

        Connection trouble that no coroutine handled is for the driver to wait out; anything unforeseen is not, since it
        would only come again.
        """
        if self._closed or isinstance(error, GeneratorExit):
            return
        if self.error is None:
            # The place where it was raised only helps with what nobody foresaw.
            log.error("mirror task ends: %s", error, exc_info=None if isinstance(error, MigrationError) else error)
            if isinstance(error, MigrationError):
                self.error = error
            elif isinstance(error, kafka_errors.KafkaError):
                self.error = CouldNotFindOut(f"mirror task: {error!r}", remedy="run the mirror again")
            else:
                self.error = MigrationError(f"mirror task: {error!r}")
        self.ending = True
        self.wake()

    def wake(self) -> None:
        """Something happened: everyone who waits looks again; who rests, only if the task ends."""
        wakers, self._wakers = self._wakers, []
        if self.ending:
            wakers, self._resting = wakers + self._resting, []
        for waker in wakers:
            if not waker.is_done:
                waker.success(None)

    async def woken(self, seconds: float) -> None:
        """Until something happens, or ``seconds`` have passed."""
        waker = Future()
        self._wakers.append(waker)
        await self._rung(waker, seconds)

    async def _rung(self, waker: Future, seconds: float) -> None:
        def ring() -> None:
            if not waker.is_done:
                waker.success(None)

        timer = self.net.call_later(seconds, ring)
        await waker
        self.net.cancel(timer)

    async def rest(self, seconds: float) -> None:
        """``seconds`` of rest, cut short only by the task's end."""
        if not self.ending:
            waker = Future()
            self._resting.append(waker)
            await self._rung(waker, seconds)
            if not self.ending:
                self._resting.remove(waker)

    async def ended(self, future: Future, seconds: float) -> None:
        """Until a spawned coroutine has ended (what it died of is the task's error already), or ``seconds`` passed."""
        until = time.monotonic() + seconds
        while not future.is_done and time.monotonic() < until:
            await self.woken(0.005)
