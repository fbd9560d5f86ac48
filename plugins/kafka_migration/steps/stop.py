"""The stop gate: end the mirror once producers have left the source and everything has been copied.

Refuses while the mirror does not copy every topic of the plan, any source log end moves, any lag remains, topics have
changed so that records are in danger, a moved group has committed on the source since, or another group runs on neither
side or was left behind; then drains: the mirror copies up to the ends that were proved still and ends by itself. Then
the link is sealed: no mirror may write to it any more. ``now`` stops it where it stands, unsealed (nothing is lost: a
later run resumes). A mirror that died sends no heartbeat: for ``now`` that is enough, since the wish stands; a drain
needs a mirror that is started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lag import sample
from kafka_migration.domain.lifecycle import TopicState
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired, PartitionEnds, TopicPartition
from kafka_migration.fence import fence
from kafka_migration.groups import sides
from kafka_migration.link import lifecycle, seal, switched
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.link.lag import LagMeter, LagReport, undecided
from kafka_migration.link.switched import SwitchState
from kafka_migration.state.link import Wish
from kafka_migration.steps.draining import NOW_SECONDS, all_mirrored, end_mirror, none_halted
from kafka_migration.steps.fence import run_hooks
from kafka_migration.steps.step import Decision
from kafka_migration.topics import create
from kafka_migration.topics.declared import mirrored
from kafka_migration.topics.drift import as_declared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


SERVED, SWITCHING = "producers were switched to the target", "no switch of producers is under way"
SEALED = "the link was drained and sealed"
STILL, DECIDED, COPIED = "source log ends are still", "no transaction is open", "no lag remains"


@dataclass(frozen=True, slots=True, kw_only=True)
class StopResult:
    """How the gate decided, and how the mirror ended if it was open; ``seal`` if the link was drained and sealed."""

    gate: Gate
    lag: LagReport
    mirror: dict[str, Any]
    seal: Seal | None = None

    @property
    def stopped(self) -> bool:
        """True if the mirror has ended: where it stood, if that was asked for, else with everything copied.

        One that is silent has died; should it wake anyway, it stops at its next look.
        """
        return self.gate.is_open and self.mirror.get("state") in ("ended", "silent")

    @property
    def may_pass(self) -> bool:
        """Whether all that shuts the gate can pass by itself (producers stop, records are copied, a cluster answers
        again). What else shuts it needs a person."""
        return all(
            check.name in (STILL, DECIDED, COPIED, SWITCHING) or check.verdict is Verdict.UNCHECKED
            for check in self.gate.blockers
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "stopped": self.stopped,
            "checks": [check.as_dict() for check in self.gate.results],
            "lag": self.lag.as_dict(),
            "mirror": self.mirror,
            "seal": None if self.seal is None else self.seal.as_dict(),
        }


def check(ctx: Context) -> tuple[Gate, LagReport, dict[TopicPartition, PartitionEnds]]:
    """Look at source log ends over the plan's window, and at lag after it. Changes nothing."""
    window = ctx.plan.drain.window_seconds
    names = sorted(mirrored(ctx))
    partitions = [tp for topic in ctx.source.topics(names).values() for tp in topic.topic_partitions]
    before = ctx.source.ends(partitions, committed=True)
    ctx.log(f"watching {len(partitions)} source log ends for {window:g} s")
    ctx.clock.sleep(window)
    after = ctx.source.ends(partitions, committed=True)
    report = LagMeter(ctx).read()
    moves = {tp: after[tp].high_watermark - before[tp].high_watermark for tp in partitions}
    moved = {tp: by for tp, by in moves.items() if by}
    checks = (
        all_mirrored(ctx),
        _none_switches(ctx),
        _still(moved, window),
        _decided(report),
        _lag(report),
        none_halted(ctx),
        as_declared(create.verify(ctx)),
        sides.check_back(ctx),
        *sides.check(ctx),
    )
    return Gate.of("stop", checks), report, after


