"""What Airflow makes of plugins/: one plugin, cheap to load, and a library that it does not take apart."""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

LOAD = """
import json, sys, types
import airflow.sdk
from airflow import plugins_manager
HEAVY = {"fastapi", "pyspark", "great_expectations", "confluent_kafka"}
before = set(sys.modules)
plugins, errors = plugins_manager._get_plugins()
ours = [plugin for plugin in plugins if plugin.name == "kafka_migration"]
print()
print(json.dumps({
    "errors": errors,
    "ours": len(ours),
    "links": [type(link).__name__ for link in ours[0].operator_extra_links],
    "views": [view["destination"] for view in ours[0].external_views],
    "stdlib_types": sys.modules["types"] is types and hasattr(types, "SimpleNamespace"),
    "heavy": sorted(HEAVY & (set(sys.modules) - before)),
    "library_modules_by_bare_name": [it for it in ("model", "cluster", "journal", "epochs") if it in sys.modules],
}))
"""


def test_airflow_loads_one_plugin_without_what_only_its_server_needs(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "PYTHONPATH": str(ROOT / "plugins"),
        },
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {
        "errors": {},
        "ours": 1,
        "links": ["MigrationLink", "ReportLink", "DocsLink"],
        "views": ["dag_run", "nav"],
        "stdlib_types": True,
        "heavy": [],
        "library_modules_by_bare_name": [],
    }
