"""`make demo`: a whole migration, live, from two clusters and a workload to a report and a verdict.

What counts as success is decided here, from the run's state, the report, and above all the outside judge's verdict on
the clients' own notes; nothing of it is taken from the migration's word alone.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from demo.airflow_api import ENDED, AirflowError
from demo.airflow_approver import DemoApprover
from demo.errors import DemoError
from demo.judging import Judgement
from demo.memory import PeakMemory
from demo.stage import PLAN, Stage
from demo.workload import Progress

DAG = "migrate_demo"
SOURCE_RECORDS, TARGET_RECORDS = 10_000, 5_000
"""What each live group processes at least on the source before the migration may move it, and on the target after."""
_TELL_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long each part may take, in seconds."""

    warm_up: float = 120.0
    migration: float = 1200.0
    last_reads: float = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """How a run ended. ``checks`` are name, whether it holds, and what was seen."""

    checks: tuple[tuple[str, bool, str], ...]
    judgement: Judgement
    seconds: float
    peak_bytes: int

    @property
    def good(self) -> bool:
        """True if every check holds."""
        return all(holds for _, holds, _ in self.checks)


def run(stage: Stage, *, approve: bool, log: Callable[[str], None], patience: Patience, memory: PeakMemory) -> Result:
    """Migrate the workload of a stage that is set. Without ``approve`` a person answers the gates in Airflow.

    Raises:
        DemoError: a part failed, or took too long; the message says which.
    """
    began = time.monotonic()
    workload, api = stage.workload, stage.airflow.api
    log(f"letting every group process {SOURCE_RECORDS:,} records on the source first")
    workload.wait_until(
        lambda progress: progress.fewest("source") >= SOURCE_RECORDS,
        timeout_seconds=patience.warm_up,
        what=f"every live group processes {SOURCE_RECORDS} records on the source",
    )
    for dag in (DAG, "validate_demo"):
        api.unpause(dag)
    run_id = api.trigger(DAG)
    log(f"migration started: {stage.airflow.url}/dags/{DAG}/runs/{run_id}")
    watcher = _Watcher(stage, run_id, log)
    if approve:
        with DemoApprover(api, DAG, log=log):
            _migrate(stage, watcher, patience, ended=ENDED)
    else:
        log("waiting for a person: approve the plan and the cutover in Airflow (Required Actions)")
        # A run that failed may be cleared and go on: only success ends the wait for a person.
        _migrate(stage, watcher, patience, ended=("success",))
    log("every group reads to the end of the target")
    workload.finish(deadline_seconds=patience.last_reads)
    judgement = workload.judge()
    report = _report_with(stage, judgement.account)
    checks = _checks(api.state(DAG, run_id), report, judgement)
    if stage.installation is not None:
        tasks = [stage.installation.tasks_of(home) for home in stage.installation.homes]
        checks += (("each worker ran tasks", all(tasks), ", ".join(map(str, tasks))),)
    return Result(checks=checks, judgement=judgement, seconds=time.monotonic() - began, peak_bytes=memory.peak_bytes)


def _migrate(stage: Stage, watcher: _Watcher, patience: Patience, *, ended: tuple[str, ...]) -> None:
    """Until the DAG run is in one of the states ``ended``.

    The producers are ended when every group is at work on the target.
    """
    deadline = time.monotonic() + patience.migration
    producing = True
    while watcher.state not in ended:
        progress = watcher.look()
        if producing and progress.fewest("target") >= TARGET_RECORDS:
            watcher.log(f"every live group has processed {TARGET_RECORDS:,} records on the target: producers end")
            stage.workload.stop_producers()
            producing = False
        if time.monotonic() > deadline:
            raise DemoError(f"the migration did not end within {patience.migration:g} s; {watcher.describe()}")
        time.sleep(0.5)
    if watcher.state != "success":
        raise DemoError(f"the migration failed; {watcher.describe()}")
    if producing:
        raise DemoError("the migration ended although producers still write to the source")