def apply(ctx: Context, *, now: bool = False) -> StopResult:
    """End the mirror. With ``now`` at once, where it stands; else only through the gate, drained.

    Raises CouldNotFindOut if the mirror does not end in time, or ends short of what was to be copied; the wish stays,
    and a rerun waits again. Raises what the seal raises; a rerun seals again.
    """
    ctx.require_whole("ending the mirror")
    switch = switched.last(ctx)
    if switch is not None and switch.state is SwitchState.SERVED:
        # What is left of it needs the topics, which the steps behind this one give up.
        gate = Gate.of("stop", (_none_switches(ctx),))
        return StopResult(gate=gate, lag=LagMeter(ctx).read(), mirror=ctx.link.run() or {}, seal=ctx.link.seal())
    if not now and (done := _sealed(ctx)) is not None:
        gate = Gate.of("stop", (CheckResult.passed(SEALED, f"at {done.at}"),))
        if not ctx.dry_run:
            seal.keep(ctx, done)
            _end(ctx, {tp.topic for tp in done.ends})
        ended = (ctx.link.run() or {}) | {"state": "ended"}
        return StopResult(gate=gate, lag=LagMeter(ctx).read(), mirror=ended, seal=done)
    if served := _served(ctx):
        gate = Gate.of("stop", (CheckResult.passed(SERVED, served),))
        # Killed before it recorded its end, it says so no more: nothing of a sealed link runs.
        ended = (ctx.link.run() or {}) | {"state": "ended"}
        return StopResult(gate=gate, lag=LagMeter(ctx).read(), mirror=ended, seal=ctx.link.seal())
    if now:
        report = LagMeter(ctx).read()
        gate = Gate.of("stop", (CheckResult.passed("asked to stop now", "no gate"),))
        if not ctx.dry_run:
            end_mirror(ctx, Wish(desired=Desired.STOP, reason="stop now", at=ctx.stamp()), NOW_SECONDS)
        run = ctx.link.run() or {}
        return StopResult(gate=gate, lag=report, mirror=run | ({"state": mirror_state(ctx)[0]} if run else {}))
    gate, report, ends = check(ctx)
    sealed = None
    if gate.is_open and not ctx.dry_run:
        wanted = Wish(
            desired=Desired.DRAIN,
            ends={tp: log.end for tp, log in ends.items()},
            reason="source log ends are still and lag is 0",
            at=ctx.stamp(),
        )
        end_mirror(ctx, wanted, ctx.plan.drain.deadline_seconds)
        _require_drained(ctx, ends)
        if (late := all_mirrored(ctx)).verdict is not Verdict.PASS:
            raise Refused(f"not sealed: since the drain began, {late.evidence}", remedy=late.remedy)
        if (late := _none_switches(ctx)).verdict is not Verdict.PASS:
            raise CouldNotFindOut(f"not sealed: since the drain began, {late.evidence}", remedy=late.remedy)
        topics = {tp.topic for tp in ends}
        if ctx.link.seal() is None:
            lifecycle.note(ctx, topics, TopicState.DRAINED)
        sealed = seal.apply(ctx)
        _end(ctx, topics)
    return StopResult(gate=gate, lag=report, mirror=ctx.link.run() or {}, seal=sealed)


def _end(ctx: Context, topics: Iterable[str]) -> None:
    """What is left to do behind the seal."""
    lifecycle.note(ctx, topics, TopicState.SEALED)
    fence.let_in_on_target(ctx, run_hooks(ctx, None, "target"))


def _sealed(ctx: Context) -> Seal | None:
    """The seal that an earlier run of this has set, but for what is left behind it: by now another link may have begun
    there, whose marks on the source no look at lag would bear. None while a topic is somewhere else in its life."""
    found, own = ctx.link.seal(), switched.read(ctx)
    if found is None or not found.is_complete or (own is not None and own.state is not SwitchState.GIVEN_UP):
        return None
    if _none_switches(ctx).verdict is not Verdict.PASS:
        return None
    states = lifecycle.read(ctx)
    at_its_end = (TopicState.DRAINED, TopicState.SEALED)
    return found if all(states.get(tp.topic) in at_its_end for tp in found.ends) else None


