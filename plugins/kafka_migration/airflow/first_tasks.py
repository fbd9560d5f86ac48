"""The first tasks of a run: note the plan as it is now; before a repeated validation, ask whether it is of use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import ShortCircuitOperator
from airflow.sdk import BaseOperator

from kafka_migration.airflow.base import explained
from kafka_migration.airflow.opening import opened_context
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.snapshot import Snapshot

if TYPE_CHECKING:
    from airflow.sdk import Context


class PlanSnapshotOperator(BaseOperator):
    """Takes the plan's snapshot; all other tasks of the run work from it."""

    def __init__(self, *, plan_file: str, **kwargs: Any) -> None:
        """``plan_file`` is read when the task runs, not before."""
        super().__init__(**kwargs)
        self.plan_file = plan_file

    def execute(self, context: Context) -> dict[str, str]:
        """Text and digest of the snapshot."""
        with explained():
            snapshot = Snapshot.take(load_plan(Path(self.plan_file)))
        self.log.info("the run works from %s as it is now (%s)", self.plan_file, snapshot.digest)
        return snapshot.as_dict()


class MigrationInFlightOperator(ShortCircuitOperator):
    """Passes while the plan's migration is in flight, by the state on the target; skips what follows otherwise."""

    def __init__(self, *, plan_file: str, **kwargs: Any) -> None:
        """``plan_file`` is read when the task runs."""
        super().__init__(python_callable=self._in_flight, **kwargs)
        self.plan_file = plan_file

    def _in_flight(self) -> bool:
        from kafka_migration.link.flight import in_flight

        with explained(), opened_context(load_plan(self.plan_file), self.log) as ctx:
            return in_flight(ctx)
