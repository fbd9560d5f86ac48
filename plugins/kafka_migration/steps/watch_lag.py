"""Watch lag: wait until the mirror has caught up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.link.lag import LagWait, describe
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


class Wait:
    """The plan's lag gate, one sample a look. Changes nothing, whatever happens."""

    def __init__(self, ctx: Context) -> None:
        self._wait = LagWait(ctx)
        self.interval_seconds = self._wait.interval_seconds

    def look(self) -> Decision | None:
        """Take one sample."""
        result = self._wait.look()
        if result is None:
            return None
        remedy = "" if result.passed else "\n  remedy: `status` names what can be done"
        return Decision(
            exit_code=0 if result.passed else 1,
            message=f"{result.reason}{remedy}",
            facts={"lag": result.report.total},
            kept={"history": self._wait.history},
            value=result,
        )

    def too_late(self, overdue: str) -> Decision:
        """Nothing was changed; clearing the task waits again."""
        last = self._wait.last
        seen = "nothing was measured" if last is None else describe(last)
        streams = "mirror.num_streams, or that of the topic's entry in mirror.dedicated_streams"
        remedy = f"see that the mirror runs and keeps up ({streams}), then clear this task: it waits again"
        facts = {} if last is None else {"lag": last.total}
        kept = {"history": self._wait.history}
        return Decision(exit_code=1, message=f"{overdue}: {seen}\n  remedy: {remedy}", facts=facts, kept=kept)
