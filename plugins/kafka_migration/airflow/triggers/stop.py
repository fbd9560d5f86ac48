"""Waiting until producers have left the source and the mirror has copied everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafka_migration.airflow.triggers.base import Decision, MigrationTrigger, Watch
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.link.lag import LagReport
    from kafka_migration.migration.context import Context


#: Seconds between two looks at the moved groups on the source: a group that is active there again is named within a
#: minute (docs/behaviours.md, 47).
GROUPS_SECONDS = 30.0

#: Kafka's default of ``transaction.timeout.ms``: a transaction that holds a partition back for longer hangs, as a rule.
TRANSACTION_SECONDS = 60.0


class StopGateTrigger(MigrationTrigger):
    """Fires once source log ends were still for the plan's window and no lag remains. The task then proves it again.

    Fires as well once a moved group is active on the source again, and when its time is over while nothing but an open
    transaction is left: both fail the task, which alerts.
    """

    def watch(self, ctx: Context) -> Watch:
        """The gate of the plan's drain."""
        return StopWatch(ctx)


class StopWatch:
    """One look at all source log ends and at lag, and now and then at the moved groups on the source. Says what moves
    whenever that changes."""

    def __init__(self, ctx: Context) -> None:
        from kafka_migration.link.lag import LagMeter

        self._window = ctx.plan.drain.window_seconds
        # Some looks within the window: an end that moves and a look that misses it cannot meet, ends never go back.
        self.interval_seconds = min(5.0, max(0.5, self._window / 3))
        self._ctx, self._meter = ctx, LagMeter(ctx)
        self._ends: Mapping[TopicPartition, int] = {}
        self._still_since = 0.0
        self._said = ""
        self._groups_at: float | None = None
        self._hanging = ""

    def look(self) -> Decision | None:
        """Compare with the look before."""
        from kafka_migration.groups import sides
        from kafka_migration.link.lag import undecided

        report = self._meter.read()
        now = report.sample.at
        ends = dict(report.sample.source_ends)
        moved = [tp for tp in ends if self._ends.get(tp) != ends[tp]]
        if moved:
            self._still_since = now
        first, self._ends = not self._ends, ends
        self._tell(report, 0 if first else len(moved))
        if report.halted:
            halted = ", ".join(f"{tp} {reason}" for tp, reason in sorted(report.halted.items())[:5])
            remedy = "`status` says what can be done; then clear this task"
            return Decision(exit_code=1, message=f"halted partitions never drain: {halted}\n  remedy: {remedy}")
        if self._groups_at is None or now - self._groups_at >= GROUPS_SECONDS:
            self._groups_at = now
            groups = sides.check_back(self._ctx)
            if groups.verdict is Verdict.FAIL:
                remedy = f"{groups.remedy}; then clear this task. The mirror runs on"
                message = f"moved groups are active on the source again: {groups.evidence}\n  remedy: {remedy}"
                return Decision(exit_code=1, message=message)
        open_ = undecided(report.sample)
        self._hanging = open_ if report.total == 0 and now - self._still_since >= TRANSACTION_SECONDS else ""
        if report.total == 0 and not open_ and now - self._still_since >= self._window:
            return Decision(exit_code=0, message=f"no source end moved in {self._window:g} s, and lag is 0")
        return None

    def too_late(self, overdue: str) -> Decision:
        """The mirror runs on; the task is tried again, and waits again, unless a person has to act first."""
        if self._hanging:
            remedy = "find it and abort it with kafka-transactions.sh (find-hanging, abort); then clear this task"
            return Decision(exit_code=1, message=f"{overdue}: {self._hanging}\n  remedy: {remedy}. The mirror runs on")
        remedy = "stop the producers of the plan's topics on the source; the mirror copies what they write until then"
        return Decision(exit_code=3, message=f"{overdue}: {self._said}\n  remedy: {remedy}")

    def _tell(self, report: LagReport, moved: int) -> None:
        said = f"{moved} source partitions grow" if moved else "source log ends are still"
        said += ", lag remains" if report.total else ", no lag"
        if said != self._said:
            self._ctx.tell(f"{said} ({report.total:,} source offsets to go)")
        self._said = said
