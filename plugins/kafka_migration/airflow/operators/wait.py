"""The phases that wait. They hold no worker meanwhile: a trigger looks, and the task goes on with its decision."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from kafka_migration.airflow.operators.base import MigrationOperator, require
from kafka_migration.airflow.triggers.groups import GroupsAliveTrigger
from kafka_migration.airflow.triggers.lag import LagGateTrigger
from kafka_migration.airflow.triggers.stop import StopGateTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_migration.airflow.triggers.base import MigrationTrigger

#: A watch of groups gives each group a time of its own; this much more, and the watch itself is not working.
_SPARE_SECONDS = 300.0


class WaitingOperator(MigrationOperator):
    """Base: defers to a trigger, and fails, or is tried again, by the exit code of its decision."""

    trigger_class: type[MigrationTrigger]

    def wait(self, seconds: float) -> None:
        """Wait for the trigger, for so long at most. Does not return."""
        trigger = self.trigger_class(**self.snapshot, gives_up_at=time.time() + seconds)
        self.defer(trigger=trigger, method_name="resume")

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Go on with the decision."""
        require(event["exit_code"], event["message"])
        self.log.info("%s", event["message"])
        return dict(event["facts"])


class KafkaWatchLagOperator(WaitingOperator):
    """Waits until the mirror has caught up."""

    trigger_class = LagGateTrigger

    def execute(self, context: Context) -> None:
        """Defer."""
        self.wait(self.plan().lag_gate.deadline_seconds)


class KafkaWatchGroupsOperator(WaitingOperator):
    """Waits until every moved group lives on the target."""

    trigger_class = GroupsAliveTrigger

    def execute(self, context: Context) -> None:
        """Defer."""
        self.wait(self.plan().cutover.watch_seconds + _SPARE_SECONDS)


class KafkaStopMirrorOperator(WaitingOperator):
    """Waits until producers have left the source, then drains the mirror and ends it.

    A try waits for the plan's ``drain.deadline_seconds``; the task is tried again and again, so that in a live
    migration the mirror runs on until there is nothing more to copy.
    """

    trigger_class = StopGateTrigger

    def execute(self, context: Context) -> None:
        """Defer."""
        self.wait(self.plan().drain.deadline_seconds)

    def resume(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Prove once more what the trigger saw, and end the mirror by it."""
        from kafka_migration.migration.history import phase
        from kafka_migration.steps import stop

        super().resume(context, event)
        with self.opened(make_state=True) as ctx, phase(ctx, "stop_mirror") as run:
            result = stop.apply(ctx)
            said = "; ".join(f"{it.name}: {it.evidence} (remedy: {it.remedy})" for it in result.gate.blockers)
            # A producer wrote again since the trigger looked, say. What needs a person fails this task, which alerts:
            # another try would find the same.
            code = 0 if result.stopped else 3 if result.may_pass else result.gate.exit_code
            run.ends(code, said)
        then = "" if result.may_pass else "\n  then clear this task; the mirror runs on"
        require(code, f"the mirror was not ended: {said or result.mirror}{then}")
        return {"records": result.mirror.get("records", 0), "reason": str(result.mirror.get("reason", ""))}
