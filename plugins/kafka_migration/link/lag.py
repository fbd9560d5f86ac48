"""The lag phase: how far behind the mirror is, and the gate that waits until it has converged."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import Refused
from kafka_migration.domain.lag import LagGate, LagSample, LagTrend, followed, sample, trend
from kafka_migration.domain.types import TopicPartition
from kafka_migration.link.halts import remedies
from kafka_migration.link.heartbeat import describe as describe_mirror
from kafka_migration.link.heartbeat import mirror_state
from kafka_migration.topics import create
from kafka_migration.topics.declared import mirrored
from kafka_migration.topics.drift import as_declared

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_TREND_SAMPLES = 15
#: Of a wait, however long it lasts: enough for a plot, and small enough for the journal.
_MOST_KEPT = 120
#: So long may Spark take to start, and a mirror that died to be tried again. Past it without a record copied, waiting
#: for lag to fall is waiting for a mirror that cannot run (for example, with a wrong jar).
MIRROR_SECONDS = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagReport:
    """Replication lag now. Lag is in source offsets; ``seconds`` at the rate copied lately, None for "never"."""

    at: str
    sample: LagSample
    trend: LagTrend
    halted: Mapping[TopicPartition, str]
    mirror: str
    """What the mirror is: not started, running, silent, ended; ``beat`` is when its last heartbeat was."""
    beat: datetime | None = None
    held: str = ""
    """Why the mirror is slower than it could be (paused, throttled), by whom and since when; or what it waits for."""

    direction: Direction = Direction.FORWARD
    """Of the link that is behind; source offsets are those of its origin."""

    generation: int = 1

    @property
    def total(self) -> int:
        """Source offsets to go, over all partitions."""
        return self.sample.total

    @property
    def remedies(self) -> dict[str, str]:
        """What to do about each reason for which a partition is halted."""
        return remedies(self.halted.values(), self.direction, self.generation)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only; ``eta_seconds`` null means never (or, of a single look, not known)."""
        return {
            "at": self.at,
            "mirror": self.mirror,
            "held": self.held,
            "total": self.total,
            "partitions": {str(tp): lag for tp, lag in sorted(self.sample.lag.items())},
            "undecided": {str(tp): count for tp, count in sorted(self.sample.undecided.items())},
            "halted": {str(tp): reason for tp, reason in sorted(self.halted.items())},
            "remedies": self.remedies,
            "copied_per_second": round(self.trend.copied_per_second, 1),
            "produced_per_second": round(self.trend.produced_per_second, 1),
            "eta_seconds": None if self.trend.eta_seconds is None else round(self.trend.eta_seconds, 1),
            "keeps_up": self.trend.keeps_up,
        }


