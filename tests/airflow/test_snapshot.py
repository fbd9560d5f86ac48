"""A run works from the plan as it was when the run began, and from no other, whoever edits files and XComs."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException

from kafka_migration.airflow.base import WorksFromSnapshot, run_of
from kafka_migration.airflow.factory import migrate_dag, validate_dag
from kafka_migration.airflow.steps import BindingOperator, PlanSnapshotOperator, StepOperator
from kafka_migration.approvals import approvals, passing
from kafka_migration.domain.digest import digest_of
from kafka_migration.domain.errors import BadInput, StateConflict
from kafka_migration.groups import looks
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.snapshot import Snapshot, run_folder, write_plan
from kafka_migration.topics import create

RUN = {"dag_id": "d", "run_id": "r"}


def test_plan_that_is_edited_while_a_run_is_in_flight_leaves_the_run_as_it_was(make_plan, tmp_path, task_context):
    plan = make_plan()
    file = write_plan(plan, tmp_path)
    taken = PlanSnapshotOperator(task_id="take_snapshot", plan_file=str(file)).execute(task_context)
    file.write_text(yaml.safe_dump({**plan.snapshot(), "topics": {"include": ["another"]}}))
    assert Snapshot.of(json.loads(json.dumps(taken)), **RUN).load() == plan
    assert list(tmp_path.iterdir()) == [file], "nothing is left for other machines to see"


def works_from_snapshots(plan, file):
    """Every task of both DAGs that opens clusters by the run's plan, as Airflow would make it."""
    found = []
    for dag_of in (migrate_dag, validate_dag):
        for task in dag_of(plan, Path(file)).tasks:
            operator = task.unmap({"groups": ["a"]}) if task.is_mapped else task
            if isinstance(operator, WorksFromSnapshot):
                found.append(operator)
    return found


def test_xcom_that_was_edited_chooses_no_other_plan(make_plan, hand_on, opened, task_context, tmp_path):
    plan, other = make_plan(), make_plan(topics={"include": ["secrets"]}, approvals={"approvers": ["mallory"]})
    file = hand_on(plan)
    taken, swapped = Snapshot.take(plan).as_dict(), Snapshot.take(other).as_dict()
    in_file = {"path": str(write_plan(other, tmp_path.parent)), "digest": other.digest}
    tasks = works_from_snapshots(plan, file)
    assert {"inventory_and_preflight", "approve_plan", "mirror", "cut_over", "stop_mirror"} <= {
        t.task_id for t in tasks
    }
    for recorded in (None, plan.digest):
        if recorded is not None:
            opened.journal.record("run", run_of(task_context), {"digest": recorded})
        for task in tasks:
            for handed_on in (swapped, {**taken, "text": swapped["text"]}, {**taken, "digest": "sha256:1"}, in_file):
                task_context["ti"].handed_on = handed_on
                opened.made_state.clear()
                with (
                    pytest.raises(AirflowFailException, match="remedy"),
                    task.opened(task_context, make_state=True),
                ):
                    pytest.fail(f"{task.task_id} works by another plan")
                assert not any(opened.made_state), "nor are internal topics made, of whatever target"
            task_context["ti"].handed_on = taken
            with task.opened(task_context) as ctx:
                assert ctx.plan == plan


def test_xcom_that_was_edited_chooses_no_other_clusters_whatever_journal_vouches_for_it(
    make_plan, hand_on, opened, task_context
):
    plan = make_plan()
    file = hand_on(plan)
    tasks = works_from_snapshots(plan, file)
    for field in ("name", "source", "target"):
        other = restore_plan({**plan.snapshot(), field: "mallorys"})
        # In the journal that such a plan leads to, anything may stand.
        opened.plan = other
        opened.journal.record("run", run_of(task_context), {"digest": other.digest})
        task_context["ti"].handed_on = Snapshot.take(other).as_dict()
        for task in (*tasks, StepOperator(task_id="t", step="report", plan_file=file)):
            opened.made_state.clear()
            with pytest.raises(AirflowFailException, match="mallorys"), task.opened(task_context):
                pytest.fail(f"{task.task_id} works between other clusters")
            assert opened.made_state == [], "nothing is asked of them"
    assert {tuple(task.migration) for task in tasks} == {("played", "k_source", "k_target")}


