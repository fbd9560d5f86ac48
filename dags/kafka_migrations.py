"""Airflow DAGs, two for each migration plan: one that migrates, one that validates again. Built from the phases' table.

A plan that is not valid has no DAG here; `invalid_plans.py`, beside this file, shows it as an import error. So one
wrong plan takes nothing from the others.
"""

from __future__ import annotations

from airflow.sdk import get_parsing_context

from kafka_migration.airflow.factory import plan_dags
from kafka_migration.plans.folder import read_plans

# A task needs its own DAG only: with many plans, building all of them would be most of the task's start.
_WANTED = get_parsing_context().dag_id

for _file, _plan in read_plans().valid.items():
    for _dag_id, _build in plan_dags(_plan, _file).items():
        if _WANTED in (None, _dag_id):
            globals()[_dag_id] = _build()
