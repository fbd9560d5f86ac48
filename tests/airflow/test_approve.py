"""A gate in Airflow: the evidence is asked about as it is, and the answer is for that and nothing else."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.api_fastapi.auth.managers.base_auth_manager import BaseAuthManager
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskAwaitingInput

from kafka_migration.airflow.approve import ApproveGateOperator
from kafka_migration.airflow.base import run_of
from kafka_migration.approvals import approvals, passing
from kafka_migration.approvals.evidence import Evidence, GateName
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.types import Desired
from kafka_migration.plans.snapshot import write_plan
from kafka_migration.state.link import Wish


def evidence(topics="t1"):
    return Evidence(
        gate=GateName.PLAN,
        migration="played",
        taken_at=datetime.now(UTC),
        facts={"topics": {"names": topics}},
        checks=Gate.of("plan", [CheckResult(name="room {{ 1 + 1 }}", verdict=Verdict.PASS, evidence="enough")]),
        tables=(),
        next_steps=("create topics",),
        undo=("delete them",),
    )


@pytest.fixture
def seen(monkeypatch):
    """The evidence of the gate, as it is now: a test changes it."""
    now = SimpleNamespace(evidence=evidence())
    monkeypatch.setattr(approvals, "evidence", lambda ctx, gate: now.evidence)
    return now


@pytest.fixture
def asked(monkeypatch):
    """What Airflow was told to ask."""
    questions = []
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **question: questions.append(question))
    return questions


def operator(plan_file, **more):
    return ApproveGateOperator(task_id="approve_plan", plan_file=plan_file, gate="plan", subject="?", **more)


@pytest.fixture
def plan_file(make_plan, hand_on):
    return hand_on(make_plan(approvals={"max_age_seconds": 60}))


def ask(it, task_context):
    with pytest.raises(TaskAwaitingInput) as waiting:
        it.execute(task_context)
    return waiting.value


def answer(option, user="ann", name="Ann"):
    return {
        "chosen_options": [option],
        "params_input": {},
        "responded_at": datetime.now(UTC),
        "responded_by_user": {"id": user, "name": name},
    }


def test_question_shows_the_evidence_and_has_no_default(plan_file, opened, seen, asked, task_context):
    waiting = ask(operator(plan_file), task_context)
    assert asked[0]["defaults"] is None
    tag = seen.evidence.digest.removeprefix("sha256:")[:8]
    assert asked[0]["options"] == [f"Approve {tag}", "Reject"], "a page of earlier evidence sends another option"
    assert asked[0]["assigned_users"] is None
    assert seen.evidence.digest in asked[0]["body"]
    # Names from the clusters are text, never templates: the body is no template field.
    assert "{{ 1 + 1 }}" in asked[0]["body"]
    assert "body" not in operator(plan_file).template_fields
    assert waiting.kwargs == {
        "digest": seen.evidence.digest,
        "seen_at": seen.evidence.taken_at.isoformat(),
        "asked": 1,
    }
    assert waiting.timeout.total_seconds() == 60


def test_question_goes_to_the_approvers_of_the_runs_plan(opened, make_plan, hand_on, seen, asked, task_context):
    plan = make_plan(approvals={"approvers": ["ann", "bob"]})
    plan_file = hand_on(plan)
    write_plan(make_plan(approvals={"approvers": ["eve"]}), Path(plan_file).parent)
    opened.journal.record("run", run_of(task_context), {"digest": plan.digest})
    ask(operator(plan_file), task_context)
    assert asked[0]["assigned_users"] == [{"id": "ann", "name": "ann"}, {"id": "bob", "name": "bob"}]


def test_question_about_a_plan_that_has_not_joined_goes_to_those_whom_the_plan_before_names(
    opened, make_plan, hand_on, seen, asked, task_context
):
    before = make_plan(approvals={"approvers": ["ann"]})
    opened.journal.record("plan", "plan", {"digest": before.digest, "at": "", "snapshot": before.snapshot()})
    edited = hand_on(make_plan(approvals={"approvers": ["eve"]}))
    waiting = ask(operator(edited), task_context)
    assert asked[0]["assigned_users"] == [{"id": "ann", "name": "ann"}]
    with pytest.raises(TaskAwaitingInput):
        operator(edited).execute_complete(task_context, answer("Approve", user="eve", name="eve"), **waiting.kwargs)
    assert opened.journal.all("approval") == {}
    answered = operator(edited).execute_complete(task_context, answer("Approve"), **waiting.kwargs)
    assert answered["approver"] == "ann"


class NumberedUser(SimpleAuthManagerUser):
    """As FAB's: named as ever, and identified by the number of its row, as text (fab 3.10.2, models, User.get_id)."""

    def get_id(self):
        return "17"


