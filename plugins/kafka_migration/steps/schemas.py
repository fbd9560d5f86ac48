"""Schemas: the target's schema registry is given what it lacks of the source's, and that is taken back.

Schemas go first: before topics are created, before a mirror begins and while it runs, before groups are moved, and once
more while producers stand still between the clusters: new versions are registered for as long as these write.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import Passed
from kafka_migration.domain.direction import SOURCE, Direction
from kafka_migration.domain.errors import MigrationError, Refused
from kafka_migration.inventory import plan_changes
from kafka_migration.link import switched
from kafka_migration.migration import cancellation
from kafka_migration.migration.context import open_context
from kafka_migration.migration.history import phase
from kafka_migration.migration.joined import begun_mirror, joined
from kafka_migration.schemas import copy, difference, lease
from kafka_migration.schemas.copy import ToUndo
from kafka_migration.schemas.difference import Difference, Versions
from kafka_migration.steps import outlook
from kafka_migration.steps.step import Decision
from kafka_migration.steps.unused import require_unused

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan

#: How far behind the target's registry may be while a mirror runs.
FOLLOW_SECONDS = 30.0
_PHASE, _WHAT = "schemas", "these schemas"


def check(ctx: Context) -> Difference:
    """What :func:`apply` would make. Changes nothing.

    Raises Refused if it may not be made now, or by a plan or a migration that may not go on.
    """
    _require_able(ctx)
    found = difference.read(ctx)
    difference.require_no_collision(found)
    return found


def _require_able(ctx: Context) -> None:
    ctx.require_whole("copying schemas")
    plan_changes.require(ctx)
    cancellation.require_none(ctx)
    if (switch := switched.away_from(ctx, SOURCE)) is not None:
        raise Refused(
            f"the target's schema registry is that of producers, and gives ids by itself: {switch}",
            remedy="have new schemas registered there; nothing is copied any more",
        )


def apply(ctx: Context) -> Decision:
    """Make, behind the plan's gate, what is missing; ``value`` is what was made (in a dry run: would be).

    Raises what :func:`check` does, NotApproved where the gate is shut, and what :func:`copy.apply` does.
    """
    _require_able(ctx)
    outlook.ask_gate(ctx, GateName.PLAN)
    if ctx.dry_run:
        return _decision(check(ctx))
    ctx.make_state()
    with phase(ctx, _PHASE) as account:
        decision = _decision(copy.apply(ctx))
        account.ends(0, decision.message, **decision.facts)
    return decision


def run(ctx: Context, *, passed: Passed | None = None) -> Decision:
    """As :func:`apply`, as a step behind a gate that has been asked; nothing in a dry run, and once producers are on
    the target."""
    if ctx.dry_run or switched.away_from(ctx, SOURCE) is not None:
        return Decision()
    return _decision(copy.apply(ctx))


def catch_up(
    ctx: Context,
    seen: Versions | None = None,
    *,
    until: float = math.inf,
    is_ended: Callable[[], bool] = lambda: False,
) -> Versions:
    """Make what was registered on the source since, before clients that may need it are moved to the target. Nothing
    before `create`, in a dry run, for a plan without registries, on the way back, and once producers are on the target.

    Returns what the source has, for the next call as ``seen``: then nothing else is asked if nothing has changed.
    ``until`` and ``is_ended`` are :func:`copy.apply`'s, which this raises what it does, too.
    """
    if ctx.dry_run or not _is_due(ctx):
        return frozenset()
    if seen is not None and not copy.is_halfway(ctx) and not difference.has_changed(ctx, seen, until=until):
        return seen
    return copy.apply(ctx, until=None if until == math.inf else until, is_ended=is_ended).seen


def _is_due(ctx: Context) -> bool:
    return (
        ctx.plan.schemas is not None
        and ctx.direction is Direction.FORWARD
        and joined(ctx) is not None
        and switched.away_from(ctx, SOURCE) is None
    )


@contextmanager
def following(ctx: Context) -> Iterator[None]:
    """Have the target's registry follow the source's while this lasts, :data:`FOLLOW_SECONDS` behind. What there is
    goes first: raises what :func:`catch_up` does then, unless a mirror of this link has begun before, which begins
    again whatever a registry answers. What goes wrong later is progress, and tried again."""
    if ctx.plan.schemas is None or ctx.direction is not Direction.FORWARD:
        yield
        return
    seen, ended = None if begun_mirror(ctx) else catch_up(ctx), threading.Event()
    thread = threading.Thread(target=_follow, args=(ctx.plan, ctx.log, seen, ended), name="schemas", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A copy that is under way must not end in mode IMPORT.
        thread.join(lease.SECONDS)


def _follow(plan: Plan, log: Callable[[str], None], seen: Versions | None, ended: threading.Event) -> None:
    """By clients of its own: those of whoever begins this are not for two threads."""
    shown = ""
    while not ended.wait(0.0 if seen is None and not shown else FOLLOW_SECONDS):
        try:
            with open_context(plan, log=log) as opened:
                ctx = opened
                while not ended.is_set():
                    if (last := joined(ctx)) is not None and last.digest != ctx.plan.digest:
                        # Corrected meanwhile: the mirror goes by it, too.
                        ctx, seen = replace(ctx, plan=last.plan()), None
                    seen, shown = catch_up(ctx, seen, is_ended=ended.is_set), ""
                    ended.wait(FOLLOW_SECONDS)
        except Exception as error:
            # Whatever it is, it ends neither the mirror nor this.
            why = error.message if isinstance(error, MigrationError) else f"{type(error).__name__}: {error}"
            if why != shown and not ended.is_set():
                log(f"schemas that came since are not copied: {why}")
            shown = why


def check_undo(ctx: Context) -> ToUndo:
    """What :func:`undo` would delete. Changes nothing. Raises Refused while clients use the target by it."""
    ctx.require_whole("removing schemas")
    require_unused(ctx, _WHAT)
    return copy.to_undo(ctx)


def undo(ctx: Context) -> Decision:
    """Delete what was made; ``value`` is what was deleted (in a dry run: would be), and what stays.

    Raises what :func:`check_undo` and :func:`copy.undo` raise.
    """
    found = check_undo(ctx)
    if ctx.dry_run or not difference.Made.all(ctx.journal):
        return Decision(value=found)
    with phase(ctx, f"{_PHASE} undone") as account:
        found = copy.undo(ctx)
        facts = {"schemas": len(found.removed)}
        account.ends(0, f"{len(found.removed)} versions deleted; {len(found.stay)} subjects stay", **facts)
    return Decision(facts=facts, value=found)


def _decision(made: Difference) -> Decision:
    return Decision(message=f"{made} made", facts={"schemas": len(made.missing)}, value=made)
