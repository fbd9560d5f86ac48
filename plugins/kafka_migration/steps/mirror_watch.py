"""Whether the mirror is active, has ended as it should, or has to be started again: for who submits it and then waits.

What decides stands on the target (heartbeat, run, wishes), and in two notes of the journal: which Spark application was
submitted last, and which one began last. So it does not matter on which machine one waits, or who started the mirror.
"""

from __future__ import annotations

import uuid
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Retryable, TakenOver
from kafka_migration.domain.types import Desired
from kafka_migration.link.flight import was_drained
from kafka_migration.link.heartbeat import FAILED, PHASE, describe, mirror_state
from kafka_migration.migration.joined import begun_mirror
from kafka_migration.state.link import Wish
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: The journal's notes: of the newest submission, and of when its process was last alive.
_SUBMITTED, _ALIVE = "submitted", "alive"
#: How often the process that runs the Spark application notes that it is alive.
ALIVE_SECONDS = 30.0
#: Without such a note, or the end of the process noted, its machine is gone.
GONE_SECONDS = 120.0
#: Of a mirror without such a process: it is silent while it fences, and waits out an outage of 15 minutes.
SILENT_SECONDS = 1_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A Spark application that was submitted to mirror the plan of that digest: by a process on ``host``, which writes
    its output to the file ``log`` there. ``at`` and ``ended`` are ISO-8601, UTC; ``ended`` is empty while nobody
    recorded its end. ``last_lines`` are of its output, without secrets."""

    id: str
    plan: str
    host: str
    log: str
    at: str
    ended: str = ""
    last_lines: str = ""


def submit(ctx: Context, *, host: str, log: str) -> Submission:
    """Note that an application is about to be submitted. One that was submitted before, and has not begun, never
    begins."""
    made = Submission(id=uuid.uuid4().hex, plan=ctx.plan.digest, host=host, log=log, at=ctx.stamp())
    ctx.journal.record(PHASE, ctx.own(_SUBMITTED), asdict(made))
    return made


def submission(ctx: Context) -> Submission | None:
    """The newest submission, or None."""
    value = ctx.journal.read(PHASE, ctx.own(_SUBMITTED))
    return None if value is None else Submission(**value)


def record_end(ctx: Context, submitted: str, last_lines: str = "") -> None:
    """Note that the application ``submitted`` has ended, if it still is the newest."""
    newest = submission(ctx)
    if newest is not None and newest.id == submitted and not newest.ended:
        ctx.journal.record(
            PHASE, ctx.own(_SUBMITTED), asdict(replace(newest, ended=ctx.stamp(), last_lines=last_lines))
        )


def record_alive(ctx: Context, submitted: str) -> None:
    """Note that the process of the application ``submitted`` is alive, if that still is the newest."""
    newest = submission(ctx)
    if newest is not None and newest.id == submitted and not newest.ended:
        ctx.journal.record(PHASE, ctx.own(_ALIVE), {"submission": submitted, "at": ctx.stamp()})


def require_newest(ctx: Context, submitted: str) -> None:
    """Raises TakenOver if the application ``submitted`` is not wanted any more: it waited too long for its slots."""
    newest = submission(ctx)
    if newest is None or newest.id != submitted or newest.ended:
        raise TakenOver(f"the mirror of {ctx.plan.name}")


def active_since(ctx: Context) -> str | None:
    """Since when a mirror that goes by this very plan, handlers too, runs, or is about to; None if none seems to."""
    newest, begun = submission(ctx), begun_mirror(ctx)
    is_alive = newest is not None and not newest.ended and _is_recent(ctx, _alive_at(ctx, newest) or newest.at)
    is_running = (ctx.link.run() or {}).get("state") == "running"
    if begun is not None and is_running and begun.goes_by(ctx.plan.digest) and begun.handles_as(ctx.plan.snapshot()):
        is_of_newest = newest is not None and begun.submission == newest.id
        if is_alive if is_of_newest else mirror_state(ctx)[0] == "running":
            return begun.at
    if newest is None or not is_alive or newest.plan != ctx.plan.digest or _has_begun(ctx, newest.at):
        return None
    return newest.at


def is_stop_wished(ctx: Context, since: str) -> bool:
    """Whether a person has asked the mirror to stop, at ``since`` or later."""
    wish = ctx.link.wished()
    return wish.desired is Desired.STOP and datetime.fromisoformat(wish.at) >= datetime.fromisoformat(since)


def stop(ctx: Context, why: str) -> None:
    """Ask the mirror to stop, and see to it that one which was submitted and has not begun never does."""
    newest = submission(ctx)
    if newest is not None:
        record_end(ctx, newest.id)
    if (ctx.link.run() or {}).get("state") == "running":
        ctx.link.wish(Wish(desired=Desired.STOP, reason=why, at=ctx.stamp()))


def stop_submitted(ctx: Context, why: str) -> bool:
    """As :func:`stop`, for the mirror that was submitted last; False if that one has ended, or a command runs one."""
    newest, begun = submission(ctx), begun_mirror(ctx)
    if newest is None or newest.ended:
        return False
    if begun is not None and begun.submission != newest.id and begun.at >= newest.at:
        return False
    stop(ctx, why)
    return True


class Wait:
    """The end of a mirror that was submitted, or found active, at ``since`` (ISO-8601).

    Decides 0 when it ended as it should: drained, or stopped by somebody who asked for that at ``asked_since`` or
    later. 1 when all that is left is halted. 3, with the fact ``died``, when it has to be started again.
    """

    interval_seconds = 5.0

    def __init__(self, ctx: Context, *, since: str, asked_since: str) -> None:
        self._ctx, self._since, self._asked_since = ctx, since, asked_since
        self._sign = ""
        self._sign_seen_at: float | None = None

    def look(self) -> Decision | None:
        """Look once."""
        try:
            return self._look()
        except Retryable:
            # What cannot be seen is not silent.
            self._sign_seen_at = None
            raise

    def too_late(self, overdue: str) -> Decision:
        """Without a limit of time this is never asked."""
        return _died(overdue)

    def _look(self) -> Decision | None:
        ctx, run = self._ctx, self._ctx.link.run() or {}
        newest, begun = submission(ctx), begun_mirror(ctx)
        has_begun = _has_begun(ctx, self._since)
        is_of_newest = newest is not None and (not has_begun or begun is None or begun.submission == newest.id)
        if ctx.link.seal() is not None:
            return Decision(message="the mirror was drained, and is sealed")
        if has_begun and run["state"] == "ended":
            return self._ended(str(run.get("reason", "")))
        if newest is not None and newest.ended and is_of_newest:
            where = "" if has_begun else " before the mirror began"
            return self._dead(f"the Spark application ended{where}")
        if has_begun and begun is not None and not begun.goes_by(ctx.plan.digest) and (not newest or newest.ended):
            return Decision(
                exit_code=1,
                message=f"another process has taken the mirror over and copies now, by {begun}\n"
                "  remedy: let it go on; once it has ended, clear this task to go on from there",
            )
        _, last = mirror_state(ctx)
        alive = _alive_at(ctx, newest) if newest is not None and is_of_newest else None
        sign, now = alive or str(last), ctx.clock.monotonic()
        if self._sign_seen_at is None or sign != self._sign:
            self._sign, self._sign_seen_at = sign, now
        # A process notes that it is alive before it does anything else.
        is_by_process = alive is not None or (newest is not None and is_of_newest and not has_begun)
        if now - self._sign_seen_at <= (GONE_SECONDS if is_by_process else SILENT_SECONDS):
            return None
        if alive is not None:
            return self._dead(f"the process that runs the mirror was last alive at {alive}")
        return self._dead(
            f"the process that was to run the mirror, submitted at {newest.at}, never was alive"
            if newest is not None and is_by_process
            else describe("silent", last if has_begun else None)
        )

    def _dead(self, how: str) -> Decision:
        if is_stop_wished(self._ctx, self._asked_since):
            return _stopped(self._ctx)
        return _died(how)

    def _ended(self, reason: str) -> Decision:
        ctx = self._ctx
        is_stopped = is_stop_wished(ctx, self._asked_since)
        if reason == FAILED:
            return _died("the mirror failed")
        halts = ctx.link.halts()
        if halts and (reason != "stopped" or is_stopped):
            shown = ", ".join(f"{tp} {halt.reason}" for tp, halt in sorted(halts.items())[:5])
            where = "`status`" if ctx.direction is Direction.FORWARD else "the mirror's output"
            return Decision(
                exit_code=1,
                message=f"the mirror ended ({reason}), but partitions are halted: {shown}\n"
                f"  remedy: {where} names what can be done about each; do that, then clear this task",
            )
        if was_drained(ctx):
            return Decision(message="the mirror was drained")
        if is_stopped:
            return _stopped(ctx)
        return _died(f"the mirror ended ({reason}) while it is to run")


class Pause:
    """The time before a new start. Ends early when somebody else has started the mirror, or has asked for its end."""

    interval_seconds = 5.0

    def __init__(self, ctx: Context, *, asked_since: str) -> None:
        self._ctx, self._asked_since = ctx, asked_since

    def look(self) -> Decision | None:
        """Look once."""
        if was_drained(self._ctx):
            return Decision(message="the mirror was drained")
        if is_stop_wished(self._ctx, self._asked_since):
            return _stopped(self._ctx)
        return Decision(exit_code=3, message="the mirror is active again") if active_since(self._ctx) else None

    def too_late(self, overdue: str) -> Decision:
        """It is to be started."""
        return Decision(exit_code=3, message="the mirror is started again")


def _alive_at(ctx: Context, newest: Submission) -> str | None:
    """When the process of the newest submission last noted that it is alive."""
    note = ctx.journal.read(PHASE, ctx.own(_ALIVE))
    return str(note["at"]) if note is not None and note["submission"] == newest.id else None


def _is_recent(ctx: Context, at: str) -> bool:
    return ctx.clock.now() - datetime.fromisoformat(at) < timedelta(seconds=GONE_SECONDS)


def _has_begun(ctx: Context, since: str) -> bool:
    run = ctx.link.run()
    return run is not None and "at" in run and datetime.fromisoformat(run["at"]) >= datetime.fromisoformat(since)


def _stopped(ctx: Context) -> Decision:
    return Decision(message=f"the mirror was stopped: {ctx.link.wished().reason}")


def _died(message: str) -> Decision:
    return Decision(exit_code=3, message=message, facts={"died": True})
