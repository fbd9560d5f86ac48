"""The event loop under kafka-python's connections: thousands of requests a second pass through it.

It offers what those connections ask of a loop (``kafka.net.selector.NetworkSelector`` is their own), for one thread
only, and does little else: a coroutine is driven as it is, a timer that is cancelled costs nothing more, and a socket
whose reader stays is registered once, not before and after every read.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import selectors
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from types import CoroutineType
from typing import Any

import kafka.errors as kafka_errors
from kafka.future import Future

log = logging.getLogger(__name__)

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_LONGEST_SECONDS = 3600.0
_FEW_TIMERS = 64

Work = Callable[[], Any] | Coroutine[Any, Any, Any]
Watch = Callable[[], None]


class Task:
    """Work under way: a coroutine, a function that makes one, or one that is just called."""

    __slots__ = ("is_done", "waits", "work")

    def __init__(self, work: Work) -> None:
        self.work: Any = work
        self.waits: _Wait | None = None
        self.is_done = False


class _Wait:
    """What a coroutine awaits of the loop: ``begin`` is called with its task, ``end`` once the wait is over."""

    __slots__ = ()

    def __await__(self) -> Generator[_Wait, None, None]:
        yield self

    @abstractmethod
    def begin(self, loop: Selector, task: Task) -> None:
        """See that ``task`` is resumed."""

    def end(self, loop: Selector) -> None:
        """Leave nothing behind."""


class _Sleep(_Wait):
    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def begin(self, loop: Selector, task: Task) -> None:
        loop.call_later(self._seconds, task)


class _Readiness(_Wait):
    """Of a socket, until ``timeout_at``."""

    __slots__ = ("_event", "_sock", "_timeout_at", "_timer")

    def __init__(self, sock: Any, event: int, timeout_at: float | None) -> None:
        self._sock, self._event, self._timeout_at = sock, event, timeout_at
        self._timer: Task | None = None

    def begin(self, loop: Selector, task: Task) -> None:
        def late() -> None:
            loop.resume(task, kafka_errors.KafkaTimeoutError("I/O wait timed out"))

        loop.watch(self._sock, self._event, lambda: loop.resume(task))
        if self._timeout_at is not None:
            self._timer = loop.call_at(self._timeout_at, late)

    def end(self, loop: Selector) -> None:
        loop.unregister_event(self._sock, self._event)
        loop.cancel(self._timer)


class Selector:
    """One thread's loop. Its methods are those of kafka-python's, but for :meth:`watch`."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._ready: deque[tuple[Task, BaseException | None]] = deque()
        self._due: list[tuple[float, int, Task]] = []
        self._count = itertools.count()
        self._cancelled = 0
        # A task that waits for what only it knows of would be garbage otherwise.
        self._tasks: set[Task] = set()
        self._current: Task | None = None
        self._runs = self._is_closed = False

    # -- work ---------------------------------------------------------------------------------------------------

    def call_soon(self, work: Work | Task) -> Task:
        """Run it in the next turn."""
        task = self._task(work)
        self._ready.append((task, None))
        return task

    def call_soon_threadsafe(self, work: Work | Task) -> Task:
        """As :meth:`call_soon`: there is one thread."""
        return self.call_soon(work)

    def call_at(self, when: float, work: Work | Task) -> Task:
        """Run it at ``when`` (monotonic seconds)."""
        task = self._task(work)
        heapq.heappush(self._due, (when, next(self._count), task))
        return task

    def call_later(self, seconds: float, work: Work | Task) -> Task:
        """Run it ``seconds`` from now."""
        return self.call_at(time.monotonic() + seconds, work)

    def call_soon_with_future(self, work: Any, *args: Any) -> Future:
        """Run it in the next turn; the future of its result. ``work`` is called, or awaited, as it offers."""
        future = Future()

        async def wrapped() -> None:
            try:
                future.success(await _result(work, args))
            except BaseException as error:
                future.failure(error)
                if not isinstance(error, Exception | GeneratorExit):
                    raise

        self.call_soon(wrapped)
        return future

    def cancel(self, task: Task | None) -> None:
        """It does not go on; its ``finally`` blocks run. One that is done, or None, is left alone."""
        if task is None or task.is_done:
            return
        self._done(task)
        self._cancelled += 1
        work, task.work = task.work, None
        if type(work) is CoroutineType and task is not self._current:
            work.close()
        if len(self._due) > _FEW_TIMERS and self._cancelled > len(self._due) // 2:
            self._due = [timer for timer in self._due if not timer[2].is_done]
            heapq.heapify(self._due)
            self._cancelled = 0

    def resume(self, task: Task, error: BaseException | None = None) -> None:
        """What it waited for is there, or failed with ``error``."""
        if task.waits is not None:
            task.waits.end(self)
            task.waits = None
        self._ready.append((task, error))

    def _task(self, work: Work | Task) -> Task:
        if self._is_closed:
            raise RuntimeError("the loop is closed")
        task = work if isinstance(work, Task) else Task(work)
        self._tasks.add(task)
        return task

    def _done(self, task: Task) -> None:
        task.is_done = True
        self._tasks.discard(task)
        if task.waits is not None:
            task.waits.end(self)
            task.waits = None

    # -- waiting ------------------------------------------------------------------------------------------------

    def sleep(self, seconds: float) -> _Sleep:
        """Awaited by a coroutine: so long."""
        return _Sleep(seconds)

    def wait_read(self, sock: Any, timeout_at: float | None = None) -> _Readiness:
        """Awaited by a coroutine: until there is something to read. Raises KafkaTimeoutError at ``timeout_at``."""
        return _Readiness(sock, READ, timeout_at)

    def wait_write(self, sock: Any, timeout_at: float | None = None) -> _Readiness:
        """Awaited by a coroutine: until there is room to write. Raises KafkaTimeoutError at ``timeout_at``."""
        return _Readiness(sock, WRITE, timeout_at)

    def watch(self, sock: Any, event: int, reader: Watch) -> None:
        """Call ``reader`` whenever ``sock`` is ready, until :meth:`unregister_event`. One a socket and event."""
        try:
            key = self._selector.get_key(sock)
        except KeyError:
            self._selector.register(sock, event, {event: reader})
            return
        if event in key.data:
            raise RuntimeError(f"{sock} is watched already")
        self._selector.modify(sock, key.events | event, {**key.data, event: reader})

    def unregister_event(self, sock: Any, events: int) -> None:
        """Watch it no longer; nothing happens if nobody did, or if it is closed."""
        with suppress(KeyError, ValueError):
            key = self._selector.get_key(sock)
            left = key.events & ~events
            if not left:
                self._selector.unregister(sock)
            elif left != key.events:
                self._selector.modify(sock, left, {e: reader for e, reader in key.data.items() if e & left})

    # -- turning ------------------------------------------------------------------------------------------------

    def run(self, work: Any, *args: Any) -> Any:
        """Turn until ``work`` is done; its result. Raises what it raises."""
        if self._runs:
            raise RuntimeError("the loop runs already")
        future = self.call_soon_with_future(work, *args)
        self._runs = True
        try:
            while not future.is_done:
                self._turn()
        finally:
            self._runs = False
        if future.exception is not None:
            raise future.exception
        return future.value

    def close(self) -> None:
        """Run what is ready, then drop the rest."""
        if self._is_closed:
            return
        while self._ready:
            self._turn()
        for task in list(self._tasks):
            self.cancel(task)
        self._is_closed = True
        self._selector.close()

    def _turn(self) -> None:
        wait = 0.0 if self._ready else _LONGEST_SECONDS
        if self._due:
            wait = min(wait, max(0.0, self._due[0][0] - time.monotonic()))
        for key, events in self._selector.select(wait):
            # Who is called first may take the other away, and then that one is not called.
            for event, reader in key.data.items():
                if event & events and self._is_watched(key, event):
                    self._call(reader)
        if self._due:
            now = time.monotonic()
            while self._due and self._due[0][0] <= now:
                task = heapq.heappop(self._due)[2]
                if task.is_done:
                    self._cancelled -= 1
                else:
                    self._ready.append((task, None))
        # Those that become ready by this run in the next turn: sockets have theirs in between.
        for _ in range(len(self._ready)):
            task, error = self._ready.popleft()
            if not task.is_done:
                self._step(task, error)

    def _is_watched(self, key: selectors.SelectorKey, event: int) -> bool:
        now = self._selector.get_map().get(key.fd)
        return now is not None and now.fileobj is key.fileobj and event in now.data

    def _call(self, reader: Watch) -> None:
        try:
            reader()
        except Exception:
            log.exception("a watched socket's reader failed")

    def _step(self, task: Task, error: BaseException | None) -> None:
        work, self._current = task.work, task
        try:
            if type(work) is not CoroutineType:
                work = work()
                if type(work) is not CoroutineType:
                    self._done(task)
                    return
                task.work = work
            awaited = work.throw(error) if error is not None else work.send(None)
            if task.is_done:
                # It cancelled itself.
                work.close()
            else:
                self._await(task, awaited)
        except StopIteration:
            self._done(task)
        except Exception:
            log.exception("unhandled in a task of the loop")
            self._done(task)
        finally:
            self._current = None

    def _await(self, task: Task, awaited: Any) -> None:
        if isinstance(awaited, Future):
            awaited.add_both(lambda _: self.resume(task))
        elif isinstance(awaited, _Wait):
            task.waits = awaited
            try:
                awaited.begin(self, task)
            except Exception as error:
                self.resume(task, error)
        else:
            self.resume(task, RuntimeError(f"{awaited!r} cannot be awaited here"))


async def _result(work: Any, args: tuple[Any, ...]) -> Any:
    result = work(*args) if callable(work) else work
    if hasattr(result, "__await__"):
        result = await result
    while isinstance(result, Future):
        result = await result
    return result
