"""Waiting until every moved group lives on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.airflow.triggers.base import Decision, MigrationTrigger, Watch

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context


class GroupsAliveTrigger(MigrationTrigger):
    """Fires once every group that this migration moved lives on the target, or its time is over."""

    phase = "watch_groups"

    def watch(self, ctx: Context) -> Watch:
        """All groups whose move was begun."""
        return GroupsWatch(ctx)


class GroupsWatch:
    """The wait of the watch phase, as a trigger's."""

    def __init__(self, ctx: Context) -> None:
        from kafka_migration.groups.watch import INTERVAL_SECONDS, GroupsWait

        self.interval_seconds = INTERVAL_SECONDS
        self._wait = GroupsWait(ctx)

    def look(self) -> Decision | None:
        """Look at those that are not settled."""
        return self._decision("every group is settled") if self._wait.look() else None

    def too_late(self, overdue: str) -> Decision:
        """Each group has a time of its own; this comes only if looking did not work."""
        return self._decision(overdue)

    def _decision(self, why: str) -> Decision:
        from kafka_migration.groups.watch import Life

        result, names = self._wait.result, self._wait.names
        alive = sum(life.life is Life.ALIVE for life in result.groups)
        rest = [life for life in result.groups if life.life is not Life.ALIVE]
        lines = [f"{alive} of {len(names)} groups are active on the target; {why}"]
        lines += [f"{life.group}: {life.life}: {life.evidence}\n  remedy: {life.remedy}" for life in rest[:20]]
        complete = len(result.groups) == len(names)
        return Decision(
            exit_code=result.exit_code or (0 if complete else 3),
            message="\n".join(lines),
            facts={"groups": len(names), "alive": alive},
        )
