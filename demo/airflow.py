"""EmbeddedAirflow: a whole Airflow (`airflow standalone`, SQLite) on 127.0.0.1, as a context manager."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx

from demo.airflow_api import DATABASE_SECONDS, AirflowApi, AirflowError, Approval
from demo.brokers.ports import HOST, PortReservation, is_free
from demo.brokers.process import tail

ROOT = Path(__file__).resolve().parent.parent
KEEPER = Path(__file__).with_name("airflow_keeper.py")
RESTARTING = Path(__file__).with_name("restarting")
USER = "admin"
PARTS = ("metadatabase", "scheduler", "triggerer", "dag_processor")
_END_SECONDS = 60.0
_GRACE_SECONDS = 5.0


class EmbeddedAirflow:
    """Airflow with its own home, on free ports, with this checkout's DAGs and plugins.

    Every process of it ends with this one, however it ends, unless ``standing``. The home keeps database and logs.

        with EmbeddedAirflow(home=folder, plans_dir=plans, connections={"kafka_source": {...}}) as airflow:
            run = airflow.api.trigger("migrate_demo")
    """

    def __init__(
        self,
        *,
        home: Path,
        plans_dir: Path,
        connections: Mapping[str, Mapping[str, Any]],
        dags_folder: Path = ROOT / "dags",
        plugins_folder: Path | None = ROOT / "plugins",
        python: Path = Path(sys.executable),
        env: Mapping[str, str] | None = None,
        port: int | None = None,
        standing: bool = False,
        start_timeout_seconds: float = 240.0,
    ) -> None:
        """Describe it; nothing is started and no port is taken yet.

        Args:
            home: AIRFLOW_HOME; made if need be.
            plans_dir: the folder whose plans become DAGs.
            connections: by id, each as Airflow's JSON form has it (``conn_type``, ``extra``, ...).
            dags_folder: where the DAG files are.
            plugins_folder: where the plugin and the package are; None where ``python`` has them installed.
            python: the interpreter of the environment that Airflow is in.
            env: more environment variables; they win over the ones set here.
            port: of the UI and the API; a free one when absent.
            standing: leave it running when this process ends.
            start_timeout_seconds: from launch until every part of it is healthy.
        """
        self.home = home.resolve()
        self.user, self.password = USER, secrets.token_urlsafe(12)
        self._jwt_secret = secrets.token_urlsafe(64)
        self._plans, self._dags, self._python = plans_dir.resolve(), dags_folder.resolve(), python
        self._plugins = None if plugins_folder is None else plugins_folder.resolve()
        self._connections, self._more, self._port = dict(connections), dict(env or {}), port
        self._standing, self._start_timeout_seconds = standing, start_timeout_seconds
        self._reservation: PortReservation | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._api: AirflowApi | None = None

    @property
    def api(self) -> AirflowApi:
        """The REST API, as the user ``admin``."""
        if self._api is None:
            raise AirflowError("Airflow is not started. Call start(), or use it in a with statement.")
        return self._api

    @property
    def url(self) -> str:
        """Where the UI is."""
        return self.api.base_url

    @property
    def pid(self) -> int | None:
        """The process that keeps all others: SIGTERM ends everything. None when not started."""
        return None if self._keeper is None else self._keeper.pid

    @property
    def log_file(self) -> Path:
        """What Airflow's processes print."""
        return self.home / "standalone.log"

    def start(self) -> Self:
        """Start it and wait until it is healthy.

        Raises:
            AirflowError: it ended or was not healthy in time; nothing is left running.
            PortError: no port is free, or the given one is taken.
        """
        try:
            self._launch()
            self._wait_healthy()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End all of it, tasks that run included. Twice is a no-op."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.terminate()
            try:
                keeper.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                raise AirflowError(f"Airflow (pid {keeper.pid}) did not end; see {self.log_file}") from None
            finally:
                if keeper.stdin is not None:
                    keeper.stdin.close()
        if self._api is not None:
            self._api.close()
            self._api = None
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def wait_for_dags(self, dag_ids: Iterable[str], *, deadline_seconds: float = 90.0) -> None:
        """Return once Airflow has parsed these DAGs.

        Raises:
            AirflowError: not in time; with what could not be imported.
        """
        wanted = set(dag_ids)
        try:
            self.api.wait(
                lambda: wanted <= set(self.api.dag_ids()),
                f"DAGs {', '.join(sorted(wanted))}",
                deadline_seconds=deadline_seconds,
            )
        except AirflowError as error:
            raise AirflowError(f"{error}; import errors: {self.api.import_errors() or 'none'}") from None

    def environment(self) -> dict[str, str]:
        """The environment of every process of it; holds the connections, and so their secrets."""
        if self._reservation is None:
            raise AirflowError("Airflow has no ports yet. Call start().")
        port, worker_logs, trigger_logs = (*([self._port] if self._port else []), *self._reservation)
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW_", "KAFKA_MIGRATION_"))}
        binaries = str(self._python.parent)
        settings = {
            "CORE__DAGS_FOLDER": str(self._dags),
            "CORE__PLUGINS_FOLDER": str(self._plugins or self.home / "plugins"),
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__EXECUTOR": "LocalExecutor",
            # Each costs a process from the start; a migration runs few tasks at a time.
            "CORE__PARALLELISM": "8",
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
            # A writer whose disk is busy holds the others up. After SQLite's default of 5 s, scheduler and triggerer
            # would end, and `airflow standalone` would go on without them.
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{self.home / 'airflow.db'}?timeout={DATABASE_SECONDS:.0f}",
            "LOGGING__BASE_LOG_FOLDER": str(self.home / "logs"),
            "LOGGING__WORKER_LOG_SERVER_PORT": str(worker_logs),
            "LOGGING__TRIGGER_LOG_SERVER_PORT": str(trigger_logs),
            "API__HOST": HOST,
            "API__PORT": str(port),
            # Without it, tasks look for the API where the default port is.
            "API__BASE_URL": f"http://{HOST}:{port}",
            "API__WORKERS": "1",
            "API_AUTH__JWT_SECRET": self._jwt_secret,
            "DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
            "DAG_PROCESSOR__BUNDLE_REFRESH_CHECK_INTERVAL": "5",
            "SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
            "SCHEDULER__USAGE_DATA_COLLECTION_ENABLED": "False",
            # A supervisor may notice so late that its task has ended: each phase would take that long more, and an
            # answer that comes earlier meets a task that seems to run still, and is asked for once more.
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
        }
        return {
            **inherited,
            **{f"AIRFLOW__{name}": value for name, value in settings.items()},
            **{f"AIRFLOW_CONN_{cid.upper()}": json.dumps(conn) for cid, conn in self._connections.items()},
            "AIRFLOW_HOME": str(self.home),
            # What `airflow standalone` starts is started again when it fails.
            "PATH": os.pathsep.join([str(RESTARTING), binaries, inherited.get("PATH", os.defpath)]),
            "KAFKA_MIGRATION_DEMO_AIRFLOW": str(Path(binaries) / "airflow"),
            "PYTHONPATH": os.pathsep.join([str(self._plugins), str(ROOT)]) if self._plugins else "",
            "PYSPARK_PYTHON": str(self._python),
            "SPARK_LOCAL_IP": HOST,
            "NO_PROXY": f"{HOST},localhost",
            "DO_NOT_TRACK": "1",
            "SCARF_ANALYTICS": "false",
            "KAFKA_MIGRATION_PLANS": str(self._plans),
            "KAFKA_MIGRATION_APPROVAL_KEYS_FILE": str(self._approval_key()),
            **self._more,
        }

    def _launch(self) -> None:
        if self._keeper is not None:
            raise AirflowError("Airflow is started already.")
        if self._port is not None and not is_free(self._port):
            raise AirflowError(f"port {self._port} on {HOST} is taken. End what listens there, or choose another.")
        self._reservation = PortReservation(2 if self._port else 3)
        self.home.mkdir(parents=True, exist_ok=True)
        self._write_password()
        environment = self.environment()
        self._api = AirflowApi(
            environment["AIRFLOW__API__BASE_URL"], user=self.user, password=self.password, log_file=self.log_file
        )
        asker = "0" if self._standing else str(os.getpid())
        command = [sys.executable, "-I", str(KEEPER), asker, str(_GRACE_SECONDS)]
        with self.log_file.open("ab") as log:
            self._keeper = subprocess.Popen(
                [*command, str(self._python), "-m", "airflow", "standalone"],
                env=environment,
                cwd=self.home,
                stdin=subprocess.DEVNULL if self._standing else subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _write_password(self) -> None:
        """Before the start, so that nobody has to look for a generated one. A home that has one keeps it."""
        file = self.home / "simple_auth_manager_passwords.json.generated"
        if file.exists():
            self.password = str(json.loads(file.read_text(encoding="utf-8"))[USER])
            return
        with open(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "w", encoding="utf-8") as opened:
            json.dump({USER: self.password}, opened)

    def _approval_key(self) -> Path:
        """The file with the key that answers are signed with: this Airflow's own, made once for a home."""
        file = self.home / "approval.key"
        if not file.exists():
            self.home.mkdir(parents=True, exist_ok=True)
            with open(os.open(file, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "w", encoding="ascii") as opened:
                opened.write(secrets.token_hex(32) + "\n")
        return file

    def _wait_healthy(self) -> None:
        deadline = time.monotonic() + self._start_timeout_seconds
        health: dict[str, str | None] = {}
        while not all(health.get(part) == "healthy" for part in PARTS):
            if self._keeper is None or self._keeper.poll() is not None:
                raise AirflowError(f"Airflow ended while starting; {self.log_file} ends with:\n{tail(self.log_file)}")
            if time.monotonic() > deadline:
                raise AirflowError(
                    f"Airflow was not healthy within {self._start_timeout_seconds:g} s ({health or 'no answer'});"
                    f" {self.log_file} ends with:\n{tail(self.log_file)}"
                )
            time.sleep(0.5)
            try:
                health = self.api.health()
            except httpx.HTTPError:
                continue


__all__ = ["AirflowApi", "AirflowError", "Approval", "EmbeddedAirflow"]