def test_plan_file_that_is_edited_before_anything_was_created_has_the_run_begin_again(
    make_plan, hand_on, opened, task_context
):
    file = hand_on(make_plan())
    write_plan(make_plan(mirror={"num_streams": 7}), Path(file).parent)
    task = StepOperator(task_id="t", step="inventory_and_preflight", plan_file=file)
    with pytest.raises(AirflowFailException, match=r"was edited since(.|\n)*clear the task take_snapshot"):
        task.execute(task_context)


def test_run_is_bound_to_its_plan_by_the_step_that_first_makes_state(
    make_plan, hand_on, opened, task_context, monkeypatch
):
    file = hand_on(make_plan())
    passed = passing.Passed(gate="plan", reason="", evidence=type("E", (), {"inventory": None}), approval=None)  # type: ignore[arg-type]
    monkeypatch.setattr(approvals, "check", lambda ctx, gate: passed)
    monkeypatch.setattr(create, "apply", lambda ctx: type("Created", (), {"steps": (), "drift": ()}))
    monkeypatch.setattr(looks, "take", lambda ctx, names: None)
    BindingOperator(task_id="create_targets", step="create_targets", plan_file=file).execute(task_context)
    recorded = opened.journal.read("run", "migrate_played/manual__2030-01-01T00:00:00+00:00")
    assert (recorded["digest"], recorded["snapshot"]) == (opened.plan.digest, opened.plan.snapshot())
    # From now on the file may be edited: the run goes on as it began.
    write_plan(make_plan(mirror={"num_streams": 7}), Path(file).parent)
    with StepOperator(task_id="t", step="report", plan_file=file).opened(task_context) as ctx:
        assert ctx.plan == opened.plan


def test_run_of_the_version_before_goes_on_by_its_file(make_plan, hand_on, opened, task_context, monkeypatch, tmp_path):
    monkeypatch.setenv("KAFKA_MIGRATION_STATE_DIR", str(tmp_path / "state"))
    plan, ti = make_plan(), task_context["ti"]
    file = hand_on(make_plan(mirror={"num_streams": 7}))
    folder = run_folder(ti.dag_id, ti.run_id)
    folder.mkdir(parents=True)
    ti.handed_on = {"path": str(write_plan(plan, folder)), "digest": plan.digest}
    task = StepOperator(task_id="t", step="report", plan_file=file)
    with task.opened(task_context) as ctx:
        assert ctx.plan == plan, "the plan file was edited since"
    (folder / "plan.yaml").unlink()
    with (
        pytest.raises(AirflowFailException, match=r"KAFKA_MIGRATION_STATE_DIR(.|\n)*take_snapshot alone"),
        task.opened(task_context),
    ):
        pytest.fail("there is no plan")


def test_plan_that_is_not_valid_fails_the_task_at_once_with_its_problems(tmp_path, task_context):
    file = tmp_path / "plan.yaml"
    file.write_text("version: 1\nname: Capital\n")
    with pytest.raises(AirflowFailException, match=r"plan\.yaml[\s\S]*Capital[\s\S]*remedy"):
        PlanSnapshotOperator(task_id="take_snapshot", plan_file=str(file)).execute(task_context)


def test_edited_snapshot_is_refused(make_plan):
    taken = Snapshot.take(make_plan())
    edited = taken.text.replace('"batch_size": 50', '"batch_size": 51')
    assert edited != taken.text
    with pytest.raises(StateConflict, match="start a new run"):
        Snapshot(text=edited, digest=taken.digest).load()


