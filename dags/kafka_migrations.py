"""Airflow DAGs, three for each migration plan: one migrates, one moves clients back, one validates.

A plan that is not valid has no DAG here; `invalid_plans.py`, beside this file, shows it as an import error. So one
wrong plan takes nothing from the others.
"""

from kafka_migration.airflow.dags import dags

globals().update(dags())
