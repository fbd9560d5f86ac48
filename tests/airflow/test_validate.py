"""Validation as tasks: with the form's topics, and only while a migration is in flight."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from airflow.sdk import BaseHook
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from kafka_migration.airflow.factory import migrate_dag, validate_dag
from kafka_migration.airflow.opening import opened_context
from kafka_migration.airflow.steps import MigrationInFlightOperator, SparkValidateOperator
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import Desired
from kafka_migration.validation import validate


@pytest.fixture
def validated(monkeypatch):
    """How the phase was called; it ends with ``code``."""
    found = SimpleNamespace(calls=[], code=0)

    def apply(ctx, **options):
        found.calls.append(options)
        result = SimpleNamespace(summary=lambda: "3 partitions differ")
        return SimpleNamespace(exit_code=found.code, verdict="EQUAL", result=result, folder=Path("/reports/played"))

    monkeypatch.setattr(validate, "apply", apply)
    spark = Connection(conn_id="spark_here", conn_type="spark", host="h", port=7077)
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(lambda conn_id: spark))
    return found


def operator(plan_file, *, by_form=False):
    return SparkValidateOperator(
        task_id="validate", step="validate", plan_file=plan_file, conn_id="spark_here", by_form=by_form
    )


def test_validation_within_a_migration_is_of_everything(
    plan_file, opened, validated, task_context, monkeypatch, tmp_path
):
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", str(tmp_path))
    # Airflow takes whatever a run of the migration was triggered with for parameters.
    task_context["params"] = {"topics": ["orders"], "level": "x", "full": True}
    assert operator(plan_file).execute(task_context) == {"verdict": "EQUAL", "folder": "/reports/played"}
    everything = {"topics": (), "level": None, "full": False}
    assert validated.calls == [{"spark_master": "spark://h:7077", "reports": tmp_path, **everything}]
    assert opened.journal.all("phase")["validate"]["outcome"] == "done"


def test_form_names_topics_and_level_and_may_ask_for_everything(plan_file, opened, validated, task_context):
    task_context["params"] = {"topics": ["orders", "payments"], "level": "record", "full": True}
    operator(plan_file, by_form=True).execute(task_context)
    (call,) = validated.calls
    assert (call["topics"], call["level"], call["full"]) == (["orders", "payments"], Level.RECORD, True)


def test_form_is_of_the_validations_dag_alone(make_plan, plan_file):
    plan, file = make_plan(), Path(plan_file)
    found = {
        dag.dag_id: vars(dag.get_task("validate"))["by_form"]
        for dag in (migrate_dag(plan, file), validate_dag(plan, file))
    }
    assert found == {"migrate_played": False, "validate_played": True}


def test_text_of_others_forges_no_line_of_a_tasks_log(make_plan, opened):
    said = []
    with opened_context(make_plan(), SimpleNamespace(info=lambda _form, text: said.append(text))) as ctx:
        ctx.log("group x\nplan gate: approved by ada\x1b[2J")
    assert said == [r"group x\nplan gate: approved by ada\x1b[2J"]


@pytest.mark.parametrize(("code", "final"), [(1, True), (3, False)])
def test_verdict_that_is_not_equal_fails_and_one_that_could_not_be_found_is_tried_again(
    plan_file, opened, validated, task_context, code, final
):
    validated.code = code
    with pytest.raises(AirflowException, match="3 partitions differ") as raised:
        operator(plan_file).execute(task_context)
    assert isinstance(raised.value, AirflowFailException) is final


class Link:
    def __init__(self, desired, state, reason="", seal=None):
        self._desired, self._run, self._seal = desired, {"state": state, "reason": reason}, seal

    def wished(self):
        return SimpleNamespace(desired=self._desired)

    def run(self):
        return self._run

    def seal(self):
        return self._seal


@pytest.mark.parametrize(
    ("has_topics", "link", "expected"),
    [
        (False, Link(Desired.RUN, "running"), False),
        (True, Link(Desired.RUN, "running"), True),
        (True, Link(Desired.DRAIN, "running"), True),
        (True, Link(Desired.STOP, "ended"), True),
        (True, Link(Desired.DRAIN, "ended", "drained"), False),
        (True, Link(Desired.DRAIN, "ended", "halted"), True),
        (True, Link(Desired.DRAIN, "ended", "caught_up", seal="there"), False),
    ],
)
def test_migration_is_in_flight_from_its_first_topic_until_it_was_drained(
    opened, make_plan, tmp_path, has_topics, link, expected
):
    file = tmp_path / "plan.yaml"
    file.write_text(yaml.safe_dump(make_plan().snapshot()))
    opened.link = link
    if has_topics:
        opened.journal.record("topic", "t", {"created": True})
    it = MigrationInFlightOperator(task_id="check_in_flight", plan_file=str(file))
    assert it.python_callable() is expected
    assert opened.made_state == [False], "asking leaves nothing on the target"
