"""From a plan to its DAGs: one task for each row of the table of steps, with the edges that the table gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TaskGroup, TriggerRule

from kafka_migration.airflow import alerts
from kafka_migration.airflow.approve import ApproveGateOperator
from kafka_migration.airflow.mirror import SparkMirrorOperator
from kafka_migration.airflow.steps import (
    Action,
    BindingOperator,
    ControlOperator,
    CutOverOperator,
    ListBatchesOperator,
    MigrationInFlightOperator,
    PlanSnapshotOperator,
    ReportOperator,
    SparkValidateOperator,
    StepOperator,
    WaitOperator,
)
from kafka_migration.domain.levels import Level
from kafka_migration.plans.model import Plan
from kafka_migration.plans.snapshot import identity
from kafka_migration.plans.waves import task_group
from kafka_migration.steps.step import Step
from kafka_migration.steps.table import workflow, workflow_back

#: Tries of an approval: one for each time that its evidence changes before somebody answers.
_NEW_QUESTIONS = 200
_TAGS = ["kafka-migration"]

#: How a batch of groups is called in the UI.
_BATCH_NAME = "{{ task.groups[0] }}{% if task.groups[1:] %} and {{ task.groups[1:] | length }} more{% endif %}"

_WHEN_BACK = (
    "Use it when clients that have processed or written records on the target have to go back, and `undo` and"
    " `fence --lift` refuse for that reason. Until somebody approves, no client is touched."
)
_PRODUCERS_STAY = (
    "Consumer groups alone go back: the plan has no section `producers`. The reverse mirror runs on for producers on"
    " the target. Once their owners have moved them, and all is copied, mark the task `reverse_mirror` as success,"
    " which ends that mirror."
)

#: The first task of a row and its last one.
Ends = tuple[BaseOperator, Any]


def plan_dags(plan: Plan, file: Path) -> dict[str, Callable[[], DAG]]:
    """The DAGs of ``plan``, by id, each still to be built. ``file`` is read again when a run begins."""
    return {
        migrate_dag_id(plan.name): lambda: migrate_dag(plan, file),
        rollback_dag_id(plan.name): lambda: rollback_dag(plan, file),
        validate_dag_id(plan.name): lambda: validate_dag(plan, file),
        control_dag_id(plan.name): lambda: control_dag(plan, file),
    }


def migrate_dag_id(name: str) -> str:
    """The DAG that migrates plan ``name``."""
    return f"migrate_{name}"


def rollback_dag_id(name: str) -> str:
    """The DAG that moves the clients of plan ``name`` back."""
    return f"rollback_{name}"


def validate_dag_id(name: str) -> str:
    """The DAG that validates plan ``name`` again."""
    return f"validate_{name}"


def control_dag_id(name: str) -> str:
    """The DAG that holds plan ``name``'s mirror, or ends its migration."""
    return f"control_{name}"


def plan_name_of(dag_id: str) -> str | None:
    """The plan that a DAG of ours belongs to, or None for one that is not ours."""
    kind, _, name = dag_id.partition("_")
    return name if kind in ("migrate", "rollback", "validate", "control") and name else None


def migrate_dag(plan: Plan, file: Path) -> DAG:
    """The migration, started by hand."""
    return _dag(
        plan,
        file,
        dag_id=migrate_dag_id(plan.name),
        description=f"Migrate topics and consumer groups from {plan.source} to {plan.target}",
        rows=workflow(plan),
        moves=True,
    )


def rollback_dag(plan: Plan, file: Path) -> DAG:
    """The way back, started by hand."""
    return _dag(
        plan,
        file,
        dag_id=rollback_dag_id(plan.name),
        description=f"Move clients of {plan.target} back to {plan.source}, at their very next records",
        rows=workflow_back(plan),
        when=_WHEN_BACK if plan.producers else f"{_WHEN_BACK} {_PRODUCERS_STAY}",
    )


