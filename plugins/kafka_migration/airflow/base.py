"""What all our operators share: they work from the run's snapshot, and their errors are the library's own."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.configuration import AIRFLOW_HOME
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout

from kafka_migration.airflow.links import DocsLink, MigrationLink, ReportLink
from kafka_migration.airflow.opening import opened_for_run
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Retryable
from kafka_migration.domain.printable import in_one_line
from kafka_migration.domain.shipped import checkout
from kafka_migration.migration.reports import Place, place_of
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.places import REPORTS_DIRECTORY
from kafka_migration.plans.snapshot import Snapshot, identity, require_same_migration

if TYPE_CHECKING:
    from airflow.sdk import Context

    from kafka_migration.migration.context import Context as MigrationContext
    from kafka_migration.steps.step import Decision


class WorksFromSnapshot:
    """Mixin of operators that work from the run's snapshot of the plan.

    It is pulled when a task runs, and is no template field: rendered fields are shown, and a plan may be long.
    ``plan_file`` is where the snapshot was taken from; ``migration`` is the :func:`identity` of the DAG's plan (if
    empty, that of the plan file as it is now); ``wave`` is the wave of the plan that the task is for, "" for all.
    """

    plan_file: str
    migration: Sequence[str] = ()
    wave = ""
    log: Any
    _is_open = False

    def snapshot(self, context: Context) -> Snapshot:
        """What the first task of this run handed on."""
        ti = context["ti"]
        with explained():
            found = Snapshot.of(ti.xcom_pull(task_ids="take_snapshot"), dag_id=ti.dag_id, run_id=ti.run_id)
            require_same_migration(found, self.migration or identity(load_plan(self.plan_file)))
            return found

    def plan(self, context: Context) -> Plan:
        """The plan of this run."""
        with explained():
            return self.snapshot(context).load()

    @contextmanager
    def opened(
        self, context: Context, *, make_state: bool = False, to_check: bool = False
    ) -> Iterator[MigrationContext]:
        """The steps' context. Progress goes to the task's log; what steps raise becomes a failure, or a retry.

        A snapshot that is not this run's own is refused before anything is done.

        Every task from create_targets on gives ``make_state``: the state is there by then, but a broker may not show
        yet what was made a moment ago. ``to_check`` is for the preflight.
        """
        opening = opened_for_run(
            self.snapshot(context),
            self.log,
            run=run_of(context),
            plan_file=self.plan_file,
            wave=self.wave,
            make_state=make_state,
            to_check=to_check,
        )
        with explained(), _timeout_as_interrupt(), opening as ctx:
            self._is_open = True
            try:
                yield ctx
            finally:
                self._is_open = False

    def publish(self, context: Context) -> None:
        """Write where the migration stands for the board, as far as that is possible now."""
        from kafka_migration.overview.board import publish

        try:
            plan = self.plan(context)
        except AirflowException as error:
            # What the task failed of, or is about to.
            self.log.info("the board is not up to date: %s", in_one_line(str(error)))
            return
        publish(plan, reports_directory, lambda text: self.log.info("%s", in_one_line(text)))


class MigrationOperator(WorksFromSnapshot, BaseOperator):
    """Base of the operators that only run a step."""

    template_fields: Sequence[str] = ()
    operator_extra_links = (MigrationLink(), ReportLink(), DocsLink())
    ui_color = "#e8f0fa"

    def __init__(self, *, plan_file: str, migration: Sequence[str] = (), wave: str = "", **kwargs: Any) -> None:
        """See :class:`WorksFromSnapshot`."""
        super().__init__(**kwargs)
        self.plan_file, self.migration, self.wave = plan_file, migration, wave

    def facts_of(self, decision: Decision) -> dict[str, Any]:
        """What a decision found; its notes go to the task's log. Fails the task by its exit code, or has it retried."""
        for note in decision.notes:
            self.log.info("%s", note)
        require(decision.exit_code, decision.message)
        return dict(decision.facts)

    def on_kill(self) -> None:
        """End as at Ctrl-C: what the step has started (a hook's command, a Spark job) ends with it.

        Airflow calls this from its handler of SIGTERM, and would let the step go on until SIGKILL follows in 5 s. It
        calls it after a timeout, too, when the step has ended already.
        """
        if self._is_open:
            raise KeyboardInterrupt(f"{self.task_id} was asked to end")


def reports_directory() -> Place:
    """Where each plan has a folder; reports/ of the checkout by default, or of Airflow's home. Raises BadInput."""
    default = (checkout() or Path(AIRFLOW_HOME)) / "reports"
    return place_of(os.environ.get(REPORTS_DIRECTORY) or str(default))


def run_of(context: Context) -> str:
    """The run's name in the journal."""
    ti = context["ti"]
    return f"{ti.dag_id}/{ti.run_id}"


@contextmanager
def _timeout_as_interrupt() -> Iterator[None]:
    """Have Airflow's timeout of this task reach a step as Ctrl-C does, which steps know: a group that is being moved is
    started again. Whoever runs the task sees the timeout."""
    before, found = signal.getsignal(signal.SIGALRM), list[AirflowTaskTimeout]()

    def interrupt(number: int, frame: Any) -> None:
        try:
            before(number, frame)  # type: ignore[operator,misc]
        except AirflowTaskTimeout as timeout:
            found.append(timeout)
            raise KeyboardInterrupt(str(timeout)) from None

    is_timed = callable(before)
    if is_timed:
        signal.signal(signal.SIGALRM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        if found:
            raise found[0] from None
        raise
    finally:
        if is_timed:
            signal.signal(signal.SIGALRM, before)


@contextmanager
def explained(*, retry: tuple[type[MigrationError], ...] = ()) -> Iterator[None]:
    """Errors as Airflow understands them: what a retry may heal stays an error, the rest fails the task at once.

    ``retry`` are errors that a retry of this very task may heal, though not the same call.
    """
    try:
        yield
    except MigrationError as error:
        if isinstance(error, (Retryable, *retry)):
            raise AirflowException(str(error)) from error
        raise AirflowFailException(str(error)) from error


def require(exit_code: int, message: str) -> None:
    """Fail the task unless ``exit_code``, of a step's decision, is 0. What could not be found out is worth a retry."""
    if exit_code == CouldNotFindOut.exit_code:
        raise AirflowException(message)
    if exit_code:
        raise AirflowFailException(message)
