"""The mirror as a Spark submission that runs on beside the rest of the DAG."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import psutil
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_migration.airflow.alerts import attempt
from kafka_migration.airflow.base import WorksFromSnapshot
from kafka_migration.airflow.spark_connection import require_kubernetes_client, spark_master
from kafka_migration.domain.errors import BadInput, Refused, TakenOver
from kafka_migration.domain.shipped import shipped

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
    from airflow.sdk import Context

    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.plans.model import Plan

#: Airflow kills the task itself 5 s after it has asked for the task's end.
_CLEAN_END_SECONDS = 4.0

#: Of a mirror that has never begun. Later deaths are no matter of set-up.
_MOST_STARTS = 5

MIRROR_JOB = shipped("spark_jobs/mirror.py")


class SparkMirrorOperator(WorksFromSnapshot, SparkSubmitOperator):
    """Submits ``spark_jobs/mirror.py`` in client mode and waits for its end, which the stop gate brings about.

    May be killed at any moment: the next try fences what the last one left, and goes on. The clusters' connections
    travel in the environment of the spark-submit process, and nowhere else. The provider's own ``env_vars`` would put
    them on the command line on YARN and Kubernetes, and show them as a rendered field.
    """

    template_fields = ("snapshot",)
    ui_color = "#e3f4e1"

    def __init__(self, *, snapshot: Any, **kwargs: Any) -> None:
        """``conn_id`` names the Spark connection."""
        super().__init__(application=str(MIRROR_JOB), **kwargs)
        self.snapshot = snapshot

    def execute(self, context: Context) -> None:
        """Submit, unless an earlier try was drained already; then there is nothing left to copy."""
        from kafka_migration.copy.package import package_zip
        from kafka_migration.link import seal
        from kafka_migration.link.flight import was_drained
        from kafka_migration.migration.history import tell_end
        from kafka_migration.steps import mirror
        from kafka_migration.steps.mirror import PHASE

        plan = self.plan()
        # A folder of this try, which only this user may write to: workers run what is in the zip.
        with self.opened(make_state=True) as ctx, TemporaryDirectory(prefix="kafka-migration-") as folder:
            if context["ti"].try_number > 1 and was_drained(ctx):
                self.log.info("the stop gate has drained this mirror: nothing to do")
                return
            # What the application would refuse, too: no other try is of use, and none has to wait for Spark's start.
            mirror.check(ctx)
            seal.check(ctx)
            require_kubernetes_client(spark_master(self._conn_id, field="mirror.spark_connection"))
            self.application_args = [self.snapshot["path"]]
            self.py_files = str(package_zip(Path(folder)))
            self.name = f"kafka-migration mirror {plan.name}"
            self._hook = hook = self._get_hook()
            began, earlier = ctx.clock.now(), set(ctx.link.attempts())
            try:
                # A group of its own, so that a kill reaches the JVM and the driver, too.
                hook.submit(self.application, env=job_environment(plan, os.environ), start_new_session=True)
            except AirflowException as error:
                # The application tells of the phase itself, unless it died.
                tell_end(ctx, PHASE, since=began, detail=f"the Spark application ended with code {_exit_code(hook)}")
                raise self._final(ctx, hook, error, since=began, earlier=earlier, attempt=attempt(context)) from None

    def on_kill(self) -> None:
        """End the mirror between two batches, so that the next one need not wait until its lease is over; if that takes
        too long, end the whole submission at once."""
        process = None if self._hook is None else self._hook._submit_sp
        if process is None or process.poll() is not None:
            return
        for driver in _drivers(process.pid):
            with suppress(psutil.NoSuchProcess):
                driver.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(_CLEAN_END_SECONDS)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    def _final(
        self,
        ctx: MigrationContext,
        hook: SparkSubmitHook,
        error: AirflowException,
        *,
        since: datetime,
        earlier: set[str],
        attempt: int,
    ) -> AirflowException:
        """``error``, or what says that another try is of no use.

        ``since`` is when the submission began, ``earlier`` the attempts that the link knew by then, ``attempt`` which
        try this was since the task was cleared.
        """
        from kafka_migration.steps.mirror import FAILED

        code = _exit_code(hook)
        if code == BadInput.exit_code:
            return AirflowFailException(str(error))
        new = {name: is_running for name, is_running in ctx.link.attempts().items() if name not in earlier}
        if code == TakenOver.exit_code and len(new) > 1 and any(new.values()):
            # One attempt was this submission's. Another try would take the mirror from whoever runs it now.
            return AirflowFailException(
                "another process has taken the mirror over and copies now\n"
                "  remedy: let it go on; once it has ended, clear this task to go on from there"
            )
        if ctx.link.run() is None and attempt >= _MOST_STARTS:
            return AirflowFailException(
                f"the Spark application ended with code {code} before the mirror began, {attempt} times in a row\n"
                "  remedy: read its output above (a wrong jar, or a Python that workers lack, say), correct the Spark"
                " connection or the workers, then clear this task"
            )
        run, halts = ctx.link.run() or {}, ctx.link.halts()
        if "at" not in run or datetime.fromisoformat(run["at"]) < since:
            # An earlier run's end: this submission died before its mirror began.
            return AirflowException(
                f"the Spark application ended with code {code} before the mirror began (try {attempt})\n"
                "  remedy: read its output above (the Spark master is away, or a jar or Python is another one by now,"
                " say); nothing is copied until a try succeeds"
            )
        # Python's own code for a crash is 1, too, so the code alone decides nothing. Of a run that ended by itself, the
        # halted partitions are all that is left.
        if code == Refused.exit_code and halts and run.get("state") == "ended" and run.get("reason") != FAILED:
            said = ", ".join(f"{tp} {it.reason}" for tp, it in sorted(halts.items())[:5])
            return AirflowFailException(
                f"the mirror ended ({run.get('reason', 'nothing left to copy')}), but partitions are halted: {said}\n"
                "  remedy: `status` says what can be done; then clear this task"
            )
        return error


def job_environment(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the spark-submit process, with both clusters' connections. Holds secrets: never log it."""
    from kafka_migration.kafka.lookup import find_connection, variable_of
    from kafka_migration.migration.signing import without_keys

    # The mirror asks no gate, so its driver needs no key to answer one with.
    found = without_keys(environ)
    for conn_id in (plan.source, plan.target):
        properties = dict(find_connection(conn_id).properties)
        found[variable_of(conn_id)] = json.dumps({"conn_type": "kafka", "extra": properties})
    found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Executors elsewhere may have another one; whoever runs the workers says so here.
    found.setdefault("PYSPARK_PYTHON", sys.executable)
    # Last, so that a Spark of the machine's own goes before the one that pyspark brings along.
    binaries = str(Path(sys.executable).parent)
    found["PATH"] = os.pathsep.join([found.get("PATH", os.defpath), binaries])
    return found


def _drivers(submission: int) -> list[psutil.Process]:
    """The Python that spark-submit runs: not its JVM, whose end would take Spark from under the mirror, nor Spark's own
    Python workers."""
    found = []
    with suppress(psutil.NoSuchProcess):
        for process in psutil.Process(submission).children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if str(MIRROR_JOB) in process.cmdline() and "java" not in process.name():
                    found.append(process)
    return found


def _exit_code(hook: SparkSubmitHook) -> int | None:
    return None if hook._submit_sp is None else hook._submit_sp.returncode
