"""The process that runs the mirror's Spark application: detached from the task that starts it, it lives for weeks.

    python -m kafka_migration.airflow.submit --plan FILE --connection ID --submission ID [--reverse]

Connections, Spark's own included, come from its environment (AIRFLOW_CONN_*) alone. Output goes to standard output,
without secrets. How it ended is noted in the journal, so that whoever waits need not wait for silence.

Also which of Airflow's Spark connections our jobs can be submitted through.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NoReturn

from kafka_migration.domain.direction import Direction
from kafka_migration.domain.errors import BadInput, MigrationError
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.leash import Leash
from kafka_migration.domain.shipped import shipped
from kafka_migration.kafka.lookup import from_airflow
from kafka_migration.plans.snapshot import write_plan
from kafka_migration.steps.table import step_named

if TYPE_CHECKING:
    from kafka_migration.migration.context import Context
    from kafka_migration.plans.model import Plan
    from kafka_migration.steps.mirror_watch import Submission
    from kafka_migration.steps.step import Step

MIRROR_JOB = shipped("spark_jobs/mirror.py")
_PLUGINS = Path(__file__).resolve().parents[2]
_DATABASE = ("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "AIRFLOW__CORE__SQL_ALCHEMY_CONN")
_LAST_LINES = 30
_KEPT = 20
MOST_CHARACTERS = 8_000


def require_spark_connection(conn_id: str, *, field: str) -> Any:
    """The connection. Raises BadInput if there is none (the provider would quietly take YARN), or for cluster mode.

    In cluster mode the driver runs elsewhere, and what is in its environment, secrets included, is part of Spark's
    configuration. ``field`` is where the plan names the connection.
    """
    connection = from_airflow(conn_id)
    if connection is None:
        raise BadInput(
            f"no connection has the id {conn_id!r}",
            field=field,
            value=conn_id,
            remedy="add it in Airflow under Admin, Connections (type Spark; host local[2], spark://host:7077, yarn or "
            "k8s://...), or name another one in the plan",
        )
    mode = connection.extra_dejson.get("deploy-mode")
    if mode not in (None, "", "client"):
        raise BadInput(
            f"deploy-mode is {mode}, but the clusters' secrets reach the driver through its environment alone",
            file=f"connection {conn_id}",
            field="deploy-mode",
            value=mode,
            remedy="set deploy-mode to client; executors still run on the Spark cluster",
        )
    return connection


def require_kubernetes_client(master: str) -> None:
    """Raises BadInput if ``master`` is Kubernetes and its client is missing: the provider fails with a NameError."""
    if master.startswith("k8s") and find_spec("kubernetes") is None:
        raise BadInput(
            "the Spark provider needs the Kubernetes client for this master, and it is not installed",
            field="master",
            value=master,
            remedy="install apache-airflow-providers-cncf-kubernetes where the workers run",
        )


def spark_master(conn_id: str, *, field: str) -> str:
    """The connection's master URL, put together as the provider does. Raises what the check raises."""
    connection = require_spark_connection(conn_id, field=field)
    host = connection.host or ""
    if connection.conn_type == "spark" and host and ("://" in host or not connection.port):
        master = host
    else:
        master = f"{connection.conn_type}://{host}"
    return f"{master}:{connection.port}" if connection.port else master


def start(ctx: Context, connection: Any, *, folder: Path) -> tuple[Submission, int]:
    """Start the process for the mirror of ``ctx``, through Airflow's Spark ``connection``; what was noted of it, and
    its process id. It outlives this one: a session of its own, and nothing of this one's open files.

    The plan and the output are files of a new folder below ``folder``, which only this user may read; of the folders
    there the last :data:`_KEPT` stay.
    """
    from kafka_migration.steps import mirror_watch

    own = folder / ctx.plan.name / f"{ctx.clock.now():%Y%m%dT%H%M%S.%fZ}"
    own.mkdir(mode=0o700, parents=True)
    for old in sorted(own.parent.iterdir())[:-_KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    plan, log = write_plan(ctx.plan, own), own / "output.log"
    environment = job_environment(ctx.plan, os.environ, spark=connection)
    made = mirror_watch.submit(ctx, host=socket.gethostname(), log=str(log))
    command = [sys.executable, "-m", __name__, "--plan", str(plan)]
    command += ["--connection", connection.conn_id, "--submission", made.id]
    command += ["--reverse"] if ctx.direction is Direction.REVERSE else []
    try:
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=own,
                start_new_session=True,
            )
    except OSError:
        mirror_watch.record_end(ctx, made.id)
        raise
    return made, process.pid


