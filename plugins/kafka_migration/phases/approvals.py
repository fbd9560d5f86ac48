"""Approvals: a person's answer, bound to the digest of the evidence that they saw (docs/behaviours.md, 4 and 27).

Between the answer and the work, the world may change. So the answer names a digest, and whoever is about to act takes
the evidence once more and compares. No answer is never "approved", and a check that says no cannot be approved away.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused, StateConflict
from kafka_migration.domain.types import Desired
from kafka_migration.phases import group_looks, translate
from kafka_migration.phases.evidence import Evidence, Facts, GateName, differences
from kafka_migration.phases.gate_evidence import cutover_evidence, plan_evidence
from kafka_migration.phases.group_record import GroupRecord, Step
from kafka_migration.state.link import Wish

if TYPE_CHECKING:
    from kafka_migration.phases.context import Context

KIND = "approval"
FORMAT = 1

APPROVED, REJECTED = "approved", "rejected"

#: Facts beyond this size are not kept beside the answer (a record of the journal has a limit of about 1 MB): a change
#: is noticed all the same, by the digest, but not named.
_MOST_FACTS_BYTES = 400_000
_KEPT_ANSWERS = 10
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
class Approval:
    """An answer as the journal keeps it. ``seen_at`` is when the evidence was taken that the person saw; ``os_user``
    who ran the command that answered, where it was one."""

    gate: GateName
    answer: str
    digest: str
    approver: str
    at: datetime
    seen_at: datetime
    facts: Facts | None
    os_user: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; without the facts."""
        return {
            "gate": str(self.gate),
            "answer": self.answer,
            "digest": self.digest,
            "approver": self.approver,
            "os_user": self.os_user,
            "at": self.at.isoformat(timespec="milliseconds"),
            "seen_at": self.seen_at.isoformat(timespec="milliseconds"),
        }


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
    """Whether the plan has a person answer at ``gate``."""
    return ctx.plan.approvals.plan if gate is GateName.PLAN else ctx.plan.approvals.cutover


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
    os_user: str = "",
) -> Approval:
    """Write down that ``approver`` approved the evidence with ``digest``, taken at ``seen_at`` (default: just now).

    ``ctx`` must have been opened with ``make_state``, or the answer dies with the process. ``now`` is the evidence as
    it is at this moment, if the caller has just taken it; otherwise it is taken. Raises NotApproved if the evidence is
    another one by now, too old, or holds a check that says no; or if ``approver`` is not among the plan's approvers.
    """
    now = now or evidence(ctx, gate)
    seen_at = seen_at or now.taken_at
    examine(ctx, gate, digest, approver, seen_at=seen_at, now=now)
    approval = Approval(
        gate=gate,
        answer=APPROVED,
        digest=digest,
        approver=approver,
        at=ctx.clock.now(),
        seen_at=seen_at,
        facts=now.facts,
        os_user=os_user,
    )
    _write(ctx, approval)
    if gate is GateName.CUTOVER:
        group_looks.take(ctx, translate.selected_groups(ctx))
    return approval


def examine(ctx: Context, gate: GateName, digest: str, approver: str, *, seen_at: datetime, now: Evidence) -> None:
    """Whether such an answer could be recorded, by the same rules as ``record``, which raises the same. Read-only."""
    _require_approver(ctx, gate, approver)
    if digest != now.digest:
        raise NotApproved(
            gate,
            f"the answer is for {digest}, but the evidence is {now.digest} now",
            digest=now.digest,
            remedy="look at the evidence again, it has changed, and answer again",
        )
    _require_open(now)
    if seen_at > ctx.clock.now():
        raise BadInput(
            "evidence cannot have been taken in the future",
            field="seen_at",
            value=seen_at.isoformat(),
            remedy="give the time that stands beside the digest (taken_at)",
        )
    _require_young(ctx, gate, seen_at, "the evidence was taken")


def reject(ctx: Context, gate: GateName, digest: str, approver: str) -> Approval:
    """Write down that ``approver`` said no; an earlier approval is void with it.

    At the cutover gate the mirror is told to stop, too: nobody would be there to end it. Nothing is lost by that.
    """
    _require_approver(ctx, gate, approver)
    now = ctx.clock.now()
    if gate is GateName.CUTOVER and not ctx.dry_run and (ctx.link.run() or {}).get("state") == "running":
        ctx.link.wish(Wish(desired=Desired.STOP, reason=f"{approver} rejected the cutover gate", at=ctx.stamp()))
    approval = Approval(gate=gate, answer=REJECTED, digest=digest, approver=approver, at=now, seen_at=now, facts=None)
    _write(ctx, approval)
    return approval


def check(ctx: Context, gate: GateName, *, now: Evidence | None = None) -> Passed:
    """Let pass, or raise NotApproved: what every gate asks right before it acts. Read-only.

    Where the plan asks nobody, the checks of the evidence must still not say no. ``now`` is the evidence as it is at
    this moment, if the caller has just taken it; its tables may be left out.
    """
    now = now or evidence(ctx, gate)
    _require_open(now)
    if not is_asked(ctx, gate):
        reason = f"the plan asks nobody here (approvals.{gate} is false)"
        return Passed(gate=gate, reason=reason, evidence=now, approval=None)
    approval = answers(ctx).get(gate)
    if approval is None:
        raise NotApproved(gate, "nobody has approved it yet", digest=now.digest)
    if approval.answer != APPROVED:
        raise NotApproved(gate, f"{approval.approver} rejected it at {approval.at:%Y-%m-%d %H:%M:%S} UTC")
    # The plan may name other approvers by now than when the answer was given.
    _require_approver(ctx, gate, approval.approver)
    if approval.digest != _as_approved(ctx, now, approval).digest:
        raise NotApproved(gate, _what_changed(now, approval), digest=now.digest)
    if not _is_in_use(ctx, approval):
        _require_young(ctx, gate, approval.at, f"{approval.approver} approved it")
    reason = f"approved by {approval.approver} at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    return Passed(gate=gate, reason=reason, evidence=now, approval=approval)