@pytest.mark.parametrize(
    "value", [None, "x", {}, {"digest": "d"}, {"digest": "d", "text": 1}, {"digest": "d", "text": "x"}]
)
def test_what_is_no_snapshot_names_the_task_to_clear(value):
    with pytest.raises(StateConflict, match="clear the task take_snapshot"):
        Snapshot.of(value, **RUN).load()


@pytest.mark.parametrize("packed", ["", "eA==", "no"])
def test_what_no_trigger_packed_is_refused(packed):
    with pytest.raises(StateConflict, match="no snapshot"):
        Snapshot.unpack(packed, "d").load()


def test_file_of_the_version_before_that_is_gone_names_where_it_was(tmp_path):
    with pytest.raises(BadInput, match="KAFKA_MIGRATION_STATE_DIR"):
        Snapshot.in_file(tmp_path / "plan.yaml", "sha256:1")


def test_plan_of_thousands_of_names_is_handed_on_and_shown_in_no_field(make_plan, hand_on, task_context, opened):
    names = [f"{digest_of(n)[7:27]}.orders.of.a.department" for n in range(4_000)]
    plan = make_plan(topics={"include": names})
    file = hand_on(plan)
    assert len(json.dumps(task_context["ti"].handed_on)) > 180_000
    tasks = works_from_snapshots(plan, file)
    # One of each kind: each reads the whole plan.
    for task in {type(task): task for task in tasks}.values():
        with task.opened(task_context) as ctx:
            assert ctx.plan == plan
    for task in tasks:
        task.render_template_fields(task_context)
        assert len(str([getattr(task, name) for name in task.template_fields])) < 200


def test_state_directory_of_the_version_before_is_below_airflows_home_unless_it_is_named(tmp_path):
    assert run_folder("d", "r", {"AIRFLOW_HOME": str(tmp_path)}) == tmp_path / "kafka_migration" / "d" / "r"
    assert run_folder("d", "r", {"KAFKA_MIGRATION_STATE_DIR": str(tmp_path)}) == tmp_path / "d" / "r"
    odd = run_folder("d", "manual__2030-01-01T00:00:00+00:00", {"KAFKA_MIGRATION_STATE_DIR": str(tmp_path)})
    assert odd.name == "manual__2030-01-01T00_00_00_00_00-b94a6eca"


@pytest.mark.parametrize(
    ("task", "retries"),
    [("approve_plan", 200), ("approve_cutover", 200), ("stop_mirror", 2), ("watch_lag", 2)],
)
def test_question_may_be_asked_again_often_and_what_waits_is_tried_twice(make_plan, tmp_path, task, retries):
    assert migrate_dag(make_plan(), tmp_path / "plan.yaml").get_task(task).retries == retries


def test_fence_that_could_not_be_lifted_is_tried_again_for_hours_and_less_often_each_time(make_plan, tmp_path):
    plan = make_plan(producers={"fence": {"kind": "none"}, "in_workflow": True})
    task = migrate_dag(plan, tmp_path / "plan.yaml").get_task("lift_fence")
    assert task.retries is not None
    assert isinstance(task.retry_delay, timedelta)
    assert isinstance(task.max_retry_delay, timedelta)
    pauses = [
        min(task.retry_delay.total_seconds() * task.retry_exponential_backoff**n, task.max_retry_delay.total_seconds())
        for n in range(task.retries)
    ]
    assert (pauses[0], pauses[-1]) == (10, 300)
    assert 4 < sum(pauses) / 3600 < 6


def test_mirror_is_started_again_by_its_own_task_and_not_by_retries_of_airflow(make_plan, tmp_path):
    dag = migrate_dag(make_plan(), tmp_path / "plan.yaml")
    assert dag.get_task("mirror").retries == dag.get_task("create_targets").retries == 2


def test_wait_for_lag_ends_by_its_own_deadline_before_airflow_ends_it(make_plan, tmp_path):
    plan = make_plan(lag_gate={"deadline_seconds": 3600})
    task = migrate_dag(plan, tmp_path / "plan.yaml").get_task("watch_lag")
    assert task.execution_timeout is not None
    assert task.execution_timeout.total_seconds() > 3600
