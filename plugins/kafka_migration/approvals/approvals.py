"""Approvals: a person's answer, bound to the digest of the evidence that they saw (docs/behaviours.md, 4 and 27).

Between answer and work, the clusters may change. So the answer names a digest, and whoever is about to act takes the
evidence once more and compares. No answer is never "approved", and a check that fails cannot be approved away.

Whoever may write to the journal may not approve: answers are signed with the approval key over all that they contain.
An older answer that is written again changes nothing (see :mod:`kafka_migration.approvals.record`), and neither does
the removal of a newer one, for as long as the journal remembers that something was removed (docs/security.md,
Approvals).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals.evidence import Evidence, GateName
from kafka_migration.approvals.gates import cutover_evidence, plan_evidence
from kafka_migration.approvals.passing import (
    CLOCKS_DIFFER,
    NotApproved,
    Passed,
    require_approver,
    require_key,
    require_open,
    require_passed,
    require_young,
)
from kafka_migration.approvals.record import AIRFLOW, APPROVED, REJECTED, REVOKED, Approval, answers, write
from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.types import Desired
from kafka_migration.groups import looks, translate
from kafka_migration.state.link import Wish

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


def evidence(ctx: Context, gate: GateName) -> Evidence:
    """What there is to see before ``gate``, now. Read-only. Raises what looking at the clusters raises."""
    return plan_evidence(ctx) if gate is GateName.PLAN else cutover_evidence(ctx)


def record(
    ctx: Context,
    gate: GateName,
    digest: str,
    approver: str,
    *,
    seen_at: datetime | None = None,
    now: Evidence | None = None,
    via: str = AIRFLOW,
) -> Approval:
    """Record that ``approver`` approved the evidence with ``digest``, taken at ``seen_at`` (default: just now).

    ``approver`` is whom ``via`` has authenticated. ``ctx`` must have been opened with ``make_state``, or the answer
    dies with the process. ``now`` is the evidence as it is at this moment, if the caller has just taken it;
    otherwise it is taken. Raises NotApproved if the evidence changed since, is too old, or holds a check that
    fails; or if ``approver`` is not among the plan's approvers. Raises BadInput where there is no key to sign with.
    """
    now = now or evidence(ctx, gate)
    seen_at = seen_at or now.taken_at
    examine(ctx, gate, digest, approver, seen_at=seen_at, now=now)
    approval = write(ctx, gate, APPROVED, digest, approver, via=via, seen_at=seen_at, facts=now.facts)
    if gate is GateName.CUTOVER:
        looks.take(ctx, translate.selected_groups(ctx))
    return approval


def examine(ctx: Context, gate: GateName, digest: str, approver: str, *, seen_at: datetime, now: Evidence) -> None:
    """Whether such an answer could be recorded, by the same rules as ``record``, which raises the same. Read-only."""
    require_key(ctx)
    require_approver(ctx, gate, approver)
    if digest != now.digest:
        raise NotApproved(
            gate,
            f"the answer is for {digest}, but the evidence is {now.digest} now",
            digest=now.digest,
            remedy="look at the evidence again, it has changed, and answer again",
        )
    require_open(now)
    if seen_at > ctx.clock.now() + CLOCKS_DIFFER:
        raise BadInput(
            "evidence cannot have been taken in the future",
            field="seen_at",
            value=seen_at.isoformat(),
            remedy="correct this machine's clock, or show the evidence again",
        )
    require_young(ctx, gate, seen_at, "the evidence was taken")


def reject(
    ctx: Context, gate: GateName, digest: str, approver: str, *, reason: str = "", via: str = AIRFLOW
) -> Approval:
    """Record that ``approver`` rejected the gate; an earlier approval is void with it.

    At the cutover gate the mirror is stopped, too: nobody would be there to end it. Nothing is lost by that. Not where
    a wave is rejected: others go on.
    """
    require_approver(ctx, gate, approver)
    stops = gate is GateName.CUTOVER and ctx.scope.is_whole and not ctx.dry_run
    if stops and (ctx.link.run() or {}).get("state") == "running":
        why = f"{approver} rejected the cutover gate" + (f": {reason}" if reason else "")
        ctx.link.wish(Wish(desired=Desired.STOP, reason=why, at=ctx.stamp()))
    return write(ctx, gate, REJECTED, digest, approver, via=via, reason=reason)


def revoke(ctx: Context, gate: GateName, approver: str, *, reason: str = "", via: str = AIRFLOW) -> Approval:
    """Take back what was approved at ``gate``: the next step that asks it is refused; what was done stays done.

    Raises NotApproved if there is nothing to take back, or ``approver`` is not among the plan's approvers.
    """
    require_approver(ctx, gate, approver)
    newest = answers(ctx).get(gate)
    if newest is None or newest.answer != APPROVED:
        raise NotApproved(gate, "there is no approval to revoke", remedy="see `status`; nothing needs to be done")
    return write(ctx, gate, REVOKED, newest.digest, approver, via=via, reason=reason)


def receipt(ctx: Context, seen: Evidence) -> str:
    """What proves later that ``seen`` was shown, and when: for :func:`shown_by`. "" where there is no key for it."""
    text = f"{seen.digest}@{seen.taken_at.isoformat(timespec='milliseconds')}"
    if not ctx.plan.approvals.signed:
        return text
    keys = ctx.approval_keys()
    return f"{text}#{keys.sign(_shown(ctx, seen.gate, text))}" if keys else ""


def shown_by(ctx: Context, gate: GateName, text: str) -> tuple[str, datetime]:
    """Digest and time of the evidence that a receipt stands for. Raises BadInput for what is not a receipt of it."""
    require_key(ctx)
    what, _, signature = text.partition("#")
    digest, _, taken_at = what.partition("@")
    try:
        at = datetime.fromisoformat(taken_at)
        genuine = at.tzinfo is not None and (
            not ctx.plan.approvals.signed or ctx.approval_keys().has_signed(signature, _shown(ctx, gate, what))
        )
    except ValueError:
        genuine = False
    if not genuine:
        raise BadInput(
            f"not a receipt of the evidence of this {gate} gate",
            field="--receipt",
            value=text,
            remedy=f"show the evidence again (approve {gate} PLAN --show), and give the receipt that stands below it",
        )
    return digest, at


def _shown(ctx: Context, gate: GateName, text: str) -> dict[str, Any]:
    return {"kind": "receipt", "migration": ctx.plan.name, "gate": str(gate), "receipt": text}


def check(ctx: Context, gate: GateName) -> Passed:
    """Take the evidence of ``gate``, and let pass or raise NotApproved. Read-only."""
    return require_passed(ctx, evidence(ctx, gate))
