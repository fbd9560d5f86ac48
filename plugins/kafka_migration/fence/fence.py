"""Applying a fence, and lifting it: by one snapshot, which is in the journal before the first change.

A process may die anywhere. Applied again, the fence is made again and proved again, whatever was recorded: that it once
held is no evidence that it holds. Lifted, exactly the ACLs of the snapshot go, in any order of deaths. What fails while
it is applied lifts it at once: producers wait no longer than the plan's deadline. One that was proved once, and
cannot be proved again, stays: only a straggler has it lifted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import (
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NeedsRollback,
    NotAuthorized,
    Refused,
    StateConflict,
    TakenOver,
)
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.domain.waiting import tries
from kafka_migration.fence import checks, record
from kafka_migration.fence.bans import BACK_WRITES, EARLY_WRITES, GROUP_READS, LIFTED_BY, WRITES, Ban, rehearsal_of
from kafka_migration.fence.ground import Ground, ground, require_producers, topics_of
from kafka_migration.fence.proof import Proof, Prover, Straggler, Written, ends_of, look
from kafka_migration.fence.record import FenceRecord, FenceState, Snapshot, digest_of_acls
from kafka_migration.kafka.acls import in_parts
from kafka_migration.kafka.errors import NoAuthorizer
from kafka_migration.kafka.types import Acl
from kafka_migration.link import lifecycle, reverse, stragglers, switched
from kafka_migration.plans.hooks import Hook

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.producers import Fence
    from kafka_migration.state.journal import Claim

#: Runs hooks, in order.
Hooks = Callable[[Iterable[Hook], Literal["fence", "lift"]], None]

T = TypeVar("T")

_ROLL_BACK = "roll back first"
#: A cluster that restarts its brokers answers again within that.
_INSIST_SECONDS, _INSIST_PAUSE = 120.0, 2.0
#: Where a topic stands too far for its fence to be lifted, and the remedy.
_UNOPENABLE: Mapping[Side, Mapping[TopicState, str]] = {
    "source": {
        TopicState.SEALED: f"{_ROLL_BACK}; or, while nothing was written on the target, `mirror --unseal`, then lift",
        TopicState.SERVED: _ROLL_BACK,
        TopicState.COMPLETED: "producers stay on the target; whoever opens the source for good removes the fence's ACLs"
        " (`fence --status --json` names topics) with the brokers' own tools",
    },
    "target": {
        TopicState.REVERSED: "producers are on the source; `switch` moves them to the target again, and lifts it, as"
        " does `stop` once their owners have moved them"
    },
}
#: What a topic is whose producers were switched there.
_SERVED_BY: Mapping[Side, TopicState] = {"target": TopicState.SERVED, "source": TopicState.REVERSED}
_READ_BACK_SECONDS, _READ_BACK_PAUSE = 30.0, 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Fenced:
    """How it came out. ``names`` are the topics (or groups) it is about, ``denials`` the ACLs that it adds or would
    add; ``proof`` only of one that was applied."""

    kind: str
    names: tuple[str, ...]
    checks: tuple[CheckResult, ...]
    denials: tuple[Acl, ...] = ()
    proof: Proof | None = None

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "fenced": self.proof is not None,
            "kind": self.kind,
            "names": list(self.names),
            "checks": [check.as_dict() for check in self.checks],
            "denials": [
                {"resource": acl.resource, "principal": acl.principal, "operation": acl.operation}
                for acl in self.denials
            ],
            "proof": None if self.proof is None else self.proof.as_dict(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """How lifting came out: ``was`` the state before ("" for no fence), ``removed`` how many ACLs went, ``equal``
    whether all ACLs are what they were before the fence (None for a fence without ACLs)."""

    was: str
    removed: int = 0
    equal: bool | None = None
    evidence: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"was": self.was, "removed": self.removed, "acls_equal": self.equal, "evidence": self.evidence}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is recorded of the fence, what was written since it was proved, and which denials of it are ``missing`` from
    the cluster by now (``unseen``: why that could not be found out)."""

    record: FenceRecord | None
    written: tuple[Written, ...] = ()
    missing: tuple[Acl, ...] = ()
    unseen: str = ""

    @property
    def exit_code(self) -> int:
        """1 if anything was written or a denial is missing, 3 where the fence is half applied or half lifted, or its
        ACLs cannot be read: whom it denies is not known."""
        is_half = self.record is not None and self.record.state in (FenceState.FENCING, FenceState.LIFTING)
        return 1 if self.written or self.missing else 3 if is_half or self.unseen else 0

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        if self.record is None:
            return {"state": "", "written": []}
        value = self.record.as_dict()
        del value["snapshot"]
        missing = [{"resource": acl.resource, "principal": acl.principal} for acl in self.missing]
        return value | {
            "written": [one.as_dict() for one in self.written],
            "missing": missing,
            "unseen": self.unseen,
        }


