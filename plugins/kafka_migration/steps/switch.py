"""Switching producers over: the source is fenced, all that stands there is copied, and producers begin on the target.

And back, by the reverse link: the same with source and target swapped. What is done goes from the origin of the
context's link to its destination, whichever clusters these are.

Slow things and refusals come first: what was copied since the last validation is compared, too. Then, under one
deadline: fence, drain up to exactly the ends that were proved, seal, arm the link that follows, compare what was copied
in between, look whether the fence stands and nobody wrote, ask the gate once more. What goes wrong up to there has
producers write to the origin again. Then the journal's record is the point of no return. What is left behind it
(lifting an earlier fence where they begin, start hooks) is finished by whoever runs this again. A process that died
before that point left a fence: the next one begins with proving it again.

The topics' states show none of what happens between fence and that point, for a rerun's sake; the link's state does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from kafka_migration.approvals.producers import gate_of
from kafka_migration.approvals.rollback import RollbackGate, selected
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.direction import Direction, Side
from kafka_migration.domain.errors import (
    CouldNotFindOut,
    MigrationError,
    NeedsRollback,
    Refused,
    StateConflict,
    TakenOver,
)
from kafka_migration.domain.ledger import unpack_ends
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.fence import fence
from kafka_migration.fence import record as fence_record
from kafka_migration.fence.bans import BACK_WRITES, GROUP_READS, WRITES, Ban
from kafka_migration.fence.fence import Fenced, Hooks
from kafka_migration.fence.ground import require_producers
from kafka_migration.fence.proof import Proof, Straggler
from kafka_migration.fence.record import FenceState
from kafka_migration.groups import sides
from kafka_migration.groups.hooks import HookCall, require_runnable, run_hook
from kafka_migration.groups.record import GroupRecord, Step
from kafka_migration.inventory import plan_changes
from kafka_migration.link import lifecycle, ready, reverse, seal, switched
from kafka_migration.link.heartbeat import describe, mirror_state
from kafka_migration.link.switched import Switch, SwitchState
from kafka_migration.migration.history import phase
from kafka_migration.schemas import difference
from kafka_migration.schemas.difference import Versions
from kafka_migration.state.link import Wish
from kafka_migration.steps import schemas
from kafka_migration.steps.cutover import GroupGate
from kafka_migration.steps.draining import HALTED, MIRRORED, all_mirrored, end_mirror, none_halted, short_of
from kafka_migration.steps.fence import hook_calls, run_hooks
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create, keeping
from kafka_migration.topics.declared import mirrored
from kafka_migration.topics.drift import as_declared
from kafka_migration.validation.pins import Tail

if TYPE_CHECKING:
    from kafka_migration.domain.seal import Seal
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.hooks import Hook
    from kafka_migration.state.journal import Claim

PHASE = "switch"
_PAUSE_SECONDS = 0.02

RUNS, GROUPS, WAY_BACK, STATES, GATE, BACK_GATE = (
    "the mirror runs",
    "groups were moved before producers",
    "source configs for the way back",
    "topics are served by the target",
    "cutover gate",
    "rollback gate",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Switched:
    """How it came out. ``switch`` is the journal's record, None where nothing was done; ``checks`` those before it;
    ``seen`` are partitions of the target to which others than the mirror have written since, of ``partitions``."""

    switch: Switch | None
    checks: tuple[CheckResult, ...] = ()
    seen: tuple[TopicPartition, ...] = ()
    partitions: int = 0

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "switched": self.switch is not None and self.switch.state is SwitchState.DONE,
            "switch": None if self.switch is None else self.switch.as_dict(),
            "checks": [check.as_dict() for check in self.checks],
            "seen": [str(tp) for tp in self.seen],
            "partitions": self.partitions,
        }


# -- checks -----------------------------------------------------------------------------------------------------------


def check(ctx: Context, *, environ: Mapping[str, str] | None = None) -> tuple[CheckResult, ...]:
    """Everything that has to be so before producers are kept from writing, as named checks. Changes nothing.

    Raises BadInput for a plan without producers, Refused for a wave.
    """
    ctx.require_whole("switching producers")
    require_producers(ctx)
    if ctx.direction is Direction.REVERSE:
        reverse.check(ctx)
    return (
        _mirror_runs(ctx),
        _asked(MIRRORED, lambda: _all_mirrored(ctx)),
        _asked(ready.LOW, lambda: ready.checks(ctx)[1]),
        _asked(HALTED, lambda: none_halted(ctx)),
        as_declared(create.verify(ctx)),
        sides.check_back(ctx),
        sides.check(ctx)[0],
        _asked(GROUPS, lambda: _groups_moved(ctx)),
        *(difference.check(ctx, is_due=False) if ctx.direction is Direction.FORWARD else ()),
        *check_ground(ctx, environ=environ),
        _asked(_gate_name(ctx), lambda: _passes(ctx)),
    )


def check_ground(ctx: Context, *, environ: Mapping[str, str] | None = None) -> tuple[CheckResult, ...]:
    """Those of the checks that no mirror and no move of a group heals: fence, hooks, and what the way back needs."""
    is_back = ctx.direction is Direction.REVERSE
    return (
        *_asked_all("fence", lambda: fence.check(ctx, ban_of(ctx), names_of(ctx)).checks),
        *_groups_can_stay(ctx),
        *_hooks_runnable(ctx, environ),
        _asked(STATES, lambda: _may_be_reversed(ctx)) if is_back else _asked(WAY_BACK, lambda: _way_back(ctx)),
    )


def _groups_can_stay(ctx: Context) -> tuple[CheckResult, ...]:
    """Whether moved groups can be kept from reading there, which is done behind the point of no return."""
    if ctx.direction is Direction.REVERSE or not require_producers(ctx).groups_stay or not (moved := _moved(ctx)):
        return ()
    found = _asked_all("fence", lambda: fence.check(ctx, GROUP_READS, moved).checks)
    return tuple(replace(one, name=f"groups that stay: {one.name}") for one in found)


def _moved(ctx: Context) -> tuple[str, ...]:
    records = GroupRecord.all(ctx.journal)
    return tuple(sorted(name for name, record in records.items() if ctx.selects_group(name) and record.is_moved))


def ban_of(ctx: Context) -> Ban:
    """What keeps producers from the cluster that they are moved from."""
    return WRITES if ctx.direction is Direction.FORWARD else BACK_WRITES


def names_of(ctx: Context) -> tuple[str, ...]:
    """The topics to fence; () for all that the plan selects. What was made on the target since the cut stays there."""
    return () if ctx.direction is Direction.FORWARD else tuple(sorted(ctx.link.topics()))


def _gate(ctx: Context) -> GroupGate:
    return gate_of(ctx) if ctx.direction is Direction.FORWARD else RollbackGate(ctx)


def _gate_name(ctx: Context) -> str:
    return GATE if ctx.direction is Direction.FORWARD else BACK_GATE


def _passes(ctx: Context) -> CheckResult:
    return CheckResult.passed(_gate_name(ctx), _gate(ctx).ask())


def _all_mirrored(ctx: Context) -> CheckResult:
    """Whether the link copies all that its producers write: what it does not is never copied once it is sealed."""
    if ctx.direction is Direction.FORWARD:
        return all_mirrored(ctx)
    _, before = ctx.earlier[-1]
    left = before.topics().keys() - ctx.link.topics().keys()
    names = sorted(ctx.link.topics())
    here, there = ctx.origin.topics(names), ctx.destination.topics(names)
    more = [name for name in names if name not in there or here[name].partitions > there[name].partitions]
    if not (left or more):
        return CheckResult.passed(MIRRORED, f"{len(names)} topics")
    return CheckResult.failed(
        MIRRORED,
        evidence=f"topics, or partitions of them, have no place on the {ctx.direction.destination}:"
        f" {listed(sorted({*left, *more}))}",
        remedy="exclude them from the plan, and move what writes there by hand, or by a plan of its own",
    )


def _asked(name: str, ask: Callable[[], CheckResult]) -> CheckResult:
    (found,) = _asked_all(name, lambda: (ask(),))
    return found


def _asked_all(name: str, ask: Callable[[], Iterable[CheckResult]]) -> tuple[CheckResult, ...]:
    """What ``ask`` finds; an error of its own is a result, too."""
    try:
        return tuple(ask())
    except CouldNotFindOut as error:
        return (CheckResult.unchecked(name, error.message, remedy=error.remedy),)
    except MigrationError as error:
        return (CheckResult.failed(name, error.message, remedy=error.remedy),)


def _mirror_runs(ctx: Context) -> CheckResult:
    state, beat = mirror_state(ctx)
    option = "" if ctx.direction is Direction.FORWARD else " (`mirror --reverse`)"
    evidence, remedy = describe(state, beat), f"start the mirror{option}, and wait until it has caught up"
    is_fine = state == "running"
    if is_fine and ctx.link.controls().pause is not None:
        is_fine, evidence, remedy = False, f"the mirror is {ctx.link.controls().describe()}", "`resume`"
    if ctx.link.seal() is not None:
        is_fine, evidence = False, "the link is sealed: the mirror may not write any more"
        remedy = (
            "where producers still write to the source, `mirror --unseal`; where they were stopped by their owners,"
            " start them on the target"
        )
    verdict = Verdict.PASS if is_fine else Verdict.FAIL
    return CheckResult(name=RUNS, verdict=verdict, evidence=evidence, remedy="" if is_fine else remedy)


def _groups_moved(ctx: Context) -> CheckResult:
    """Consumers first: who reads from the origin still would read on and on from where nobody writes any more. Unless
    the plan has producers go first: groups are moved behind them then."""
    is_back, there = ctx.direction is Direction.REVERSE, ctx.direction.destination
    records = GroupRecord.all(ctx.journal)
    if is_back:
        standing = (group for group in selected(ctx) if group not in records or not records[group].was_rolled_back)
        left = dict.fromkeys(standing, "stands on the target")
    else:
        unmoved = sides.unmoved(ctx)
        left = {} if require_producers(ctx).first else {group: str(found) for group, found in unmoved.items()}
    for group, record in records.items():
        if ctx.selects_group(group) and record.leg.is_unfinished:
            left[group] = "is in the middle of its move, or of being moved back"
        is_there = record.was_rolled_back if is_back else record.is_moved
        is_seen = record.has(Step.ALIVE) or group in ctx.plan.cutover.stopped_groups
        if ctx.selects_group(group) and is_there and not is_seen:
            left[group] = f"moved, and not active on the {there} yet"
    if not left and not is_back and unmoved:
        evidence = f"producers go first (producers.first); to be moved behind them: {listed(sorted(unmoved))}"
        return CheckResult.passed(GROUPS, evidence)
    if not left:
        return CheckResult.passed(GROUPS, f"all were, and are active on the {there}")
    mover = "rollback" if is_back else "cutover"
    return CheckResult.failed(
        GROUPS,
        listed(f"{group}: {what}" for group, what in sorted(left.items())),
        remedy=f"`{mover}` moves groups, `watch` shows when they are active; delete or exclude one that nobody needs",
    )


def _hooks_runnable(ctx: Context, environ: Mapping[str, str] | None) -> list[CheckResult]:
    producers, here, there = require_producers(ctx), ctx.direction.origin, ctx.direction.destination
    closing = producers.fence_on(here)
    calls = [
        *hook_calls(ctx, (*producers.stop, *closing.close), "fence", here),
        *hook_calls(ctx, (*closing.open, *producers.start), "lift", here),
        *hook_calls(ctx, producers.start, "switch", there),
    ]
    found = []
    for call in calls:
        try:
            require_runnable(call, environ=environ)
            result = CheckResult.passed(f"hook {call}", "may run here")
        except Refused as error:
            result = CheckResult.failed(f"hook {call}", error.message, remedy=error.remedy)
        found.append(result)
    if not producers.start:
        evidence = f"producers.start has none: whoever owns the producers starts them on the {there}"
        found.append(CheckResult.warned("start hooks", evidence, remedy="write some"))
    return found


def _may_be_reversed(ctx: Context) -> CheckResult:
    states = lifecycle.read(ctx)
    wrong = [f"{topic} ({state})" for topic, state in states.items() if not state.may_become(TopicState.REVERSED)]
    if not wrong:
        return CheckResult.passed(STATES, f"{len(states)} topics")
    remedy = "a topic that was released has no way back: move its producers by a plan from the target to the source"
    return CheckResult.failed(STATES, listed(wrong), remedy=remedy)


def _way_back(ctx: Context) -> CheckResult:
    """The reverse link's records would expire or be compacted on the source as they arrive."""
    found = [str(kept) for kept in keeping.check(ctx)]
    names = sorted(mirrored(ctx))
    denied = [name for name, topic in ctx.source.topics(names).items() if "ALTER_CONFIGS" not in topic.operations]
    if found and denied:
        return CheckResult.warned(
            WAY_BACK,
            f"missing ACL: AlterConfigs on topics of the source: {listed(sorted(denied))}",
            remedy="grant it before `mirror --reverse` is started: it has these topics keep every record meanwhile",
        )
    evidence = f"`mirror --reverse` sets them: {listed(found)}" if found else "the source keeps every record"
    return CheckResult.passed(WAY_BACK, evidence)