class _Watcher:
    """Looks at the run and the workload, and says every few seconds what goes on."""

    def __init__(self, stage: Stage, run_id: str, log: Callable[[str], None]) -> None:
        self._stage, self._run_id, self.log = stage, run_id, log
        self._began = time.monotonic()
        self._told_at, self._told_tasks = 0.0, ""
        self._lag = _Lag(stage)
        self.state = "queued"
        self._tasks: dict[str, str | None] = {}

    def look(self) -> Progress:
        """The workload's progress; raises DemoError if one of its clients failed."""
        api = self._stage.airflow.api
        self.state = api.state(DAG, self._run_id)
        self._tasks = api.task_states(DAG, self._run_id)
        progress = self._stage.workload.progress()
        if progress.failures:
            raise DemoError("a client of the workload failed:\n" + "\n".join(progress.failures))
        now, tasks = time.monotonic(), self.running()
        if now - self._told_at > _TELL_SECONDS or tasks != self._told_tasks:
            self._told_at, self._told_tasks = now, tasks
            moved = sum(1 for group in progress.groups.values() if group.cluster == "target")
            self.log(
                f"{now - self._began:4.0f} s  {tasks or self.state}: {self._lag.line()};"
                f" {progress.produced:,} produced, {moved} groups on the target"
            )
        return progress

    def running(self) -> str:
        """The tasks under way, by name."""
        active = ("running", "deferred", "awaiting_input", "up_for_retry", "up_for_reschedule")
        return ", ".join(sorted(name for name, state in self._tasks.items() if state in active))

    def describe(self) -> str:
        """The states of all tasks, and where to read on."""
        states = ", ".join(f"{name} {state}" for name, state in sorted(self._tasks.items()))
        return f"tasks: {states}; logs are below {self._stage.airflow.home / 'logs'}"


class _Lag:
    """Replication lag by the library's own meter, once there is something to measure."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._meter: Any = None
        self._stack: Any = None

    def line(self) -> str:
        """One line, "no lag yet" before the mirror has state."""
        from contextlib import ExitStack

        from kafka_migration.domain.errors import MigrationError
        from kafka_migration.link.lag import LagMeter, describe
        from kafka_migration.migration.context import open_context
        from kafka_migration.plans.load import load_plan

        try:
            if self._meter is None:
                self._stack = ExitStack()
                os.environ.update(
                    {f"AIRFLOW_CONN_{n.upper()}": json.dumps(c) for n, c in self._stage.connections().items()}
                )
                meter = LagMeter(self._stack.enter_context(open_context(load_plan(PLAN))))
                text = describe(meter.read())
                self._meter = meter
                return text
            return describe(self._meter.read())
        except MigrationError:
            if self._stack is not None and self._meter is None:
                self._stack.close()
            return "no lag to measure yet"


def _report_with(stage: Stage, account: Mapping[str, Any]) -> dict[str, Any]:
    """Write the report once more, now with the account of the clients' notes in it."""
    from kafka_migration.migration.context import open_context
    from kafka_migration.plans.load import load_plan
    from kafka_migration.steps import report

    with open_context(load_plan(PLAN)) as ctx:
        written = report.apply(ctx, stage.places.reports, extra={"demo": account})
    return dict(written.report)


def _checks(state: str, report: Mapping[str, Any], judgement: Judgement) -> tuple[tuple[str, bool, str], ...]:
    validation = report.get("validation") or {}
    groups = report.get("groups") or []
    alive = [group for group in groups if group.get("step") == "alive"]
    return (
        ("the DAG run succeeded", state == "success", state),
        (
            "the judge finds no fault",
            judgement.verdict.exit_code == 0,
            judgement.found or "0 faults",
        ),
        ("source and target are equal", validation.get("verdict") == "EQUAL", str(validation.get("verdict"))),
        (
            "every group moved",
            bool(groups) and len(alive) == len(groups) == len(judgement.account["groups"]),
            f"{len(alive)} of {len(groups)}",
        ),
        ("nothing is halted", not report.get("halts"), f"{len(report.get('halts') or [])} halts"),
        (
            "the workload was what the demo promises",
            not judgement.shortfalls,
            "; ".join(judgement.shortfalls) or "all of it",
        ),
    )


__all__ = ["AirflowError", "Patience", "Result", "Stage", "run"]
