"""The DAGs of all plans, for a file of the DAGs folder:

    from kafka_migration.airflow.dags import dags  # Airflow looks for its name, and for "dag", in files
    globals().update(dags())

A plan that is not valid has no DAG, and takes nothing from the others. What is wrong with it is an import error of
a file that calls :func:`raise_problems`: Airflow takes the DAGs of a file with an error away.
"""

from __future__ import annotations

from airflow.sdk import DAG, get_parsing_context

from kafka_migration.airflow.alerts import with_alerts
from kafka_migration.airflow.factory import plan_dags
from kafka_migration.plans.folder import read_plans


def dags() -> dict[str, DAG]:
    """By id; while a task runs its own DAG alone: with many plans, building all would be most of the task's start."""
    wanted = get_parsing_context().dag_id
    return {
        dag_id: build()
        for file, plan in read_plans().valid.items()
        for dag_id, build in plan_dags(plan, file).items()
        if wanted in (None, dag_id)
    }


def raise_problems() -> None:
    """Raise BadInput with everything that is wrong in any plan, if there is anything."""
    with_alerts(read_plans()).raise_problems()