def answers(ctx: Context) -> dict[GateName, Approval]:
    """The newest answer at each gate. Raises StateConflict for one that this version cannot read."""
    found = (_read(gate, value) for gate, value in ctx.journal.all(KIND).items())
    return {approval.gate: approval for approval in found}


def _require_approver(ctx: Context, gate: GateName, approver: str) -> None:
    if not approver.strip():
        raise BadInput("an approval has a name", field="approver", value=approver, remedy="say who answers")
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
    said = "; ".join(f"{r.name} {r.verdict}: {r.evidence}" for r in blockers[:_SHOWN_BLOCKERS])
    if len(blockers) > _SHOWN_BLOCKERS:
        said += f"; and {len(blockers) - _SHOWN_BLOCKERS} more (`check` shows them all)"
    remedy = "; ".join(dict.fromkeys(r.remedy for r in blockers if r.remedy)) or "see the evidence"
    if now.checks.exit_code == CouldNotFindOut.exit_code:
        raise CouldNotFindOut(f"{now.gate} gate: {len(blockers)} checks could not run: {said}", remedy=remedy)
    message = f"{len(blockers)} checks do not pass, and no approval changes that: {said}"
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
    """Whether what was approved began in time, so that it may go on: in later batches, or after a kill.

    Each step under it, the first one included, must follow within the age that it may have; so one that was left lying
    in the middle of the work is void, too. It stays bound to the same evidence all the same.
    """
    age = timedelta(seconds=ctx.plan.approvals.max_age_seconds)
    began: list[datetime | None]
    if approval.gate is GateName.PLAN:
        written = [*ctx.journal.all("topic-intent").values(), *ctx.journal.all("topic").values()]
        began = [datetime.fromisoformat(value["at"]) for value in written]
    else:
        began = [it.at(Step.STOPPING) for it in GroupRecord.all(ctx.journal).values()]
    used = approval.at
    for at in sorted(at for at in began if at is not None and at >= approval.at):
        if at > used + age:
            return False
        used = at
    return used > approval.at and ctx.clock.now() <= used + age


def _as_approved(ctx: Context, now: Evidence, approval: Approval) -> Evidence:
    """``now``, but groups that began to move under ``approval`` as they were approved.

    A cutover that was killed in the middle must converge when it is run again, and a group in the middle of its move
    reads nothing, so what it reads is not seen any more.
    """
    approved = (approval.facts or {}).get("groups", {})
    begun = {
        group: approved[group]
        for group, it in GroupRecord.all(ctx.journal).items()
        if group in approved and (at := it.at(Step.STOPPING)) is not None and at >= approval.at
    }
    return now.with_facts("groups", begun) if begun else now


def _what_changed(now: Evidence, approval: Approval) -> str:
    since = f"since {approval.approver} approved it at {approval.at:%Y-%m-%d %H:%M:%S} UTC"
    if approval.facts is None:
        return f"the evidence changed {since}"
    changes = differences(approval.facts, now.facts)
    more = f" and {len(changes) - _SHOWN_CHANGES} more" if len(changes) > _SHOWN_CHANGES else ""
    return f"the evidence changed {since}: {'; '.join(changes[:_SHOWN_CHANGES])}{more}"


def _write(ctx: Context, approval: Approval) -> None:
    if ctx.dry_run:
        return
    before = ctx.journal.read(KIND, approval.gate)
    earlier = []
    if before is not None:
        earlier = [*before["earlier"], {k: v for k, v in before.items() if k not in ("facts", "earlier", "format")}]
    facts = None if approval.facts is None else {section: dict(items) for section, items in approval.facts.items()}
    if len(json.dumps(facts)) > _MOST_FACTS_BYTES:
        facts = None
    value = {"format": FORMAT, **approval.as_dict(), "facts": facts, "earlier": earlier[-_KEPT_ANSWERS:]}
    ctx.journal.record(KIND, approval.gate, value)


def _read(gate: str, value: Mapping[str, Any]) -> Approval:
    try:
        if value["format"] != FORMAT or value["answer"] not in (APPROVED, REJECTED):
            raise ValueError(f"format {value['format']}, answer {value['answer']}")
        return Approval(
            gate=GateName(gate),
            answer=value["answer"],
            digest=value["digest"],
            approver=value["approver"],
            at=datetime.fromisoformat(value["at"]),
            seen_at=datetime.fromisoformat(value["seen_at"]),
            facts=value["facts"],
            os_user=value.get("os_user", ""),
        )
    except (KeyError, ValueError, TypeError) as error:
        raise StateConflict(
            f"the journal's approval of gate {gate} is not one that this version knows ({error})",
            remedy="answer again with the version of this tool that runs now",
        ) from error
