"""Whether the mirror is active, by what it last wrote into the link's state."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: The mirror's name in the journal's account of phases.
PHASE = "mirror"
#: How a run of it ended that could not continue: because of an error that it raised, and not of a halt.
FAILED = "failed"
#: A mirror's heartbeat comes at least once an epoch; past this much more silence it has probably died.
_SILENCE_SECONDS = 30.0


def mirror_state(ctx: Context) -> tuple[str, datetime | None]:
    """What the mirror is: not started, running, silent (probably dead), ended, ...; and when its last heartbeat was."""
    run, progress = ctx.link.run(), ctx.link.progress()
    beats = [datetime.fromisoformat(run["at"])] if run else []
    beats += [datetime.fromtimestamp(rest["at"] / 1000, tz=ctx.clock.now().tzinfo) for _, rest in progress.values()]
    last = max(beats, default=None)
    state = "not started" if run is None else str(run["state"])
    if state == "running" and last is not None:
        limit = ctx.plan.mirror.epoch_seconds + _SILENCE_SECONDS
        state = "silent" if (ctx.clock.now() - last).total_seconds() > limit else state
    return state, last


def describe(state: str, last: datetime | None) -> str:
    """The mirror as the subject of a sentence: what it is, and since when it has been silent."""
    if last is None:
        return "the mirror has not started"
    if state == "silent":
        return f"the mirror's last heartbeat was at {last:%Y-%m-%d %H:%M:%S} UTC: it has probably died"
    return f"the mirror is {state}, its last heartbeat was at {last:%Y-%m-%d %H:%M:%S} UTC"
