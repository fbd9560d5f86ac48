"""Validation as tasks: once within a migration, and again on a schedule or by hand while it is in flight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import ShortCircuitOperator

from kafka_migration.airflow.operators.base import MigrationOperator, explained, require
from kafka_migration.airflow.operators.phases import reports_directory
from kafka_migration.airflow.operators.spark_connection import spark_master
from kafka_migration.airflow.triggers.logs import hide_secrets, quiet_clients
from kafka_migration.domain.levels import Level
from kafka_migration.plans.load import load_plan

if TYPE_CHECKING:
    from airflow.sdk import Context


class SparkValidateOperator(MigrationOperator):
    """Compares source and target, with Spark in a process of its own. The DAG's form, if it has one, names topics and
    level, and asks for everything or for what is new."""

    def __init__(self, *, conn_id: str, **kwargs: Any) -> None:
        """``conn_id`` names the Spark connection."""
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """The verdict."""
        from kafka_migration.migration.history import phase
        from kafka_migration.validation import validate

        form = context["params"]
        level = Level(form["level"]) if form.get("level") else None
        with self.opened(make_state=True) as ctx, phase(ctx, "validate") as run:
            master = spark_master(self.conn_id, field="validation.spark_connection")
            found = validate.apply(
                ctx,
                spark_master=master,
                reports=reports_directory(),
                topics=form.get("topics") or (),
                level=level,
                full=bool(form.get("full")),
            )
            run.ends(found.exit_code, found.result.summary())
        remedy = f"see the Data Docs, and {found.folder / 'validation.json'}"
        require(found.exit_code, f"{found.result.summary()}\n  remedy: {remedy}")
        return {"verdict": str(found.verdict), "folder": str(found.folder)}


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
