"""A rehearsal of switching producers: everything up to the fence, proof included, then back. No client is denied.

What is denied is the probe, which nobody uses: by the same ACLs as in a switch, made by the same calls, and seen by
every broker. So the right to change ACLs, how long brokers take to go by them, the reading of log ends and what the
mirror has to copy from there are known before anybody waits for them. No hook is run. Of the migration's state nothing
changes: the journal has a record of the probe's denials, before the first of them is made, under a name of its own.

A rehearsal that is killed leaves these denials. The next one removes them, as `fence --lift` and a real fence do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.direction import Side
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.types import TopicPartition
from kafka_migration.fence import fence
from kafka_migration.fence.bans import Ban, rehearsal_of
from kafka_migration.fence.ground import require_producers, topics_of
from kafka_migration.fence.proof import APART_SECONDS, Look, Proof, look
from kafka_migration.inventory import plan_changes
from kafka_migration.link import switched
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.migration.history import phase
from kafka_migration.steps import switch
from kafka_migration.steps.draining import short_of
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

PHASE = "switch rehearsal"
_POLL_SECONDS = 0.02
FENCE, DRAIN, TIME, BACK = (
    "rehearsal: the fence in its deadline",
    "rehearsal: the mirror drains",
    "rehearsal: switch_seconds are enough",
    "rehearsal: ACLs are what they were",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Times in milliseconds, as a switch has them from the first denial on. ``fence_ms`` is all of the fence: until the
    probe's denials were made (``applied_ms``) and seen (``denied_ms``, by broker; None and empty without ACLs),
    ``more_ms`` for those of all other principals, estimated from the probe's, and ``ends_ms`` for two looks at log ends
    (and for the time for which these must stand still, where there are no ACLs).

    ``lag`` are the source offsets that the mirror had not copied at the second look, ``drained_ms`` by when it had
    (None: it did not), ``left_ms`` what is left of switch_seconds for seal, reverse link and gate."""

    applied_ms: float | None
    denied_ms: Mapping[int, float]
    more_ms: float
    ends_ms: float
    fence_ms: float
    lag: int
    drained_ms: float | None
    left_ms: float

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "applied_ms": _rounded(self.applied_ms),
            "denied_ms": {str(broker): round(ms, 1) for broker, ms in sorted(self.denied_ms.items())},
            "more_ms": round(self.more_ms, 1),
            "ends_ms": round(self.ends_ms, 1),
            "fence_ms": round(self.fence_ms, 1),
            "lag": self.lag,
            "drained_ms": _rounded(self.drained_ms),
            "left_ms": round(self.left_ms, 1),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """How it came out: ``kind`` of the fence, on the cluster ``side``; ``denials`` of the probe that were made and
    removed (or would be), in place of the ``real`` ones of a switch; ``unshown`` is what a rehearsal cannot show.
    ``measured`` is None where nothing was rehearsed."""

    kind: str
    side: Side
    topics: int
    checks: tuple[CheckResult, ...]
    denials: int = 0
    real: int = 0
    principals: int = 0
    measured: Measured | None = None
    unshown: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "rehearsed": self.measured is not None,
            "kind": self.kind,
            "side": self.side,
            "topics": self.topics,
            "checks": [check.as_dict() for check in self.checks],
            "denials": self.denials,
            "real_denials": self.real,
            "principals": self.principals,
            "measured": None if self.measured is None else self.measured.as_dict(),
            "unshown": list(self.unshown),
        }


