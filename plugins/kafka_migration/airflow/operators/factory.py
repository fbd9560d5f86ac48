"""From a plan to its DAGs: one task for each row of the phases' table, with the edges that the table says."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, CronTriggerTimetable, Param, TriggerRule

from kafka_migration.airflow.operators import alerts
from kafka_migration.airflow.operators.approve import ApproveGateOperator
from kafka_migration.airflow.operators.phases import (
    KafkaCheckOperator,
    KafkaCreateTargetsOperator,
    KafkaCutOverOperator,
    KafkaListBatchesOperator,
    MigrationReportOperator,
)
from kafka_migration.airflow.operators.snapshot import PlanSnapshotOperator
from kafka_migration.airflow.operators.spark_mirror import SparkMirrorOperator
from kafka_migration.airflow.operators.validate import MigrationInFlightOperator, SparkValidateOperator
from kafka_migration.airflow.operators.wait import (
    KafkaStopMirrorOperator,
    KafkaWatchGroupsOperator,
    KafkaWatchLagOperator,
)
from kafka_migration.domain.levels import Level
from kafka_migration.plans.model import Plan
from kafka_migration.plans.snapshot import snapshot_path
from kafka_migration.steps.table import Phase, workflow

#: A mirror may be killed as often as it likes; a gate that waits for people waits for days.
_AGAIN_AND_AGAIN = 1000
_TAGS = ["kafka-migration"]
_MACROS = {"snapshot_path": snapshot_path}

#: Rendered when a task starts. The path by the run alone: XComs can be edited. Not the first task's output itself: that
#: would draw an edge to every other task.
SNAPSHOT = {
    "path": "{{ snapshot_path(ti.dag_id, ti.run_id) }}",
    "digest": "{{ ti.xcom_pull(task_ids='take_snapshot')['digest'] }}",
}

#: How a batch of groups is called in the UI.
_BATCH_NAME = "{{ task.groups[0] }}{% if task.groups[1:] %} and {{ task.groups[1:] | length }} more{% endif %}"

#: The first task of a row and its last one.
Ends = tuple[BaseOperator, Any]


def plan_dags(plan: Plan, file: Path) -> dict[str, Callable[[], DAG]]:
    """The DAGs of ``plan``, by id, each still to be built. ``file`` is read again when a run begins."""
    return {
        migrate_dag_id(plan.name): lambda: migrate_dag(plan, file),
        validate_dag_id(plan.name): lambda: validate_dag(plan, file),
    }


def migrate_dag_id(name: str) -> str:
    """The DAG that migrates plan ``name``."""
    return f"migrate_{name}"


def validate_dag_id(name: str) -> str:
    """The DAG that validates plan ``name`` again."""
    return f"validate_{name}"


def plan_name_of(dag_id: str) -> str | None:
    """The plan that a DAG of ours belongs to, or None for one that is not ours."""
    kind, _, name = dag_id.partition("_")
    return name if kind in ("migrate", "validate") and name else None


def migrate_dag(plan: Plan, file: Path) -> DAG:
    """The migration, started by hand. One run at a time: two would work on the same journal."""
    rows = workflow(plan)
    with DAG(
        dag_id=migrate_dag_id(plan.name),
        description=f"Migrate topics and consumer groups from {plan.source} to {plan.target}",
        schedule=None,
        catchup=False,
        max_active_runs=1,
        tags=_TAGS,
        user_defined_macros=_MACROS,
        doc_md=_overview(plan, rows),
        on_failure_callback=alerts.on_failure(plan, migrate_dag_id(plan.name)),
        default_args={
            "retries": 2,
            "retry_delay": timedelta(seconds=10),
            "on_failure_callback": alerts.on_task_failure(plan),
        },
    ) as dag:
        ends: dict[str, Ends] = {}
        for row in rows:
            made = _TASKS[row.name](row, plan, file)
            first, _ = ends[row.name] = made if isinstance(made, tuple) else (made, made)
            for before in row.after:
                ends[before][1] >> first
                if row.after_failures:
                    # Of the batches none may have succeeded; the list of them must have.
                    ends[before][0] >> first
    return dag


def _overview(plan: Plan, rows: tuple[Phase, ...]) -> str:
    lines = [
        f"Plan `{plan.name}`, digest `{plan.digest}`. A run works from a snapshot of it, taken when the run begins.",
        "",
        "| phase | what it does | passes when | how it is undone |",
        "| --- | --- | --- | --- |",
        *(f"| {row.name} | {row.does} | {row.gate} | {row.undo} |" for row in rows),
    ]
    return "\n".join(lines)


def _common(row: Phase) -> dict[str, Any]:
    doc = f"**{row.name}**: {row.does}.\n\n- passes when: {row.gate}\n- how it is undone: {row.undo}"
    return {"task_id": row.name, "doc_md": doc}


def _snapshot(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    return PlanSnapshotOperator(plan_file=str(file), execution_timeout=timedelta(minutes=5), **_common(row))


def _check(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    return KafkaCheckOperator(snapshot=SNAPSHOT, execution_timeout=timedelta(minutes=30), **_common(row))


def _approve(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    if row.approval is None:
        raise ValueError(f"phase {row.name} asks for an approval of nothing")
    return ApproveGateOperator(
        snapshot=SNAPSHOT,
        gate=row.approval,
        approvers=plan.approvals.approvers,
        max_age_seconds=plan.approvals.max_age_seconds,
        subject=f"{plan.name}: approve the {row.approval}?",
        notifiers=alerts.on_question(plan),
        on_retry_callback=alerts.on_asked_anew(plan),
        # A try asks once. When its evidence has grown old or has changed, the next one asks anew.
        retries=_AGAIN_AND_AGAIN,
        **_common(row),
    )


def _create(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    return KafkaCreateTargetsOperator(snapshot=SNAPSHOT, execution_timeout=timedelta(hours=2), **_common(row))


def _mirror(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    # No timeout: it runs for as long as producers write to the source.
    return SparkMirrorOperator(
        snapshot=SNAPSHOT,
        conn_id=plan.mirror.spark_connection,
        retries=_AGAIN_AND_AGAIN,
        retry_exponential_backoff=True,
        max_retry_delay=timedelta(minutes=5),
        on_retry_callback=alerts.on_retry(plan),
        **_common(row),
    )


def _watch_lag(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    timeout = timedelta(seconds=plan.lag_gate.deadline_seconds) + timedelta(minutes=10)
    return KafkaWatchLagOperator(snapshot=SNAPSHOT, execution_timeout=timeout, **_common(row))


def _validate(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    return SparkValidateOperator(
        snapshot=SNAPSHOT,
        conn_id=plan.validation.spark_connection,
        execution_timeout=timedelta(days=2),
        **_common(row),
    )


def _cut_over(row: Phase, plan: Plan, file: Path) -> Ends:
    batches = KafkaListBatchesOperator(
        task_id="list_groups",
        snapshot=SNAPSHOT,
        execution_timeout=timedelta(minutes=30),
        doc_md="The plan's groups in batches: one task moves one batch.",
    )
    seconds = plan.cutover.batch_size * _seconds_per_group(plan)
    mapped = KafkaCutOverOperator.partial(
        snapshot=SNAPSHOT,
        execution_timeout=timedelta(seconds=seconds) + timedelta(minutes=30),
        map_index_template=_BATCH_NAME,
        **_common(row),
    ).expand(groups=batches.output)
    return batches, mapped


def _seconds_per_group(plan: Plan) -> float:
    hooks = [*plan.consumers.stop, *plan.consumers.start]
    running = sum(hook.http.timeout_seconds if hook.http else hook.command_timeout for hook in hooks)
    # A group that cannot be moved after all is started again, by hooks that were counted for the target.
    running += sum(hook.http.timeout_seconds if hook.http else hook.command_timeout for hook in plan.consumers.start)
    # Waited for: to be mirrored, before and after it stops, and to be empty; then its first sign of life.
    return running + 3 * plan.consumers.wait_seconds + plan.cutover.rest_seconds + 60


def _watch_groups(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    timeout = timedelta(seconds=plan.cutover.watch_seconds) + timedelta(minutes=20)
    # Not ALL_DONE: that holds as well when nothing was begun, say because a person rejected the cutover. Skipped where
    # a plan has no groups, as cut_over is.
    rule = TriggerRule.ALL_DONE_MIN_ONE_SUCCESS
    return KafkaWatchGroupsOperator(snapshot=SNAPSHOT, execution_timeout=timeout, trigger_rule=rule, **_common(row))


def _stop_mirror(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    timeout = timedelta(seconds=2 * plan.drain.deadline_seconds) + timedelta(minutes=10)
    return KafkaStopMirrorOperator(
        snapshot=SNAPSHOT,
        retries=_AGAIN_AND_AGAIN,
        execution_timeout=timeout,
        # A plan without groups skips the two before.
        trigger_rule=TriggerRule.NONE_FAILED,
        **_common(row),
    )


def _report(row: Phase, plan: Plan, file: Path) -> BaseOperator:
    return MigrationReportOperator(snapshot=SNAPSHOT, execution_timeout=timedelta(minutes=30), **_common(row))


_TASKS: dict[str, Callable[[Phase, Plan, Path], BaseOperator | Ends]] = {
    "take_snapshot": _snapshot,
    "inventory_and_preflight": _check,
    "approve_plan": _approve,
    "create_targets": _create,
    "mirror": _mirror,
    "watch_lag": _watch_lag,
    "validate": _validate,
    "approve_cutover": _approve,
    "cut_over": _cut_over,
    "watch_groups": _watch_groups,
    "stop_mirror": _stop_mirror,
    "report": _report,
}


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
        user_defined_macros=_MACROS,
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
                description="Only these, by name; none for all topics of the migration.",
            ),
            "level": Param(
                None,
                type=["null", "string"],
                enum=[None, *(str(level) for level in Level)],
                title="Level",
                description="How closely; none as the plan says.",
            ),
            "full": Param(
                False,
                type="boolean",
                title="Full",
                description="Read everything, also what was found equal before and stands unchanged.",
            ),
        },
    ) as dag:
        in_flight = MigrationInFlightOperator(
            task_id="check_in_flight", plan_file=str(file), execution_timeout=timedelta(minutes=10)
        )
        snapshot = PlanSnapshotOperator(
            task_id="take_snapshot", plan_file=str(file), execution_timeout=timedelta(minutes=5)
        )
        validate = SparkValidateOperator(
            task_id="validate",
            snapshot=SNAPSHOT,
            conn_id=plan.validation.spark_connection,
            execution_timeout=timedelta(days=2),
        )
        in_flight >> snapshot >> validate
    return dag
