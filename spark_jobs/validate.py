"""Digests of two clusters as a Spark application: ``spark-submit --jars ... spark_jobs/validate.py REQUEST RESULT``.

The package comes from ``--py-files`` (or, in a checkout, from plugins/ beside this file); clusters from the
environment's AIRFLOW_CONN_* variables. Exit code 0 if RESULT was written; the validation judges its content.
"""

import sys
from pathlib import Path

try:
    import kafka_migration  # noqa: F401
except ImportError:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins"))

from kafka_migration.validation.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
