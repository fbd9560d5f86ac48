"""Whether a migration was completed: by whom and when. From its beginning on there is no way back.

The record is written before anything else is done, so whatever would lead back is refused from then on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import Refused

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND, NAME = "completed", "migration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """``at`` is when it began, ``ended`` when all was done ("" before); both ISO-8601, UTC. ``kept`` is what was left
    as it was by then, in words."""

    at: str
    by: str
    ended: str = ""
    kept: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"completed by {self.by} at {self.ended}" if self.ended else f"being completed by {self.by} since {self.at}"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self) | {"kept": list(self.kept)}


def read(ctx: Context) -> Completion | None:
    """The completion; None if it has not begun."""
    value = ctx.journal.read(KIND, NAME)
    return None if value is None else Completion(**(value | {"kept": tuple(value.get("kept", ()))}))


def begin(ctx: Context, *, by: str) -> Completion:
    """Record that the migration is being completed; one that was begun before goes on under its name."""
    if (found := read(ctx)) is None:
        found = Completion(at=ctx.stamp(), by=by)
        ctx.journal.record(KIND, NAME, found.as_dict())
    return found


def take_back(ctx: Context) -> None:
    """Forget that it was begun, as long as nothing else was done for it."""
    ctx.journal.forget(KIND, NAME)


def end(ctx: Context, begun: Completion, kept: Iterable[str] = ()) -> Completion:
    """Record that all is done, and what was ``kept``."""
    done = replace(begun, ended=ctx.stamp(), kept=tuple(kept))
    ctx.journal.record(KIND, NAME, done.as_dict())
    return done


def require_none(ctx: Context) -> None:
    """Raise Refused once the migration is being completed: there is no way back any more."""
    found = read(ctx)
    if found is not None:
        raise Refused(
            f"migration {ctx.plan.name} is {found}: there is no way back any more",
            remedy="to move clients to the source again, write a plan of another name, from the target to the source",
        )