def check(ctx: Context, ban: Ban = WRITES, names: tuple[str, ...] = ()) -> Fenced:
    """What applying would do, and the checks before it. Changes nothing."""
    fence = _fence_of(ctx, ban)
    with ground(ctx, ban) as at:
        wanted = names or topics_of(ctx, at.cluster)
        results = checks.check(ctx, at, fence, ban, wanted)
        denials: tuple[Acl, ...] = ()
        if fence.kind == "acl_deny" and Gate.of("fence", results).is_open:
            denials = _snapshot(ctx, at, fence, ban, wanted).all(ban)
    return Fenced(kind=fence.kind, names=wanted, checks=results, denials=denials)


def apply(ctx: Context, hooks: Hooks, ban: Ban = WRITES, names: tuple[str, ...] = ()) -> Fenced:
    """Stop producers, apply the fence and prove it; ``names`` default to the plan's topics. In a dry run as
    :func:`check`.

    Raises Refused where a check fails, before anything is changed. What goes wrong after that lifts the fence (one that
    was proved before only for a straggler, and never behind the seal), and is raised: Straggler for who writes
    nevertheless, CouldNotFindOut for one that was not proved in time; NeedsRollback if it could not even be lifted.
    """
    if ctx.dry_run:
        return check(ctx, ban, names)
    fence = _fence_of(ctx, ban)
    with ground(ctx, ban) as at:
        wanted = names or topics_of(ctx, at.cluster)
        _require_fenceable(ctx, ban, wanted)
        results = checks.check(ctx, at, fence, ban, wanted)
        _require(Gate.of("fence", results))
        work = _Work(ctx=ctx, at=at, fence=fence, ban=ban, names=wanted, hooks=hooks)
        proof = work.apply()
    return Fenced(kind=fence.kind, names=wanted, checks=results, denials=work.denials, proof=proof)


def keep_off_target(ctx: Context) -> None:
    """Deny writing to the plan's topics on the target to all but the migration, if the plan has that, until producers
    are switched. A second call proves it again, for all topics that there are by then. Raises what :func:`apply` does.
    """
    if ctx.dry_run or not _is_kept_off(ctx):
        return
    apply(ctx, _no_hooks, EARLY_WRITES)
    ctx.log("clients are denied writing to the plan's topics on the target, until producers are switched")


def check_target(ctx: Context) -> tuple[CheckResult, ...]:
    """The checks of :func:`keep_off_target`; before topics are there, the probe is not asked about them, which warns:
    names and verdicts, which an approval is bound to, are the same after them. None where producers are not kept off.
    """
    if not _is_kept_off(ctx):
        return ()
    with ground(ctx, EARLY_WRITES) as at:
        names = tuple(name for name in ctx.source.topic_names() if ctx.selects_topic(name))
        left = set(names) - set(at.cluster.topic_names())
        found = checks.check(ctx, at, _fence_of(ctx, EARLY_WRITES), EARLY_WRITES, names)
    not_yet = CheckResult.warned(
        checks.PROBE,
        f"not asked: {len(left)} topics are not on the target yet",
        remedy="see that the probe may write to them; `create` asks once it has created them",
    )
    return tuple(
        replace(not_yet if left and one.name == checks.PROBE else one, name=f"target: {one.name}") for one in found
    )


def _is_kept_off(ctx: Context) -> bool:
    """Whether the plan has the target deny clients writing until producers are switched, and none may be there yet.
    Behind the seal of `stop` their owners have moved them; what keeps them off since they went back stands still."""
    producers = ctx.plan.producers
    if producers is None or not producers.target_closed or ctx.direction is Direction.REVERSE:
        return False
    back = record.read(ctx, BACK_WRITES)
    gone_on = {TopicState.SEALED, TopicState.SERVED, TopicState.COMPLETED} & set(lifecycle.read(ctx).values())
    may_be_there = bool(gone_on) or switched.away_from(ctx, "source") is not None
    return not may_be_there and not (back is not None and back.stands)


