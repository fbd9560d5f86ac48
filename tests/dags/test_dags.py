"""The DAG folder as Airflow parses it: three DAGs for each valid plan; a wrong plan hurts no other."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_migration.plans.load import load_plan

ROOT = Path(__file__).resolve().parents[2]
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"


def plan_document(name: str, **sections: object) -> dict[str, object]:
    return {
        "version": 1,
        "name": name,
        "source": "kafka_source",
        "target": "kafka_target",
        "topics": {"include": [r"orders\..*"]},
        **sections,
    }


def write_plan(folder: Path, name: str, **sections: object) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(plan_document(name, **sections)), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def many(parse_plans: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The shipped plans, twenty more of every shape, and some that are wrong."""
    folder = tmp_path_factory.mktemp("plans")
    for shipped in (ROOT / "migration_plans").iterdir():
        shutil.copy(shipped, folder)
    for n in range(20):
        approvals = {"plan": n % 2 == 0, "cutover": n % 3 == 0}
        write_plan(
            folder, f"plan-{n:02}", approvals=approvals, validation={"schedule": "0 3 * * *" if n % 5 == 0 else None}
        )
    (folder / "broken.yaml").write_text(
        yaml.safe_dump(plan_document("Capital", sauce="kafka_source")), encoding="utf-8"
    )
    told = {"notifier": SMTP, "arguments": {"to": "oncall@example.org", "subject": "{what}"}}
    wrong = {**told, "arguments": {"too": "oncall@example.org"}}
    write_plan(folder, "told", alerts={"notifiers": [told], "validation_seconds": 3600.0})
    missing = {"notifier": "airflow.providers.nobody.notifications.x.XNotifier"}
    write_plan(folder, "untold", alerts={"notifiers": [missing, told], "validation_seconds": 3600.0})
    write_plan(folder, "mistold", alerts={"notifiers": [wrong]})
    waves = {"given": [{"name": "can.ary", "topics": [".*a"], "canary": True}, {"name": "rest", "topics": [".*b"]}]}
    for n, cutover in enumerate((True, False)):
        write_plan(folder, f"waves-{n}", groups={"include": [".*"]}, waves=waves, approvals={"cutover": cutover})
    write_plan(folder, "switched", producers={"fence": {"probe": "kafka_probe"}, "in_workflow": True})
    write_plan(folder, "schemas", schemas={"source": "old_registry", "target": "new_registry"})
    # Which of the two is meant nobody can say: there is a DAG of neither.
    shutil.copy(write_plan(folder, "twice"), folder / "zz-same-name.yaml")
    found: dict[str, Any] = parse_plans(folder)
    return found


def test_each_valid_plan_has_four_dags_and_the_reference_none(many):
    names = [
        "demo",
        "mistold",
        "schemas",
        "switched",
        "told",
        "untold",
        "waves-0",
        "waves-1",
        *(f"plan-{n:02}" for n in range(20)),
    ]
    kinds = ("migrate", "rollback", "validate", "control")
    assert sorted(many["dags"]) == sorted(f"{kind}_{name}" for kind in kinds for name in names)


def test_invalid_plans_are_import_errors_of_a_file_without_dags_that_name_file_field_value_and_remedy(many):
    (file, said), *others = many["errors"].items()
    assert not others
    assert Path(file).name == "invalid_plans.py"
    for part in (
        "broken.yaml",
        "sauce",
        "Capital",
        "remedy",
        "zz-same-name.yaml",
        "twice.yaml, zz-same-name.yaml have the same name",
    ):
        assert part in said


def test_parsing_loads_nothing_heavy_and_stays_quick(many):
    assert not many["loaded"]
    # Of processor time; 26 plans take less than half a second.
    assert many["seconds"] < 5


def test_plans_that_are_all_valid_make_no_import_error(parse_plans, tmp_path):
    shutil.copy(ROOT / "migration_plans" / "demo.yaml", tmp_path)
    found = parse_plans(tmp_path)
    assert found["errors"] == {}
    assert sorted(found["dags"]) == ["control_demo", "migrate_demo", "rollback_demo", "validate_demo"]


def test_folder_of_plans_that_is_not_there_is_an_import_error(parse_plans, tmp_path):
    found = parse_plans(tmp_path / "nowhere")
    assert found["dags"] == {}
    assert "KAFKA_MIGRATION_PLANS" in "".join(found["errors"].values())


