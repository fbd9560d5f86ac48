"""The mirror as a task that holds no slot: it submits, and a trigger watches the heartbeat on the target."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_migration.airflow import submit
from kafka_migration.airflow.alerts import NO_DEATH_IN_A_ROW, TaskAlert, notify
from kafka_migration.airflow.base import MigrationOperator, reports_directory, run_of
from kafka_migration.airflow.submit import (
    require_kubernetes_client,
    require_spark_connection,
    spark_master,
)
from kafka_migration.airflow.trigger import StepTrigger
from kafka_migration.domain.direction import TARGET, Direction, Side
from kafka_migration.domain.errors import Retryable
from kafka_migration.steps.table import step_named

if TYPE_CHECKING:
    from airflow.sdk import Context
    from openlineage.client.event_v2 import Dataset

    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.overview.notices import Notice
    from kafka_migration.plans.model import Plan
    from kafka_migration.steps.mirror_watch import Submission
    from kafka_migration.steps.step import Waiting

_log = logging.getLogger(__name__)

#: Of a mirror that has never begun. Later deaths are no matter of set-up.
_MOST_STARTS = 5
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 10.0, 300.0
_FIELD = "mirror.spark_connection"
#: On the worker's machine: each submission has a folder of its own there.
OUTPUT_FOLDER = Path(AIRFLOW_HOME, "kafka_migration", "mirror")
#: States of a task that nobody watches any more; one that was cleared has none of them.
_OVER = frozenset({"success", "failed", "skipped", "upstream_failed", "removed"})
#: For the receiver of lineage.
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a task remembers of the mirror from one deferral to the next. Times are ISO-8601, UTC.

    ``since``: when the mirror was submitted, or began that was found active. A wish to stop counts if it was made at
    ``asked_since`` or later. ``deaths`` in a row.
    """

    since: str
    asked_since: str
    deaths: int = 0


