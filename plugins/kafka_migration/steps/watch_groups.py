"""Watch groups: wait until every moved group is active where it was moved to: the target, or the source again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.groups.watch import INTERVAL_SECONDS, GroupsWait, Life
from kafka_migration.steps.step import Decision

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context

_SHOWN = 20


class Wait:
    """All groups whose move was begun, looked at until each of them is settled."""

    interval_seconds = INTERVAL_SECONDS

    def __init__(self, ctx: Context) -> None:
        self._wait = GroupsWait(ctx)

    def look(self) -> Decision | None:
        """Look at those that are not settled."""
        return self._decision("every group is settled") if self._wait.look() else None

    def too_late(self, overdue: str) -> Decision:
        """Each group has a time of its own; this comes only if looking did not work."""
        return self._decision(overdue)

    def _decision(self, why: str) -> Decision:
        result, names = self._wait.result, self._wait.names
        rest = [life for life in result.groups if life.life is not Life.ALIVE]
        alive = len(result.groups) - len(rest)
        lines = [f"{alive} of {len(names)} groups are active where they were moved to; {why}"]
        lines += [f"{life.group}: {life.life}: {life.evidence}\n  remedy: {life.remedy}" for life in rest[:_SHOWN]]
        is_complete = len(result.groups) == len(names)
        return Decision(
            exit_code=result.exit_code or (0 if is_complete else 3),
            message="\n".join(lines),
            facts={"groups": len(names), "alive": alive},
            value=result,
        )
