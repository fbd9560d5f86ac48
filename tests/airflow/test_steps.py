"""Tasks around the phases: what they ask first, what they hand on, and which errors are worth another try."""

import os
import re
import signal
import threading
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowTaskTimeout
from airflow.sdk.execution_time.timeout import TimeoutPosix

from kafka_migration.airflow.base import reports_directory
from kafka_migration.airflow.steps import (
    CutOverOperator,
    ListBatchesOperator,
    StepOperator,
)
from kafka_migration.approvals import approvals, passing
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.domain.errors import ClusterUnreachable, MigrationError, NeedsRollback, Refused
from kafka_migration.groups.hooks import HookCall, run_hook
from kafka_migration.inventory import preflight
from kafka_migration.migration.reports import Store
from kafka_migration.plans.load import restore_plan
from kafka_migration.steps import cutover, unfence
from kafka_migration.steps.cutover import CutoverResult, Fate, GroupOutcome
from kafka_migration.topics import create
from tests.waiting import wait_until


def gate(verdict):
    result = CheckResult(name="room", verdict=verdict, evidence="17 bytes are free", remedy="add a disk")
    return SimpleNamespace(gate=Gate.of("preflight", [result]), inventory=SimpleNamespace(digest="sha256:1"))


def played_preflight(monkeypatch, verdict):
    found = gate(verdict)
    found.exit_code = found.gate.exit_code
    monkeypatch.setattr(preflight, "check", lambda ctx: found)


def test_preflight_that_passes_hands_on_the_inventorys_digest(plan_file, opened, monkeypatch, task_context, board):
    played_preflight(monkeypatch, Verdict.PASS)
    found = StepOperator(task_id="t", step="inventory_and_preflight", plan_file=plan_file).execute(task_context)
    assert found == {"inventory": "sha256:1", "checks": 1}
    assert opened.made_state == [False], "reading leaves nothing on the target"
    assert board == ["played"]


def test_preflight_that_says_no_fails_at_once_with_evidence_and_remedy(plan_file, opened, monkeypatch, task_context):
    played_preflight(monkeypatch, Verdict.FAIL)
    with pytest.raises(AirflowFailException, match=r"17 bytes are free\n  remedy: add a disk"):
        StepOperator(task_id="t", step="inventory_and_preflight", plan_file=plan_file).execute(task_context)


def test_check_that_could_not_run_is_tried_again(plan_file, opened, monkeypatch, task_context):
    played_preflight(monkeypatch, Verdict.UNCHECKED)
    with pytest.raises(AirflowException) as raised:
        StepOperator(task_id="t", step="inventory_and_preflight", plan_file=plan_file).execute(task_context)
    assert not isinstance(raised.value, AirflowFailException)


@pytest.mark.parametrize(
    ("error", "final"), [(Refused("no", remedy="yes"), True), (ClusterUnreachable("source", "h:1", "gone"), False)]
)
def test_error_of_a_phase_fails_the_task_or_is_tried_again(
    plan_file, opened, monkeypatch, task_context, board, error, final
):
    def fails(ctx):
        raise error

    monkeypatch.setattr(preflight, "check", fails)
    with pytest.raises(AirflowException, match=re.escape(error.message)) as raised:
        StepOperator(task_id="t", step="inventory_and_preflight", plan_file=plan_file).execute(task_context)
    assert isinstance(raised.value, AirflowFailException) is final
    assert board == ["played"]


def test_run_whose_snapshot_is_none_fails_of_that_and_not_of_the_board(plan_file, opened, task_context, board):
    task_context["ti"].handed_on = None
    with pytest.raises(AirflowFailException, match="take_snapshot"):
        StepOperator(task_id="t", step="inventory_and_preflight", plan_file=plan_file).execute(task_context)
    assert board == []


def test_fence_that_could_not_be_lifted_is_lifted_by_another_try(plan_file, opened, monkeypatch, task_context):
    def fails(ctx):
        raise NeedsRollback("the fence could not be lifted", remedy="run `fence --lift`")

    monkeypatch.setattr(unfence, "run", fails)
    with pytest.raises(AirflowException, match="could not be lifted") as raised:
        StepOperator(task_id="t", step="lift_fence", plan_file=plan_file).execute(task_context)
    assert not isinstance(raised.value, AirflowFailException)


def test_create_makes_nothing_while_the_plan_gate_is_closed(plan_file, opened, monkeypatch, task_context):
    def closed(ctx, name):
        raise passing.NotApproved(name, "nobody has approved it yet")

    monkeypatch.setattr(approvals, "check", closed)
    monkeypatch.setattr(create, "apply", lambda ctx: pytest.fail("created without an approval"))
    with pytest.raises(AirflowFailException, match="nobody has approved it"):
        StepOperator(task_id="t", step="create_targets", plan_file=plan_file).execute(task_context)
    assert opened.made_state == [False], "not even internal topics"
    assert not opened.made_later


def played_cutover(monkeypatch, *outcomes):
    monkeypatch.setattr(cutover, "apply", lambda ctx, groups: CutoverResult(groups=outcomes))


def test_cutover_counts_outcomes(plan_file, opened, monkeypatch, task_context, board):
    groups = (GroupOutcome(group="a", outcome=Fate.MOVED), GroupOutcome(group="b", outcome=Fate.ALREADY_MOVED))
    played_cutover(monkeypatch, *groups)
    task_context["ti"].map_index = 3
    operator = CutOverOperator(task_id="t", step="cut_over", plan_file=plan_file, groups=["a", "b"])
    assert operator.execute(task_context) == {"moved": 1, "already_moved": 1}
    assert list(opened.journal.all("phase")) == ["cut_over[3]"], "batches side by side share no record"
    assert board == [], "batches are many"


