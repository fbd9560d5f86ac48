"""The form of the control DAG: the commands of the same names, in the name of who triggered the run."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from kafka_migration.airflow.factory import control_dag
from kafka_migration.airflow.steps import FINAL_SECONDS, Action, ControlOperator
from kafka_migration.domain.direction import Direction
from kafka_migration.inventory import plan_changes
from kafka_migration.link import reverse
from kafka_migration.migration.joined import join
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import cancel, complete
from kafka_migration.steps.step import Decision

#: As the form has it when nobody fills anything in.
EMPTY = {"reverse": False, "rate": None, "reason": "", "keep_topics": False, "confirm": None}


@pytest.fixture
def asks(plan_file, opened, task_context, monkeypatch):
    """Runs the task with what somebody filled in."""
    opened.link = LinkState("played", MemoryStore(), None, None)
    monkeypatch.setattr(plan_changes, "to_mirror", lambda _ctx: None)

    def asks(action, *, user="ada", age=1, cleared=0, tries=0, **form):
        task_context["params"] = {**EMPTY, "action": action, **form}
        now = datetime.now(UTC)
        task_context["dag_run"] = SimpleNamespace(
            triggering_user_name=user, run_id="manual__1", run_after=now - timedelta(seconds=age), clear_number=cleared
        )
        operator = ControlOperator(task_id="control", plan_file=plan_file, retries=2)
        task_context["task"], task_context["ti"].max_tries = operator, 2 + tries
        return operator.execute(task_context)

    return asks


@pytest.fixture
def ended(monkeypatch):
    """How the migration was ended."""
    calls = []
    for step in (cancel, complete):
        name = step.__name__.rpartition(".")[2]

        def run(_ctx, *, name=name, **options):
            calls.append((name, options))
            return Decision(facts={"topics": 2}, notes=("a topic is left",))

        monkeypatch.setattr(step, "run", run)
    return calls


def test_mirror_is_held_and_goes_on_in_the_name_of_who_triggered_the_run(asks, opened, board):
    assert asks("pause", reason="night")["pause"]["by"] == "ada"
    assert "night" in opened.link.controls().describe()
    asks("resume", user=None)
    assert opened.link.controls().pause is None
    assert asks("throttle", rate="1MB", user=None)["throttle"]["by"] == "run manual__1"
    assert opened.link.controls().throttle.bytes_per_second == 1_000_000
    asks("throttle", rate="off")
    assert not opened.link.controls().describe()
    assert len(board) >= 2
    assert set(board) == {"played"}


def test_reverse_mirror_is_held_where_the_form_says_so(asks, opened, monkeypatch):
    back = LinkState("back", MemoryStore(), None, None)
    monkeypatch.setattr(reverse, "behind", lambda ctx: replace(ctx, link=back, direction=Direction.REVERSE))
    monkeypatch.setattr(reverse, "check", lambda _ctx: None)
    # It needs no lock.
    monkeypatch.setattr(plan_changes, "to_mirror", lambda _ctx: pytest.fail("of the forward mirror"))
    asks("pause", reverse=True)
    assert opened.link.controls().pause is None
    assert "by ada" in back.controls().describe()


def test_rate_that_is_none_is_refused_by_name(asks):
    for rate in (None, "fast"):
        with pytest.raises(AirflowFailException, match="throttle"):
            asks("throttle", rate=rate)


@pytest.mark.parametrize("action", ["cancel", "complete"])
def test_what_nothing_takes_back_needs_the_migrations_name(asks, ended, action):
    for confirm in (None, "plaid"):
        with pytest.raises(AirflowFailException, match="confirm"):
            asks(action, confirm=confirm)
    assert not ended
    keeps = {"keep_topics": True} if action == "cancel" else {}
    assert asks(action, confirm="played", reason="moved on", **keeps) == {"topics": 2}
    options = {"by": "ada", "reason": "moved on", "keep_topics": True} if action == "cancel" else {"by": "ada"}
    assert ended == [(action, options)]


# Who clears a task by the API alone leaves the run's number as it is; but the task may be tried more often then.
@pytest.mark.parametrize("late", [{"cleared": 1}, {"tries": 1}, {"age": FINAL_SECONDS + 10}])
def test_what_nothing_takes_back_is_done_when_it_was_asked_for_or_not_at_all(asks, ended, opened, late):
    for action in ("cancel", "complete"):
        with pytest.raises(AirflowFailException, match="trigger"):
            asks(action, confirm="played", **late)
    assert not ended
    asks("pause", **late)
    assert opened.link.controls().pause is not None


@pytest.mark.parametrize(
    ("action", "field"),
    [
        ("cancel", {"reverse": True, "confirm": "played"}),
        ("complete", {"keep_topics": True, "confirm": "played"}),
        ("pause", {"rate": "1MB"}),
        ("resume", {"confirm": "played"}),
    ],
)
def test_field_that_the_action_does_not_take_is_refused_by_name(asks, ended, action, field):
    with pytest.raises(AirflowFailException, match=next(iter(field))):
        asks(action, **field)
    assert not ended


@pytest.mark.parametrize("user", ["eve", None])
def test_nobody_but_an_approver_of_the_plan_ends_its_migration(asks, ended, make_plan, hand_on, user):
    hand_on(make_plan(approvals={"approvers": ["ada"]}))
    for action in ("cancel", "complete"):
        with pytest.raises(AirflowFailException, match="not one of the plan's approvers"):
            asks(action, confirm="played", user=user)
    assert not ended
    asks("cancel", confirm="played")
    assert len(ended) == 1


def test_name_that_an_edit_has_added_does_not_end_the_migration_before_it_has_joined(
    asks, ended, opened, make_plan, hand_on
):
    first, edited = (make_plan(approvals={"approvers": names}) for names in (["ada"], ["ada", "eve"]))
    hand_on(edited)

    def joins(plan):
        ctx: Any = SimpleNamespace(plan=plan, journal=opened.journal, stamp=lambda: "now")
        join(ctx)

    joins(first)
    with pytest.raises(AirflowFailException, match=r"eve is not one of the plan's approvers \(ada\)"):
        asks("cancel", confirm="played", user="eve")
    asks("cancel", confirm="played", user="ada")
    joins(edited)
    asks("cancel", confirm="played", user="eve")
    assert len(ended) == 2


def test_form_offers_every_action_and_none_by_itself(make_plan, tmp_path):
    params = control_dag(make_plan(), tmp_path / "played.yaml").params
    assert params.get_param("action").schema["enum"] == [str(action) for action in Action]
    assert not params.get_param("action").has_value
    assert {name: params[name] for name in EMPTY} == EMPTY