@pytest.mark.parametrize(
    ("manager", "user", "assigned"),
    [
        ("airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager", SimpleAuthManagerUser, True),
        ("airflow.providers.fab.auth_manager.fab_auth_manager.FabAuthManager", NumberedUser, False),
    ],
)
def test_question_is_for_the_approvers_alone_unless_airflow_would_compare_their_names_with_numbers(
    opened, make_plan, hand_on, seen, asked, task_context, monkeypatch, manager, user, assigned
):
    plan_file = hand_on(make_plan(approvals={"approvers": ["ann"]}))
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", manager)
    ask(operator(plan_file), task_context)
    users = asked[0]["assigned_users"]
    assert (users is not None) is assigned
    # As Airflow's server asks its auth manager; it does not ask where nobody is assigned.
    may_answer: Any = BaseAuthManager.is_authorized_hitl_task
    ids = {it["id"] for it in users or [{"id": "ann"}]}
    assert may_answer(None, assigned_users=ids, user=user(username="ann", role="op")) is assigned


@pytest.mark.parametrize("option", ["Approve", "Reject"])
def test_answer_of_a_stranger_whom_airflow_lets_answer_is_refused_and_asked_about_anew(
    opened, make_plan, hand_on, seen, asked, task_context, option
):
    opened.plan = make_plan(approvals={"approvers": ["ann"]})
    plan_file = hand_on(opened.plan)
    waiting = ask(operator(plan_file), task_context)
    given = answer(option, user="18", name="mallory")
    refusals = list[Any]()
    it = operator(plan_file, on_retry_callback=refusals.append)
    with pytest.raises(TaskAwaitingInput) as again:
        it.execute_complete(task_context, given, **waiting.kwargs)
    kwargs: Any = again.value.kwargs
    assert kwargs["asked"] == 2
    assert len(asked) == 2, "the response is taken out of the question, in the same try"
    assert "mallory is not one of" in str(refusals[0]["exception"]), "and people are alerted"
    assert isinstance(refusals[0]["exception"].__cause__, passing.NotApproved)
    assert opened.journal.all("approval") == {}
    given = answer("Approve", name="ann")
    recorded = operator(plan_file).execute_complete(task_context, given, **kwargs)
    assert recorded["approver"] == "ann"


def test_approval_is_recorded_with_digest_and_name_and_lets_the_gate_pass(
    plan_file, opened, seen, asked, task_context, board
):
    waiting = ask(operator(plan_file), task_context)
    found = operator(plan_file).execute_complete(task_context, answer("Approve"), **waiting.kwargs)
    assert found == {"gate": "plan", "digest": seen.evidence.digest, "approver": "Ann"}
    recorded = opened.journal.read("approval", "plan/1-approved")
    assert (recorded["answer"], recorded["approver"], recorded["digest"]) == ("approved", "Ann", seen.evidence.digest)
    assert opened.made_state == [False, True], "the answer is the first thing that may be written"
    assert board == ["played"]


def test_rejection_fails_the_task_for_good_and_makes_nothing(plan_file, opened, seen, asked, task_context, board):
    waiting = ask(operator(plan_file), task_context)
    with pytest.raises(AirflowFailException, match="Ann rejected the plan gate"):
        operator(plan_file).execute_complete(task_context, answer("Reject"), **waiting.kwargs)
    assert opened.made_state == [False, False]
    assert opened.journal.read("approval", "plan/1-rejected")["answer"] == "rejected"
    assert board == ["played"]


def test_rejection_at_the_cutover_stops_the_mirror(plan_file, opened, seen, asked, task_context):
    wishes = list[Wish]()
    opened.link = SimpleNamespace(run=lambda: {"state": "running"}, wish=wishes.append)
    it = ApproveGateOperator(task_id="approve_cutover", plan_file=plan_file, gate="cutover", subject="?")
    waiting = ask(it, task_context)
    with pytest.raises(AirflowFailException, match=r"the mirror was asked to stop(.|\n)*clear this task and mirror"):
        it.execute_complete(task_context, answer("Reject"), **waiting.kwargs)
    assert [(wish.desired, wish.reason) for wish in wishes] == [(Desired.STOP, "Ann rejected the cutover gate")]
    assert opened.journal.read("approval", "cutover/1-rejected")["answer"] == "rejected"


