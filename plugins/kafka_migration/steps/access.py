"""Access: what the source's clients may do is made possible on the target, as far as it lacks that; and taken back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kafka_migration.access import difference, grants, limits
from kafka_migration.access.carried import in_order
from kafka_migration.access.difference import AccessDiff
from kafka_migration.access.grants import Grants, ToUndo
from kafka_migration.access.limits import Limits
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.listing import listed
from kafka_migration.inventory import plan_changes
from kafka_migration.link import switched
from kafka_migration.migration import cancellation
from kafka_migration.migration.history import phase
from kafka_migration.steps import outlook
from kafka_migration.steps.step import Decision
from kafka_migration.steps.unused import require_unused

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_PHASE, _WHAT = "access", "these ACLs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How the clusters differ: in ``acls``, and in ``limits`` of client quotas."""

    acls: AccessDiff
    limits: Limits

    @property
    def missing(self) -> Grants:
        """What the target lacks."""
        return grants.missing(self.acls, self.limits)


def look(ctx: Context) -> Seen:
    """Compare both clusters; raises what :func:`difference.read` does. Changes nothing."""
    acls = difference.read(ctx)
    return Seen(acls=acls, limits=limits.read(ctx, acls.users))


def check(ctx: Context) -> Seen:
    """What :func:`run` would make. Changes nothing.

    Raises Refused if it may not be made now, or by a plan or a migration that may not go on.
    """
    ctx.require_whole("making ACLs")
    _require_able(ctx)
    seen = look(ctx)
    grants.check(ctx, seen.missing)
    return seen


def _require_able(ctx: Context) -> None:
    plan_changes.require(ctx)
    cancellation.require_none(ctx)
    if (last := switched.last(ctx)) is not None and last.is_unfinished:
        raise Refused(f"a switch of producers {last}", remedy=f"run `{last.command}`, then this")


def run(ctx: Context, shown: Seen) -> Decision:
    """Make, behind the plan's gate, what :func:`check` has ``shown`` and is missing still; ``value`` is what was made
    (in a dry run: would be).

    Raises what :func:`check` does, NotApproved where the gate is shut, and what :func:`grants.apply` does.
    """
    outlook.ask_gate(ctx, GateName.PLAN)
    # Whoever was asked has taken a while: nothing is made that somebody else has made, or set, meanwhile.
    _require_able(ctx)
    now, before = look(ctx).missing, shown.missing
    if new := [acl for acl in now.acls if acl.permission == "DENY" and acl not in before.acls]:
        raise Refused(
            f"the source denies more than what was shown: {listed(map(difference.in_words, new))}",
            remedy="run this again, and look at it",
        )
    todo = Grants(
        acls=tuple(in_order({*now.acls} & {*before.acls})),
        limits=tuple(limit for limit in now.limits if limit in before.limits),
    )
    ctx.make_state()
    with phase(ctx, _PHASE) as account:
        if todo and not ctx.dry_run:
            grants.apply(ctx, todo, lambda: _require_able(ctx))
        decision = _decision(todo, todo)
        account.ends(0, f"{todo} made", **decision.facts)
    return decision


def check_undo(ctx: Context) -> ToUndo:
    """What :func:`undo` would remove. Changes nothing. Raises Refused while clients use the target by it."""
    ctx.require_whole("removing ACLs")
    require_unused(ctx, _WHAT)
    found = grants.to_undo(ctx)
    grants.require_rights(ctx, found.removed)
    return found


def undo(ctx: Context) -> Decision:
    """Remove what :func:`run` has made; ``value`` is what was removed (in a dry run: would be), and what stays.

    Raises what :func:`check_undo` and :func:`grants.undo` raise.
    """
    found = check_undo(ctx)
    if not grants.made(ctx.journal) or ctx.dry_run:
        return _decision(found, found.removed)
    with phase(ctx, f"{_PHASE} undone") as account:
        found = grants.undo(ctx, lambda: require_unused(ctx, _WHAT))
        decision = _decision(found, found.removed)
        account.ends(0, f"{found.removed} removed; {found.stay} stay", **decision.facts)
    return decision


def _decision(value: Grants | ToUndo, changed: Grants) -> Decision:
    return Decision(facts={"acls": len(changed.acls), "quotas": len(changed.limits)}, value=value)