def let_in_on_target(ctx: Context, hooks: Hooks) -> None:
    """Lift whatever denies producers the target, where they are to begin: what :func:`keep_off_target` denies, and the
    fence of an earlier switch back. Nothing if nothing was denied; raises what :func:`lift` does."""
    lift(ctx, hooks, BACK_WRITES, starts=False)
    lift(ctx, _no_hooks, EARLY_WRITES)


def let_groups_in(ctx: Context) -> None:
    """Let moved groups read on the source again, as a rollback needs it. Nothing if nothing was denied."""
    lift(ctx, _no_hooks, GROUP_READS)


def rehearse(ctx: Context, ban: Ban, names: tuple[str, ...] = ()) -> Fenced:
    """Apply ``ban``, a rehearsal, and prove it: the probe alone is denied. Who asks for it lifts it again
    (:func:`end_rehearsal`). Raises what :func:`apply` does; nothing is left then."""
    return apply(ctx, _no_hooks, ban, names)


def end_rehearsal(ctx: Context, ban: Ban) -> Lifted:
    """Remove what of ``ban``, a rehearsal, is there. Raises what :func:`lift` does."""
    return lift(ctx, _no_hooks, ban)


def end_rehearsals(ctx: Context) -> tuple[Lifted, ...]:
    """End every rehearsal that goes on, or whose process died."""
    return tuple(end_rehearsal(ctx, ban) for ban in record.rehearsals(ctx))


def _no_hooks(_hooks: Iterable[Hook], _phase: str) -> None:
    """Producers are stopped before a fence on the source, and nowhere else."""


def _fence_of(ctx: Context, ban: Ban) -> Fence:
    """How ``ban`` is made: of what is not the producers' fence, by ACLs alone."""
    fence = require_producers(ctx).fence_on(ban.side)
    return fence if ban.rests else fence.model_copy(update={"kind": "acl_deny"})


def insist(ctx: Context, lift: Callable[[], T]) -> T:
    """``lift``, again and again while a cluster does not answer, for some minutes: producers wait meanwhile."""
    for _ in tries(ctx.clock, seconds=_INSIST_SECONDS, pause=_INSIST_PAUSE):
        try:
            return lift()
        except (ClusterUnreachable, CouldNotFindOut) as error:
            # No rejected credentials, whose accounts are locked in the end, and no hook: the one before it has run.
            if type(error) not in (ClusterUnreachable, CouldNotFindOut):
                raise
            last = error
            ctx.log(f"the fence is not lifted yet, which is tried again: {error.message}")
        except KeyboardInterrupt:
            ctx.log("the fence is not lifted: `fence --lift` does it")
            raise
    raise last


def lift(ctx: Context, hooks: Hooks, ban: Ban = WRITES, *, starts: bool = True, sweeps: bool = False) -> Lifted:
    """Lift the fence, and start producers again, if it stopped them (not without ``starts``). A second call changes
    nothing; one that ``sweeps`` removes what of the fence's ACLs has come back, whoever has made them.

    Raises Refused once a topic is sealed: the source would take writes that nobody copies.
    """
    last = record.read(ctx, ban)
    if last is None or (not last.stands and (last.snapshot is None or not sweeps)):
        return Lifted(was="" if last is None else str(last.state), evidence="no fence stands")
    if last.stands:
        _require_openable(ctx, ban, last)
    if ctx.dry_run:
        count = 0 if last.snapshot is None or not last.stands else len(last.snapshot.all(ban))
        return Lifted(was=str(last.state), removed=count, evidence=f"would remove {count} ACLs")
    # Without the probe: what it needs may be gone by now. And without a connection of its own: producers wait.
    cluster, claim = ctx.cluster(ban.side), take(ctx, ban)
    if not last.stands and last.snapshot is not None:
        removed, equal, evidence = _remove(ctx, cluster, ban, last.snapshot, claim)
        return Lifted(was=str(last.state), removed=removed, equal=equal, evidence=evidence)
    # Once more: whoever switches producers over takes the fence before the point of no return.
    _require_openable(ctx, ban, last)
    return _lift(ctx, cluster, ban, hooks, claim, starts=starts)


def take(ctx: Context, ban: Ban = WRITES) -> Claim:
    """Become the owner of the fence: who applies or lifts it meanwhile ends before its next change."""
    return ctx.journal.claim(record.KIND, ctx.scope.own(ban.key), at=ctx.stamp())


