"""Whether an answer lets pass now: what every step asks right before it acts, of the evidence as it is then.

The answer is bound to the digest of what its approver saw, so whatever changed since closes the gate again; and a check
that fails cannot be approved away.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from kafka_migration.approvals.evidence import Evidence, GateName, differences
from kafka_migration.approvals.record import APPROVED, Approval, answers, is_signed, removed, signed_content
from kafka_migration.domain import ledger
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.link import switched
from kafka_migration.migration import cancellation
from kafka_migration.migration.joined import joined, replaced
from kafka_migration.migration.signing import HOW_TO_SET

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: By how much the clocks of two machines may differ.
CLOCKS_DIFFER = timedelta(seconds=60)

_SHOWN_CHANGES = 10
_SHOWN_BLOCKERS = 3


class NotApproved(Refused):
    """The gate ``gate`` waits for a person, and there is no answer that holds now. ``digest`` is the evidence's."""

    def __init__(self, gate: GateName, message: str, *, digest: str = "", remedy: str = "", wave: str = "") -> None:
        self.gate, self.digest = gate, digest
        super().__init__(
            f"{gate} gate{f' of wave {wave}' if wave else ''}: {message}",
            remedy=remedy or f"look at the evidence and answer: {command(gate, wave)}",
        )


def command(gate: GateName, wave: str = "", plan: object = "PLAN") -> str:
    """The command that answers at ``gate``, of a wave or of the whole ``plan``."""
    return f"approve {gate} {plan}" + (f" --wave {wave}" if wave else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Passed:
    """The gate lets pass, and why: an approval that holds, or a plan that asks nobody (``approval`` is None)."""

    gate: GateName
    reason: str
    evidence: Evidence
    approval: Approval | None


def is_asked(ctx: Context, gate: GateName) -> bool:
    """Whether the plan has a person answer at ``gate``; of a plan that has not joined yet, the one that it is to
    replace, too: no plan takes a gate away by itself."""
    return ctx.plan.asks(gate.value) or bool((before := replaced(ctx)) and before.asks(gate.value))


def approvers(ctx: Context, gate: GateName) -> tuple[str, ...]:
    """Who may answer at ``gate``; nobody by name: whoever may answer at all. Of a plan that has not joined yet those of
    the one that it is to replace: no edit of a plan makes somebody an approver. Who let it join has approved it."""
    if before := replaced(ctx):
        return tuple(before.approvals.approvers) or ctx.plan.approvals.approvers
    own = ctx.plan.approvals.approvers
    last = joined(ctx) if own and gate is GateName.PLAN else None
    return tuple(dict.fromkeys((*own, *([last.by] if last is not None and last.by else []))))


def require_passed(ctx: Context, now: Evidence) -> Passed:
    """Let pass at the gate of ``now``, which is the evidence at this moment, or raise NotApproved. Read-only.

    Where the plan asks nobody, the checks of the evidence must still not fail. Tables of ``now`` may be left out.
    """
    gate = now.gate
    if gate is not GateName.PLAN:
        cancellation.require_none(ctx)
    require_open(now)
    if not is_asked(ctx, gate):
        asks = {GateName.PRODUCERS: "producers.approval", GateName.ROLLBACK: "approvals.cutover"}
        reason = f"the plan asks nobody here ({asks.get(gate, f'approvals.{gate}')} is false)"
        return Passed(gate=gate, reason=reason, evidence=now, approval=None)
    approval = answers(ctx).get(gate)
    _require_nothing_removed(ctx, gate)
    if approval is None:
        raise NotApproved(gate, "nobody has approved it yet", digest=now.digest, wave=ctx.scope.key)
    if approval.answer != APPROVED:
        why = f" ({approval.reason})" if approval.reason else ""
        raise NotApproved(
            gate,
            f"{approval.approver} {approval.answer} it at {approval.at:%Y-%m-%d %H:%M:%S} UTC{why}",
            wave=ctx.scope.key,
        )
    _require_signed(ctx, approval)
    if approval.at > ctx.clock.now() + CLOCKS_DIFFER:
        raise NotApproved(
            gate,
            f"the approval is dated in the future ({approval.at.isoformat()})",
            digest=now.digest,
            wave=ctx.scope.key,
        )
    # The plan may name other approvers by now than when the answer was given.
    require_approver(ctx, gate, approval.approver)
    if (cancelled := cancellation.read(ctx)) is not None and approval.at <= datetime.fromisoformat(cancelled.at):
        why = f"{approval.approver} approved it at {approval.at:%Y-%m-%d %H:%M:%S} UTC, before the migration was"
        raise NotApproved(gate, f"{why} cancelled ({cancelled.by})", digest=now.digest, wave=ctx.scope.key)
    if approval.digest != _as_approved(ctx, now, approval).digest:
        raise NotApproved(gate, _what_changed(now, approval), digest=now.digest, wave=ctx.scope.key)
    if not _is_in_use(ctx, approval):
        require_young(ctx, gate, approval.at, f"{approval.approver} approved it")
    reason = f"approved by {approval.approver} at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    return Passed(gate=gate, reason=reason, evidence=now, approval=approval)


def _require_nothing_removed(ctx: Context, gate: GateName) -> None:
    if (gone := removed(ctx, gate)) is not None:
        scope, number = gone
        raise NotApproved(
            gate,
            f"answer {number} was removed from the journal, which this tool never does",
            remedy=f"find out who writes to {ledger.JOURNAL_TOPIC} on the target, then {command(gate, scope)} again",
        )


def _require_signed(ctx: Context, approval: Approval) -> None:
    if not is_signed(ctx):
        return
    if not approval.signature:
        raise NotApproved(
            approval.gate,
            f"the approval by {approval.approver} is not signed: an earlier version wrote it, or a client that may"
            " write to the journal and has no key",
            remedy=f"answer again where the approval key is: {command(approval.gate, ctx.scope.key)}",
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


def require_key(ctx: Context) -> None:
    """Raise BadInput if answers of this plan are signed and this process has no key for that."""
    if is_signed(ctx) and not ctx.approval_keys():
        raise BadInput(
            "there is no approval key, and answers of this plan are signed",
            field="approvals.signed",
            value=True,
            remedy=HOW_TO_SET,
        )


def require_approver(ctx: Context, gate: GateName, approver: str) -> None:
    """Raise NotApproved if ``approver`` is not among the plan's approvers, BadInput for no name."""
    if not approver.strip():
        raise BadInput(
            "an approval needs the name of its approver", field="approver", value=approver, remedy="name who answers"
        )
    allowed = approvers(ctx, gate)
    if allowed and approver not in allowed:
        raise NotApproved(
            gate,
            f"{approver} is not one of the plan's approvers ({', '.join(allowed)})",
            remedy="have one of them answer; whom an edit of approvals.approvers names newly counts once the plan has"
            " joined the migration (`approve plan`, `create`)",
        )


def require_open(now: Evidence) -> None:
    """Raise NotApproved if a check fails, CouldNotFindOut if none fails and one could not run."""
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


def require_young(ctx: Context, gate: GateName, at: datetime, what: str) -> None:
    """Raise NotApproved if ``at`` is longer ago than the plan lets approvals be; ``what`` happened then."""
    limit = ctx.plan.approvals.max_age_seconds
    age = (ctx.clock.now() - at).total_seconds()
    if age > limit:
        raise NotApproved(
            gate,
            f"{what} {timedelta(seconds=round(age))} ago, and approvals.max_age_seconds is {limit:g}",
            wave=ctx.scope.key,
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
    elif approval.gate is GateName.PRODUCERS:
        switch = switched.read(ctx)
        began = [] if switch is None else [datetime.fromisoformat(switch.begun_at)]
    else:
        records = GroupRecord.all(ctx.journal)
        began = [_began(approval, record) for group, record in records.items() if ctx.scope.has_group(group)]
    used = approval.at
    now = ctx.clock.now()
    for at in sorted(at for at in began if at is not None and approval.at <= at <= now + CLOCKS_DIFFER):
        if at > used + age:
            return False
        used = at
    return used > approval.at and now <= used + age


def _began(approval: Approval, record: GroupRecord) -> datetime | None:
    """When the newest move of a group that such an approval is for was begun."""
    way = Direction.REVERSE if approval.gate is GateName.ROLLBACK else Direction.FORWARD
    return record.newest(way).at(Step.STOPPING)


def _as_approved(ctx: Context, now: Evidence, approval: Approval) -> Evidence:
    """``now``, but groups that began to move under ``approval`` as they were approved.

    A cutover that was killed in the middle must converge when it is run again, and a group in the middle of its move
    reads nothing, so what it reads is not seen any more.
    """
    approved = (approval.facts or {}).get("groups", {})
    begun = {
        group: approved[group]
        for group, record in GroupRecord.all(ctx.journal).items()
        if group in approved and (at := _began(approval, record)) is not None and at >= approval.at
    }
    return now.with_facts("groups", begun) if begun else now


def _what_changed(now: Evidence, approval: Approval) -> str:
    since = f"since {approval.approver} approved it at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    if approval.facts is None:
        return f"the evidence changed {since}"
    changes = differences(approval.facts, now.facts)
    more = f" and {len(changes) - _SHOWN_CHANGES} more" if len(changes) > _SHOWN_CHANGES else ""
    return f"the evidence changed {since}: {'; '.join(changes[:_SHOWN_CHANGES])}{more}"