def _served(ctx: Context) -> str:
    """Since when a switch of producers has the mirror ended and the link sealed; "" where none has."""
    switch = switched.read(ctx)
    return str(switch) if switch is not None and switch.state is SwitchState.DONE else ""


def _none_switches(ctx: Context) -> CheckResult:
    """Neither there nor back: its fence has a cluster rest, and what it has not done yet is its own to go on with."""
    switch = switched.last(ctx)
    if switch is None or not switch.is_unfinished:
        return CheckResult.passed(SWITCHING, "none")
    remedy = f"wait for it, or run `{switch.command}` again if its process has died"
    return CheckResult.failed(SWITCHING, f"a switch {switch}", remedy=remedy)


def _require_drained(ctx: Context, ends: dict[TopicPartition, PartitionEnds]) -> None:
    """A mirror also ends when it is interrupted, or when all that is left is halted: it must not be sealed then."""
    run = ctx.link.run() or {}
    if run.get("reason") == "drained":
        return
    positions = {tp: position.source for tp, position in ctx.link.positions().items()}
    short = [tp for tp, lag in sorted(sample(ctx.clock.monotonic(), ends, positions).lag.items()) if lag]
    if short:
        raise CouldNotFindOut(
            f"the mirror of {ctx.plan.name} ended ({run.get('reason', 'reason unknown')}) before"
            f" {len(short)} partitions were copied to their ends: {', '.join(map(str, short[:5]))}",
            remedy="start the mirror again and run this again; `status` names halted partitions",
        )


def _still(moved: dict[TopicPartition, int], window: float) -> CheckResult:
    if not moved:
        return CheckResult.passed(STILL, f"no end moved in {window:g} s")
    rows = ", ".join(f"{tp} +{n} ({n / window:.0f}/s)" for tp, n in sorted(moved.items(), key=lambda i: -i[1])[:5])
    return CheckResult.failed(
        STILL,
        f"{len(moved)} source partitions still grow: {rows}",
        remedy="stop the producers of these topics on the source, then run this again",
    )


def _decided(report: LagReport) -> CheckResult:
    if not report.sample.undecided:
        return CheckResult.passed(DECIDED, "none")
    return CheckResult.failed(
        DECIDED,
        undecided(report.sample),
        remedy="have its producer commit or abort; find and abort one that hangs for good with kafka-transactions.sh"
        " (find-hanging, abort); then run this again",
    )


def _lag(report: LagReport) -> CheckResult:
    worst = report.sample.worst
    if report.total == 0:
        return CheckResult.passed(COPIED, "every position is at its source end")
    return CheckResult.failed(
        COPIED,
        evidence=f"{report.total:,} source offsets are not copied yet, most in {worst[0] if worst else '-'}"
        + (f"; the mirror is {report.held}" if report.held else ""),
        remedy="wait until the mirror has caught up (`lag --watch`), then run this again",
    )


# -- as a step of the workflow ----------------------------------------------------------------------------------------

#: Seconds between two looks at the moved groups on the source: a group that is active there again is named within a
#: minute (docs/behaviours.md, 47).
GROUPS_SECONDS = 30.0

#: In so many of these looks a topic may be seen that has not joined the mirror yet.
_JOINING_LOOKS = 2

#: Kafka's default of ``transaction.timeout.ms``: a transaction that holds a partition back for longer hangs, as a rule.
TRANSACTION_SECONDS = 60.0


def run(ctx: Context, *, now: bool = False) -> Decision:
    """Prove once more what was waited for, and end the mirror; what only a person can clear is a no."""
    result = apply(ctx, now=now)
    evidence = "; ".join(f"{r.name}: {r.evidence} (remedy: {r.remedy})" for r in result.gate.blockers)
    facts = {"records": result.mirror.get("records", 0), "reason": str(result.mirror.get("reason", ""))}
    if result.stopped:
        return Decision(facts=facts, value=result)
    # A producer wrote again since then, say: another try may pass. What needs a person would be found again.
    then = "" if result.may_pass else "\n  then clear this task; the mirror runs on"
    return Decision(
        exit_code=3 if result.may_pass else result.gate.exit_code,
        message=f"the mirror was not ended: {evidence or result.mirror}{then}",
        facts=facts,
        value=result,
    )