def test_group_that_was_refused_fails_the_batch_with_its_reason_and_remedy(
    plan_file, opened, monkeypatch, task_context
):
    refused = GroupOutcome(group="b", outcome=Fate.REFUSED, reason="2 members", remedy="stop them", exit_code=1)
    played_cutover(monkeypatch, GroupOutcome(group="a", outcome=Fate.MOVED), refused)
    operator = CutOverOperator(task_id="t", step="cut_over", plan_file=plan_file, groups=["a", "b"])
    with pytest.raises(AirflowFailException, match=r"1 of 2 groups[\s\S]*b: refused: 2 members\n  remedy: stop them"):
        operator.execute(task_context)
    assert opened.journal.all("phase")["cut_over"]["outcome"] == "refused"


@pytest.fixture
def ended_by_airflow():
    """As Airflow's task runner takes SIGTERM: it asks the task to end what it started, and lets it go on."""
    asked: list[CutOverOperator] = []
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: asked[0].on_kill())
    yield asked
    signal.signal(signal.SIGTERM, before)


def test_kill_of_a_cutover_ends_the_hook_that_runs_and_starts_no_other(
    plan_file, opened, monkeypatch, task_context, ended_by_airflow, tmp_path
):
    tool, pid = tmp_path / "tool", tmp_path / "pid"
    tool.write_text(f"#!/bin/sh\necho $$ > {pid}.new; mv {pid}.new {pid}; sleep 600\n")
    tool.chmod(0o700)
    plan = restore_plan({**opened.plan.snapshot(), "consumers": {"stop": [{"command": [str(tool)]}]}})
    call = HookCall(hook=plan.consumers.stop[0], group="a", migration="played", cluster="source", phase="cutover")
    began = []

    def moves(ctx, groups):
        for group in groups:
            began.append(group)
            with suppress(MigrationError):
                run_hook(call, environ={"KAFKA_MIGRATION_ALLOWED_COMMANDS": str(tool)})

    played_cutover(monkeypatch)
    monkeypatch.setattr(cutover, "apply", moves)
    operator = CutOverOperator(task_id="t", step="cut_over", plan_file=plan_file, groups=["a", "b"])
    ended_by_airflow.append(operator)

    def end() -> None:
        wait_until(pid.exists, "the hook runs")
        os.kill(os.getpid(), signal.SIGTERM)

    ending = threading.Thread(target=end)
    ending.start()
    with pytest.raises(KeyboardInterrupt, match="t was asked to end"):
        operator.execute(task_context)
    ending.join()
    assert began == ["a"]
    assert not psutil.pid_exists(int(pid.read_text()))
    assert opened.journal.all("phase")["cut_over"]["outcome"] == "interrupted"
    # Airflow calls it after a timeout, too: the phase is over then, and its error stays.
    operator.on_kill()


def test_timeout_reaches_a_cutover_as_ctrl_c_which_starts_its_group_again_and_airflow_as_a_timeout(
    plan_file, opened, monkeypatch, task_context
):
    seen = list[BaseException]()

    def moves(ctx, groups):
        try:
            signal.raise_signal(signal.SIGALRM)
        except BaseException as error:
            seen.append(error)
            raise

    monkeypatch.setattr(cutover, "apply", moves)
    before = signal.getsignal(signal.SIGALRM)
    operator = CutOverOperator(task_id="t", step="cut_over", plan_file=plan_file, groups=["a", "b"])
    try:
        with pytest.raises(AirflowTaskTimeout, match="too long"), TimeoutPosix(600, "too long") as timeout:
            operator.execute(task_context)
        assert signal.getsignal(signal.SIGALRM) == timeout.handle_timeout
    finally:
        signal.signal(signal.SIGALRM, before)
    assert [type(error) for error in seen] == [KeyboardInterrupt]
    assert opened.journal.all("phase")["cut_over"]["outcome"] == "interrupted"


def test_batches_are_the_phases_own(plan_file, opened, monkeypatch, task_context):
    monkeypatch.setattr(cutover, "batches", lambda ctx: [["a", "b"], ["c"]])
    assert ListBatchesOperator(task_id="t", step="cut_over", plan_file=plan_file).execute(task_context) == [
        ["a", "b"],
        ["c"],
    ]


def test_reports_go_where_the_environment_says_else_into_the_checkout(monkeypatch, tmp_path):
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", str(tmp_path))
    assert reports_directory() == tmp_path
    monkeypatch.delenv("KAFKA_MIGRATION_REPORTS_DIR")
    assert Path(str(reports_directory().parent), "migration_plans").is_dir()
    monkeypatch.setenv("KAFKA_MIGRATION_REPORTS_DIR", "memory://bucket/reports")
    assert reports_directory() == Store("memory://bucket/reports")


def test_group_that_was_excluded_since_it_was_listed_keeps_the_others_of_its_batch_from_nothing(
    make_plan, hand_on, opened, monkeypatch, task_context
):
    asked: list[list[str]] = []

    def apply(ctx, groups):
        asked.append(groups)
        return CutoverResult(groups=())

    monkeypatch.setattr(cutover, "apply", apply)
    file = hand_on(make_plan(groups={"include": [".*"], "exclude": ["shared"]}))
    CutOverOperator(task_id="t", step="cut_over", plan_file=file, groups=["a", "shared", "b"]).execute(task_context)
    assert asked == [["a", "b"]]