def job_environment(plan: Plan, environ: Mapping[str, str], *, spark: Any) -> dict[str, str]:
    """The environment of the process, with both clusters' connections and Airflow's connection ``spark``. Holds
    secrets: never log it."""
    from kafka_migration.kafka.lookup import find_connection, find_fields, stated, variable_of
    from kafka_migration.migration.signing import without_keys

    # The mirror asks no gate, so its driver needs no approval key.
    found = without_keys(environ)
    for conn_id in (plan.source, plan.target):
        properties = dict(find_connection(conn_id).properties)
        found[variable_of(conn_id)] = stated(properties)
    for conn_id in plan.registries:
        if (read := find_fields(conn_id)) is not None:
            found[variable_of(conn_id)] = json.dumps(read[1])
    fields = ("conn_type", "host", "port", "schema", "login", "password")
    values = {name: getattr(spark, name) for name in fields if getattr(spark, name) is not None}
    found[variable_of(spark.conn_id)] = json.dumps({**values, "extra": spark.extra_dejson})
    found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Executors elsewhere may have another one; whoever runs the workers sets this variable.
    found.setdefault("PYSPARK_PYTHON", sys.executable)
    # Last, so that a Spark of the machine's own goes before the one that pyspark brings along.
    binaries = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([found.get("PATH", os.defpath), binaries])
    # A task's environment names a database that does not exist, and Airflow's own is none of this process's business.
    found.update(dict.fromkeys(_DATABASE, "sqlite://"))
    # Airflow finds the package in its plugins folder, which Python does not know.
    found["PYTHONPATH"] = os.pathsep.join(filter(None, (str(_PLUGINS), found.get("PYTHONPATH", ""))))
    return found


def main(arguments: Sequence[str]) -> int:
    """Submit, and return once the application has ended: 0 if it ended well."""
    from kafka_migration.kafka.lookup import find_connection
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan
    from kafka_migration.schemas.connection import secrets_of
    from kafka_migration.steps import mirror_watch

    parser = argparse.ArgumentParser(prog="kafka_migration.airflow.submit", description="Submit a plan's mirror.")
    parser.add_argument("--plan", type=Path, required=True, help="the plan")
    parser.add_argument("--connection", required=True, help="the id of Airflow's Spark connection")
    parser.add_argument("--submission", required=True, help="the id of this submission")
    parser.add_argument("--reverse", action="store_true", help="mirror from the target back to the source")
    options = parser.parse_args(arguments)
    row = step_named("reverse_mirror" if options.reverse else "mirror")
    plan = load_plan(options.plan)
    secrets = {secret for side in (plan.source, plan.target) for secret in find_connection(side).secrets()}
    output = Output(secrets | secrets_of(plan.registries))
    code, ended = 1, threading.Event()
    alive = threading.Thread(target=_keep_alive, args=(plan, row, options.submission, ended), daemon=True)
    alive.start()
    try:
        # Whatever ends this process ends Spark's, which are of its group.
        with Leash() as leash:
            if os.getpid() == os.getpgrp():
                leash.hold(os.getpid())
            code = _submit(plan, options.plan, row, options.connection, options.submission, output)
    finally:
        ended.set()
        # What a broker does not show yet would be taken for a target without state.
        with suppress(MigrationError), open_context(plan, log=output.line, make_state=True) as ctx:
            mirror_watch.record_end(row.seen(ctx), options.submission, output.last_lines)
    return code


def _keep_alive(plan: Plan, row: Step, submission: str, ended: threading.Event) -> None:
    """Note now and then that this process is alive, until it has ``ended``: the mirror itself may be silent long."""
    from kafka_migration.migration.context import open_context
    from kafka_migration.steps import mirror_watch

    while not ended.is_set():
        with suppress(MigrationError), open_context(plan, make_state=True) as ctx:
            while not ended.is_set():
                mirror_watch.record_alive(row.seen(ctx), submission)
                ended.wait(mirror_watch.ALIVE_SECONDS)
        ended.wait(mirror_watch.ALIVE_SECONDS)


def _submit(plan: Plan, plan_file: Path, row: Step, connection: str, submission: str, output: Output) -> int:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from kafka_migration.copy.package import package_zip
    from kafka_migration.kafka.lookup import variable_of

    output.take_logs()
    way = ["--reverse"] if row.direction is Direction.REVERSE else []
    # A folder that only this user may write to: workers run what is in the zip.
    with TemporaryDirectory(prefix="kafka-migration-") as folder:
        hook = SparkSubmitHook(
            conn_id=connection,
            py_files=str(package_zip(Path(folder))),
            name=f"kafka-migration mirror {plan.name}",
            application_args=[str(plan_file), "--submission", submission, *way],
        )
        # The hook has read it, and Spark needs none of it.
        os.environ.pop(variable_of(connection), None)
        try:
            hook.submit(str(MIRROR_JOB))
        except Exception as error:  # whatever the provider raises: it is what the log ends with
            # Its other lines repeat what Spark has printed.
            output.line(str(error).partition("\n")[0])
            return 1
    return 0


class Output:
    """What this process prints, on standard output, without ``secrets``."""

    def __init__(self, secrets: set[str]) -> None:
        self._secrets, self._last = secrets, deque[str](maxlen=_LAST_LINES)

    @property
    def last_lines(self) -> str:
        """The end of it."""
        return "\n".join(self._last)[-MOST_CHARACTERS:]

    def take_logs(self) -> None:
        """Get what Airflow and its providers log, among it each line of Spark's: the text alone."""
        import structlog

        def take(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> NoReturn:
            self.line(str(event["event"]))
            raise structlog.DropEvent

        wrapper = structlog.make_filtering_bound_logger(logging.INFO)
        structlog.configure(processors=[take], wrapper_class=wrapper, cache_logger_on_first_use=False)

    def line(self, text: str) -> None:
        """Print ``text``."""
        shown = hidden(text, self._secrets)
        self._last.append(shown)
        print(shown, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