def _require_openable(ctx: Context, ban: Ban, last: FenceRecord) -> None:
    """Nobody may write again behind a seal: nothing would copy it."""
    if not ban.rests:
        return
    now = _states(ctx, ban)
    for state, remedy in _UNOPENABLE[ban.side].items():
        if found := sorted(topic for topic in last.names if now.get(topic) is state):
            raise Refused(
                f"topics are {state}: {listed(found)}; what was written to the {ban.side} now would be lost",
                remedy=remedy,
            )


def _states(ctx: Context, ban: Ban) -> dict[str, TopicState]:
    now = dict(lifecycle.read(ctx))
    if (switch := switched.away_from(ctx, ban.side)) is not None:
        # Killed right behind the point of no return, topics do not show it yet; copied by the next link, no more.
        still = (topic for topic in switch.topics if now.get(topic) is not TopicState.COMPLETED)
        now |= dict.fromkeys(still, _SERVED_BY[switch.to])
    return now


def require_none(ctx: Context) -> None:
    """Raise Refused while a fence keeps producers out that could still be lifted: whoever gives the migration up would
    leave them shut out. Behind a seal they are to stay away."""
    standing = record.standing(ctx)
    for ban in (WRITES, BACK_WRITES, EARLY_WRITES):
        last, now = standing.get(ban.key), _states(ctx, ban)
        if last is not None and not any(now.get(name) in _UNOPENABLE[ban.side] for name in last.names):
            raise Refused(
                f"a fence of {len(last.names)} topics on the {ban.side} is {last.state} since {last.at}: producers"
                " would be kept from them",
                remedy=LIFTED_BY[ban.key] if ban is EARLY_WRITES else "`fence --lift` first",
            )


def status(ctx: Context, ban: Ban = WRITES) -> Standing:
    """What is recorded, and what was written to the fenced topics since the proof. Only reads."""
    last = record.read(ctx, ban)
    if last is None or last.state is not FenceState.FENCED or not ban.rests:
        return Standing(record=last)
    cluster = ctx.source if ban.side == "source" else ctx.target
    ends = {tp: found.end for tp, found in look(cluster, ctx.clock, last.names).true_ends.items()}
    missing, unseen = _missing(cluster, last, ban)
    return Standing(record=last, written=_written_by_others(ctx, ban, last, ends), missing=missing, unseen=unseen)


def _missing(cluster: Cluster, last: FenceRecord, ban: Ban) -> tuple[tuple[Acl, ...], str]:
    """Which denials of a fence that was proved are gone: whoever lifts another one may have removed what both share."""
    if last.snapshot is None:
        return (), ""
    try:
        there = frozenset(cluster.acls())
    except NoAuthorizer:
        there = frozenset()
    except MigrationError as error:
        return (), error.message
    return tuple(acl for acl in last.snapshot.wanted(ban) if acl not in there), ""


def _written_since(ctx: Context, last: FenceRecord, ends: Mapping[TopicPartition, int]) -> tuple[Written, ...]:
    """What was written between the proof of ``last`` and ``ends``."""
    seconds = (ctx.clock.now() - datetime.fromisoformat(last.at)).total_seconds()
    return tuple(
        Written(tp=tp, start=end, end=ends[tp], seconds=seconds)
        for tp, end in sorted(ends_of(last.proof).items())
        if ends.get(tp, end) > end
    )


def _written_by_others(
    ctx: Context, ban: Ban, last: FenceRecord, ends: Mapping[TopicPartition, int]
) -> tuple[Written, ...]:
    """As :func:`_written_since`, without what the reverse link has written behind the cut. On the target no mirror
    writes while its fence is proved."""
    written = _written_since(ctx, last, ends)
    back = reverse.begun(ctx) if written and ban.side == "source" else None
    if back is None or not reverse.has_run(back):
        return written
    seconds = (ctx.clock.now() - datetime.fromisoformat(last.at)).total_seconds()
    return tuple(
        Written(
            tp=stray.tp,
            start=stray.start,
            end=stray.end,
            seconds=seconds,
            producers=tuple(one for one in stray.producers if one >= 0),
        )
        for stray in stragglers.look(ctx)
        if stray.tp.topic in last.names
    )


def _with(hooks: tuple[Hook, ...], more: tuple[Hook, ...]) -> tuple[Hook, ...]:
    """``hooks``, and those of ``more`` that are not among them. (A hook with headers has no hash.)"""
    return (*hooks, *(hook for hook in more if hook not in hooks))