def test_evidence_that_changed_before_the_answer_is_asked_about_in_a_try_of_its_own(
    plan_file, opened, seen, asked, task_context
):
    waiting = ask(operator(plan_file), task_context)
    seen.evidence = evidence(topics="t1 and another")
    with pytest.raises(AirflowException, match="the evidence is") as raised:
        operator(plan_file).execute_complete(task_context, answer("Approve"), **waiting.kwargs)
    assert not isinstance(raised.value, AirflowFailException), "a retry of this task asks again"
    assert isinstance(raised.value.__cause__, passing.NotApproved), "and people are alerted of it"
    assert len(asked) == 1, "Airflow would show the earlier evidence"
    assert opened.journal.all("approval") == {}


NO_ANSWER = {"error": "no answer", "error_type": "timeout"}


def test_no_answer_in_time_is_no_approval_and_is_waited_for_as_long_as_the_evidence_holds(
    plan_file, opened, seen, asked, task_context
):
    kwargs = ask(operator(plan_file), task_context).kwargs
    alerts = list[Any]()
    for number in range(2, 200):
        seen.evidence = evidence()
        with pytest.raises(TaskAwaitingInput) as again:
            operator(plan_file, notifiers=[alerts.append]).execute_complete(task_context, NO_ANSWER, **kwargs)
        kwargs = again.value.kwargs
        assert kwargs == {
            "digest": seen.evidence.digest,
            "seen_at": seen.evidence.taken_at.isoformat(),
            "asked": number,
        }
        assert again.value.timeout.total_seconds() == 60
    assert [alert["asked"] for alert in alerts] == list(range(2, 200)), "each alert decides by itself whether it is due"
    assert len(asked) == 1, "a response that has just come in stays in the question"
    assert opened.journal.all("approval") == {}
    assert operator(plan_file).execute_complete(task_context, answer("Approve"), **kwargs)["approver"] == "Ann"


def test_evidence_that_changes_while_nobody_answers_is_asked_about_in_a_try_of_its_own(
    plan_file, opened, seen, asked, task_context
):
    waiting = ask(operator(plan_file), task_context)
    seen.evidence = evidence(topics="t1 and another")
    with pytest.raises(AirflowException, match="the question shows") as raised:
        operator(plan_file).execute_complete(task_context, NO_ANSWER, **waiting.kwargs)
    assert not isinstance(raised.value, AirflowFailException)
    assert isinstance(raised.value.__cause__, passing.NotApproved)


def test_cluster_that_is_away_while_nobody_answers_fails_no_try_and_makes_the_evidence_no_younger(
    plan_file, opened, seen, asked, task_context, monkeypatch
):
    kwargs = ask(operator(plan_file), task_context).kwargs

    def away(ctx, gate):
        raise ClusterUnreachable("target", "h:1", "gone")

    monkeypatch.setattr(approvals, "evidence", away)
    with pytest.raises(TaskAwaitingInput) as again:
        operator(plan_file).execute_complete(task_context, NO_ANSWER, **kwargs)
    assert again.value.kwargs == kwargs


def test_answer_for_evidence_that_was_last_found_so_too_long_ago_is_asked_for_again(
    plan_file, opened, seen, asked, task_context
):
    kwargs = ask(operator(plan_file), task_context).kwargs
    kwargs["seen_at"] = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    with pytest.raises(TaskAwaitingInput) as again:
        operator(plan_file).execute_complete(task_context, answer("Approve"), **kwargs)
    assert len(asked) == 2
    assert again.value.kwargs is not None
    assert again.value.kwargs["seen_at"] == seen.evidence.taken_at.isoformat()
    assert opened.journal.all("approval") == {}


@pytest.mark.parametrize("option", ["Approve 12345678", "Maybe"])
def test_option_of_another_question_approves_nothing(plan_file, opened, seen, asked, task_context, option):
    waiting = ask(operator(plan_file), task_context)
    with pytest.raises(ValueError, match="not in"):
        operator(plan_file).execute_complete(task_context, answer(option), **waiting.kwargs)
    assert opened.journal.all("approval") == {}


def test_option_that_names_the_evidence_approves_it(plan_file, opened, seen, asked, task_context):
    waiting = ask(operator(plan_file), task_context)
    given = answer(asked[0]["options"][0])
    assert operator(plan_file).execute_complete(task_context, given, **waiting.kwargs)["approver"] == "Ann"


def test_user_manager_that_numbers_its_users_is_matched_by_name(opened, make_plan, hand_on, seen, asked, task_context):
    opened.plan = make_plan(approvals={"approvers": ["ann"]})
    plan_file = hand_on(opened.plan)
    waiting = ask(operator(plan_file), task_context)
    it = operator(plan_file)
    found = it.execute_complete(task_context, answer("Approve", user="17", name="ann"), **waiting.kwargs)
    assert found["approver"] == "ann"
