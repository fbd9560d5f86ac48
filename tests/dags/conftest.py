"""Plans in folders of their own, and what Airflow makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
Parse = Callable[[Path], dict[str, Any]]


@pytest.fixture(scope="session")
def parse_plans(tmp_path_factory: pytest.TempPathFactory) -> Parse:
    """Parse dags/ over a folder of plans, in a process of its own; see parsing.py for what comes back."""
    home = tmp_path_factory.mktemp("airflow")

    def parse(plans: Path, **environment: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("parsing.py")), str(ROOT / "dags")],
            env={
                **os.environ,
                "AIRFLOW_HOME": str(home),
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
                "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
                "PYTHONPATH": str(ROOT / "plugins"),
                "KAFKA_MIGRATION_PLANS": str(plans),
                **environment,
            },
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return parse