def _require(gate: Gate) -> None:
    if gate.is_open:
        return
    evidence = "; ".join(f"{one.name}: {one.evidence}" for one in gate.blockers)
    remedy = "; ".join(dict.fromkeys(one.remedy for one in gate.blockers if one.remedy))
    raise (Refused if gate.exit_code == 1 else CouldNotFindOut)(f"not fenced: {evidence}", remedy=remedy)


def _require_fenceable(ctx: Context, ban: Ban, names: tuple[str, ...]) -> None:
    """Before anything is changed: a topic that is past its fence gets no other. The one that stands may be proved
    again."""
    if not ban.rests:
        return
    if (switch := switched.away_from(ctx, ban.side)) is not None:
        raise StateConflict(
            f"producers were switched to the {switch.to} at {switch.served_at}: their fence stands, and is not made"
            " again",
            remedy=f"`{switch.command}` finishes a switch that was interrupted; `fence --status` shows the fence",
        )
    if ban.side == "target":
        return
    now, last = lifecycle.read(ctx), record.read(ctx, ban)
    fenced = last.names if last is not None and last.stands else ()
    past = [n for n in names if n in now and n not in fenced and not now[n].may_become(TopicState.FENCED)]
    if past:
        raise StateConflict(
            f"topic {past[0]} is {now[past[0]]}: it cannot be fenced any more ({len(past)} topics)",
            remedy="see `status` for where each topic stands; one that was drained or sealed without a fence has its"
            " producers kept away by their owners",
        )


def _snapshot(ctx: Context, at: Ground, fence: Fence, ban: Ban, names: tuple[str, ...]) -> Snapshot:
    """What is to be denied. What an earlier fence has left standing is this migration's, and goes on being so; what a
    fence of another migration denies as well belongs to both, and goes with the one that is lifted last."""
    found = checks.targets(at, fence, ban, names)
    mine = record.own_acls(ctx, ban)
    shared = frozenset[Acl]().union(*record.of_others(ctx, ban, at.cluster.cluster_id()).values())
    last = record.read(ctx, ban)
    old = last.snapshot if last is not None and last.stands else None
    others = [acl for acl in found.acls if acl not in mine]
    # Whom an earlier fence denied may be the migration's own principal by now, or was its probe then.
    before = {*old.principals, old.probe} if old else set()
    principals = {*found.principals, *before} - {"", at.own_principal, at.probe_principal}
    if ban.rehearses:
        principals = set()
    snapshot = Snapshot(
        names=tuple(sorted({*at.resources(ban, names), *(old.names if old else ())})),
        principals=tuple(sorted(principals)),
        probe=at.probe_principal,
        theirs=(),
        before=old.before if old else digest_of_acls(others),
        count=old.count if old else len(others),
    )
    wanted = frozenset(snapshot.all(ban))
    return replace(snapshot, theirs=tuple(acl for acl in others if acl in wanted and acl not in shared))


