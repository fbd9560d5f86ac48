"""The account of CPU time misses nobody: not who ends at once, and not who is left by its parent."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cpu import kind
from tests.waiting import HANGS_SECONDS

ROOT = Path(__file__).resolve().parents[1]
BUSY = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
#: Two children at work, one of them an orphan, and a status of its own.
PROGRAM = f"""
import os, subprocess, sys
work = [sys.executable, "-c", {BUSY!r}]
if os.fork() == 0:
    subprocess.Popen(work)
    os._exit(0)
os.wait()
subprocess.run(work)
sys.exit(3)
"""


def test_command_is_run_to_its_end_and_all_that_its_processes_used_is_counted() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.cpu", sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=HANGS_SECONDS,
    )
    assert done.returncode == 3, done.stderr
    (total,) = re.findall(r"^ *(\d+\.\d) .* in all, ", done.stderr, re.MULTILINE)
    assert float(total) >= 0.9
    assert "between looks" in done.stderr


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/usr/bin/java -Xmx512m -cp a.jar:b.jar kafka.Kafka /tmp/server.properties", "broker JVMs"),
        ("python -I demo/brokers/leash.py 1 /tmp /usr/bin/java -cp a.jar kafka.Kafka x", "leashes"),
        ("/usr/bin/java -cp a.jar kafka.tools.StorageTool format", "StorageTool JVMs"),
        ("/usr/lib/jvm/bin/java -cp jars/* org.apache.spark.deploy.SparkSubmit", "Spark JVMs"),
        (".venv/bin/python -m pyspark.daemon pyspark.worker", "Spark's Python workers"),
        ("airflow task supervisor: migrate_demo", "Airflow"),
        (".venv/bin/python -u -c import sys;exec(eval(sys.stdin.readline()))", "pytest"),
        ("sleep 1", "other"),
    ],
)
def test_process_is_told_by_its_command_line(command: str, name: str) -> None:
    assert kind(command) == name
