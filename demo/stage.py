"""The stage of the demo: two clusters, a live workload on the source, and Airflow, all ending with this process."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo import jars
from demo.access import Access, KerberosAccess, LockedAccess
from demo.airflow import EmbeddedAirflow
from demo.errors import DemoError
from demo.installed import Installation
from demo.parts import Parts
from demo.workload import CONTROL_COMMAND, Workload

ROOT = Path(__file__).resolve().parent.parent
PLAN = ROOT / "migration_plans" / "demo.yaml"
SPARK_MASTER = "local[2]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where a run keeps what: below ``directory``, but the reports, which are for people."""

    directory: Path
    reports: Path

    @property
    def report(self) -> Path:
        """The report of the demo's plan."""
        return self.reports / "demo" / "report.json"


class Stage(Parts):
    """Everything that has to run before a migration can begin.

    with Stage(places, log=print) as stage:
        stage.airflow.api.trigger("migrate_demo")
    """

    def __init__(
        self,
        places: Places,
        *,
        log: Callable[[str], None],
        airflow_port: int | None = None,
        secure: bool = False,
        kerberos: bool = False,
        installed: bool = False,
    ) -> None:
        """Describe it; nothing is started yet. ``secure``, ``kerberos``: both clusters locked, see `demo/access.py`.
        ``installed``: Airflow runs the wheel, on two workers, see `demo/installed.py`."""
        super().__init__(log)
        self.places = places
        folder = places.directory / "certificates"
        self._access = KerberosAccess(folder) if kerberos else LockedAccess(folder) if secure else Access()
        self.source, self.target = self._access.source, self._access.target
        self._airflow_port = airflow_port
        self.installation = Installation(places.directory / "installed") if installed else None
        self.workload: Workload
        self.airflow: EmbeddedAirflow

    def environment(self) -> dict[str, str]:
        """What the library is told by environment variables, the clusters' connections left out."""
        reports = self.places.reports
        return {
            **hook_environment(self.workload),
            # A store, to workers that share no folder.
            "KAFKA_MIGRATION_REPORTS_DIR": reports.as_uri() if self.installation else str(reports),
            **(self.installation.environment() if self.installation else {}),
        }

    def connections(self) -> dict[str, dict[str, Any]]:
        """Airflow's connections, in its JSON form."""
        return {
            **self._access.connections(),
            "spark_default": {"conn_type": "spark", "host": SPARK_MASTER},
        }

    def _start(self) -> None:
        # Airflow beside the loading of the source, as both take half a minute.
        self.places.directory.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self.places.report.parent, ignore_errors=True)
        if self.installation:
            self.installation.make(PLAN, log=self.log)
        self.log(f"starting two Kafka clusters{self._access.locks}")
        self._access.prepare(self._stack)
        for cluster in (self.source, self.target):
            self._stack.callback(cluster.stop)
            cluster.launch()
        for cluster in (self.source, self.target):
            cluster.wait_ready()
        self._access.open_up(PLAN)
        workload = Workload(self.places.directory / "workload", self._access.settings())
        self.workload = self._stack.enter_context(workload)
        plans = self.places.directory / "plans"
        plans.mkdir()
        shutil.copy(PLAN, plans)
        self.airflow = EmbeddedAirflow(
            home=self.places.directory / "airflow",
            plans_dir=plans,
            connections=self.connections(),
            env=self.environment(),
            port=self._airflow_port,
            **self._of_the_wheel(),
        )
        self._stack.callback(self.airflow.stop)
        self.log("starting Airflow, and filling the source with 1,000,000 records meanwhile")
        starting = _Beside(self.airflow.start)
        self.workload.prepare()
        self.workload.start()
        self.log("producers and consumers are at work on the source")
        starting.join()
        self.airflow.wait_for_dags(["migrate_demo", "validate_demo"])
        self.log(f"Airflow: {self.airflow.url}  user {self.airflow.user}  password {self.airflow.password}")

    def _of_the_wheel(self) -> dict[str, Any]:
        if self.installation is None:
            return {}
        return {"python": self.installation.python, "dags_folder": self.installation.dags, "plugins_folder": None}


def hook_environment(workload: Workload) -> dict[str, str]:
    """What commands and tasks need in their environment for the plan's hooks, and for Spark."""
    return {
        **workload.environment,
        "KAFKA_MIGRATION_ALLOWED_COMMANDS": str(CONTROL_COMMAND),
        "KAFKA_MIGRATION_COMMAND_ENVIRONMENT": ":".join(workload.environment),
        "KAFKA_MIGRATION_SPARK_JARS": ",".join(str(path) for path in jars.paths("spark")),
    }


class _Beside:
    """A call in a thread; ``join`` raises what it raised."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self._call()
        except BaseException as error:
            self._error = error

    def join(self) -> None:
        self._thread.join()
        if isinstance(self._error, DemoError):
            raise self._error
        if self._error is not None:
            raise DemoError(f"Airflow did not start: {self._error!r}") from self._error
