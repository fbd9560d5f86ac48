"""A run works from the plan as it was when the run began."""

import copy
import json

import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException

from kafka_migration.airflow.factory import migrate_dag, validate_dag
from kafka_migration.airflow.first_tasks import PlanSnapshotOperator
from kafka_migration.domain.errors import BadInput, StateConflict
from kafka_migration.plans.snapshot import Snapshot, run_folder


def test_plan_that_is_edited_while_a_run_is_in_flight_leaves_the_run_as_it_was(
    make_plan, tmp_path, monkeypatch, task_context
):
    monkeypatch.setenv("KAFKA_MIGRATION_STATE_DIR", str(tmp_path / "state"))
    file, plan = tmp_path / "plan.yaml", make_plan()
    file.write_text(yaml.safe_dump(plan.snapshot()))
    taken = PlanSnapshotOperator(task_id="take_snapshot", plan_file=str(file)).execute(task_context)
    file.write_text(yaml.safe_dump({**plan.snapshot(), "topics": {"include": ["another"]}}))
    assert Snapshot.of(json.loads(json.dumps(taken))).load() == plan


@pytest.mark.parametrize("dag_of", [migrate_dag, validate_dag])
def test_xcom_that_was_edited_chooses_no_other_plan(make_plan, tmp_path, monkeypatch, task_context, dag_of):
    monkeypatch.setenv("KAFKA_MIGRATION_STATE_DIR", str(tmp_path / "state"))
    file, plan = tmp_path / "plan.yaml", make_plan()
    file.write_text(yaml.safe_dump(plan.snapshot()))
    taken = PlanSnapshotOperator(task_id="take_snapshot", plan_file=str(file)).execute(task_context)
    swapped = Snapshot.take(make_plan(topics={"include": ["secrets"]}), tmp_path / "elsewhere").as_dict()
    for task in dag_of(plan, file).tasks:
        if "snapshot" not in task.template_fields or task.is_mapped:
            continue
        for handed_on, says in ((taken, None), (swapped, "start a new run"), ({**swapped, "path": "/x"}, "digest")):
            copied = copy.copy(task)
            task_context["ti"].xcom_pull = lambda task_ids, handed_on=handed_on: handed_on
            copied.render_template_fields(task_context)
            if says is None:
                assert copied.plan() == plan
            else:
                with pytest.raises(StateConflict, match=says):
                    copied.plan()


def test_plan_that_is_not_valid_fails_the_task_at_once_with_its_problems(tmp_path, monkeypatch, task_context):
    monkeypatch.setenv("KAFKA_MIGRATION_STATE_DIR", str(tmp_path / "state"))
    file = tmp_path / "plan.yaml"
    file.write_text("version: 1\nname: Capital\n")
    with pytest.raises(AirflowFailException, match=r"plan\.yaml[\s\S]*Capital[\s\S]*remedy"):
        PlanSnapshotOperator(task_id="take_snapshot", plan_file=str(file)).execute(task_context)
    assert not (tmp_path / "state").exists()


def test_edited_snapshot_is_refused(make_plan, tmp_path):
    taken = Snapshot.take(make_plan(), tmp_path)
    file = tmp_path / "plan.yaml"
    file.write_text(file.read_text().replace("batch_size: 50", "batch_size: 51"))
    with pytest.raises(StateConflict, match="start a new run"):
        taken.load()


def test_snapshot_that_this_machine_does_not_see_says_how_machines_share_it(make_plan, tmp_path):
    taken = Snapshot.take(make_plan(), tmp_path)
    (tmp_path / "plan.yaml").unlink()
    with pytest.raises(BadInput, match="KAFKA_MIGRATION_STATE_DIR"):
        taken.load()


def test_snapshot_taken_again_replaces_the_first(make_plan, tmp_path):
    Snapshot.take(make_plan(), tmp_path)
    second = make_plan(mirror={"num_streams": 7})
    assert Snapshot.take(second, tmp_path).load() == second
    assert [path.name for path in tmp_path.iterdir()] == ["plan.yaml"]


def test_state_directory_is_below_airflows_home_unless_it_is_named(tmp_path):
    assert run_folder("d", "r", {"AIRFLOW_HOME": str(tmp_path)}) == tmp_path / "kafka_migration" / "d" / "r"
    assert run_folder("d", "r", {"KAFKA_MIGRATION_STATE_DIR": str(tmp_path)}) == tmp_path / "d" / "r"


@pytest.mark.parametrize("run_id", ["manual__2030-01-01T00:00:00+00:00", "..", ".", "a/../../b", "ä {x}"])
def test_folder_of_a_run_is_a_plain_name_below_its_dag(run_id, tmp_path):
    folder = run_folder("migrate_x", run_id, {"KAFKA_MIGRATION_STATE_DIR": str(tmp_path)})
    assert folder.parent == tmp_path / "migrate_x"
    # Hadoop's paths take no colon, and its globs no braces.
    assert folder.name.strip(".")
    assert not set(folder.name) & set(":{}[]*?/ ")


def test_runs_whose_ids_differ_in_odd_characters_have_different_folders(tmp_path):
    environ = {"KAFKA_MIGRATION_STATE_DIR": str(tmp_path)}
    assert len({run_folder("d", run_id, environ) for run_id in ("a:b", "a+b", "a_b", "..", ".")}) == 5


@pytest.mark.parametrize("task", ["approve_plan", "approve_cutover", "stop_mirror"])
def test_what_waits_for_people_is_tried_again_and_again(make_plan, tmp_path, task):
    assert migrate_dag(make_plan(), tmp_path / "plan.yaml").get_task(task).retries == 1000


def test_mirror_is_started_again_by_its_own_task_and_not_by_retries_of_airflow(make_plan, tmp_path):
    dag = migrate_dag(make_plan(), tmp_path / "plan.yaml")
    assert dag.get_task("mirror").retries == dag.get_task("create_targets").retries == 2


def test_wait_for_lag_ends_by_its_own_deadline_before_airflow_ends_it(make_plan, tmp_path):
    plan = make_plan(lag_gate={"deadline_seconds": 3600})
    task = migrate_dag(plan, tmp_path / "plan.yaml").get_task("watch_lag")
    assert task.execution_timeout is not None
    assert task.execution_timeout.total_seconds() > 3600