class Wait:
    """Source log ends, still for the plan's window, with no lag left; one look at all ends and at lag at a time.

    Ends as well once a moved group is active on the source again, and when its time is over while nothing but an open
    transaction is left: both need a person. Reports what moves whenever that changes.
    """

    def __init__(self, ctx: Context) -> None:
        self._window = ctx.plan.drain.window_seconds
        # Some looks within the window: an end that moves and a look that misses it cannot meet, ends never go back.
        self.interval_seconds = min(5.0, max(0.5, self._window / 3))
        self._ctx, self._meter = ctx, LagMeter(ctx)
        self._ends: Mapping[TopicPartition, int] = {}
        self._still_since = 0.0
        self._state = ""
        self._groups_at: float | None = None
        self._hanging = ""
        self._unmirrored = 0
        self._switching = _none_switches(ctx)

    def look(self) -> Decision | None:
        """Compare with the look before."""
        if served := _served(self._ctx):
            return Decision(message=served)
        if (done := _sealed(self._ctx)) is not None:
            return Decision(message=f"the link was sealed at {done.at}")
        self._switching = _none_switches(self._ctx)
        report = self._meter.read()
        now, ends = report.sample.at, dict(report.sample.source_ends)
        moved = [tp for tp in ends if self._ends.get(tp) != ends[tp]]
        if moved or self._switching.verdict is not Verdict.PASS:
            self._still_since = now
        first, self._ends = not self._ends, ends
        self._report(report, 0 if first else len(moved))
        if report.halted:
            halted = ", ".join(f"{tp} {reason}" for tp, reason in sorted(report.halted.items())[:5])
            remedy = "`status` names what can be done; then clear this task"
            return Decision(exit_code=1, message=f"halted partitions never drain: {halted}\n  remedy: {remedy}")
        if self._groups_at is None or now - self._groups_at >= GROUPS_SECONDS:
            self._groups_at = now
            topics = all_mirrored(self._ctx)
            self._unmirrored = self._unmirrored + 1 if topics.verdict is Verdict.FAIL else 0
            if self._unmirrored > _JOINING_LOOKS:
                message = f"{topics.evidence}\n  remedy: {topics.remedy}. The mirror runs on"
                return Decision(exit_code=1, message=message)
            groups = sides.check_back(self._ctx)
            if groups.verdict is Verdict.FAIL:
                remedy = f"{groups.remedy}; then clear this task. The mirror runs on"
                message = f"moved groups are active on the source again: {groups.evidence}\n  remedy: {remedy}"
                return Decision(exit_code=1, message=message)
        open_ = undecided(report.sample)
        self._hanging = open_ if report.total == 0 and now - self._still_since >= TRANSACTION_SECONDS else ""
        if report.total == 0 and not open_ and now - self._still_since >= self._window:
            return Decision(message=f"no source end moved in {self._window:g} s, and lag is 0")
        return None

    def too_late(self, overdue: str) -> Decision:
        """The mirror runs on; the wait begins again, unless a person has to act first."""
        if self._hanging:
            remedy = "find it and abort it with kafka-transactions.sh (find-hanging, abort); then clear this task"
            return Decision(exit_code=1, message=f"{overdue}: {self._hanging}\n  remedy: {remedy}. The mirror runs on")
        if self._switching.verdict is not Verdict.PASS:
            message = f"{overdue}: {self._switching.evidence}\n  remedy: {self._switching.remedy}"
            return Decision(exit_code=3, message=message)
        remedy = "stop the producers of the plan's topics on the source; the mirror copies what they write until then"
        return Decision(exit_code=3, message=f"{overdue}: {self._state}\n  remedy: {remedy}")

    def _report(self, report: LagReport, moved: int) -> None:
        state = f"{moved} source partitions grow" if moved else "source log ends are still"
        state += ", lag remains" if report.total else ", no lag"
        if state != self._state:
            self._ctx.log(f"{state} ({report.total:,} source offsets to go)")
        self._state = state
