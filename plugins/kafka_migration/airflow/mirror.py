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
from kafka_migration.plans.snapshot import write_plan

if TYPE_CHECKING:
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

    template_fields = ()
    ui_color = "#e3f4e1"

    def __init__(self, *, plan_file: str, **kwargs: Any) -> None:
        """``plan_file`` is what the run's snapshot is taken from; ``conn_id`` names the Spark connection."""
        super().__init__(application=str(MIRROR_JOB), **kwargs)
        self.plan_file = plan_file

    def execute(self, context: Context) -> None:
        """Submit, unless an earlier try was drained already; then there is nothing left to copy."""
        from kafka_migration.copy.package import package_zip
        from kafka_migration.link import seal
        from kafka_migration.link.flight import nothing_to_copy, was_drained
        from kafka_migration.migration.history import record_death
        from kafka_migration.steps import mirror
        from kafka_migration.steps.mirror import PHASE

        plan = self.plan(context)
        # A folder of this try, which only this user may write to: workers run what is in the zip. The driver runs on
        # this machine, and finds the plan there, too.
        with self.opened(context, make_state=True) as ctx, TemporaryDirectory(prefix="kafka-migration-") as folder:
            if context["ti"].try_number > 1 and was_drained(ctx):
                self.log.info("the stop gate has drained this mirror: nothing to do")
                return
            if nothing_to_copy(ctx):
                # In a later run of the DAG: this task must not keep it from restore, release and report.
                self.log.info("the mirror is sealed, and all topics of the plan were copied: nothing to do")
                return
            # What the application would refuse, too: no other try is of use, and none has to wait for Spark's start.
            mirror.check(ctx)
            seal.check(ctx)
            require_kubernetes_client(spark_master(self._conn_id, field="mirror.spark_connection"))
            self.application_args = [str(write_plan(plan, Path(folder)))]
            self.py_files = str(package_zip(Path(folder)))
            self.name = f"kafka-migration mirror {plan.name}"
            self._hook = hook = self._get_hook()
            began, earlier = ctx.clock.now(), set(ctx.link.attempts())
            try:
                # A group of its own, so that a kill reaches the JVM and the driver, too.
                hook.submit(self.application, env=job_environment(plan, os.environ), start_new_session=True)
            except AirflowException as error:
                code = None if hook._submit_sp is None else hook._submit_sp.returncode
                # The application records its end itself, unless it died.
                record_death(ctx, PHASE, since=began, detail=f"the Spark application ended with code {code}")
                raise _explained_end(
                    ctx, error, code=code, since=began, earlier=earlier, attempt=attempt(context)
                ) from None

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


def _explained_end(
    ctx: MigrationContext,
    error: AirflowException,
    *,
    code: int | None,
    since: datetime,
    earlier: set[str],
    attempt: int,
) -> AirflowException:
    """``error`` of a submission that ended with ``code``, or a better account of it, with a remedy.

    An AirflowFailException where another try is of no use. ``since`` is when the submission began, ``earlier`` the
    attempts that the link knew by then, ``attempt`` which try this was since the task was cleared.
    """
    from kafka_migration.link.flight import was_taken_over
    from kafka_migration.migration.joined import mirror_plan

    if code == BadInput.exit_code:
        return AirflowFailException(str(error))
    if code == TakenOver.exit_code and was_taken_over(earlier, ctx.link.attempts()):
        return AirflowFailException(
            f"another process has taken the mirror over and copies now{_by(mirror_plan(ctx))}\n"
            "  remedy: let it go on; once it has ended, clear this task to go on from there"
        )
    run = ctx.link.run()
    if run is None or "at" not in run or datetime.fromisoformat(run["at"]) < since:
        # Without a run, or with an earlier one's end: this submission died before its mirror began.
        return _never_began(code, attempt, gives_up=run is None and attempt >= _MOST_STARTS)
    halts = ctx.link.halts()
    # Python's own code for a crash is 1, too, so the code alone decides nothing.
    if code == Refused.exit_code and halts and _ended_by_itself(run):
        shown = ", ".join(f"{tp} {halt.reason}" for tp, halt in sorted(halts.items())[:5])
        return AirflowFailException(
            f"the mirror ended ({run.get('reason', 'nothing left to copy')}), but partitions are halted: {shown}\n"
            "  remedy: `status` names what can be done about each; do that, then clear this task"
        )
    return error


def _by(plan: str) -> str:
    return f", by {plan}" if plan else ""


def _ended_by_itself(run: Mapping[str, Any]) -> bool:
    """Whether the mirror had copied all that it could: the halted partitions are all that is left."""
    from kafka_migration.steps.mirror import FAILED

    return run.get("state") == "ended" and run.get("reason") != FAILED


def _never_began(code: int | None, attempt: int, *, gives_up: bool) -> AirflowException:
    if gives_up:
        return AirflowFailException(
            f"the Spark application ended with code {code} before the mirror began, {attempt} times in a row\n"
            "  remedy: read its output above (such as a wrong jar, or a Python that workers lack), correct the"
            " Spark connection or the workers, then clear this task"
        )
    return AirflowException(
        f"the Spark application ended with code {code} before the mirror began (try {attempt})\n"
        "  remedy: read its output above (the Spark master may be down, or a jar or Python may have changed); nothing"
        " is copied until a try succeeds"
    )


def job_environment(plan: Plan, environ: Mapping[str, str]) -> dict[str, str]:
    """The environment of the spark-submit process, with both clusters' connections. Holds secrets: never log it."""
    from kafka_migration.kafka.lookup import find_connection, variable_of
    from kafka_migration.migration.signing import without_keys

    # The mirror asks no gate, so its driver needs no approval key.
    found = without_keys(environ)
    for conn_id in (plan.source, plan.target):
        properties = dict(find_connection(conn_id).properties)
        found[variable_of(conn_id)] = json.dumps({"conn_type": "kafka", "extra": properties})
    found["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Executors elsewhere may have another one; whoever runs the workers sets this variable.
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
