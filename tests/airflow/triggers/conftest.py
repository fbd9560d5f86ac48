"""Triggers outside Airflow: a home for its configuration, and the snapshot of a plan."""

from __future__ import annotations

from tests.airflow_home import use_own_airflow_home

use_own_airflow_home()
