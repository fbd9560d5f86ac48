"""A command's claim on the link: mirrors of it that still run end by it, and what they sent can be waited for."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, TakenOver

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_LIMITS = Limits()
#: For so long what a mirror sent may land that did not record its end (docs/mirror.md, rule 7).
LATE_SECONDS = _LIMITS.lease_seconds + _LIMITS.late_seconds
_LOOK_SECONDS = 1.0


class Claim:
    """The link, claimed just now as ``attempt``."""

    def __init__(self, ctx: Context, attempt: str) -> None:
        self._ctx, self._attempt, self._claimed_at = ctx, attempt, ctx.clock.monotonic()
        running = self._running()
        self._before = running[: running.index(attempt)] if attempt in running else running

    def await_landing(self) -> None:
        """Return once nothing lands any more of what a mirror sent before the claim: at once if each has recorded its
        end, else after :data:`LATE_SECONDS` at most; the next command does not wait again then.

        Raises TakenOver if a mirror has begun since: whatever was looked at before may not be so any more.
        """
        ctx, until = self._ctx, self._claimed_at + LATE_SECONDS
        if self._unseen():
            seconds = max(0.0, until - ctx.clock.monotonic())
            ctx.log(f"a mirror did not record its end: waiting up to {seconds:.0f} s for what it may have sent")
        while unseen := self._unseen():
            left = until - ctx.clock.monotonic()
            if left <= 0:
                ctx.link.forget_attempts(unseen)
                break
            ctx.clock.sleep(min(left, _LOOK_SECONDS))
        if {*self._running()} - {*self._before, self._attempt}:
            raise TakenOver(f"link {ctx.link.name}")

    def _running(self) -> list[str]:
        return [name for name, is_running in self._ctx.link.attempts().items() if is_running]

    def _unseen(self) -> set[str]:
        """Mirrors that have not recorded their end; a cluster that does not answer just now has nobody begin anew."""
        with suppress(CouldNotFindOut):
            return {*self._running()} & {*self._before}
        return {*self._before}


@contextmanager
def claimed(ctx: Context) -> Iterator[Claim]:
    """No mirror of the link that began before writes from here on, but for what is under way. A command that is killed
    leaves its claim, and the next mirror waits as for one that died."""
    attempt = uuid.uuid4().hex
    ctx.link.claim(attempt, at=ctx.stamp())
    try:
        yield Claim(ctx, attempt)
    finally:
        # It has sent no record.
        with suppress(MigrationError):
            ctx.link.end_attempt(attempt, at=ctx.stamp())
