"""The mirror as a Spark application: ``spark-submit spark_jobs/mirror.py PLAN [--until-caught-up]``.

The package comes from ``--py-files`` (or, in a checkout, from plugins/ beside this file); clusters from the
environment's AIRFLOW_CONN_* variables. Exit codes as the command line's.
"""

import sys
from pathlib import Path

try:
    import kafka_migration  # noqa: F401
except ImportError:
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "plugins"))

from kafka_migration.steps.mirror import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
