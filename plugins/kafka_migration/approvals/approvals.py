"""Approvals: a person's answer, bound to the digest of the evidence that they saw (docs/behaviours.md, 4 and 27).

Between answer and work, the clusters may change. So the answer names a digest, and whoever is about to act takes the
evidence once more and compares. No answer is never "approved", and a check that fails cannot be approved away.

Whoever may write to the journal may not approve: answers are signed with the approval key over all that they contain.
An older answer that is written again changes nothing (see :mod:`kafka_migration.approvals.record`), and neither does
the removal of a newer one, for as long as the journal remembers that something was removed (docs/security.md,
Approvals).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.approvals.evidence import Evidence, GateName, differences
from kafka_migration.approvals.gates import cutover_evidence, plan_evidence
from kafka_migration.approvals.record import (
    AIRFLOW,
    APPROVED,
    REJECTED,
    REVOKED,
    Approval,
    answers,
    removed,
    signed_content,
    write,
)
from kafka_migration.domain import ledger
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.types import Desired
from kafka_migration.groups import looks, translate
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.migration.joined import joined, pending
from kafka_migration.migration.signing import HOW_TO_SET
from kafka_migration.state.link import Wish

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: By how much the clocks of two machines may differ.
_CLOCKS_DIFFER = timedelta(seconds=60)

_SHOWN_CHANGES = 10
_SHOWN_BLOCKERS = 3


class NotApproved(Refused):
    """The gate ``gate`` waits for a person, and there is no answer that holds now. ``digest`` is the evidence's."""

    def __init__(self, gate: GateName, message: str, *, digest: str = "", remedy: str = "") -> None:
        self.gate, self.digest = gate, digest
        super().__init__(
            f"{gate} gate: {message}", remedy=remedy or f"look at the evidence and answer: approve {gate} PLAN"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The gate lets pass, and why: an approval that holds, or a plan that asks nobody (``approval`` is None)."""

    gate: GateName
    reason: str
    evidence: Evidence
    approval: Approval | None

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "gate": str(self.gate),
            "reason": self.reason,
            "digest": self.evidence.digest,
            "approval": self.approval.as_dict() if self.approval else None,
        }


def is_asked(ctx: Context, gate: GateName) -> bool:
    """Whether the plan has a person answer at ``gate``; of a plan that joins, the one that it replaces, too: no plan
    takes this gate away by itself."""
    if gate is GateName.CUTOVER:
        return ctx.plan.approvals.cutover
    return ctx.plan.approvals.plan or bool(
        pending(ctx) and (last := joined(ctx)) and last.snapshot.get("approvals", {}).get("plan", True)
    )


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
    _require_approver(ctx, gate, approver)
    if digest != now.digest:
        raise NotApproved(
            gate,
            f"the answer is for {digest}, but the evidence is {now.digest} now",
            digest=now.digest,
            remedy="look at the evidence again, it has changed, and answer again",
        )
    _require_open(now)
    if seen_at > ctx.clock.now() + _CLOCKS_DIFFER:
        raise BadInput(
            "evidence cannot have been taken in the future",
            field="seen_at",
            value=seen_at.isoformat(),
            remedy="correct this machine's clock, or show the evidence again",
        )
    _require_young(ctx, gate, seen_at, "the evidence was taken")


def reject(
    ctx: Context, gate: GateName, digest: str, approver: str, *, reason: str = "", via: str = AIRFLOW
) -> Approval:
    """Record that ``approver`` rejected the gate; an earlier approval is void with it.

    At the cutover gate the mirror is stopped, too: nobody would be there to end it. Nothing is lost by that. Not where
    a wave is rejected: others go on.
    """
    _require_approver(ctx, gate, approver)
    stops = gate is GateName.CUTOVER and ctx.scope.is_whole and not ctx.dry_run
    if stops and (ctx.link.run() or {}).get("state") == "running":
        why = f"{approver} rejected the cutover gate" + (f": {reason}" if reason else "")
        ctx.link.wish(Wish(desired=Desired.STOP, reason=why, at=ctx.stamp()))
    return write(ctx, gate, REJECTED, digest, approver, via=via, reason=reason)


def revoke(ctx: Context, gate: GateName, approver: str, *, reason: str = "", via: str = AIRFLOW) -> Approval:
    """Take back what was approved at ``gate``: the next step that asks it is refused; what was done stays done.

    Raises NotApproved if there is nothing to take back, or ``approver`` is not among the plan's approvers.
    """
    _require_approver(ctx, gate, approver)
    newest = answers(ctx).get(gate)
    if newest is None or newest.answer != APPROVED:
        raise NotApproved(gate, "there is no approval to revoke", remedy="see `status`; nothing needs to be done")
    return write(ctx, gate, REVOKED, newest.digest, approver, via=via, reason=reason)


def require_key(ctx: Context) -> None:
    """Raise BadInput if answers of this plan are signed and this process has no key for that."""
    if ctx.plan.approvals.signed and not ctx.approval_keys():
        raise BadInput(
            "there is no approval key, and answers of this plan are signed",
            field="approvals.signed",
            value=True,
            remedy=HOW_TO_SET,
        )


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


def check(ctx: Context, gate: GateName, *, now: Evidence | None = None) -> Passed:
    """Let pass, or raise NotApproved: what every gate asks right before it acts. Read-only.

    Where the plan asks nobody, the checks of the evidence must still not fail. ``now`` is the evidence as it is at
    this moment, if the caller has just taken it; its tables may be left out.
    """
    now = now or evidence(ctx, gate)
    _require_open(now)
    if not is_asked(ctx, gate):
        reason = f"the plan asks nobody here (approvals.{gate} is false)"
        return Passed(gate=gate, reason=reason, evidence=now, approval=None)
    approval = answers(ctx).get(gate)
    _require_nothing_removed(ctx, gate, approval)
    if approval is None:
        raise NotApproved(gate, "nobody has approved it yet", digest=now.digest)
    if approval.answer != APPROVED:
        why = f" ({approval.reason})" if approval.reason else ""
        raise NotApproved(gate, f"{approval.approver} {approval.answer} it at {approval.at:%Y-%m-%d %H:%M:%S} UTC{why}")
    _require_signed(ctx, approval)
    if approval.at > ctx.clock.now() + _CLOCKS_DIFFER:
        raise NotApproved(gate, f"the approval is dated in the future ({approval.at.isoformat()})", digest=now.digest)
    # The plan may name other approvers by now than when the answer was given.
    _require_approver(ctx, gate, approval.approver)
    if approval.digest != _as_approved(ctx, now, approval).digest:
        raise NotApproved(gate, _what_changed(now, approval), digest=now.digest)
    if not _is_in_use(ctx, approval):
        _require_young(ctx, gate, approval.at, f"{approval.approver} approved it")
    reason = f"approved by {approval.approver} at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    return Passed(gate=gate, reason=reason, evidence=now, approval=approval)


def _require_nothing_removed(ctx: Context, gate: GateName, newest: Approval | None) -> None:
    number = removed(ctx, gate)
    if number >= (newest.number if newest else 0):
        raise NotApproved(
            gate,
            f"answer {number} was removed from the journal, which this tool never does",
            remedy=f"find out who writes to {ledger.JOURNAL_TOPIC} on the target, then approve {gate} PLAN again",
        )


def _require_signed(ctx: Context, approval: Approval) -> None:
    if not ctx.plan.approvals.signed:
        return
    if not approval.signature:
        raise NotApproved(
            approval.gate,
            f"the approval by {approval.approver} is not signed: an earlier version wrote it, or a client that may"
            " write to the journal and has no key",
            remedy=f"answer again where the approval key is: approve {approval.gate} PLAN",
        )
    keys = ctx.approval_keys()
    require_key(ctx)
    if not keys.has_signed(approval.signature, signed_content(ctx, approval)):
        known = keys.knows(approval.signature)
        why = "signed, but differs from what was signed" if known else "signed with a key that is unknown here"
        raise NotApproved(
            approval.gate,
            f"the approval by {approval.approver} is {why}",
            remedy="use the same approval key where answers are given and where they are checked"
            f" ({HOW_TO_SET}), and answer again; if the key is the same already, find out who writes to"
            f" {ledger.JOURNAL_TOPIC} on the target",
        )


def _require_approver(ctx: Context, gate: GateName, approver: str) -> None:
    if not approver.strip():
        raise BadInput(
            "an approval needs the name of its approver", field="approver", value=approver, remedy="name who answers"
        )
    allowed = ctx.plan.approvals.approvers
    if allowed and approver not in allowed:
        raise NotApproved(
            gate,
            f"{approver} is not one of the plan's approvers ({', '.join(allowed)})",
            remedy="have one of them answer, or add the name to approvals.approvers of the plan",
        )


def _require_open(now: Evidence) -> None:
    blockers = now.checks.blockers
    if not blockers:
        return
    found = "; ".join(f"{r.name} {r.verdict}: {r.evidence}" for r in blockers[:_SHOWN_BLOCKERS])
    if len(blockers) > _SHOWN_BLOCKERS:
        found += f"; and {len(blockers) - _SHOWN_BLOCKERS} more (`check` shows them all)"
    remedy = "; ".join(dict.fromkeys(r.remedy for r in blockers if r.remedy)) or "see the evidence"
    if now.checks.exit_code == CouldNotFindOut.exit_code:
        raise CouldNotFindOut(f"{now.gate} gate: {len(blockers)} checks could not run: {found}", remedy=remedy)
    message = f"{len(blockers)} checks do not pass, and no approval changes that: {found}"
    raise NotApproved(now.gate, message, digest=now.digest, remedy=remedy)


def _require_young(ctx: Context, gate: GateName, at: datetime, what: str) -> None:
    limit = ctx.plan.approvals.max_age_seconds
    age = (ctx.clock.now() - at).total_seconds()
    if age > limit:
        raise NotApproved(
            gate,
            f"{what} {timedelta(seconds=round(age))} ago, and approvals.max_age_seconds is {limit:g}",
        )


def _is_in_use(ctx: Context, approval: Approval) -> bool:
    """Whether the approved work began in time, so that it may go on: in later batches, or after a kill.

    Each step under the approval, the first one included, must follow the one before within the age that an approval may
    have; so an approval whose work was abandoned in the middle is void, too. It stays bound to the same evidence.
    """
    age = timedelta(seconds=ctx.plan.approvals.max_age_seconds)
    began: list[datetime | None]
    if approval.gate is GateName.PLAN:
        written = [*ctx.journal.all("topic-intent").values(), *ctx.journal.all("topic").values()]
        began = [datetime.fromisoformat(value["at"]) for value in written]
    else:
        records = GroupRecord.all(ctx.journal)
        began = [record.at(Step.STOPPING) for group, record in records.items() if ctx.scope.has_group(group)]
    used = approval.at
    now = ctx.clock.now()
    for at in sorted(at for at in began if at is not None and approval.at <= at <= now + _CLOCKS_DIFFER):
        if at > used + age:
            return False
        used = at
    return used > approval.at and now <= used + age


def _as_approved(ctx: Context, now: Evidence, approval: Approval) -> Evidence:
    """``now``, but groups that began to move under ``approval`` as they were approved.

    A cutover that was killed in the middle must converge when it is run again, and a group in the middle of its move
    reads nothing, so what it reads is not seen any more.
    """
    approved = (approval.facts or {}).get("groups", {})
    begun = {
        group: approved[group]
        for group, record in GroupRecord.all(ctx.journal).items()
        if group in approved and (at := record.at(Step.STOPPING)) is not None and at >= approval.at
    }
    return now.with_facts("groups", begun) if begun else now


def _what_changed(now: Evidence, approval: Approval) -> str:
    since = f"since {approval.approver} approved it at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    if approval.facts is None:
        return f"the evidence changed {since}"
    changes = differences(approval.facts, now.facts)
    more = f" and {len(changes) - _SHOWN_CHANGES} more" if len(changes) > _SHOWN_CHANGES else ""
    return f"the evidence changed {since}: {'; '.join(changes[:_SHOWN_CHANGES])}{more}"
