"""Whether a migration was cancelled: by whom, when and why, and what became of its topics.

The record is written before anything else is done, so whatever else runs of the migration is refused from then on, and
it stays when the migration begins again: as an earlier end of it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Self

from kafka_migration.domain.errors import Refused
from kafka_migration.domain.states import known

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.state.journal import Journal

KIND, NAME = "cancelled", "migration"

#: Earlier cancellations of one migration that are remembered.
_KEPT = 20


class State(enum.StrEnum):
    """How far it is. The names are part of the journal's format."""

    CANCELLING = "cancelling"
    CANCELLED = "cancelled"
    BEGUN_AGAIN = "begun again"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancellation:
    """``at`` is when it began, ``ended`` when it was done ("" before); both ISO-8601. ``topics``: what became of each
    ("deleted", or why it was left). ``left``: what a person has to know of those that were left. ``records`` is how
    many the mirror had copied. ``earlier`` are the cancellations before, oldest first, as JSON types."""

    state: State
    at: str
    by: str
    reason: str = ""
    ended: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()
    records: int = 0
    earlier: tuple[Mapping[str, Any], ...] = ()

    @property
    def holds(self) -> bool:
        """Whether the migration is at its end, or on its way there: it has not begun again since."""
        return self.state is not State.BEGUN_AGAIN

    def __str__(self) -> str:
        done = "being cancelled" if self.state is State.CANCELLING else "cancelled"
        why = f" ({self.reason})" if self.reason else ""
        since = "" if self.holds else ", and has begun again since"
        return f"{done} by {self.by} at {datetime.fromisoformat(self.at):%Y-%m-%d %H:%M:%S} UTC{why}{since}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return self._account() | {"earlier": [dict(one) for one in self.earlier]}

    def _account(self) -> dict[str, Any]:
        return {
            "state": str(self.state),
            "at": self.at,
            "by": self.by,
            "reason": self.reason,
            "ended": self.ended,
            "topics": dict(sorted(self.topics.items())),
            "left": list(self.left),
            "records": self.records,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``as_dict``. Raises StateConflict for a state that this version does not know."""
        state = known(State, value["state"], "the migration is")
        rest = {name: value[name] for name in ("at", "by", "reason", "ended", "topics", "records")}
        return cls(state=state, left=tuple(value["left"]), earlier=tuple(value["earlier"]), **rest)

    def after(self) -> tuple[Mapping[str, Any], ...]:
        """What is earlier for the next one."""
        return (*self.earlier, self._account())[-_KEPT:]


def read(ctx: Context) -> Cancellation | None:
    """The newest cancellation, whether the migration has begun again since or not; None if there never was one."""
    return of(ctx.journal)


def of(journal: Journal) -> Cancellation | None:
    """The same of the migration of ``journal``."""
    value = journal.read(KIND, NAME)
    return None if value is None else Cancellation.from_dict(value)


def require_none(ctx: Context) -> None:
    """Raise Refused if the migration was cancelled, or is being cancelled, and has not begun again since."""
    found = read(ctx)
    if found is None or not found.holds:
        return
    if found.state is State.CANCELLING:
        raise Refused(
            f"migration {ctx.plan.name} is {found}",
            remedy="run `cancel` again, which finishes what was begun; where others' records keep topics from being"
            " deleted, `cancel --keep-topics` does",
        )
    raise Refused(
        f"migration {ctx.plan.name} was {found}",
        remedy="to begin again, approve the plan again (`approve plan`) and run `create`; with Airflow, by a new run",
    )


def require_may_begin(ctx: Context, *, run_began: str = "") -> None:
    """Raise Refused while the migration is being cancelled, or if a run of the DAG that began before it was cancelled
    would have it begin again (``run_began``: when, as ISO-8601; "" for a command)."""
    found = read(ctx)
    if found is None:
        return
    if found.state is State.CANCELLING:
        require_none(ctx)
    if run_began and datetime.fromisoformat(run_began) <= datetime.fromisoformat(found.at):
        raise Refused(
            f"this run began before migration {ctx.plan.name} was {found}",
            remedy="start a new run of the DAG to begin again",
        )


def begin(ctx: Context, *, by: str, reason: str) -> Cancellation:
    """Record that the migration is being cancelled. One that was begun before goes on under the name of who began."""
    before = read(ctx)
    if before is not None and before.holds:
        return before
    begun = Cancellation(
        state=State.CANCELLING,
        at=ctx.stamp(),
        by=by,
        reason=reason,
        earlier=() if before is None else before.after(),
    )
    write(ctx, begun)
    return begun


def write(ctx: Context, found: Cancellation) -> None:
    """Record ``found`` as the newest."""
    ctx.journal.record(KIND, NAME, found.as_dict())


def take_back(ctx: Context, before: Cancellation | None) -> None:
    """As if it had not been begun: ``before`` was the newest then. Nothing was done yet."""
    if before is None:
        ctx.journal.forget(KIND, NAME)
    else:
        write(ctx, before)


def begin_again(ctx: Context) -> None:
    """Record that the migration begins again, if it was cancelled."""
    found = read(ctx)
    if found is not None and found.state is State.CANCELLED:
        write(ctx, replace(found, state=State.BEGUN_AGAIN))