def run(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Rehearse switching the producers of the whole plan to the destination of ``ctx``'s link; in a dry run check only.

    Raises StateConflict once a switch has begun that was not given up, and what goes wrong while the probe is denied;
    its denials are removed by then (NeedsRollback: they may be there). TakenOver leaves them to whoever took over.
    """
    ctx.require_whole("rehearsing a switch of producers")
    require_producers(ctx)
    _require_before(ctx)
    if ctx.dry_run:
        return _decide(_checked(ctx, environ))
    plan_changes.require(ctx)
    with phase(ctx, ctx.own(PHASE)) as account:
        # Of one that was killed: what it denies would have the checks fail, and its record is the next one's.
        for left in fence.end_rehearsals(ctx):
            ctx.log(f"what an earlier rehearsal left is removed: {left.evidence}")
        found = _checked(ctx, environ)
        if Gate.of("rehearsal", found.checks).is_open:
            found = _rehearse(ctx, found)
        decision = _decide(found)
        account.ends(decision.exit_code, decision.message, **decision.facts)
    return decision


def _require_before(ctx: Context) -> None:
    last = switched.read(ctx)
    if last is not None and (last.is_served or last.is_unfinished):
        remedy = f"run `{last.command}` again" if last.is_unfinished else "nothing is left to rehearse"
        raise StateConflict(f"a switch of producers has begun: {last}", remedy=remedy)


def _ban(ctx: Context) -> Ban:
    found = rehearsal_of(switch.ban_of(ctx))
    if found is None:
        raise ValueError("a fence of producers is never without a rehearsal")
    return found


def _names(ctx: Context) -> tuple[str, ...]:
    return switch.names_of(ctx) or topics_of(ctx, ctx.origin)


def _checked(ctx: Context, environ: Mapping[str, str] | None) -> Rehearsed:
    """What a switch checks, and what a rehearsal asks for besides."""
    results = switch.check(ctx, environ=environ)
    ban, names = switch.ban_of(ctx), _names(ctx)
    rules = require_producers(ctx).fence_on(ban.side)
    found = Rehearsed(kind=rules.kind, side=ban.side, topics=len(names), checks=results, unshown=_unshown(rules.kind))
    if rules.kind != "acl_deny" or not Gate.of("switch", results).is_open:
        return found
    real, own = fence.check(ctx, ban, names), fence.check(ctx, _ban(ctx), names)
    known = {check.name for check in results}
    return replace(
        found,
        checks=(*results, *(check for check in own.checks if check.name not in known)),
        denials=len(own.denials),
        real=len(real.denials),
        principals=len({acl.principal for acl in real.denials} - {acl.principal for acl in own.denials}),
    )


def _unshown(kind: str) -> tuple[str, ...]:
    if kind == "acl_deny":
        clients = (
            "that clients are denied: a switch denies their principals by the same calls, before the probe; super users"
            " write on"
        )
    else:
        shut = "the hooks that close the way in" if kind == "hook" else "nothing"
        clients = (
            f"whether anybody is kept from writing: by a fence of the kind {kind}, {shut} would do so, and no broker"
            " can be asked. Only log ends and the mirror are looked at"
        )
    return (
        clients,
        "hooks: whether they may run here is checked, and none is run",
        "seal, reverse link and the gate's last question: they have what is left of switch_seconds",
    )


def _rehearse(ctx: Context, found: Rehearsed) -> Rehearsed:
    ban, names = _ban(ctx), _names(ctx)
    if found.kind != "acl_deny":
        measured = _measure(ctx, found, names, None)
        return replace(found, measured=measured, checks=(*found.checks, *_judged(ctx, found, measured)))
    proof = fence.rehearse(ctx, ban, names).proof
    # Who ends it from here on owns it before this one goes on.
    claim = fence.take(ctx, ban)
    try:
        measured = _measure(ctx, found, names, proof)
    finally:
        ctx.journal.require(claim)
        lifted = fence.end_rehearsal(ctx, ban)
    back = CheckResult(
        name=BACK,
        verdict=Verdict.PASS if lifted.equal and lifted.removed == found.denials else Verdict.WARN,
        evidence=f"{lifted.removed} denials of the probe were removed; {lifted.evidence}",
        remedy="" if lifted.equal else "see that it was you, or somebody you know, who changed them meanwhile",
    )
    return replace(found, measured=measured, checks=(*found.checks, *_judged(ctx, found, measured), back))


def _measure(ctx: Context, found: Rehearsed, names: tuple[str, ...], proof: Proof | None) -> Measured:
    clock, rules = ctx.clock, require_producers(ctx)
    # Whoever reads for the first time waits for connections.
    look(ctx.origin, clock, names)
    ctx.link.positions()
    began = clock.monotonic()
    first = look(ctx.origin, clock, names)
    clock.sleep(max(0.0, APART_SECONDS - (clock.monotonic() - first.at)))
    seen = look(ctx.origin, clock, names)
    ends_ms = (clock.monotonic() - began) * 1000
    if proof is None:
        ends_ms += rules.fence_on(found.side).window_seconds * 1000
    # Each of the others has as many denials as the probe, in fewer calls.
    more_ms = 0.0 if proof is None else proof.applied_ms * found.principals
    fence_ms = (0.0 if proof is None else proof.proved_ms) + more_ms + ends_ms
    left = rules.switch_seconds - fence_ms / 1000
    lag, drained_ms = _drained(ctx, seen, until=seen.at + left)
    return Measured(
        applied_ms=None if proof is None else proof.applied_ms,
        denied_ms={} if proof is None else proof.denied_ms,
        more_ms=more_ms,
        ends_ms=ends_ms,
        fence_ms=fence_ms,
        lag=lag,
        drained_ms=drained_ms,
        left_ms=left * 1000 - (drained_ms or 0.0),
    )


def _drained(ctx: Context, seen: Look, *, until: float) -> tuple[int, float | None]:
    """The lag at ``seen``, and after how many milliseconds it had been copied; None if that takes too long, or nobody
    copies. Producers write on meanwhile, and the mirror is not hurried as in a switch: at the most it takes so long."""
    ends = {tp: found.end for tp, found in seen.true_ends.items()}
    lag = _lag(ctx, ends)
    while short_of(ctx, ends):
        if ctx.clock.monotonic() > until or mirror_state(ctx)[0] != "running":
            return lag, None
        ctx.clock.sleep(_POLL_SECONDS)
    return lag, (ctx.clock.monotonic() - seen.at) * 1000


def _lag(ctx: Context, ends: Mapping[TopicPartition, int]) -> int:
    copied = {tp: position.source for tp, position in ctx.link.positions().items()}
    return sum(max(0, end - copied.get(tp, 0)) for tp, end in ends.items())


def _judged(ctx: Context, found: Rehearsed, measured: Measured) -> Iterable[CheckResult]:
    rules = require_producers(ctx)
    deadline = rules.fence_on(found.side).deadline_seconds
    brokers = f", denied by all {len(measured.denied_ms)} brokers" if measured.denied_ms else ""
    yield _within(
        FENCE,
        measured.fence_ms <= deadline * 1000,
        f"{measured.fence_ms:.0f} ms of {deadline:g} s{brokers}",
        "give producers.fence.deadline_seconds a larger value, or move fewer topics by a plan",
    )
    drained = f"within {measured.drained_ms:.0f} ms" if measured.drained_ms is not None else "not in time"
    yield _within(
        DRAIN,
        measured.drained_ms is not None,
        f"{measured.lag:,} source offsets were not copied when the ends were read; copied {drained}",
        "check that the mirror runs and that its lag falls (`status`, `lag --watch`)",
    )
    yield _within(
        TIME,
        measured.left_ms > 0,
        f"{measured.left_ms / 1000:.1f} s of {rules.switch_seconds:g} s are left for seal, reverse link and gate",
        "switch when lag is lower, or give producers.switch_seconds a larger value",
    )


def _within(name: str, is_so: bool, evidence: str, remedy: str) -> CheckResult:
    verdict = Verdict.PASS if is_so else Verdict.FAIL
    return CheckResult(name=name, verdict=verdict, evidence=evidence, remedy="" if is_so else remedy)


def _decide(found: Rehearsed) -> Decision:
    gate = Gate.of("rehearsal", found.checks)
    measured = found.measured
    facts = {} if measured is None else {"fence_ms": round(measured.fence_ms, 1), "left_ms": round(measured.left_ms, 1)}
    message = gate.shut_by or f"{found.topics} topics, no client was denied"
    return Decision(exit_code=gate.exit_code, message=message, facts=facts, value=found)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