#: Written down, not derived: an edge that is lost in the table shall be missed here.
BEFORE_AND_AFTER = {
    "take_snapshot": ["inventory_and_preflight"],
    "inventory_and_preflight": ["approve_plan"],
    "approve_plan": ["create_targets"],
    "create_targets": ["mirror", "watch_lag"],
    "mirror": ["release"],
    "watch_lag": ["validate"],
    "validate": ["approve_cutover"],
    "approve_cutover": ["list_groups"],
    "list_groups": ["cut_over", "watch_groups"],
    "cut_over": ["stop_mirror", "watch_groups"],
    "watch_groups": ["stop_mirror"],
    "stop_mirror": ["validate_end"],
    "validate_end": ["restore"],
    "restore": ["release"],
    "release": ["report"],
    "report": [],
}
WITHOUT_APPROVE_PLAN = {"inventory_and_preflight": ["create_targets"]}
WITHOUT_APPROVE_CUTOVER = {"validate": ["list_groups"]}


@pytest.mark.parametrize(
    ("name", "left_out", "instead"),
    [
        ("plan-00", set(), {}),
        ("plan-02", {"approve_cutover"}, WITHOUT_APPROVE_CUTOVER),
        ("plan-03", {"approve_plan"}, WITHOUT_APPROVE_PLAN),
        ("plan-01", {"approve_plan", "approve_cutover"}, WITHOUT_APPROVE_PLAN | WITHOUT_APPROVE_CUTOVER),
    ],
)
def test_dag_has_the_tasks_and_edges_of_the_workflow_without_gates_that_nobody_is_asked_at(
    many, name, left_out, instead
):
    dag = many["dags"][f"migrate_{name}"]
    expected = {task: after for task, after in {**BEFORE_AND_AFTER, **instead}.items() if task not in left_out}
    assert set(dag["tasks"]) == set(expected)
    assert dag["edges"] == [[before, after] for before in sorted(expected) for after in expected[before]]


def test_schemas_are_copied_before_topics_are_created(many):
    expected = {**BEFORE_AND_AFTER, "approve_plan": ["copy_schemas"], "copy_schemas": ["create_targets"]}
    assert many["dags"]["migrate_schemas"]["edges"] == [
        [before, after] for before in sorted(expected) for after in sorted(expected[before])
    ]


def test_dag_with_the_step_for_producers_ends_their_fence_whatever_failed(many):
    dag = many["dags"]["migrate_switched"]
    instead = {
        "cut_over": ["approve_producers", "watch_groups"],
        "watch_groups": ["approve_producers"],
        "approve_producers": ["switch_producers"],
        "switch_producers": ["lift_fence", "validate_end"],
        "lift_fence": [],
        "mirror": ["report"],
        "restore": ["report"],
    }
    left = {task: after for task, after in BEFORE_AND_AFTER.items() if task not in ("stop_mirror", "release")}
    expected = {**left, **instead}
    assert dag["edges"] == [[before, after] for before in sorted(expected) for after in sorted(expected[before])]
    assert dag["teardowns"] == {"lift_fence": True}, "one without a set-up, whose failure fails the run"
    assert dag["rules"]["lift_fence"] == "all_done_setup_success"
    assert many["dags"]["migrate_plan-00"]["teardowns"] == {}


def test_only_the_watch_of_groups_runs_after_a_failure_and_no_leaf_does(many):
    rules = many["dags"]["migrate_plan-00"]["rules"]
    # list_groups succeeded and all batches are done, in whichever way: but nothing if the cutover was not begun.
    assert rules.pop("watch_groups") == "all_done_min_one_success"
    assert rules.pop("stop_mirror") == "none_failed", "a plan without groups skips the two before"
    assert set(rules.values()) == {"all_success"}, "a leaf that always runs would turn a failed run green"


def in_waves(name: str) -> list[str]:
    return [f"wave_{wave}.{name}" for wave in ("can_ary", "rest")]