@dataclass(slots=True, kw_only=True)
class _Work:
    """One fence while it is applied."""

    ctx: Context
    at: Ground
    fence: Fence
    ban: Ban
    names: tuple[str, ...]
    hooks: Hooks
    denials: tuple[Acl, ...] = ()
    _claim: Claim = field(init=False)
    _record: FenceRecord = field(init=False)
    _stood: bool = field(init=False, default=False)

    def apply(self) -> Proof:
        ctx, ban = self.ctx, self.ban
        self._claim = take(ctx, ban)
        last = record.read(ctx, ban)
        stood = last if last is not None and last.stands else None
        if stood is not None and stood.kind != self.fence.kind:
            raise Refused(
                f"a fence of the kind {stood.kind} is {stood.state} since {stood.at};"
                f" the plan has {self.fence.kind} now",
                remedy="`fence --lift` lifts it; then fence again",
            )
        snapshot = _snapshot(ctx, self.at, self.fence, ban, self.names) if self.fence.kind == "acl_deny" else None
        self._record = FenceRecord(
            state=FenceState.FENCING,
            kind=self.fence.kind,
            names=self.names if snapshot is None else tuple(sorted({*self.names, *(stood.names if stood else ())})),
            cluster=self.at.cluster.cluster_id(),
            at=ctx.stamp(),
            snapshot=snapshot,
            stopped=stood is not None and stood.stopped,
            closed=stood is not None and stood.closed,
            open=stood.open if stood is not None else (),
            start=stood.start if stood is not None else (),
            # What a later proof is compared with, whatever comes of this one.
            proof=stood.proof if stood is not None else {},
        )
        if stood is not None and stood.snapshot is not None and snapshot is not None:
            # While its record still holds them: the new one does not.
            self._let_go({*stood.snapshot.all(ban)} - {*snapshot.all(ban)})
        # Before the first change, whatever it is: from here on a death leaves a fence to be proved again or lifted.
        record.write(ctx, ban, self._record)
        self._stood = bool(self._record.proof)
        try:
            return self._applied(stood)
        except TakenOver:
            # Whoever took over decides what becomes of it.
            self._leave_nothing_behind()
            raise
        except BaseException as error:
            self._give_up(error)
            raise

    def _applied(self, before: FenceRecord | None) -> Proof:
        ctx = self.ctx
        # Either sees the other one's record: both are written before they are looked for.
        if self.ban.rehearses:
            self._require_alone()
        else:
            self._end_rehearsal()
        # While producers still write: from here on they wait.
        own, snapshot = self._own_rights(), self._record.snapshot
        if snapshot is not None:
            ctx.journal.require(self._claim)
            self.at.cluster.delete_acls(snapshot.last(self.ban))
        producers = require_producers(ctx)
        if producers.stop and self.ban.rests:
            self._note(stopped=True, start=_with(self._record.start, producers.start))
            self._hooks(producers.stop)
        if snapshot is not None:
            proof = self._by_acls(snapshot)
        else:
            proof = self._by_hooks()
        for operation, topics in self._own_rights().items():
            # Without Read there is no mirror, whoever took it; Write is the reverse link's, which may not be planned.
            if lost := topics if operation == "READ" else topics - own[operation]:
                raise Refused(
                    f"the migration's own principal {self.at.own_principal} is denied {operation} on"
                    f" {listed(sorted(lost))}, by the fence or by somebody else's ACLs",
                    remedy=f"grant it {operation.capitalize()} on the topics, remove what denies it, then fence again",
                )
        if before is not None and before.proof and self.ban.rests:
            self._require_unwritten(before, proof)
        self._note(state=FenceState.FENCED, proof=proof.as_dict())
        if self.ban is WRITES:
            # A topic that has gone on since it was fenced stays where it is.
            able = (topic for topic, now in lifecycle.read(ctx).items() if now.may_become(TopicState.FENCED))
            lifecycle.note(ctx, {*able} & {*self.names}, TopicState.FENCED)
        return proof

    def _require_alone(self) -> None:
        """A rehearsal never takes away what keeps somebody out."""
        standing = checks.not_standing(self.ctx, self.ban)
        if standing.verdict is not Verdict.PASS:
            raise StateConflict(standing.evidence, remedy=standing.remedy)
        mine = frozenset(self._record.snapshot.all(self.ban)) if self._record.snapshot else frozenset()
        for migration, theirs in record.of_others(self.ctx, self.ban, self.at.cluster.cluster_id()).items():
            if shared := sorted({acl.resource for acl in mine & theirs}):
                raise StateConflict(
                    f"the fence of migration {migration} denies the probe on {listed(shared)}",
                    remedy="rehearse once that fence is lifted",
                )

    def _end_rehearsal(self) -> None:
        """Its process may live: that one ends before its next change."""
        ctx, ban = self.ctx, rehearsal_of(self.ban)
        if ban is not None and ban in record.rehearsals(ctx):
            ctx.log("a rehearsal goes on, or its process died: it ends here")
            _lift(ctx, self.at.cluster, ban, _no_hooks, take(ctx, ban))

    def _by_acls(self, snapshot: Snapshot) -> Proof:
        ctx, at, ban = self.ctx, self.at, self.ban
        if at.probe is None:
            raise ValueError("a fence by ACLs is never without a probe")
        self.denials = snapshot.all(ban)
        # A probe that an earlier try has denied would show nothing of what is made now.
        self._prover().allowed(at.probe)
        # The time counts from the first denial on. What may stand from an earlier try was not lifted meanwhile.
        prover, began_at = self._prover(), ctx.stamp()
        self._deny(snapshot.denials(ban), prover)
        self._deny(snapshot.last(ban), prover)
        applied = (ctx.clock.monotonic() - prover.began) * 1000
        ends: dict[TopicPartition, int] = {}
        if ban.rests:
            denied, seen = prover.rest(at.probe, settle=self.fence.settle_seconds)
            ends = {tp: found.end for tp, found in seen.true_ends.items()}
        else:
            denied = prover.denied(at.probe)
        proved = (ctx.clock.monotonic() - prover.began) * 1000
        return Proof(
            promises=True,
            began_at=began_at,
            applied_ms=applied,
            proved_ms=proved,
            denied_ms=denied,
            ends=ends,
            looks=prover.looks,
        )

    def _may_open(self) -> bool:
        """Whether no topic is behind its seal: what came to the source then would be lost."""
        now = _states(self.ctx, self.ban)
        return not any(now.get(name) in _UNOPENABLE[self.ban.side] for name in self._record.names)

    def _let_go(self, acls: Iterable[Acl]) -> None:
        """Remove what an earlier fence denied and this one must not: to the migration's own principal."""
        if gone := tuple(sorted(acls, key=repr)):
            kept = frozenset[Acl]().union(*record.relied_on(self.ctx, self.ban, self.at.cluster.cluster_id()).values())
            self.at.cluster.delete_acls([acl for acl in gone if acl not in kept])

    def _deny(self, acls: tuple[Acl, ...], prover: Prover) -> None:
        for part in in_parts(acls):
            self.ctx.journal.require(self._claim)
            self.at.cluster.create_acls(part)
            prover.require_time(f"making {len(acls):,} ACLs took longer than the deadline")

    def _leave_nothing_behind(self) -> None:
        """Remove what was made after somebody else had lifted this fence: a request that was under way may have come
        behind the lifting one's look. A fence that another process makes is left alone."""
        ctx, ban, mine = self.ctx, self.ban, self._record.snapshot
        if mine is None:
            return
        for _ in tries(ctx.clock, seconds=_READ_BACK_SECONDS, pause=_READ_BACK_PAUSE):
            last = record.read(ctx, ban)
            if last is None or last.state is not FenceState.LIFTING:
                break
        if last is None or last.stands:
            return
        # As its owner: who would begin a new fence just now would see its denials go.
        claim = ctx.journal.claim(record.KIND, ctx.scope.own(ban.key), at=ctx.stamp())
        last = record.read(ctx, ban)
        if last is not None and not last.stands:
            removed, _, _ = _remove(ctx, self.at.cluster, ban, mine, claim)
            ctx.log(f"{removed} ACLs that were made after the fence was lifted are removed")

    def _by_hooks(self) -> Proof:
        prover, began_at = self._prover(), self.ctx.stamp()
        if self.fence.close:
            self._note(closed=True, open=_with(self._record.open, self.fence.open))
            self._hooks(self.fence.close)
            prover.require_time("the hooks that close the way in took longer than the deadline")
        applied = (self.ctx.clock.monotonic() - prover.began) * 1000
        _, seen = prover.rest(None, settle=0.0, window=self.fence.window_seconds)
        return Proof(
            promises=self.fence.kind != "none",
            began_at=began_at,
            applied_ms=applied,
            proved_ms=(self.ctx.clock.monotonic() - prover.began) * 1000,
            ends={tp: found.end for tp, found in seen.true_ends.items()},
            looks=prover.looks,
        )

    def _prover(self) -> Prover:
        now = self.ctx.clock.monotonic()
        return Prover(
            cluster=self.at.cluster,
            clock=self.ctx.clock,
            ban=self.ban,
            names=self.names,
            began=now,
            # The last call ends before the deadline is over.
            until=now + self.fence.deadline_seconds - self.at.call_seconds,
            call_seconds=self.at.call_seconds,
        )

    def _own_rights(self) -> dict[str, frozenset[str]]:
        """What brokers deny to the migration's own principal, by operation."""
        if self._record.snapshot is None:
            return {}
        denied: dict[str, frozenset[str]] = {}
        for operation in self.ban.own:
            try:
                found = self.at.cluster.denied_by_broker(self.ban.kind, operation, self.names, self.at.call_seconds)
            except NotAuthorized:
                # Not even described: whoever may do nothing with a topic is denied this, too.
                denied[operation] = frozenset(self.names)
            else:
                denied[operation] = frozenset().union(*found.values())
        return denied

    def _require_unwritten(self, before: FenceRecord, proof: Proof) -> None:
        """Nobody wrote between the earlier proof and this one: what was copied up to the former would be short."""
        written = _written_by_others(self.ctx, self.ban, before, proof.ends)
        if written:
            raise Straggler(written)

    def _hooks(self, hooks: Iterable[Hook]) -> None:
        self.ctx.journal.require(self._claim)
        self.hooks(hooks, "fence")

    def _note(self, **changed: Any) -> None:
        self.ctx.journal.require(self._claim)
        self._record = replace(self._record, at=self.ctx.stamp(), **changed)
        record.write(self.ctx, self.ban, self._record)

    def _give_up(self, error: BaseException) -> None:
        """Producers wait no longer for a fence that came to nothing. One that was proved before stays, unless somebody
        is seen to write: what goes on relies on it."""
        why = error.message if isinstance(error, MigrationError) else repr(error)
        if self._stood and not (isinstance(error, Straggler) and self._may_open()):
            self.ctx.log(f"the fence, which was proved before, is left in place, and was not proved again: {why}")
            return
        self.ctx.log(f"the fence is lifted again: {why}")
        try:
            insist(self.ctx, lambda: _lift(self.ctx, self.at.cluster, self.ban, self.hooks, self._claim))
        except TakenOver:
            raise
        except MigrationError as failure:
            denied = "the probe (and nobody else) may still be" if self.ban.rehearses else "producers may still be"
            raise NeedsRollback(
                f"the fence was not proved ({why}), and could not be lifted ({failure.message}): {denied} denied",
                remedy="run `fence --lift` as soon as what the message names is mended",
            ) from error