class SparkMirrorOperator(MigrationOperator):
    """Submits ``spark_jobs/mirror.py`` in client mode, in a process that outlives this task, and defers until it ends,
    which the stop gate brings about.

    A mirror of the same plan that is active already is watched, whoever started it. One that died is started again,
    within this try, wherever a worker resumes the task; the new one fences what the last one left, and goes on.
    """

    ui_color = "#e3f4e1"

    def __init__(self, *, conn_id: str, step: str = "mirror", **kwargs: Any) -> None:
        """``conn_id`` names the Spark connection, ``step`` is the row of the table: one direction of the mirror."""
        super().__init__(**kwargs)
        self.conn_id, self.step = conn_id, step

    def execute(self, context: Context) -> None:
        """Watch the mirror that is active, or submit one; neither if there is nothing left to copy."""
        from kafka_migration.link.flight import nothing_to_copy, was_drained

        with self.opened(context, make_state=True) as whole:
            ctx = step_named(self.step).seen(whole)
            if context["ti"].try_number > 1 and was_drained(ctx):
                self.log.info("this mirror was drained: nothing to do")
                return
            if nothing_to_copy(ctx):
                # In a later run of the DAG: this task must not keep it from restore, release and report.
                self.log.info("the mirror is sealed, and all topics of the plan were copied: nothing to do")
                return
            watched = self._begun(ctx, deaths=0)
            emit_lineage(ctx, context["ti"])
        self._defer(context, watched)

    def ended(self, context: Context, event: Mapping[str, Any], watched: Mapping[str, Any]) -> None:
        """The trigger has seen how the mirror ended, or that the time before a new start is over."""
        self.publish(context)
        if event["exit_code"] == 0:
            self.log.info("%s", event["message"])
            return
        if event["exit_code"] != 3:
            raise AirflowFailException(event["message"])
        before = Watched(**watched)
        try:
            with self.opened(context, make_state=True) as whole:
                ctx = step_named(self.step).seen(whole)
                if event["facts"].get("died"):
                    after, pause = self._died(ctx, context, event["message"], before)
                else:
                    after, pause = self._begun(ctx, deaths=before.deaths), 0.0
        except AirflowException as error:
            if not isinstance(error.__cause__, Retryable):
                raise
            # A cluster is away: no reason to use up the task's own retries.
            self.log.warning("%s", error)
            after, pause = before, _LONGEST_PAUSE_SECONDS
        self._defer(context, after, pause)

    def _defer(self, context: Context, watched: Watched, pause: float = 0.0) -> NoReturn:
        """Until the mirror has ended; or, before it is started, for ``pause`` seconds."""
        snapshot = self.snapshot(context)
        trigger = MirrorTrigger(
            step=self.step,
            packed=snapshot.pack(),
            digest=snapshot.digest,
            path=snapshot.path,
            run_of_plan=run_of(context),
            plan_file=self.plan_file,
            since=watched.since,
            asked_since=watched.asked_since,
            gives_up_at=time.time() + pause if pause else None,
        )
        self.defer(trigger=trigger, method_name="ended", kwargs={"watched": asdict(watched)})

    def _begun(self, ctx: MigrationContext, *, deaths: int) -> Watched:
        from kafka_migration.link import reverse, seal
        from kafka_migration.steps import mirror, mirror_watch

        active = mirror_watch.active_since(ctx)
        if active is not None:
            self.log.info("a mirror of this plan has been active since %s: it is watched, and none is started", active)
            return Watched(since=active, asked_since=ctx.stamp(), deaths=deaths)
        # What the application would refuse, too: no other try is of use, and none has to wait for Spark's start.
        if ctx.direction is Direction.REVERSE:
            reverse.arm(ctx.before())
        else:
            mirror.check(ctx)
        seal.check(ctx)
        require_kubernetes_client(spark_master(self.conn_id, field=_FIELD))
        connection = require_spark_connection(self.conn_id, field=_FIELD)
        made, process = submit.start(ctx, connection, folder=OUTPUT_FOLDER)
        self.log.info("submitted by process %d on %s; its output goes to %s there", process, made.host, made.log)
        return Watched(since=made.at, asked_since=made.at, deaths=deaths)

    def _died(self, ctx: MigrationContext, context: Context, message: str, before: Watched) -> tuple[Watched, float]:
        """Report the death; for how long to wait before the new start."""
        from kafka_migration.link.heartbeat import PHASE
        from kafka_migration.migration.history import record_death
        from kafka_migration.steps import mirror_watch

        since = datetime.fromisoformat(before.since)
        lasted = ctx.clock.now() - since
        deaths = 1 if lasted >= NO_DEATH_IN_A_ROW else before.deaths + 1
        # The application records its end itself, unless it died.
        record_death(ctx, ctx.own(PHASE), since=since, detail=message)
        newest = mirror_watch.submission(ctx)
        if newest is not None:
            self.log.warning("output on %s in %s ends with:\n%s", newest.host, newest.log, _last_lines(newest))
        if ctx.link.run() is None and deaths >= _MOST_STARTS:
            raise AirflowFailException(
                f"{message}, {deaths} times in a row\n"
                "  remedy: read its output above (such as a wrong jar, or a Python that workers lack), correct the"
                " Spark connection or the workers, then clear this task"
            )
        pause = min(_LONGEST_PAUSE_SECONDS, _FIRST_PAUSE_SECONDS * 2 ** (deaths - 1))
        self.log.warning(
            "%s (death %d in a row); nothing is copied until a new start succeeds, the next one is in %g s",
            message,
            deaths,
            pause,
        )
        for alert in self.on_retry_callback or ():
            if isinstance(alert, TaskAlert):
                alert.of_death(context, message, deaths=deaths, lasted=lasted)
        return Watched(since=before.since, asked_since=before.asked_since, deaths=deaths), pause


