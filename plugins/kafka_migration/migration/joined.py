"""Which plan a migration goes by: the one that `create` ran with last, and those before it. And which plans the mirror
that runs, or ran last, goes by.

A plan file may be corrected while its migration runs. The corrected plan joins when `create` has passed the plan gate
with it; until then the journal holds the plan before. The mirror looks here every half a minute and goes on with what
joined (:mod:`kafka_migration.topics.create`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.lifecycle import COPIED_AGAIN, CREATED, INTENDED
from kafka_migration.domain.names import SAME, TopicNames
from kafka_migration.plans.changes import Change, changes
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.patterns import TopicSelection
from kafka_migration.plans.problems import InvalidPlan

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.state.journal import Journal

KIND, NAME, MIRROR = "plan", "plan", "mirror"

#: Plans before the one that joined last that are remembered.
_KEPT = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """The plan that joined last. ``by`` approved it ("" where nobody was asked), ``changes`` are what differs from the
    one before; ``earlier`` are those before, oldest first, without their snapshots."""

    digest: str
    at: str
    by: str
    snapshot: Mapping[str, Any]
    changes: tuple[Change, ...]
    earlier: tuple[Mapping[str, Any], ...]

    def plan(self) -> Plan:
        """The plan itself. Raises InvalidPlan where this version does not take it."""
        return restore_plan(self.snapshot)

    def replaced(self, digest: str) -> bool:
        """Whether a plan with that digest had joined before, and this one took its place."""
        return any(plan["digest"] == digest for plan in self.earlier)

    @property
    def history(self) -> tuple[Mapping[str, Any], ...]:
        """All plans that this migration went by, oldest first, as JSON types: digest, at, by, changes."""
        return (*self.earlier, self._account())

    def _account(self) -> dict[str, Any]:
        return {
            "digest": self.digest,
            "at": self.at,
            "by": self.by,
            "changes": [str(change) for change in self.changes],
        }


def joined(ctx: Context) -> Joined | None:
    """The plan that joined last; None before `create`. An earlier version recorded no history."""
    return of(ctx.journal)


def of(journal: Journal) -> Joined | None:
    """The same of the migration of ``journal``."""
    value = journal.read(KIND, NAME)
    if value is None:
        return None
    return Joined(
        digest=value["digest"],
        at=value["at"],
        by=value.get("by", ""),
        snapshot=value["snapshot"],
        changes=tuple(Change.from_dict(change) for change in value.get("changes", ())),
        earlier=tuple(value.get("earlier", ())),
    )


def names_of(journal: Journal) -> TopicNames:
    """How topics are called on the target by the plan that joined the migration of ``journal`` last."""
    last = of(journal)
    with suppress(InvalidPlan):
        return SAME if last is None else last.plan().topic_names
    return SAME


def has_made_topics(journal: Journal) -> bool:
    """Whether there are topics on the target whose names this migration chose, or was about to."""
    return any(journal.all(kind) for kind in (CREATED, INTENDED, COPIED_AGAIN))


def require_names(journal: Journal, plan: Plan) -> None:
    """Raise Refused if ``plan`` calls topics otherwise than the plan did by which they were made: nothing of them would
    be found on the target, and what is would be somebody else's."""
    if of(journal) is not None and names_of(journal) != plan.topic_names and has_made_topics(journal):
        raise Refused(
            f"migration {plan.name} has topics on the target by other names than naming of this plan gives them",
            remedy="give naming its former value, or migrate by a plan of another name",
        )


def pending(ctx: Context) -> tuple[Change, ...]:
    """What differs between the plan given and the one that joined last; nothing before there is one."""
    return _pending(joined(ctx), ctx.plan)


def _pending(last: Joined | None, plan: Plan) -> tuple[Change, ...]:
    return () if last is None or last.digest == plan.digest else _since(last, plan)


def replaced(ctx: Context) -> Plan | None:
    """The plan that the one given is to replace, while that has not joined; None for a plan that has, or is the first.

    Of one that this version does not take any more: the plan given, with the approvals that the other one has."""
    last = joined(ctx)
    if last is None or not _pending(last, ctx.plan):
        return None
    try:
        return last.plan()
    except InvalidPlan:
        kept = type(ctx.plan.approvals).model_construct(**last.snapshot.get("approvals", {}))
        return ctx.plan.model_copy(update={"approvals": kept})


