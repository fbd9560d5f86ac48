"""Waiting until every moved group lives on the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafka_migration.triggers.base import MigrationTrigger, Verdict, Watch

if TYPE_CHECKING:
    from kafka_migration.phases.context import Context
    from kafka_migration.phases.watch_groups import GroupLife


class GroupsAliveTrigger(MigrationTrigger):
    """Fires once every group that this migration moved lives on the target, or its time is over."""

    phase = "watch_groups"

    def watch(self, ctx: Context) -> Watch:
        """All groups whose move was begun."""
        return GroupsWatch(ctx)


class GroupsWatch:
    """One look at each group that is not settled yet."""

    def __init__(self, ctx: Context) -> None:
        from kafka_migration.phases.group_record import GroupRecord, Step
        from kafka_migration.phases.watch_groups import INTERVAL_SECONDS

        self.interval_seconds = INTERVAL_SECONDS
        self._ctx = ctx
        records = GroupRecord.all(ctx.journal)
        # A group that was moved back is the source's again, and not looked for here.
        self._names = sorted(g for g, it in records.items() if it.steps and not it.has(Step.UNDONE))
        self._lives: dict[str, GroupLife] = {}
        ctx.tell(f"watch {len(self._names)} groups on the target")

    def look(self) -> Verdict | None:
        """Look at those that are not settled; each is told once, when it is."""
        from kafka_migration.phases import watch_groups

        waiting = [name for name in self._names if name not in self._lives or not self._lives[name].is_final]
        for life in watch_groups.sample(self._ctx, waiting).groups:
            self._lives[life.group] = life
            if life.is_final:
                self._ctx.tell(f"{life.group}: {life.life}: {life.evidence}")
        if all(name in self._lives and self._lives[name].is_final for name in self._names):
            return self._verdict("every group is settled")
        return None

    def too_late(self, overdue: str) -> Verdict:
        """Each group has a time of its own; this comes only if looking did not work."""
        return self._verdict(overdue)

    def _verdict(self, why: str) -> Verdict:
        from kafka_migration.phases.watch_groups import Life, WatchResult

        result = WatchResult(groups=tuple(self._lives[name] for name in self._names if name in self._lives))
        alive = sum(life.life is Life.ALIVE for life in result.groups)
        rest = [life for life in result.groups if life.life is not Life.ALIVE]
        lines = [f"{alive} of {len(self._names)} groups live on the target; {why}"]
        lines += [f"{life.group}: {life.life}: {life.evidence}\n  remedy: {life.remedy}" for life in rest[:20]]
        complete = len(result.groups) == len(self._names)
        return Verdict(
            exit_code=result.exit_code or (0 if complete else 3),
            message="\n".join(lines),
            facts={"groups": len(self._names), "alive": alive},
        )
