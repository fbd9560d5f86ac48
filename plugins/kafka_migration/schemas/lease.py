"""The right to write to the target's schema registry: of one process of a migration at a time.

It is an entry of the journal that expires unless its owner renews it, so that one of a dead process keeps others
waiting for :data:`SECONDS` alone. Nobody takes over one that has not expired. Whoever wants it writes an entry once
there is no other, and looks again: of two that do so at once at least the later one sees the other's, and withdraws.
No request of an owner goes on for longer than its entry: one that was held up writes nothing beside the next owner.
"""

from __future__ import annotations

import math
import random
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.waiting import tries
from kafka_migration.schemas.registry import Registry

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "schemas-lease"
SECONDS = 90.0
#: Of these the last ones are for putting subjects in order, and then for clocks of machines that differ.
_ORDER_SECONDS, _SKEW_SECONDS = 30.0, 10.0
#: The same before a deadline of the caller's.
_LAST_SECONDS = 5.0
_RENEW_SECONDS, _PAUSE_SECONDS = 10.0, 0.5


@dataclass(slots=True, kw_only=True)
class Lease:
    """One that is held. ``until`` is by the context's monotonic clock."""

    ctx: Context
    until: float
    is_ended: Callable[[], bool]
    _registries: tuple[Registry, ...] = ()
    _owner: str = field(default_factory=lambda: uuid.uuid4().hex)
    _renewed: float = -math.inf
    _is_ending: bool = False

    def covers(self, *registries: Registry) -> None:
        """Have requests to ``registries`` be made by it: it is kept before each part of many."""
        self._registries = registries
        for registry in registries:
            registry.before_part = self.keep
        self.keep()

    def keep(self) -> None:
        """Renew it if need be. Raises CouldNotFindOut if it is lost, time is over, or the caller has ended."""
        now = self.ctx.clock.monotonic()
        if self.is_ended() and not self._is_ending:
            raise CouldNotFindOut("schemas are not copied any more: what copies them ends", remedy="copy them again")
        last = self.until - (0.0 if self._is_ending else _LAST_SECONDS)
        if now >= last:
            raise CouldNotFindOut("no time is left to copy schemas", remedy="copy them before: `schemas PLAN --apply`")
        if now - self._renewed > _RENEW_SECONDS:
            self._require()
            self._write()
        held = self._renewed + SECONDS - _SKEW_SECONDS - (0.0 if self._is_ending else _ORDER_SECONDS)
        for registry in self._registries:
            registry.end_in(min(last, held) - now)

    @contextmanager
    def ending(self) -> Iterator[None]:
        """For putting subjects in order: as long as it is held, though the caller has ended, or has no time left."""
        self._is_ending = True
        try:
            self.keep()
            yield
        finally:
            self._is_ending = False

    def take(self) -> None:
        """Wait for it."""
        pause = _PAUSE_SECONDS * (1 + random.random())
        for _ in tries(self.ctx.clock, seconds=self.until - self.ctx.clock.monotonic(), pause=pause):
            if not self._others():
                self._write()
                if not self._others():
                    return
                self.release()
            if self.is_ended():
                break
        raise CouldNotFindOut(
            "another process copies or removes schemas of this migration",
            remedy=f"try again once it has ended; one that died is waited for {SECONDS:g} s",
        )

    def release(self) -> None:
        """Give it up."""
        self.ctx.journal.forget(KIND, self._owner)

    def _require(self) -> None:
        own = self.ctx.journal.read(KIND, self._owner)
        if own is None or not self._stands(own, skew=_SKEW_SECONDS):
            raise CouldNotFindOut(
                "this process was held up, and another one copies schemas meanwhile", remedy="copy them again"
            )

    def _write(self) -> None:
        now = self.ctx.clock.monotonic()
        until = self.ctx.clock.now() + timedelta(seconds=SECONDS)
        self.ctx.journal.record(KIND, self._owner, {"until": until.isoformat(timespec="milliseconds")})
        self._renewed = now

    def _others(self) -> bool:
        """Whether somebody else has it; what has expired is removed."""
        found = self.ctx.journal.all(KIND)
        expired = [owner for owner, value in found.items() if not self._stands(value)]
        if expired:
            self.ctx.journal.forget_all(KIND, expired)
        return bool(found.keys() - {self._owner, *expired})

    def _stands(self, value: dict[str, str], *, skew: float = 0.0) -> bool:
        return self.ctx.clock.now() + timedelta(seconds=skew) < datetime.fromisoformat(value["until"])


@contextmanager
def held(ctx: Context, *, until: float | None = None, is_ended: Callable[[], bool] = lambda: False) -> Iterator[Lease]:
    """The lease, for as long as this lasts. It is waited for ``until`` then, or for as long as one that died may stand;
    nobody has it any longer than that. ``is_ended``: what is done by it is to stop soon.

    Raises CouldNotFindOut if another process has it until then.
    """
    waited = ctx.clock.monotonic() + 2 * SECONDS if until is None else until
    lease = Lease(ctx=ctx, until=waited, is_ended=is_ended)
    lease.take()
    if until is None:
        lease.until = math.inf
    try:
        yield lease
    finally:
        with suppress(MigrationError):
            # It expires by itself.
            lease.release()