def _dag(
    plan: Plan,
    file: Path,
    *,
    dag_id: str,
    description: str,
    rows: Sequence[Step],
    when: str = "",
    moves: bool = False,
) -> DAG:
    """A task for each of ``rows``. One run at a time: two would work on the same journal. ``when`` it is to be used;
    ``moves`` as the snapshot's task has it."""
    with DAG(
        dag_id=dag_id,
        description=description,
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=_TAGS,
        doc_md=_overview(plan, rows, when),
        on_failure_callback=alerts.on_failure(plan, dag_id),
        default_args={
            "retries": 2,
            "retry_delay": timedelta(seconds=10),
            "on_failure_callback": alerts.on_task_failure(plan),
        },
    ) as dag:
        snapshot = _snapshot(file, moves=moves)
        ends: dict[str, Ends] = {}
        waves = {wave: TaskGroup(task_group(wave)) for wave in dict.fromkeys(row.wave for row in rows if row.wave)}
        batched = {row.id for row in rows if row.batched}
        for row in rows:
            with waves.get(row.wave, nullcontext()):
                first, _ = ends[row.id] = _task(row, plan, file, after_batches=not batched.isdisjoint(row.after))
            if not row.after:
                snapshot >> first
            for before in row.after:
                ends[before][1] >> first
                if row.after_failures:
                    # Of the batches none may have succeeded; the list of them must have.
                    ends[before][0] >> first
    return dag


def _snapshot(file: Path, *, moves: bool = False) -> BaseOperator:
    return PlanSnapshotOperator(
        task_id="take_snapshot",
        plan_file=str(file),
        moves=moves,
        execution_timeout=timedelta(minutes=5),
        doc_md="Notes the plan as it is now: the run works from this, whatever becomes of the file.",
    )


def _overview(plan: Plan, rows: Sequence[Step], when: str) -> str:
    lines = [
        *([when, ""] if when else []),
        f"Plan `{plan.name}`, digest `{plan.digest}`. A run works from a snapshot of it, taken when the run begins.",
        "",
        "| step | what it does | passes when | how it is undone |",
        "| --- | --- | --- | --- |",
        *(f"| {row.id} | {row.does} | {row.passes_if} | {row.undo} |" for row in rows),
    ]
    return "\n".join(lines)


def _common(row: Step, plan: Plan, file: Path, *, after_batches: bool) -> dict[str, Any]:
    """What every operator is given of its row: name, documentation, retries, trigger rule and timeout."""
    doc = f"**{row.id}**: {row.does}.\n\n- passes when: {row.passes_if}\n- how it is undone: {row.undo}"
    common: dict[str, Any] = {"task_id": row.name, "doc_md": doc, "plan_file": str(file), "migration": identity(plan)}
    if row.wave:
        common["wave"] = row.wave
    if row.approval:
        common["retries"] = _NEW_QUESTIONS
    if row.is_teardown:
        # Until it has done its work producers may be denied: for hours, if a cluster is away so long.
        common |= {"retries": 60, "retry_exponential_backoff": 2.0, "max_retry_delay": timedelta(minutes=5)}
        common["on_retry_callback"] = alerts.on_retry(plan)
    if row.after_failures:
        # Not ALL_DONE: that holds as well when nothing was begun, as after a rejected cutover. Skipped
        # where a plan has no groups, as cut_over is.
        common["trigger_rule"] = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    elif after_batches:
        # A plan, or a wave, without groups skips the batches.
        common["trigger_rule"] = TriggerRule.NONE_FAILED
    seconds = row.seconds(plan)
    if seconds is not None:
        # What waits gives up by itself; this is for a triggerer that is away, and for what is done then.
        common["execution_timeout"] = timedelta(seconds=2 * seconds if row.waits and row.writes else seconds)
        common["execution_timeout"] += timedelta(minutes=10) if row.waits else timedelta()
    return common


def _task(row: Step, plan: Plan, file: Path, *, after_batches: bool) -> Ends:
    common = _common(row, plan, file, after_batches=after_batches)
    if row.batched:
        # The first of both tasks: the rule is for what is before it.
        rule = {"trigger_rule": common.pop("trigger_rule")} if after_batches else {}
        batches = ListBatchesOperator(
            task_id="list_groups",
            plan_file=str(file),
            migration=identity(plan),
            step=row.name,
            wave=row.wave,
            execution_timeout=timedelta(minutes=30),
            doc_md=f"The groups of {f'wave {row.wave}' if row.wave else 'the plan'}, in batches: one task moves one.",
            **rule,
        )
        if row.in_turn:
            common["max_active_tis_per_dagrun"] = 1
        mapped = CutOverOperator.partial(step=row.name, map_index_template=_BATCH_NAME, **common)
        return batches, mapped.expand(groups=batches.output)
    task: BaseOperator
    if row.approval is not None:
        task = ApproveGateOperator(
            gate=row.approval,
            subject=f"{plan.name}: approve the {row.approval}{f' of wave {row.wave}' if row.wave else ''}?",
            notifiers=alerts.on_question(plan),
            on_retry_callback=alerts.on_refused_answer(plan),
            **common,
        )
    elif row.runs_on:
        task = SparkMirrorOperator(
            step=row.name,
            conn_id=plan.mirror.spark_connection,
            on_retry_callback=alerts.on_retry(plan),
            **common,
        )
    elif row.spark:
        task = SparkValidateOperator(step=row.name, conn_id=plan.validation.spark_connection, **common)
    elif row.waits:
        task = WaitOperator(step=row.name, **common)
    else:
        operators = {
            "create_targets": BindingOperator,
            "check_rollback": BindingOperator,
            "report": ReportOperator,
        }
        task = operators.get(row.name, StepOperator)(step=row.name, **common)
    if row.is_teardown:
        # Without a set-up: paired with one, it would not run after that had failed.
        task.as_teardown(on_failure_fail_dagrun=True)
    return task, task