def _lift(ctx: Context, cluster: Cluster, ban: Ban, hooks: Hooks, claim: Claim, *, starts: bool = True) -> Lifted:
    last = record.read(ctx, ban)
    if last is None:
        raise ValueError("nothing to lift")
    # The record's, not the plan's of now: that may have others by now, or none.
    opens = last.open if last.closed else ()
    due = last.start if last.stopped and starts else ()
    ctx.journal.require(claim)
    record.write(ctx, ban, replace(last, state=FenceState.LIFTING, at=ctx.stamp()))
    removed, equal, evidence = 0, None, "no ACL was made"
    if last.snapshot is not None:
        removed, equal, evidence = _remove(ctx, cluster, ban, last.snapshot, claim)
    if opens:
        ctx.journal.require(claim)
        hooks(opens, "lift")
    if ban is WRITES:
        fenced = {topic for topic, state in lifecycle.read(ctx).items() if state is TopicState.FENCED}
        lifecycle.note(ctx, fenced & {*last.names}, TopicState.MIRRORING)
    if due:
        ctx.journal.require(claim)
        hooks(due, "lift")
    ctx.journal.require(claim)
    record.write(
        ctx, ban, replace(last, state=FenceState.LIFTED, at=ctx.stamp(), stopped=False, closed=False, open=(), start=())
    )
    return Lifted(was=str(last.state), removed=removed, equal=equal, evidence=evidence)


