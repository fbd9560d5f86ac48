"""No DAG of Airflow: this file fails to import while a migration plan is not valid, with all that is wrong.

Airflow knows import errors of files only, and takes the DAGs of a file with an error away. That must not happen to the
DAGs of the other plans, so the error has a file of its own.
"""

from kafka_migration.airflow.dags import raise_problems

raise_problems()
