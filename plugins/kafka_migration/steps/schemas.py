"""Schemas: the target's schema registry is given what it lacks of the source's, and that is taken back.

Schemas go first: before topics are created, before a mirror begins and while it runs, before groups are moved, and once
more while producers stand still between the clusters: new versions are registered for as long as these write.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kafka_migration.approvals.evidence import GateName
from kafka_migration.approvals.passing import Passed
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import MigrationError
from kafka_migration.inventory import plan_changes
from kafka_migration.migration import cancellation
from kafka_migration.migration.context import open_context
from kafka_migration.migration.history import phase
from kafka_migration.migration.joined import joined
from kafka_migration.schemas import copy, difference
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
#: How long a copy that is under way then is waited for: it must not end in mode IMPORT.
_ENDING_SECONDS = 60.0
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
    """As :func:`apply`, as a step behind a gate that has been asked; nothing in a dry run."""
    return Decision() if ctx.dry_run else _decision(copy.apply(ctx))


def catch_up(ctx: Context, seen: Versions | None = None) -> Versions:
    """Make what was registered on the source since, before clients that may need it are moved to the target. Nothing
    before `create`, in a dry run, for a plan without registries, and on the way back.

    Returns what the source has, for the next call as ``seen``: then nothing else is asked if nothing has changed.
    Raises what :func:`copy.apply` does.
    """
    is_due = ctx.plan.schemas is not None and ctx.direction is Direction.FORWARD and joined(ctx) is not None
    if ctx.dry_run or not is_due:
        return frozenset()
    if seen is not None and not difference.has_changed(ctx, seen):
        return seen
    return copy.apply(ctx).seen


@contextmanager
def following(ctx: Context) -> Iterator[None]:
    """Have the target's registry follow the source's while this lasts, :data:`FOLLOW_SECONDS` behind; what there is
    goes first. Raises what :func:`catch_up` does then; later what goes wrong is progress, and tried again."""
    if ctx.plan.schemas is None or ctx.direction is not Direction.FORWARD:
        yield
        return
    seen, ended = catch_up(ctx), threading.Event()
    thread = threading.Thread(target=_follow, args=(ctx.plan, ctx.log, seen, ended), name="schemas", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_ENDING_SECONDS)


def _follow(plan: Plan, log: Callable[[str], None], seen: Versions, ended: threading.Event) -> None:
    """By clients of its own: those of whoever begins this are not for two threads."""
    shown = ""
    while not ended.wait(FOLLOW_SECONDS):
        try:
            with open_context(plan, log=log) as ctx:
                while not ended.is_set():
                    seen, shown = catch_up(ctx, seen), ""
                    ended.wait(FOLLOW_SECONDS)
        except MigrationError as error:
            if error.message != shown:
                log(f"schemas that came since are not copied: {error}")
            shown = error.message


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
