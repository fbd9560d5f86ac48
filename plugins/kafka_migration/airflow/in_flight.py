"""Whether a migration is in flight, asked before it is validated again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import ShortCircuitOperator

from kafka_migration.airflow.base import explained
from kafka_migration.airflow.logs import hide_secrets, quiet_clients
from kafka_migration.plans.load import load_plan

if TYPE_CHECKING:
    pass


class MigrationInFlightOperator(ShortCircuitOperator):
    """Lets pass while the plan's migration is in flight, by what stands on the target; skips what follows otherwise."""

    def __init__(self, *, plan_file: str, **kwargs: Any) -> None:
        """``plan_file`` is read when the task runs."""
        super().__init__(python_callable=self._in_flight, **kwargs)
        self.plan_file = plan_file

    def _in_flight(self) -> bool:
        from kafka_migration.link.flight import in_flight
        from kafka_migration.migration.context import open_context

        quiet_clients()
        with explained(), open_context(load_plan(self.plan_file)) as ctx:
            hide_secrets(ctx)
            return in_flight(ctx)
