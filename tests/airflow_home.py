"""A home of its own for Airflow's configuration: it is read, and written, when Airflow is imported."""

import atexit
import os
import shutil
import tempfile


def use_own_airflow_home() -> None:
    """Set AIRFLOW_HOME to a new folder that goes with this process, unless it is set."""
    if "AIRFLOW_HOME" not in os.environ:
        home = os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-tests-")
        atexit.register(shutil.rmtree, home, ignore_errors=True)
