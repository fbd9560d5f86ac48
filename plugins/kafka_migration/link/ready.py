"""Whether the mirror is active and keeps up, asked by the cutover gate and before any consumer is stopped: a group
that is stopped waits for it.

A mirror that is dead, or far behind, would have every group stopped for nothing, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING

from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.errors import CouldNotFindOut, Refused
from kafka_migration.domain.lag import sample
from kafka_migration.domain.listing import listed
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link import stragglers
from kafka_migration.link.heartbeat import describe, mirror_state
from kafka_migration.topics.declared import mirrored

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

#: Lag swings while producers write: so long it may take to be under the threshold once.
PATIENCE_SECONDS = 30.0
_POLL_SECONDS = 1.0
ACTIVE, LOW = "the mirror is active", "replication lag is low"


class NotCopied(Refused):
    """The mirror does not copy as far as groups need it to. No group after this one would fare better."""


def require_keeping_up(ctx: Context, partitions: Iterable[TopicPartition]) -> None:
    """Raise NotCopied if the mirror is silent, or further behind in ``partitions`` than the lag gate lets pass,
    or paused and behind at all.

    A mirror that has ended does not matter if it has copied everything. Halted partitions do not count: a group whose
    commits lie before the halt can be moved.
    """
    problem = _problem_that_stays(ctx, set(partitions))
    if problem:
        raise NotCopied(
            f"no consumer was stopped, because the mirror does not keep up: {problem}",
            remedy="check that the mirror runs and that its lag falls (`status`, `resume`), then run this again",
        )


def checks(ctx: Context) -> tuple[CheckResult, ...]:
    """Named checks of the whole migration: the mirror is active, and replication lag is as low as the lag gate demands,
    once at least within half a minute. One that has ended does not matter if it has copied everything; nor does one
    whose link is sealed, as long as nobody but the reverse link wrote to the source behind that."""
    if _is_sealed(ctx):
        sealed = CheckResult.passed(ACTIVE, f"link {ctx.link.name} has copied all, and is sealed")
        return sealed, _is_low(ctx)
    state, beat = mirror_state(ctx)
    return _is_active(state, beat), _is_low(ctx)


def _is_sealed(ctx: Context) -> bool:
    seal = ctx.link.seal()
    return seal is not None and seal.is_complete


def _is_active(state: str, beat: datetime | None) -> CheckResult:
    evidence = describe(state, beat)
    if state in ("running", "ended"):
        # Of one that has ended, replication lag decides.
        verdict = Verdict.PASS if state == "running" else Verdict.WARN
        return CheckResult(name=ACTIVE, verdict=verdict, evidence=evidence)
    remedy = "find out why in the log of the mirror's task (or of the command), and start the mirror again"
    return CheckResult.failed(ACTIVE, evidence, remedy=remedy)


def _is_low(ctx: Context) -> CheckResult:
    remedy = "check that the mirror runs and that its lag falls (`status`, `lag --watch`, `resume`), then ask again"
    try:
        names = sorted(mirrored(ctx))
        partitions = {tp for topic in ctx.origin.topics(names).values() for tp in topic.topic_partitions}
        problem = _problem_that_stays(ctx, partitions)
    except CouldNotFindOut as error:
        return CheckResult.unchecked(LOW, error.message, remedy=error.remedy)
    if problem:
        return CheckResult.failed(LOW, problem, remedy=remedy)
    if _is_sealed(ctx):
        return CheckResult.passed(LOW, "nobody wrote to the source behind the seal")
    threshold = ctx.plan.lag_gate.threshold_records
    evidence = f"at or under lag_gate.threshold_records ({threshold:,}) in {len(partitions)} partitions"
    return CheckResult.passed(LOW, evidence)


def _problem_that_stays(ctx: Context, partitions: set[TopicPartition]) -> str:
    deadline = ctx.clock.monotonic() + min(PATIENCE_SECONDS, ctx.plan.consumers.wait_seconds)
    while (problem := _problem(ctx, partitions)) and ctx.clock.monotonic() < deadline:
        ctx.clock.sleep(_POLL_SECONDS)
    return problem


def _problem(ctx: Context, partitions: set[TopicPartition]) -> str:
    if _is_sealed(ctx):
        # A group would leave behind what it has not read of these.
        strays = [stray for stray in stragglers.look(ctx) if stray.tp in partitions]
        where = f"see `stragglers`: written to the {ctx.direction.origin} behind the seal, and copied by nobody"
        return f"{where}: {listed(strays, separator='; ')}" if strays else ""
    state, last = mirror_state(ctx)
    if state == "silent":
        return describe(state, last)
    counted = sorted(partitions - ctx.link.halts().keys())
    positions = {tp: position.source for tp, position in ctx.link.positions().items()}
    lag = sample(ctx.clock.monotonic(), ctx.origin.ends(counted, committed=True, skip_starts_of=positions), positions)
    if state == "running" and lag.total and ctx.link.controls().pause is not None:
        # It does not copy what the group commits until it is stopped, however little that is.
        return f"it is {ctx.link.controls().describe()}, with {lag.total:,} source offsets to copy"
    threshold = ctx.plan.lag_gate.threshold_records if state == "running" else 0
    if lag.total > threshold:
        why = f"lag_gate.threshold_records is {threshold}" if state == "running" else f"it is {state}"
        worst = f", most in {lag.worst[0]}" if lag.worst else ""
        return f"{lag.total:,} source offsets are to be copied{worst}, and {why}"
    return ""
