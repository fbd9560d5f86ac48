"""The package as users install it: a wheel in an environment of its own, a DAGs folder of one file, two workers.

Nothing of the checkout is in reach of Airflow: not on its path, not in its folders. The workers share no folder, so
what one task needs of another goes through Airflow and the clusters; reports go to a store, by its URL.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from demo.airflow import ROOT
from demo.errors import DemoError

#: Where the executor finds its workers' homes. It has the name once more: it runs where none of this can be imported.
VARIABLE = "KAFKA_MIGRATION_DEMO_WORKERS"
WORKERS = ("worker-1", "worker-2")
DAG_FILE = """\
from kafka_migration.airflow.dags import dags  # finds plans; Airflow looks for "dag" in this file

globals().update(dags())
"""
_SECONDS = 900.0


class Installation:
    """The package installed below ``folder``, and the homes of two workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "environment" / "bin" / "python"
        self.dags, self._site, self._wheels = folder / "dags", folder / "site", folder / "wheels"
        self.homes = tuple(folder / name for name in WORKERS)

    def make(self, plan: Path, *, log: Callable[[str], None]) -> None:
        """Build the wheel, install it with what it requires, and lay out DAGs, plans and homes.

        Raises:
            DemoError: pip failed; with the end of what it printed.
        """
        for folder in (self.dags, self._site, self._wheels):
            folder.mkdir(parents=True)
        log("building the wheel, and installing it in an environment of its own")
        build = ["wheel", "--no-deps", "--no-build-isolation", "-w", str(self._wheels), str(ROOT)]
        _run([sys.executable, "-m", "pip", *build])
        (wheel,) = self._wheels.glob("*.whl")
        _run([sys.executable, "-m", "venv", str(self.folder / "environment")])
        pins = self.folder / "constraints.txt"
        pins.write_text(versions((ROOT / "requirements.lock").read_text(encoding="utf-8")), encoding="utf-8")
        _run([str(self.python), "-m", "pip", "install", "-c", str(pins), str(wheel)])
        (self.dags / "kafka_migrations.py").write_text(DAG_FILE, encoding="utf-8")
        shutil.copy(ROOT / "demo" / "workers" / "two_workers.py", self._site)
        key = secrets.token_hex(32)
        for home in self.homes:
            (home / "tmp").mkdir(parents=True)
            shutil.copytree(self.dags, home / "dags")
            (home / "plans").mkdir()
            shutil.copy(plan, home / "plans")
            with open(os.open(home / "approval.key", os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
                file.write(key)

    def environment(self) -> Mapping[str, str]:
        """What Airflow runs with: no folder of the checkout, and the executor with the two workers."""
        return {
            "PYTHONPATH": str(self._site),
            "PYSPARK_PYTHON": str(self.python),
            "AIRFLOW__CORE__EXECUTOR": "two_workers.TwoWorkersExecutor",
            "KAFKA_MIGRATION_APPROVAL_KEYS_FILE": str(self.homes[0] / "approval.key"),
            VARIABLE: os.pathsep.join(str(home) for home in self.homes),
        }

    def tasks_of(self, home: Path) -> int:
        """How many tries of tasks the worker in ``home`` has run, by its own logs."""
        return sum(1 for _ in (home / "logs").rglob("attempt=*.log"))


def versions(lock: str) -> str:
    """The pins of a lock file, without hashes: of a wheel that was built just now, no lock has any."""
    return "\n".join(re.findall(r"^[a-z0-9][^\\\n]*[^ \\\n]", lock, flags=re.MULTILINE)) + "\n"


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        end = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise DemoError(f"{' '.join(command[1:4])} ended with {done.returncode}:\n{end}")