class LagMeter:
    """Takes samples of the same migration over time, which rates and an ETA need."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._recent: deque[LagSample] = deque(maxlen=_TREND_SAMPLES)

    def read(self) -> LagReport:
        """Lag as of now. Raises ClusterUnreachable; Refused if the migration has no topics yet."""
        ctx = self._ctx
        names = sorted(mirrored(ctx))
        if not names:
            raise Refused(f"migration {ctx.plan.name} mirrors nothing yet", remedy="run `create` and `mirror` first")
        positions = {tp: position.source for tp, position in ctx.link.positions().items()}
        partitions = [tp for topic in ctx.origin.topics(names).values() for tp in topic.topic_partitions]
        ends = ctx.origin.ends(partitions, committed=True, skip_starts_of=positions)
        now = sample(ctx.clock.monotonic(), ends, positions)
        self._recent.append(now)
        run = ctx.link.run() or {}
        state, beat = mirror_state(ctx)
        return LagReport(
            at=ctx.stamp(),
            sample=now,
            trend=trend(list(self._recent)),
            halted={tp: halt.reason for tp, halt in ctx.link.halts().items() if ctx.scope.has_topic(tp.topic)},
            mirror=state,
            beat=beat,
            direction=ctx.direction,
            generation=ctx.generation,
            held="; ".join(filter(None, (ctx.link.controls().describe(), str(run.get("waiting", ""))))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LagGateResult:
    """How waiting ended: ``passed``, or why not."""

    passed: bool
    reason: str
    report: LagReport

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {"passed": self.passed, "reason": self.reason, "lag": self.report.as_dict()}


class LagWait:
    """The gate, look by look. The streak is kept here: whoever waits anew has seen nothing yet."""

    def __init__(self, ctx: Context) -> None:
        settings = ctx.plan.lag_gate
        self.interval_seconds = settings.interval_seconds
        self.last: LagReport | None = None
        self._began, self.history = 0.0, list[list[float]]()
        """Lag over time, for a plot: seconds since the first look, and offsets."""
        self._gate = LagGate(threshold=settings.threshold_records, samples=settings.samples)
        self._ctx, self._meter = ctx, LagMeter(ctx)
        self._copied: int | None = None
        self._copied_at, self._was_down = 0.0, False

    def look(self) -> LagGateResult | None:
        """Take one sample; None: not yet. A halted partition never catches up, so waiting ends there, as it does where
        topics have changed so that records are in danger: looked at first and last, since it asks for all configs."""
        is_first, report = self.last is None, self._meter.read()
        self.last = report
        self._began = report.sample.at if is_first else self._began
        seen = (round(report.sample.at - self._began, 1), report.total)
        self.history = followed(self.history, seen, _MOST_KEPT)
        self._ctx.log(describe(report))
        if report.halted:
            halted = ", ".join(f"{tp} {reason}" for tp, reason in sorted(report.halted.items())[:5])
            return LagGateResult(passed=False, reason=f"halted partitions: {halted}", report=report)
        has_passed = self._gate.observe(report.sample)
        if not has_passed and self._is_stuck(report):
            reason = (
                f"{describe_mirror(report.mirror, report.beat)}; no record was copied for {MIRROR_SECONDS:g} s. Its"
                " errors are in the log of the mirror's task (or of the command)"
            )
            return LagGateResult(passed=False, reason=reason, report=report)
        if is_first or has_passed:
            declared = as_declared(create.verify(self._ctx))
            if declared.verdict is Verdict.FAIL:
                return LagGateResult(passed=False, reason=f"topics have changed: {declared.evidence}", report=report)
        if has_passed:
            reason = f"{self._gate.needed} samples in a row at or under {self._gate.threshold}"
            return LagGateResult(passed=True, reason=reason, report=report)
        return None

    def _is_stuck(self, report: LagReport) -> bool:
        """Whether nothing was copied for too long by a mirror that was not active all the time.

        One that is active reports itself what it waits for; one that dies soon after each start is active in between.
        """
        copied = sum(report.sample.source_ends.values()) - report.total
        if self._copied is None or copied > self._copied:
            self._copied, self._copied_at, self._was_down = copied, report.sample.at, False
        self._was_down = self._was_down or report.mirror != "running"
        return self._was_down and report.sample.at - self._copied_at >= MIRROR_SECONDS


def verify(ctx: Context) -> LagGateResult:
    """Wait until lag has been at or under the plan's threshold for enough samples in a row.

    Changes nothing, whatever happens. Gives up at the plan's deadline, and at once if a partition is halted: waiting
    does not help it.
    """
    settings, wait = ctx.plan.lag_gate, LagWait(ctx)
    deadline = ctx.clock.monotonic() + settings.deadline_seconds
    while True:
        result = wait.look()
        if result is not None:
            return result
        if ctx.clock.monotonic() >= deadline and wait.last is not None:
            held = f"; the mirror is {wait.last.held}" if wait.last.held else ""
            reason = (
                f"lag was not at or under {settings.threshold_records} within {settings.deadline_seconds:g} s{held}"
            )
            return LagGateResult(passed=False, reason=reason, report=wait.last)
        ctx.clock.sleep(wait.interval_seconds)


def describe(report: LagReport) -> str:
    """One line for a person."""
    trend = report.trend
    halted = f", {len(report.halted)} halted" if report.halted else ""
    held = f"; the mirror is {report.held}" if report.held else ""
    open_ = f"; {undecided(report.sample)}" if report.sample.undecided else ""
    rates = f"copying {trend.copied_per_second:,.0f}/s, produced {trend.produced_per_second:,.0f}/s, "
    return (
        f"lag {report.total:,} in {len(report.sample.lag)} partitions, {rates if trend.window_seconds else ''}{trend}"
        f"{halted}{held}{open_}"
    )


def undecided(sample: LagSample) -> str:
    """What open transactions hold back, for a person; empty if nothing."""
    if not sample.undecided:
        return ""
    most = max(sample.undecided, key=lambda tp: (sample.undecided[tp], tp))
    return (
        f"{sum(sample.undecided.values()):,} offsets in {len(sample.undecided)} partitions lie behind open"
        f" transactions, most in {most}, from {sample.source_ends[most]} on"
    )