def test_each_wave_is_a_group_of_tasks_that_begins_once_the_one_before_has_ended_well(many):
    dag = many["dags"]["migrate_waves-0"]
    inner = ["approve_cutover", "list_groups", "cut_over", "watch_groups"]
    (ask, first), (batches, next_batches), (move, last_move), (watch, last_watch) = map(in_waves, inner)
    expected = {task: after for task, after in BEFORE_AND_AFTER.items() if task not in inner} | {
        "validate": [ask],
        ask: [batches],
        batches: [move, watch],
        move: [first, watch],
        watch: [first],
        first: [next_batches],
        next_batches: [last_move, last_watch],
        last_move: ["stop_mirror", last_watch],
        last_watch: ["stop_mirror"],
    }
    assert dag["edges"] == sorted([before, after] for before in expected for after in expected[before])
    assert set(dag["tasks"]) == set(expected)
    rules = dag["rules"]
    # A wave without groups skips its batches and their watch; one that failed, or was rejected, holds up the next.
    assert {rules.pop(name) for name in (first, "stop_mirror")} == {"none_failed"}
    assert {rules.pop(name) for name in (watch, last_watch)} == {"all_done_min_one_success"}
    assert set(rules.values()) == {"all_success"}
    assert "wave_can_ary.cut_over" in dag["doc"]


def test_waves_that_nobody_is_asked_about_begin_with_the_list_of_their_groups(many):
    dag = many["dags"]["migrate_waves-1"]
    assert ["wave_can_ary.watch_groups", "wave_rest.list_groups"] in dag["edges"]
    assert ["wave_can_ary.cut_over", "wave_rest.list_groups"] in dag["edges"]
    assert ["wave_can_ary.cut_over", "wave_rest.cut_over"] not in dag["edges"]
    rules = {name: dag["rules"][f"wave_rest.{name}"] for name in ("list_groups", "cut_over")}
    assert rules == {"list_groups": "none_failed", "cut_over": "all_success"}


def test_tasks_of_a_wave_know_it_and_no_other_task_does(many):
    waves = many["dags"]["migrate_waves-0"]["waves"]
    assert {task: wave for task, wave in waves.items() if wave} == {
        f"wave_{name.replace('.', '_')}.{task}": name
        for name in ("can.ary", "rest")
        for task in ("approve_cutover", "list_groups", "cut_over", "watch_groups")
    }
    assert not any(many["dags"]["migrate_plan-00"]["waves"].values())


#: Of the way back; written down, as those above.
BACK_BEFORE_AND_AFTER = {
    "take_snapshot": ["check_rollback"],
    "check_rollback": ["reverse_mirror", "watch_reverse_lag"],
    "reverse_mirror": [],
    "watch_reverse_lag": ["approve_rollback"],
    "approve_rollback": ["list_groups"],
    "list_groups": ["rollback", "watch_rolled_back"],
    "rollback": ["report", "watch_rolled_back"],
    "watch_rolled_back": ["report"],
    "report": [],
}
PRODUCERS_BACK = {
    "rollback": ["switch_producers_back", "watch_rolled_back"],
    "watch_rolled_back": ["switch_producers_back"],
    "switch_producers_back": ["lift_target_fence", "report"],
    "lift_target_fence": [],
}


@pytest.mark.parametrize(
    ("name", "instead", "left_out"),
    [
        ("plan-00", {}, set()),
        ("plan-01", {"watch_reverse_lag": ["list_groups"]}, {"approve_rollback"}),
        ("switched", PRODUCERS_BACK, set()),
        ("waves-0", {}, set()),
    ],
)
def test_way_back_moves_groups_and_the_producers_of_a_plan_that_has_some(many, name, instead, left_out):
    dag = many["dags"][f"rollback_{name}"]
    wanted = {**BACK_BEFORE_AND_AFTER, **instead}
    expected = {task: after for task, after in wanted.items() if task not in left_out}
    assert dag["edges"] == [[before, after] for before in sorted(expected) for after in expected[before]]
    assert set(dag["tasks"]) == set(expected)
    assert dag["teardowns"] == ({"lift_target_fence": True} if instead is PRODUCERS_BACK else {})
    rules = dag["rules"]
    assert rules.pop("watch_rolled_back") == "all_done_min_one_success"
    # Of a plan without groups to move back the batches are skipped.
    assert rules.pop("switch_producers_back" if instead is PRODUCERS_BACK else "report") == "none_failed"
    rules.pop("lift_target_fence", None)
    assert set(rules.values()) == {"all_success"}


