"""Waiting until the mirror has caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.domain.lag import LagGate
from kafka_migration.triggers.base import MigrationTrigger, Verdict, Watch

if TYPE_CHECKING:
    from kafka_migration.phases.context import Context
    from kafka_migration.phases.lag import LagReport


class LagGateTrigger(MigrationTrigger):
    """Fires once lag was at or under the plan's threshold for enough samples in a row, or never will be."""

    phase = "watch_lag"

    def watch(self, ctx: Context) -> Watch:
        """The gate of the plan."""
        return LagWatch(ctx)


class LagWatch:
    """One sample a look. The streak lives here: it begins anew with every watch."""

    def __init__(self, ctx: Context) -> None:
        from kafka_migration.phases.lag import LagMeter

        settings = ctx.plan.lag_gate
        self.interval_seconds = settings.interval_seconds
        self._gate = LagGate(threshold=settings.threshold_records, samples=settings.samples)
        self._meter, self._tell = LagMeter(ctx), ctx.tell
        self._last: LagReport | None = None

    def look(self) -> Verdict | None:
        """Take one sample. A halted partition never catches up, so waiting ends there."""
        from kafka_migration.phases.lag import describe

        report = self._last = self._meter.read()
        self._tell(describe(report))
        if report.halted:
            halted = ", ".join(f"{tp} {reason}" for tp, reason in sorted(report.halted.items())[:5])
            message = f"{len(report.halted)} partitions are halted: {halted}\n  remedy: `status` says what can be done"
            return Verdict(exit_code=1, message=message, facts={"lag": report.total})
        if self._gate.observe(report.sample):
            message = f"{self._gate.needed} samples in a row at or under {self._gate.threshold}"
            return Verdict(exit_code=0, message=message, facts={"lag": report.total})
        return None

    def too_late(self, overdue: str) -> Verdict:
        """Nothing was changed; clearing the task waits again."""
        from kafka_migration.phases.lag import describe

        seen = "nothing was measured" if self._last is None else describe(self._last)
        remedy = "see that the mirror runs and keeps up (mirror.num_streams), then clear this task: it waits again"
        facts = {} if self._last is None else {"lag": self._last.total}
        return Verdict(exit_code=1, message=f"{overdue}: {seen}\n  remedy: {remedy}", facts=facts)
