"""Tasks that wait: they defer with pointers alone, and their trigger's verdict decides."""

import time
from types import SimpleNamespace

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferred

from kafka_migration.airflow.steps import WaitOperator
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import ClusterUnreachable, StateConflict
from kafka_migration.groups import sides
from kafka_migration.plans.snapshot import Snapshot
from kafka_migration.steps import stop


def deferred(operator, task_context):
    with pytest.raises(TaskDeferred) as raised:
        operator.execute(task_context)
    return raised.value


@pytest.mark.parametrize(
    ("step", "seconds"),
    [("watch_lag", 86_400), ("watch_groups", 600), ("stop_mirror", 600)],
)
def test_waiting_task_defers_with_a_deadline_from_the_plan(step, seconds, plan_file, task_context):
    waiting = deferred(WaitOperator(task_id="t", step=step, plan_file=plan_file), task_context)
    path, values = waiting.trigger.serialize()
    assert path == "kafka_migration.airflow.trigger.StepTrigger"
    assert values.pop("gives_up_at") == pytest.approx(time.time() + seconds, abs=60)
    handed_on = task_context["ti"].handed_on
    assert values.pop("digest") == handed_on["digest"]
    assert Snapshot.unpack(values.pop("packed"), handed_on["digest"]).as_dict() == handed_on
    run = f"migrate_played/{task_context['ti'].run_id}"
    assert values == {"step": step, "run_of_plan": run, "plan_file": plan_file, "path": ""}
    assert waiting.method_name == "resume"


def verdict(exit_code):
    return {"exit_code": exit_code, "message": "because", "facts": {"lag": 7}}


@pytest.mark.parametrize("step", ["watch_lag", "stop_mirror"])
@pytest.mark.parametrize(("exit_code", "final"), [(1, True), (2, True), (3, False)])
def test_verdict_that_is_no_pass_fails_the_task_or_is_tried_again(
    step, exit_code, final, plan_file, task_context, board
):
    operator = WaitOperator(task_id="t", step=step, plan_file=plan_file)
    if step == "stop_mirror" and not final:
        waits_again(operator, task_context, verdict(exit_code))
        return
    with pytest.raises(AirflowException, match="because") as raised:
        operator.resume(task_context, verdict(exit_code))
    assert isinstance(raised.value, AirflowFailException) is final
    assert board == ["played"]


def waits_again(operator, task_context, event):
    """It goes back to its trigger, with the time that the plan gives it, and no try has failed."""
    with pytest.raises(TaskDeferred) as again:
        operator.resume(task_context, event)
    _, values = again.value.trigger.serialize()
    assert values["gives_up_at"] == pytest.approx(time.time() + 600, abs=60)
    assert again.value.method_name == "resume"


def test_verdict_that_passes_hands_on_its_facts(plan_file, task_context):
    assert WaitOperator(task_id="t", step="watch_lag", plan_file=plan_file).resume(task_context, verdict(0)) == {
        "lag": 7
    }


def played_stop(monkeypatch, *, is_open, name=stop.STILL):
    result = CheckResult(name=name, verdict=Verdict.PASS if is_open else Verdict.FAIL, evidence="orders-0 +5")
    mirror = {"state": "ended", "records": 100, "reason": "drained"} if is_open else {"state": "running"}
    report = SimpleNamespace(as_dict=dict)
    played = stop.StopResult(gate=Gate.of("stop", [result]), lag=report, mirror=mirror)  # type: ignore[arg-type]
    monkeypatch.setattr(stop, "apply", lambda ctx, now: played)


def test_stop_proves_once_more_what_the_trigger_saw(plan_file, opened, monkeypatch, task_context):
    played_stop(monkeypatch, is_open=True)
    found = WaitOperator(task_id="t", step="stop_mirror", plan_file=plan_file).resume(task_context, verdict(0))
    assert found == {"records": 100, "reason": "drained"}
    assert opened.journal.all("phase")["stop_mirror"]["outcome"] == "done"


def test_producer_that_came_back_has_the_stop_waited_for_again(plan_file, opened, monkeypatch, task_context):
    played_stop(monkeypatch, is_open=False)
    waits_again(WaitOperator(task_id="t", step="stop_mirror", plan_file=plan_file), task_context, verdict(0))


@pytest.mark.parametrize(
    ("error", "is_final"), [(ClusterUnreachable("target", "h:1", "gone"), False), (StateConflict("odd"), True)]
)
def test_error_that_waiting_may_heal_has_the_stop_waited_for_again(
    plan_file, opened, monkeypatch, task_context, error, is_final
):
    def fails(ctx, now):
        raise error

    monkeypatch.setattr(stop, "apply", fails)
    operator = WaitOperator(task_id="t", step="stop_mirror", plan_file=plan_file)
    if is_final:
        with pytest.raises(AirflowFailException, match="odd"):
            operator.resume(task_context, verdict(0))
    else:
        waits_again(operator, task_context, verdict(0))


@pytest.mark.parametrize(
    "name",
    [
        sides.CHECK_BACK,
        sides.CHECK_SIDES,
        sides.CHECK_MOVED,
        "no partition is halted",
        "topics are as declared",
    ],
)
def test_what_only_a_person_can_clear_is_not_waited_for(plan_file, opened, monkeypatch, task_context, name):
    played_stop(monkeypatch, is_open=False, name=name)
    with pytest.raises(AirflowFailException, match="then clear this task; the mirror runs on"):
        WaitOperator(task_id="t", step="stop_mirror", plan_file=plan_file).resume(task_context, verdict(0))
