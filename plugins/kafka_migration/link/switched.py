"""What the journal has of switches of producers, to the target and back: how far each came, and its point of no return.

The record itself is that point: once it shows ``SERVED``, nothing is lifted or started any more where producers came
from, whatever else was written by then. Until then a switch is either gone on with from its fence, or given up.
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from kafka_migration.domain import seal
from kafka_migration.domain.direction import TARGET, Direction, Side
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.states import known

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

KIND = "switch"
_NAME = "producers"


class SwitchState(enum.StrEnum):
    """How far a switch came. The names are part of the journal's format.

    ``SWITCHING``: it runs, or its process died, and producers may be kept from writing. ``GIVEN_UP``: they write
    there again. ``SERVED``: the point of no return is passed; producers may not be started yet. ``DONE``: they are.
    """

    SWITCHING = "switching"
    GIVEN_UP = "given up"
    SERVED = "served by the target"
    DONE = "switched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """Times are the wall clock (ISO-8601, UTC), "" for what has not happened: when it was begun, first denied a
    producer, passed the point of no return, and had the first start hook back. ``proof`` is the fence's, with the log
    ends; ``seal`` has those of the cluster that producers are switched ``to``; ``approval`` is why the gate let pass,
    ``why`` why it was given up."""

    state: SwitchState
    begun_at: str
    fenced_at: str = ""
    served_at: str = ""
    started_at: str = ""
    fence_ms: float | None = None
    """From the first denial until the first start hook had returned."""
    after_ms: Mapping[str, float] = field(default_factory=dict)
    """From the first denial until each part of the switch was done: proved, drained, sealed, armed, asked, opened."""
    topics: tuple[str, ...] = ()
    proof: Mapping[str, Any] = field(default_factory=dict)
    seal: Mapping[str, Any] = field(default_factory=dict)
    to: Side = TARGET
    approval: str = ""
    why: str = ""

    @property
    def is_served(self) -> bool:
        """Whether the point of no return is passed."""
        return self.state in (SwitchState.SERVED, SwitchState.DONE)

    @property
    def is_unfinished(self) -> bool:
        """Whether something of it is left to do, or to give up."""
        return self.state in (SwitchState.SWITCHING, SwitchState.SERVED)

    @property
    def command(self) -> str:
        """The command that goes on with it."""
        return "switch" if self.to == TARGET else "switch --back"

    def __str__(self) -> str:
        """One line for people."""
        if self.state is SwitchState.SWITCHING:
            return f"begun at {self.begun_at}, and not ended: `{self.command}` goes on, or gives it up"
        if self.state is SwitchState.GIVEN_UP:
            return f"given up, begun at {self.begun_at}: {self.why}"
        passed = f"{len(self.topics)} topics are served by the {self.to} since {self.served_at}"
        if self.state is SwitchState.SERVED:
            return f"{passed}; producers were not all started: run `{self.command}` again"
        lasted = "" if self.fence_ms is None else f"; from the first denial to the first start {self.fence_ms:,.0f} ms"
        return f"{passed}{lasted}"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self) | {"state": str(self.state), "topics": list(self.topics)}


def read(ctx: Context) -> Switch | None:
    """The switch from the origin of ``ctx``'s link to its destination; None if there was none.

    Raises StateConflict for a state that this version does not know.
    """
    value = ctx.journal.read(KIND, ctx.own(_NAME))
    return None if value is None else _known(value)


def last(ctx: Context) -> Switch | None:
    """The newest one that was not given up, or else the newest; None if there was none, or `stop` came later."""
    found = _all(ctx)
    return next((one for one in found if one.state is not SwitchState.GIVEN_UP), found[0] if found else None)


def served(ctx: Context) -> Switch | None:
    """The newest one behind its point of no return, which shows where producers are; None: nobody switched them, or
    `stop` came later."""
    return next((one for one in _all(ctx) if one.is_served), None)


def away_from(ctx: Context, side: Side) -> Switch | None:
    """The switch that has moved producers away from ``side``; None if they are there."""
    switch = served(ctx)
    return switch if switch is not None and switch.to != side else None


def _all(ctx: Context) -> list[Switch]:
    """The newest first, down to the newest link that `stop` has sealed: its producers were moved by their owners, so
    no earlier switch shows where they are."""
    values, seals = ctx.journal.all(KIND), ctx.journal.all(seal.KIND)
    found: list[Switch] = []
    for generation, way in itertools.product(range(ctx.generation + 1, 0, -1), reversed(Direction)):
        value = values.get(way.own(_NAME, generation))
        one = None if value is None else _known(value)
        found += [] if one is None else [one]
        if way.own(seal.NAME, generation) in seals and (one is None or one.state is SwitchState.GIVEN_UP):
            break
    return found


def _known(value: dict[str, Any]) -> Switch:
    state = known(SwitchState, value["state"], "the switch of producers is in state")
    return Switch(**(value | {"state": state, "topics": tuple(value["topics"])}))


def require_none_under_way(ctx: Context) -> None:
    """Raise Refused while a switch away from the origin of ``ctx``'s link is under way, or has died before its point of
    no return: it relies on where it found groups."""
    switch = read(ctx)
    if switch is not None and switch.state is SwitchState.SWITCHING:
        raise Refused(
            f"a switch of producers is under way: {switch}",
            remedy=f"wait for it, or run `{switch.command}` again if its process has died",
        )


def write(ctx: Context, switch: Switch) -> None:
    """Record it; durable on return."""
    ctx.journal.record(KIND, ctx.own(_NAME), switch.as_dict())


def name(ctx: Context) -> str:
    """Its name in the journal, by which it is owned."""
    return ctx.own(_NAME)
