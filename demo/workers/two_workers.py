"""An Airflow executor for the demo from the wheel: two workers that share no folder.

Each worker has a home of its own, with its own copy of the DAGs folder, the plans and the approval key, as two machines
have theirs; tasks go to them by turns. KAFKA_MIGRATION_DEMO_WORKERS names the homes. Copied beside the installed
packages, so it imports nothing of the checkout.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.executors.base_executor import BaseExecutor

VARIABLE = "KAFKA_MIGRATION_DEMO_WORKERS"
_END_SECONDS = 30.0


class TwoWorkersExecutor(BaseExecutor):
    """Runs each task in a process of its own, in the home of one of the workers."""

    is_local = True

    def start(self) -> None:
        """Nothing runs before there is a task."""
        self._homes = itertools.cycle(Path(home) for home in os.environ[VARIABLE].split(os.pathsep))
        self._processes: dict[Any, subprocess.Popen[bytes]] = {}

    def sync(self) -> None:
        """Report tasks that have ended to the scheduler."""
        for key, process in list(self._processes.items()):
            if process.poll() is not None:
                del self._processes[key]
                (self.fail if process.returncode else self.success)(key)

    def _process_workloads(self, workload_items: Sequence[Any]) -> None:
        for workload in workload_items:
            self.queued_tasks.pop(workload.key, None)
            self.running.add(workload.key)
            self._processes[workload.key] = _begin(workload, next(self._homes))

    def end(self) -> None:
        """End tasks that run still: whoever ends the demo waits for nobody."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()

    def terminate(self) -> None:
        """As :meth:`end`."""
        self.end()


def environment_of(home: Path) -> dict[str, str]:
    """What the processes of the worker in ``home`` see: its own folders wherever a folder is named."""
    own = {
        "HOME": home,
        "TMPDIR": home / "tmp",
        "AIRFLOW_HOME": home,
        "AIRFLOW__CORE__DAGS_FOLDER": home / "dags",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": home / "logs",
        "KAFKA_MIGRATION_PLANS": home / "plans",
        "KAFKA_MIGRATION_APPROVAL_KEYS_FILE": home / "approval.key",
    }
    return {**os.environ, **{name: str(value) for name, value in own.items()}}


def _begin(workload: Any, home: Path) -> subprocess.Popen[bytes]:
    environment = environment_of(home)
    # In a file that only this user reads: it holds the task's token.
    file = home / "tmp" / f"{workload.ti.id}-{workload.ti.try_number}.json"
    with open(os.open(file, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600), "w", encoding="utf-8") as opened:
        opened.write(workload.model_dump_json())
    with (home / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "airflow.sdk.execution_time.execute_workload", "--json-path", str(file)],
            env=environment,
            cwd=home,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