def test_way_back_is_made_of_the_operators_of_the_way_there_and_says_when_to_use_it(many):
    there, back = many["dags"]["migrate_switched"], many["dags"]["rollback_switched"]
    assert set(back["tasks"].values()) <= set(there["tasks"].values())
    alike = {"reverse_mirror": "mirror", "watch_reverse_lag": "watch_lag", "approve_rollback": "approve_cutover"}
    alike |= {"rollback": "cut_over", "switch_producers_back": "switch_producers", "check_rollback": "create_targets"}
    assert {name: back["tasks"][name] for name in alike} == {name: there["tasks"][as_] for name, as_ in alike.items()}
    assert "have to go back" in back["doc"]
    assert "mark the task `reverse_mirror`" not in back["doc"]
    assert "mark the task `reverse_mirror`" in many["dags"]["rollback_plan-00"]["doc"]
    assert back["in_turn"] == ["rollback"]
    assert there["in_turn"] == []


@pytest.mark.parametrize("kind", ["migrate", "rollback"])
def test_migration_and_its_way_back_start_by_hand_alone_and_one_at_a_time(many, kind):
    dag = many["dags"][f"{kind}_plan-00"]
    assert dag["schedule"] is None
    assert dag["max_active_runs"] == 1
    assert not dag["has_timeout"], "a timeout of the run would end the mirror of a live migration"
    assert dag["tags"] == ["kafka-migration"]
    assert "how it is undone" in dag["doc"]


def test_validation_follows_the_plans_schedule_without_catching_up_and_has_a_form(many):
    dag = many["dags"]["validate_plan-05"]
    assert dag["schedule"] == "0 3 * * *"
    assert dag["catchup"] is False
    assert dag["max_active_runs"] == 1
    assert dag["params"] == ["full", "level", "topics"]
    assert dag["edges"] == [["check_in_flight", "take_snapshot"], ["take_snapshot", "validate"]]
    assert many["dags"]["validate_plan-01"]["schedule"] is None


def test_control_starts_by_hand_alone_and_has_a_form(many):
    dag = many["dags"]["control_plan-00"]
    assert (dag["schedule"], dag["edges"]) == (None, [["take_snapshot", "control"]])
    assert dag["params"] == ["action", "confirm", "keep_topics", "rate", "reason", "reverse"]


def test_every_failed_task_a_mirror_that_dies_and_a_question_alert_by_themselves(many):
    alerts = many["dags"]["migrate_told"]["task_alerts"]
    assert alerts.pop("mirror") == ["failed", "died, and is tried again"]
    for gate in ("approve_plan", "approve_cutover"):
        assert alerts.pop(gate) == ["failed", "asks again", "waits for an answer"]
    assert set(alerts) == set(BEFORE_AND_AFTER) - {"mirror", "approve_plan", "approve_cutover"}
    assert set(map(tuple, alerts.values())) == {("failed",)}
    back = many["dags"]["rollback_told"]["task_alerts"]
    assert back.pop("reverse_mirror") == ["failed", "died, and is tried again"]
    assert back.pop("approve_rollback") == ["failed", "asks again", "waits for an answer"]
    assert set(map(tuple, back.values())) == {("failed",)}
    assert not any(many["dags"]["migrate_plan-00"]["task_alerts"].values())


@pytest.mark.parametrize("name", ["told", "untold"])
def test_failures_of_both_dags_and_late_validations_are_told_to_those_who_can_be_told(many, name):
    migrate, validate = (many["dags"][f"{kind}_{name}"] for kind in ("migrate", "validate"))
    assert (migrate["alerts"], validate["alerts"]) == (["SmtpNotifier"], ["SmtpNotifier"])
    assert (migrate["deadlines"], validate["deadlines"]) == ([], [[3600.0, SMTP]])
    assert many["dags"]["validate_plan-00"]["alerts"] == many["dags"]["validate_plan-00"]["deadlines"] == []


def test_notifier_that_cannot_be_had_is_an_error_that_names_it_and_takes_no_dag_away(many):
    (error,) = many["errors"].values()
    assert "alerts.notifiers[0]" in error
    assert "this notifier cannot be loaded" in error
    assert "this notifier does not take these arguments" in error


def test_rendered_fields_of_every_task_are_pointers_alone(many):
    shown = {field for fields in many["dags"]["migrate_plan-00"]["fields"].values() for field in fields}
    assert shown == {"groups", "subject"}


def test_shipped_demo_plan_is_what_the_demo_dag_is_built_from(many):
    assert load_plan(ROOT / "migration_plans" / "demo.yaml").digest in many["dags"]["migrate_demo"]["doc"]