def validate_dag(plan: Plan, file: Path) -> DAG:
    """Validation once more: on the plan's schedule, and by hand with a form. Skipped unless it is in flight."""
    schedule = plan.validation.schedule
    with DAG(
        dag_id=validate_dag_id(plan.name),
        description=f"Compare {plan.source} and {plan.target} again, while migration {plan.name} is in flight",
        schedule=CronTriggerTimetable(schedule, timezone="UTC") if schedule else None,
        catchup=False,
        max_active_runs=1,
        tags=_TAGS,
        doc_md=f"Validates plan `{plan.name}` again. Skipped unless its migration is in flight.",
        on_failure_callback=alerts.on_failure(plan, validate_dag_id(plan.name)),
        deadline=alerts.deadlines(plan, validate_dag_id(plan.name)),
        default_args={"retries": 1, "retry_delay": timedelta(seconds=30)},
        params={
            "topics": Param(
                [],
                type="array",
                items={"type": "string"},
                title="Topics",
                description="Compare only these topics, by name; leave empty for all topics of the migration.",
            ),
            "level": Param(
                None,
                type=["null", "string"],
                enum=[None, *(str(level) for level in Level)],
                title="Level",
                description="How closely to compare; leave empty to use the plan's level.",
            ),
            "full": Param(
                False,
                type="boolean",
                title="Full",
                description="Read everything again, also segments that were found equal before and have not changed.",
            ),
        },
    ) as dag:
        in_flight = MigrationInFlightOperator(
            task_id="check_in_flight", plan_file=str(file), execution_timeout=timedelta(minutes=10)
        )
        snapshot = _snapshot(file)
        validate = SparkValidateOperator(
            task_id="validate",
            step="validate",
            plan_file=str(file),
            migration=identity(plan),
            conn_id=plan.validation.spark_connection,
            by_form=True,
            execution_timeout=timedelta(days=2),
        )
        in_flight >> snapshot >> validate
    return dag


def control_dag(plan: Plan, file: Path) -> DAG:
    """What `pause`, `resume`, `throttle`, `cancel` and `complete` do, by a form."""
    text: Any = {"type": ["null", "string"]}
    with DAG(
        dag_id=control_dag_id(plan.name),
        description=f"Hold the mirror of migration {plan.name}, let it go on, cancel or complete the migration",
        schedule=None,
        catchup=False,
        # Who pauses the mirror does not wait for who cancels; and no other DAG acts in the name of who triggered that.
        max_active_runs=8,
        allowed_run_types=["manual"],  # type: ignore[list-item]
        tags=_TAGS,
        doc_md=f"Does one thing to migration `{plan.name}`, at once, in the name of whoever triggers it.",
        on_failure_callback=alerts.on_failure(plan, control_dag_id(plan.name)),
        default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
        params={
            "action": Param(
                type="string",
                enum=[str(action) for action in Action],
                title="Action",
                description="pause and resume hold a mirror and let it go on; cancel ends a migration before any client"
                " moved, and deletes the topics that it created; complete gives up the way back.",
            ),
            "reverse": Param(
                False,
                type="boolean",
                title="Reverse mirror",
                description="pause, resume or throttle the mirror that copies back to the source.",
            ),
            "rate": Param(
                None, **text, title="Rate", description="For throttle: bytes a second, such as 50MB or 1.5MiB; or off."
            ),
            "reason": Param("", type="string", title="Reason", description="Kept, and shown by `status`."),
            "keep_topics": Param(
                False, type="boolean", title="Keep topics", description="For cancel: leave the target topics there."
            ),
            "confirm": Param(
                None, **text, title="Confirm", description=f"To cancel or complete, type {plan.name} here."
            ),
        },
    ) as dag:
        _snapshot(file) >> ControlOperator(
            task_id="control", plan_file=str(file), migration=identity(plan), execution_timeout=timedelta(minutes=30)
        )
    return dag