class MirrorTrigger(StepTrigger):
    """Watches the mirror, which was submitted, or found active, at ``since``, and may have been asked to stop at
    ``asked_since`` or later. One that gives up at some time waits until then for a new start instead."""

    def __init__(self, *, since: str, asked_since: str, step: str = "mirror", **of_run: Any) -> None:
        super().__init__(step=step, **of_run)
        self.since, self.asked_since = since, asked_since

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """As Airflow stores it."""
        kind, values = super().serialize()
        return kind, {**values, "since": self.since, "asked_since": self.asked_since}

    def watch(self, ctx: MigrationContext) -> Waiting:
        """The mirror's end, or the pause."""
        from kafka_migration.steps import mirror_watch

        if self.gives_up_at is None:
            return mirror_watch.Wait(ctx, since=self.since, asked_since=self.asked_since)
        return mirror_watch.Pause(ctx, asked_since=self.asked_since)

    @contextmanager
    def opened(self, **options: bool) -> Iterator[MigrationContext]:
        """As every trigger opens it; the board is kept up to date meanwhile."""
        from kafka_migration.overview.board import publishing
        from kafka_migration.overview.notices import Notices

        with super().opened(**options) as ctx:
            notices = Notices(lambda notice: self._send(ctx.plan, notice)) if ctx.plan.alerts.notifiers else None
            with publishing(ctx.plan, reports_directory, ctx.log, notices):
                yield ctx

    def _send(self, plan: Plan, notice: Notice) -> bool:
        """From the thread that keeps the board up to date: the mirror is watched meanwhile."""
        ti: Any = self.task_instance
        return notify(plan, {"ti": ti}, ti.dag_id, notice.what, remedy=notice.remedy)

    async def on_kill(self) -> None:
        """A person has taken the task away. A cleared one is tried again, and that try watches the mirror that runs;
        nobody does once it is marked as failed or as done, or deleted with its run: then the mirror is asked to end."""
        work = contextvars.copy_context()
        await asyncio.get_running_loop().run_in_executor(None, work.run, self._end_if_over)

    def _end_if_over(self) -> None:
        from kafka_migration.steps import mirror_watch

        state = self._state()
        if state is not None and state not in _OVER:
            self.log.info("the task is %s: the mirror goes on, and the next try watches it", state)
            return
        why = "its task was deleted" if state is None else f"its task was marked as {state}"
        self.log.info("%s: the mirror is asked to stop", why)
        with self.opened() as ctx:
            mirror_watch.stop(step_named(self.step).seen(ctx), why)

    def _state(self) -> str | None:
        """Of the task; None if it is not there any more."""
        from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

        ti: Any = self.task_instance
        states = RuntimeTaskInstance.get_task_states(dag_id=ti.dag_id, task_ids=[ti.task_id], run_ids=[ti.run_id])
        found = states.get(ti.run_id, {})
        # A task that was cleared, and is not scheduled yet, is there and has no state.
        return str(found[ti.task_id] or "cleared") if ti.task_id in found else None


def _last_lines(submission: Submission) -> str:
    """What its process noted as it ended; of one that was killed, the end of its file, if it is this machine's."""
    if submission.last_lines:
        return submission.last_lines
    path = Path(submission.log).resolve()
    # The note stands in the journal, and whoever may write there must not have any other file of this machine shown.
    if submission.host != socket.gethostname() or not path.is_relative_to(OUTPUT_FOLDER.resolve()):
        return f"(not to be read here: it is of {submission.host})"
    try:
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, 2) - submit.MOST_CHARACTERS))
            return file.read().decode(errors="replace")
    except OSError as error:
        return f"(not to be read here: {error})"


def emit_lineage(ctx: MigrationContext, task_instance: Any) -> None:
    """Emit, from within the mirror's task, what the link of ``ctx`` copies, in OpenLineage: its topics as what the task
    reads and writes. Nothing is where Airflow's provider, an extra of the package, is not installed or has no
    transport. Whatever is wrong with that is logged, and a receiver that does not answer is not waited for: the mirror
    runs, and its task has to watch it."""
    from kafka_migration.topics.declared import mirrored

    try:
        from airflow.providers.openlineage.api import emit_dataset_lineage, is_openlineage_active
    except ImportError:
        return
    try:
        if not is_openlineage_active():
            return
        names = sorted(mirrored(ctx))
        inputs, outputs = (_topics(ctx, side, names) for side in (ctx.direction.origin, ctx.direction.destination))
    except Exception as error:
        _log.warning("no lineage is emitted: %s", error)
        return
    # It logs its own errors.
    thread = threading.Thread(
        target=emit_dataset_lineage,
        kwargs={"inputs": inputs, "outputs": outputs, "task_instance": task_instance},
        name="lineage",
        daemon=True,
    )
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    if thread.is_alive():
        _log.warning("lineage was not emitted within %g s: its receiver does not answer", _PATIENCE_SECONDS)


def _topics(ctx: MigrationContext, side: Side, names: Sequence[str]) -> list[Dataset]:
    """Topics of a cluster as OpenLineage names them: the cluster by its first server."""
    from openlineage.client.event_v2 import Dataset

    from kafka_migration.kafka.lookup import find_connection

    server = find_connection(ctx.plan.connection(side)).servers.partition(",")[0].strip()
    called = ctx.plan.topic_names.on_target if side == TARGET else str
    return [Dataset(namespace=f"kafka://{server}", name=called(name)) for name in names]