def _remove(ctx: Context, cluster: Cluster, ban: Ban, snapshot: Snapshot, claim: Claim) -> tuple[int, bool, str]:
    """Remove the ACLs of ``snapshot``, and read back: how many went, whether all others are as they were, evidence.
    Those that a standing fence of another migration denies as well are left to that one."""
    mine = snapshot.all(ban)
    for migration, theirs in record.relied_on(ctx, ban, cluster.cluster_id()).items():
        if shared := [acl for acl in mine if acl in theirs]:
            ctx.log(f"{len(shared)} ACLs stay: the fence of migration {migration} relies on them, and removes them")
            mine = tuple(acl for acl in mine if acl not in theirs)
    ctx.journal.require(claim)
    removed = len(cluster.delete_acls(mine))
    for _ in tries(ctx.clock, seconds=_READ_BACK_SECONDS, pause=_READ_BACK_PAUSE):
        try:
            now = cluster.acls()
        except NotAuthorized as error:
            raise CouldNotFindOut(
                f"ACLs are removed, and cannot be read back: {error.message}", remedy=error.remedy
            ) from error
        if not (left := frozenset(mine) & frozenset(now)):
            break
    else:
        raise CouldNotFindOut(
            f"{len(left)} ACLs of the fence are still shown after they were removed", remedy="run `fence --lift` again"
        )
    if equal := digest_of_acls(now) == snapshot.before:
        return removed, equal, f"all {len(now)} ACLs are what they were before the fence"
    return (
        removed,
        equal,
        (f"none of the fence's ACLs is left; others were changed meanwhile ({snapshot.count} before, {len(now)} now)"),
    )
