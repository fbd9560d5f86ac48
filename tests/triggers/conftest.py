"""Triggers outside Airflow: a home for its configuration, and the snapshot of a plan."""

from __future__ import annotations

import os
import tempfile

# Airflow reads its configuration when it is imported, and would write one into the user's home.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-tests-"))