# -- the switch -------------------------------------------------------------------------------------------------------


def run(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Switch the producers of the whole plan to the destination of ``ctx``'s link; in a dry run check only. A second
    call changes nothing.

    Raises what goes wrong once it has begun. Before the point of no return the fence is lifted by then; behind it, the
    next call finishes what is left. TakenOver leaves everything to who took over; NeedsRollback names what stands.
    """
    ctx.require_whole("switching producers")
    require_producers(ctx)
    last = switched.read(ctx)
    if last is not None and last.state is SwitchState.DONE:
        return _decide(Switched(switch=last))
    if ctx.dry_run:
        return _checked(ctx, environ, last)
    work = _Work(ctx=ctx, environ=os.environ if environ is None else environ)
    if last is not None and last.is_served:
        with phase(ctx, ctx.own(PHASE)) as account:
            done = work.finish(last)
            account.ends(0, str(done))
        return _decide(_seen(ctx, done))
    results: tuple[CheckResult, ...] = ()
    is_rerun = _is_fenced_already(ctx, last)
    if not is_rerun:
        plan_changes.require(ctx)
        decision = _checked(ctx, environ, last)
        if decision.exit_code:
            if last is not None and last.state is SwitchState.SWITCHING:
                # Its fence was lifted by hand, so there is nothing to go on with.
                work.abandon(Refused(decision.message))
            return decision
        results = decision.value.checks
    with phase(ctx, ctx.own(PHASE)) as account:
        done = work.switch(is_prepared=not is_rerun)
        account.ends(0, str(done), fence_ms=done.fence_ms, topics=len(done.topics))
    return _decide(replace(_seen(ctx, done), checks=results))


def _is_fenced_already(ctx: Context, last: Switch | None) -> bool:
    """Whether an earlier run, which has died, left a fence to go on from."""
    standing = fence_record.read(ctx, ban_of(ctx))
    return last is not None and last.state is SwitchState.SWITCHING and standing is not None and standing.stands


def give_up(ctx: Context, *, environ: Mapping[str, str] | None = None) -> Decision:
    """Give up a switch whose process ended before the point of no return; nothing is done to any other.

    Raises NeedsRollback for a fence that cannot be lifted.
    """
    work = _Work(ctx=ctx, environ=os.environ if environ is None else environ)
    given_up = work.abandon(Refused("it ended before the point of no return"))
    lifted = f"the fence is lifted, producers write to the {ctx.direction.origin}"
    return Decision(message=lifted if given_up else "nothing to lift")


def _checked(ctx: Context, environ: Mapping[str, str] | None, last: Switch | None) -> Decision:
    results = check(ctx, environ=environ)
    gate = Gate.of("switch", results)
    return Decision(exit_code=gate.exit_code, message=gate.shut_by, value=Switched(switch=last, checks=results))


def _decide(found: Switched) -> Decision:
    done = found.switch
    if done is None:
        raise ValueError("nothing was switched")
    facts = {"topics": len(done.topics), "fence_ms": done.fence_ms, "seen": len(found.seen)}
    return Decision(message=str(done), facts=facts, value=found)


def _seen(ctx: Context, done: Switch) -> Switched:
    """Whether anybody but the mirror writes to the destination by now."""
    ends = seal_ends(done)
    now: Mapping[TopicPartition, int] = {}
    with suppress(MigrationError):
        # Producers may need a while, and this is a look, no condition.
        now = {tp: log.end for tp, log in ctx.destination.ends(ends, skip_starts_of=ends).items()}
    seen = tuple(tp for tp, end in sorted(ends.items()) if now.get(tp, 0) > end + 1)
    return Switched(switch=done, seen=seen, partitions=len(ends))


def seal_ends(done: Switch) -> dict[TopicPartition, int]:
    """The offsets of the seal's markers: what stands behind one was written by others than the mirror."""
    return unpack_ends(done.seal.get("ends", {}))


@dataclass(slots=True, kw_only=True)
class _Work:
    """One switch while it is done, by one owner."""

    ctx: Context
    environ: Mapping[str, str]
    _claim: Claim = field(init=False)
    _fence_claim: Claim = field(init=False)
    _gate: GroupGate = field(init=False)
    _back: Context | None = field(init=False, default=None)
    _tail: Tail | None = field(init=False, default=None)
    _moved_before: frozenset[str] = field(init=False, default=frozenset())
    _seal: Callable[[float], Seal] = field(init=False)
    _schemas: Versions | None = field(init=False, default=None)
    _began: float = field(init=False, default=0.0)
    _after: dict[str, float] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._gate = _gate(self.ctx)
        self._seal = partial(seal.apply, self.ctx)

    def switch(self, *, is_prepared: bool) -> Switch:
        """From the fence to the last start hook; unless ``is_prepared``, on from the fence that an earlier run left."""
        with ExitStack() as opened:
            if is_prepared:
                self._prepare(opened)
            return self._switch(is_rerun=not is_prepared)

    def _switch(self, *, is_rerun: bool) -> Switch:
        ctx = self.ctx
        self._own()
        # Whoever owned it until now may have come further.
        last = switched.read(ctx)
        if last is not None and last.is_served:
            return self._finish(last)
        if last is None or not is_rerun:
            self._ask("nothing was changed")
            last = Switch(state=SwitchState.SWITCHING, begun_at=ctx.stamp(), to=ctx.direction.destination)
            switched.write(ctx, last)
        try:
            served = self._to_the_point(last, is_rerun=is_rerun)
            self._require(also=self._fence_claim)
        except TakenOver:
            # Whoever took over decides what becomes of it.
            raise
        except BaseException as error:
            self._give_up(last, error)
            raise
        # The point of no return.
        switched.write(ctx, served)
        return self._finish(served)

    def _prepare(self, opened: ExitStack) -> None:
        """What takes time, before anybody is kept from writing."""
        ctx = self.ctx
        # Topics may have joined since they were created.
        fence.keep_off_target(ctx)
        self._back, self._moved_before = reverse.prepare(ctx), frozenset(_moved(self.ctx))
        self._schemas = schemas.catch_up(ctx)
        ctx.link.warm()
        self._tail = Tail(ctx)
        self._tail.catch_up()
        self._seal = opened.enter_context(seal.warmed(ctx))
        if ctx.link.wished().desired is Desired.RUN:
            reason = "producers are about to be switched over"
            ctx.link.wish(Wish(desired=Desired.RUN, reason=reason, at=ctx.stamp(), is_news_due=True))

    def finish(self, served: Switch) -> Switch:
        """What is left behind the point of no return."""
        self._own()
        return self._finish(served)

    def abandon(self, why: MigrationError) -> bool:
        """Give up what another process has begun; False if there is nothing of the kind."""
        self._own()
        last = switched.read(self.ctx)
        if last is None or last.state is not SwitchState.SWITCHING:
            return False
        self._give_up(last, why)
        return True

    def _own(self) -> None:
        self._claim = self.ctx.journal.claim(switched.KIND, switched.name(self.ctx), at=self.ctx.stamp())

    def _require(self, *, also: Claim | None = None) -> None:
        for claim in (self._claim, also):
            if claim is not None:
                self.ctx.journal.require(claim)

    def _to_the_point(self, last: Switch, *, is_rerun: bool) -> Switch:
        ctx, clock = self.ctx, self.ctx.clock
        tail = self._tail or Tail(ctx)
        fenced = fence.apply(ctx, self._hooks(ctx.direction.origin), ban_of(ctx), names_of(ctx))
        proof = _proof_of(fenced)
        self._began = clock.monotonic() - proof.proved_ms / 1000
        until = self._began + require_producers(ctx).switch_seconds
        self._is_done("proved")
        ctx.log(f"fenced and proved after {proof.proved_ms:.0f} ms, {len(fenced.names)} topics")
        # Whoever lifts the fence from here on owns it before this one goes on.
        self._fence_claim = fence.take(ctx, ban_of(ctx))
        if is_rerun:
            self._ask("its fence stood from an earlier run")
        self._drain(proof, until)
        self._is_done("drained")
        # Read while the rest is done.
        tail.begin(proof.ends)
        # Producers that are denied register nothing any more, and on the target they would take the next ids.
        schemas.catch_up(ctx, self._schemas, until=until)
        self._require()
        self._require_unstopped(fenced)
        self._require_time(until)
        sealed = self._seal(until - clock.monotonic())
        self._is_done("sealed")
        self._require_time(until)
        self._require()
        reverse.arm(ctx, self._back)
        self._is_done("armed")
        self._require_time(until)
        ctx.log(tail.equal(until - clock.monotonic()))
        self._is_done("compared")
        self._require_groups_rest(is_rerun=is_rerun)
        self._look_again(fenced)
        approval = self._ask("right before the point of no return")
        self._is_done("asked")
        self._require_time(until)
        return replace(
            last,
            state=SwitchState.SERVED,
            fenced_at=last.begun_at if is_rerun else proof.began_at,
            served_at=ctx.stamp(),
            topics=fenced.names,
            proof=proof.as_dict(),
            seal=sealed.as_dict(),
            approval=approval,
            after_ms=dict(self._after),
        )

    def _require_time(self, until: float) -> None:
        if self.ctx.clock.monotonic() >= until:
            raise CouldNotFindOut(
                f"not switched within {require_producers(self.ctx).switch_seconds:g} s of the first denial",
                remedy="switch when lag is lower, or give producers.switch_seconds a larger value",
            )

    def _is_done(self, part: str) -> None:
        """Keep when a part of the switch was done, for whoever asks where the time went."""
        self._after[part] = round((self.ctx.clock.monotonic() - self._began) * 1000, 1)

    def _drain(self, proof: Proof, until: float) -> None:
        """The mirror copies up to exactly the proved ends. It ends by itself; that is not waited for."""
        ctx = self.ctx

        def is_copied() -> bool:
            return not short_of(ctx, proof.ends)

        if mirror_state(ctx)[0] not in ("ended", "not started") or not is_copied():
            wanted = Wish(
                desired=Desired.DRAIN, ends=proof.ends, reason="producers are fenced, and switched over", at=ctx.stamp()
            )
            self._require()
            left = max(0.0, until - ctx.clock.monotonic())
            remedy = "look at the mirror's log, and start it again if it has died; switch once its lag is low"
            end_mirror(ctx, wanted, left, pause=_PAUSE_SECONDS, remedy=remedy, suffices=is_copied, looks_out=False)
        if short := short_of(ctx, proof.ends):
            raise CouldNotFindOut(
                f"the mirror of {ctx.plan.name} ended ({(ctx.link.run() or {}).get('reason', 'reason unknown')}) before"
                f" {len(short)} partitions were copied to their proved ends: {listed(map(str, short))}",
                remedy="look at the mirror's log; `status` names halted partitions",
            )
        for late in (_all_mirrored(ctx), none_halted(ctx)):
            if late.verdict is not Verdict.PASS:
                raise Refused(f"since the fence, {late.name}: {late.evidence}", remedy=late.remedy)

    def _look_again(self, fenced: Fenced) -> None:
        """The fence of this switch stands, and nobody wrote since it was proved."""
        standing = fence.status(self.ctx, ban_of(self.ctx))
        if standing.record is None or standing.record.state is not FenceState.FENCED:
            raise StateConflict(
                f"the fence {ban_of(self.ctx).key} does not stand any more: it was lifted meanwhile",
                remedy="find out who lifts it, then run this again",
            )
        if standing.written:
            raise Straggler(standing.written)
        if standing.unseen:
            raise CouldNotFindOut(
                f"whether the denials of the fence {ban_of(self.ctx).key} are still there: {standing.unseen}",
                remedy="see that its ACLs can be read, then run this again",
            )
        if standing.missing:
            raise StateConflict(
                f"{len(standing.missing)} denials of the fence {ban_of(self.ctx).key} are gone: somebody removed them",
                remedy="find out who removes ACLs (another migration's `fence --lift`?), then run this again",
            )
        if self.ctx.direction is Direction.FORWARD:
            # A mirror that was started again meanwhile has its topics back in an earlier state.
            lifecycle.note(self.ctx, fenced.names, TopicState.FENCED)

    def _require_unstopped(self, fenced: Fenced) -> None:
        """Where `stop` has drained topics since the fence, the seal is its own, and no link begins behind this one."""
        if self.ctx.direction is Direction.REVERSE:
            return
        now = lifecycle.read(self.ctx)
        if gone := [name for name in fenced.names if not now[name].may_become(TopicState.FENCED)]:
            raise StateConflict(
                f"topics were stopped by another command since the fence: {listed(f'{n} ({now[n]})' for n in gone)}",
                remedy="see `status`; one of both moves producers, `switch` or their owners before `stop`",
            )

    def _require_groups_rest(self, *, is_rerun: bool) -> None:
        if back := self._moved_before - frozenset(_moved(self.ctx)):
            raise Refused(
                f"groups were moved back since the switch began: {listed(sorted(back))}",
                remedy="move them (`cutover`), or leave them out of the plan; then run this again",
            )
        # Nobody knows where groups stood before the run that died.
        again = (_groups_moved(self.ctx), sides.check(self.ctx)[0]) if is_rerun else ()
        for found in (*again, sides.check_back(self.ctx)):
            if found.verdict is Verdict.FAIL:
                raise Refused(f"{found.name}: {found.evidence}", remedy=found.remedy)
            if found.verdict is not Verdict.PASS:
                raise CouldNotFindOut(f"{found.name}: {found.evidence}", remedy=found.remedy)

    def _ask(self, when: str) -> str:
        reason = self._gate.ask()
        self.ctx.log(f"{_gate_name(self.ctx)}, {when}: {reason}")
        return reason

    def _hooks(self, cluster: Side) -> Hooks:
        ctx, there = self.ctx, run_hooks(self.ctx, self.environ, cluster)

        def run_all(hooks: Iterable[Hook], name: Literal["fence", "lift"]) -> None:
            ctx.journal.require(self._claim)
            there(hooks, name)

        return run_all

    # -- back ---------------------------------------------------------------------------------------------------------

    def _give_up(self, last: Switch, error: BaseException) -> None:
        """Producers write where they did before, first of all; then the mirror may go on."""
        ctx = self.ctx
        why = error.message if isinstance(error, MigrationError) else repr(error)
        ctx.log(f"the switch is given up, and producers write to the {ctx.direction.origin} again: {why}")

        def lift() -> None:
            self._require()
            fence.lift(ctx, self._hooks(ctx.direction.origin), ban_of(ctx))

        try:
            fence.insist(ctx, lift)
        except TakenOver:
            raise
        except MigrationError as failure:
            raise NeedsRollback(
                f"producers were not switched ({why}), and the fence could not be lifted ({failure.message}): they may"
                " still be denied",
                remedy=f"run `fence --lift` as soon as what the message names is mended; then `{last.command}` again",
            ) from error
        try:
            was_to_drain = self._let_the_mirror_go_on()
        except TakenOver:
            raise
        except MigrationError as failure:
            raise NeedsRollback(
                f"producers were not switched ({why}); the fence is lifted, and the mirror cannot go on yet"
                f" ({failure.message})",
                remedy=failure.remedy or "run `mirror --unseal`",
            ) from error
        switched.write(ctx, replace(last, state=SwitchState.GIVEN_UP, why=why))
        if isinstance(error, MigrationError) and was_to_drain:
            # What it was about stays its own; the mirror is one thing more to do.
            again = "see by `status` whether the mirror runs, and start it again if it was drained and has ended"
            error.remedy = f"{error.remedy}; {again}".removeprefix("; ")
            error.args = (f"{error.message}\n  remedy: {error.remedy}",)

    def _let_the_mirror_go_on(self) -> bool:
        """Whether it was asked to drain, and so has ended, or is about to."""
        ctx = self.ctx
        self._require()
        reverse.disarm(ctx)
        seal.undo(ctx)
        was_to_drain = ctx.link.wished().desired is Desired.DRAIN
        if was_to_drain:
            self._require()
            ctx.link.wish(Wish(desired=Desired.RUN, reason="the switch was given up", at=ctx.stamp()))
        return was_to_drain

    # -- behind the point of no return --------------------------------------------------------------------------------

    def _finish(self, served: Switch) -> Switch:
        ctx = self.ctx
        is_back, there = ctx.direction is Direction.REVERSE, ctx.direction.destination
        lifecycle.note(ctx, served.topics, TopicState.REVERSED if is_back else TopicState.SERVED)
        self._require()
        # Of an earlier switch that moved producers away from there. Nobody needs starting yet.
        if is_back:
            fence.lift(ctx, self._hooks(there), WRITES, starts=False)
        else:
            fence.let_in_on_target(ctx, self._hooks(there))
        if self._after:
            self._is_done("opened")
            served = replace(served, after_ms=dict(self._after))
        for call in hook_calls(ctx, require_producers(ctx).start, "switch", there):
            self._require()
            self._start(call, served.command)
            if not served.started_at:
                served = self._started(served)
        if not is_back and require_producers(ctx).groups_stay and (groups := _moved(ctx)):
            self._require()
            fence.apply(ctx, self._hooks("source"), GROUP_READS, groups)
        self._require()
        if is_back:
            keeping.give_back(ctx)
        done = replace(served, state=SwitchState.DONE)
        switched.write(ctx, done)
        ctx.log(str(done))
        return done

    def _start(self, call: HookCall, command: str) -> None:
        try:
            done = run_hook(call, environ=self.environ)
        except MigrationError as error:
            error.remedy = (
                f"{error.remedy}; then run `{command}` again: the {call.cluster} serves, and there is no way back by it"
            )
            error.args = (f"{error.message}\n  remedy: {error.remedy.removeprefix('; ')}",)
            raise
        self.ctx.log(f"{done.what}: {done.said}")

    def _started(self, served: Switch) -> Switch:
        now = self.ctx.clock.now()
        lasted = (now - datetime.fromisoformat(served.fenced_at)).total_seconds() * 1000
        started = replace(served, started_at=self.ctx.stamp(), fence_ms=round(lasted, 1))
        switched.write(self.ctx, started)
        return started


def _proof_of(fenced: Fenced) -> Proof:
    if fenced.proof is None:
        raise ValueError("a fence that was applied is never without a proof")
    return fenced.proof
