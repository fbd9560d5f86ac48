"""Access: what the source's clients may do is made possible on the target, as far as it lacks that; and taken back."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
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
from kafka_migration.groups import hooks
from kafka_migration.inventory import plan_changes
from kafka_migration.kafka.types import ScramUser
from kafka_migration.link import switched
from kafka_migration.migration import cancellation
from kafka_migration.migration.history import phase
from kafka_migration.plans.access import ScramUsers
from kafka_migration.steps import outlook
from kafka_migration.steps.step import Decision
from kafka_migration.steps.unused import require_unused

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_PHASE, _WHAT = "access", "these ACLs"
_PASSWORD_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """How the clusters differ: in ``acls``, and in ``limits`` of client quotas; and which SCRAM ``users`` are to be
    made of those that the target lacks: None if the plan has them made, and a cluster does not show them."""

    acls: AccessDiff
    limits: Limits
    users: tuple[ScramUser, ...] | None = ()

    @property
    def missing(self) -> Grants:
        """What the target lacks."""
        return grants.missing(self.acls, self.limits, self.users or ())


def look(ctx: Context) -> Seen:
    """Compare both clusters; raises what :func:`difference.read` does. Changes nothing."""
    acls, how = difference.read(ctx), _how(ctx)
    found = limits.read(ctx, acls.users, grants.made(ctx.journal).users)
    if how is None:
        return Seen(acls=acls, limits=found)
    users = None if found.users is None else tuple(user for user in found.users if user.user not in how.exclude)
    return Seen(acls=acls, limits=found, users=users)


def _how(ctx: Context) -> ScramUsers | None:
    """How the plan has SCRAM users made, if at all."""
    return ctx.plan.access.users if ctx.plan.access is not None else None


def check(ctx: Context) -> Seen:
    """What :func:`run` would make. Changes nothing.

    Raises Refused if it may not be made now, or by a plan or a migration that may not go on.
    """
    ctx.require_whole("making ACLs")
    _require_able(ctx)
    seen = look(ctx)
    grants.check(ctx, seen.missing)
    _check_users(ctx, seen)
    return seen


def _check_users(ctx: Context, seen: Seen) -> None:
    if seen.users is None:
        remedy = "remove access.users from the plan, and make the users by hand"
        if seen.limits.shows_users:
            remedy = f"grant the migration's principals Describe on both clusters; or {remedy}"
        raise Refused(
            f"the plan has SCRAM users made (access.users), but {'; '.join(seen.limits.unknown_users)}", remedy=remedy
        )
    if not seen.users or (how := _how(ctx)) is None:
        return
    if how.command:
        hooks.require_password_command(how, (user.user for user in seen.users), ctx.plan.name)
    # Also of users who are made disabled: a salted password is enough to log in by, whoever chose it.
    if not ctx.target.connection.uses_tls:
        raise Refused(
            f"connection {ctx.target.connection.conn_id} is not encrypted, and who reads what the target is sent of"
            " new passwords could log in by it",
            remedy="use SSL or SASL_SSL; or remove access.users from the plan, and have the users made by hand",
        )


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
        users=tuple(user for user in now.users if user in before.users),
    )
    ctx.make_state()
    with phase(ctx, _PHASE) as account:
        if todo and not ctx.dry_run:
            grants.apply(ctx, todo, lambda: _require_able(ctx), _passwords(ctx, todo.users))
        decision = _decision(todo, todo)
        account.ends(0, f"{todo} made", **decision.facts)
    return decision


def _passwords(ctx: Context, users: Iterable[ScramUser]) -> dict[str, str]:
    """A new password for each: all of them before anything is made, as the plan's command may fail."""
    how = _how(ctx)
    if how is None or not how.command:
        return {user.user: secrets.token_urlsafe(_PASSWORD_BYTES) for user in users}
    return {user.user: hooks.run_for_password(how, user.user, ctx.plan.name) for user in users}


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
    facts = {"acls": len(changed.acls), "quotas": len(changed.limits), "scram_users": len(changed.users)}
    return Decision(facts=facts, value=value)