def join(ctx: Context, *, by: str = "") -> None:
    """Record that the migration goes by the plan given from now on; nothing if it does already."""
    last = joined(ctx)
    if last is not None and last.digest == ctx.plan.digest:
        return
    value = {
        "digest": ctx.plan.digest,
        "snapshot": ctx.plan.snapshot(),
        "at": ctx.stamp(),
        "by": by,
        "changes": [change.as_dict() for change in (_since(last, ctx.plan) if last else ())],
        "earlier": list(last.history[-_KEPT:]) if last else [],
    }
    ctx.journal.record(KIND, NAME, value)


def _since(last: Joined, plan: Plan) -> tuple[Change, ...]:
    try:
        # With the defaults of this version: a field that it knows and the other did not is no change.
        before = last.plan().snapshot()
    except InvalidPlan:
        before = dict(last.snapshot)
    return changes(before, plan.snapshot())


# -- the plans of the mirror ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BegunMirror:
    """The mirror that began last: its ``submission`` by Airflow, "" for one that a command started, and the plans that
    it goes by, oldest first: digest, since when (ISO-8601), selection of topics, handlers; it copies by the first one's
    handlers."""

    submission: str
    plans: tuple[Mapping[str, Any], ...]

    @property
    def at(self) -> str:
        """When it began."""
        return str(self.plans[0]["at"])

    def goes_by(self, digest: str) -> bool:
        """Whether the plan with that digest is one of its plans."""
        return any(plan["digest"] == digest for plan in self.plans)

    def handles_as(self, snapshot: Mapping[str, Any]) -> bool:
        """Whether it copies by the handlers of the plan with that snapshot."""
        now = snapshot.get("handlers")
        # An earlier version did not record them.
        return bool(self.plans[0].get("handlers", now) == now)

    def __str__(self) -> str:
        return f"plan {self.plans[-1]['digest']}, since {self.plans[-1]['at']}"


def mirror_began(ctx: Context, submission: str = "") -> None:
    """Record that a mirror begins with the plan given."""
    _record_mirror(ctx, BegunMirror(submission=submission, plans=()))


def mirror_goes_on(ctx: Context) -> None:
    """Record that the running mirror goes by the plan given, too: it copies what any of its plans selects."""
    _record_mirror(ctx, begun_mirror(ctx) or BegunMirror(submission="", plans=()))


def _record_mirror(ctx: Context, mirror: BegunMirror) -> None:
    snapshot = ctx.plan.snapshot()
    selected = {"topics": snapshot["topics"], "handlers": snapshot.get("handlers")}
    plan = {"digest": ctx.plan.digest, "at": ctx.stamp(), **selected}
    ctx.journal.record(KIND, ctx.own(MIRROR), {"submission": mirror.submission, "plans": [*mirror.plans, plan]})


def begun_mirror(ctx: Context) -> BegunMirror | None:
    """The mirror of ``ctx``'s link that began last; None where an earlier version began it."""
    value = ctx.journal.read(KIND, ctx.own(MIRROR))
    return BegunMirror(submission=value.get("submission", ""), plans=tuple(value["plans"])) if value else None


def handlers_due(ctx: Context) -> bool:
    """Whether the mirror began with other handlers than those of the plan that joined last, and so copies by these only
    once it is started again."""
    mirror, last = begun_mirror(ctx), joined(ctx)
    if mirror is None or last is None or ctx.direction is Direction.REVERSE:
        return False
    return not mirror.handles_as(last.snapshot)


def mirror_selection(ctx: Context) -> Callable[[str], bool]:
    """Whether a plan of the mirror selects a topic; always True where an earlier version began it: it is unknown."""
    mirror = begun_mirror(ctx)
    if mirror is None:
        return lambda _topic: True
    selections = [TopicSelection.model_validate_json(json.dumps(plan["topics"])) for plan in mirror.plans]
    return lambda topic: any(selection.matches(topic) for selection in selections)
