"""No DAG of Airflow: this file fails to import while a migration plan is not valid, and its error names all problems.

Airflow knows import errors of files only, and takes the DAGs of a file with an error away. That must not happen to the
DAGs of the other plans, so the error has a file of its own.
"""

from __future__ import annotations

from kafka_migration.airflow.alerts import with_alerts
from kafka_migration.plans.folder import read_plans

with_alerts(read_plans()).raise_problems()
