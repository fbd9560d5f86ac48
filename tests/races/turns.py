"""Movers that run one at a time, each up to a point that the test chooses: nothing here is left to chance.

A point is right before a mover looks at its claim (a hook or a commit follows at once), right before each write of the
journal, and right after each hook and each commit. Between the look at the claim and the hook or the commit there is
none: that gap cannot be closed, and docs/adr/0010 says what becomes of it. Before a journal's write there is one, since
a write that a former owner makes too late must do no harm.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from kafka_migration.domain.errors import MigrationError
from kafka_migration.state.journal import Claim, Journal
from kafka_migration.state.store import Store, Value
from tests.steps.killing import Killed

#: A turn that takes longer hangs.
_TURN_SECONDS = 120.0


class Racer:
    """A mover in a thread of its own that waits wherever it is told to. ``points`` counts those it has passed."""

    def __init__(self, name: str) -> None:
        self.name, self.points, self.ended = name, 0, ""
        self._pause_at = self._die_at = 0
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._race, name=name, daemon=True)
        self._work: Callable[[], object] = lambda: None
        self._crash: BaseException | None = None

    def start(self, work: Callable[[], object], *, pause_at: int = 0) -> None:
        """Begin ``work``, and return once it has come to point ``pause_at`` (0: to its end)."""
        self._work, self._pause_at = work, pause_at
        self._thread.start()
        self._take_turn()

    def go_on(self, *, pause_at: int = 0, die_at: int = 0) -> None:
        """Have it go on, up to another point, to its death there, or to its end."""
        if not self.ended:
            self._pause_at, self._die_at = pause_at, die_at
            self._take_turn()

    def point(self) -> None:
        """Pass a point, or wait there, or die there."""
        self.points += 1
        if self.points == self._die_at:
            raise Killed(f"{self.name} at point {self.points}")
        if self.points == self._pause_at:
            self._rest.release()
            self._go.acquire()
            if self._die_at and self.points >= self._die_at:
                raise Killed(f"{self.name} at point {self.points}")

    def _take_turn(self) -> None:
        self._go.release()
        if not self._rest.acquire(timeout=_TURN_SECONDS):
            raise AssertionError(f"{self.name} hangs at point {self.points}")
        if self._crash is not None:
            raise self._crash

    def _race(self) -> None:
        self._go.acquire()
        try:
            self._work()
            self.ended = "done"
        except Killed:
            self.ended = "killed"
        except MigrationError as error:
            self.ended = type(error).__name__
        except BaseException as error:
            self.ended, self._crash = "crashed", error
        self._rest.release()


class RacingStore:
    """A store whose writer may wait before each write."""

    def __init__(self, store: Store, racer: Racer) -> None:
        self._store, self._racer = store, racer
        self.get, self.items, self.close, self.located = store.get, store.items, store.close, store.located
        self.keys, self.deleted = store.keys, store.deleted

    def put(self, key: str, value: Value) -> None:
        self._racer.point()
        self._store.put(key, value)

    def put_all(self, values: Mapping[str, Value | None]) -> None:
        self._racer.point()
        self._store.put_all(values)

    def delete(self, key: str) -> None:
        self._racer.point()
        self._store.delete(key)


class RacingJournal(Journal):
    """A journal whose reader may wait before it looks at its claim."""

    def __init__(self, store: Store, migration: str, racer: Racer) -> None:
        super().__init__(RacingStore(store, racer), migration)
        self._racer = racer

    def require(self, claim: Claim) -> None:
        self._racer.point()
        super().require(claim)


class RacingCluster:
    """A cluster as a mover sees it that may wait after each commit."""

    def __init__(self, cluster: Any, racer: Racer) -> None:
        self._cluster, self._racer = cluster, racer

    def commit(self, *args: Any) -> None:
        self._cluster.commit(*args)
        self._racer.point()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)
