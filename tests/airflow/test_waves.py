"""Tasks of a wave: what they are opened with, what they record, and what becomes of a wave that is rejected."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.standard.operators import hitl
from airflow.sdk.exceptions import AirflowFailException, TaskAwaitingInput, TaskDeferred

from kafka_migration.airflow.approve import ApproveGateOperator
from kafka_migration.airflow.steps import CutOverOperator, ListBatchesOperator, PlanSnapshotOperator, WaitOperator
from kafka_migration.airflow.trigger import StepTrigger, _Session
from kafka_migration.approvals import approvals, waves
from kafka_migration.approvals.evidence import Evidence, GateName
from kafka_migration.domain.checks import CheckResult, Gate, Verdict
from kafka_migration.groups import looks, translate
from kafka_migration.migration.context import Context, Scope
from kafka_migration.plans.snapshot import write_plan
from kafka_migration.steps import cutover
from kafka_migration.steps.cutover import CutoverResult, Fate, GroupOutcome
from tests.airflow.test_approve import answer

WAVE = {"task_id": "t", "wave": "first"}
AUTO = {"auto": {"most_topics": 3}}


@pytest.fixture(autouse=True)
def waves_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's one wave, without clusters to find it on."""

    def within(ctx: Context, name: str) -> Context:
        return ctx.within(Scope.wave(name, topics={"t"}, groups={"a", "b"}, reading=frozenset({"a"})))

    monkeypatch.setattr(waves, "within", within)


def test_batch_of_a_wave_is_moved_within_it_and_recorded_under_its_name(
    plan_file, opened, monkeypatch, task_context
) -> None:
    scopes = []

    def apply(ctx: Context, groups: list[str]) -> CutoverResult:
        scopes.append((ctx.scope.key, groups))
        return CutoverResult(groups=(GroupOutcome(group="a", outcome=Fate.MOVED),))

    monkeypatch.setattr(cutover, "apply", apply)
    task_context["ti"].map_index = 3
    task = CutOverOperator(step="cut_over", plan_file=plan_file, groups=["a"], **WAVE)
    assert task.execute(task_context) == {"moved": 1}
    assert scopes == [("first", ["a"])]
    assert list(opened.journal.all("phase")) == ["cut_over[first][3]"]


def test_batches_of_a_wave_are_of_its_groups_alone_and_one_without_groups_is_begun(
    plan_file, opened, monkeypatch, task_context
) -> None:
    monkeypatch.setattr(looks, "take", lambda ctx, groups: {})
    found = [["a"], []]
    monkeypatch.setattr(cutover, "selected_groups", lambda ctx: tuple(found.pop(0)))
    task = ListBatchesOperator(step="cut_over", plan_file=plan_file, **WAVE)
    assert task.execute(task_context) == [["a"]]
    assert not opened.journal.all("wave"), "its first batch begins it, behind the gate"
    assert task.execute(task_context) == []
    assert list(opened.journal.all("wave")) == ["first"]


def test_watch_of_a_wave_is_deferred_with_it_and_recorded_under_its_name(
    plan_file, opened, monkeypatch, task_context
) -> None:
    with pytest.raises(TaskDeferred) as deferred:
        WaitOperator(step="watch_groups", plan_file=plan_file, **WAVE).execute(task_context)
    trigger = deferred.value.trigger
    assert isinstance(trigger, StepTrigger)
    _, stored = trigger.serialize()
    again = StepTrigger(**stored)
    assert again.wave == "first"
    scopes = []

    def watch(ctx: Context) -> Any:
        scopes.append(ctx.scope.key)
        return SimpleNamespace(interval_seconds=1.0, look=lambda: None)

    monkeypatch.setattr(StepTrigger, "watch", lambda self, ctx: watch(ctx))
    session = _Session(again)
    assert session.look() is None
    session.close()
    assert scopes == ["first"]
    assert list(opened.journal.all("phase")) == ["watch_groups[first]"]


def test_wave_is_approved_under_its_name_and_rejecting_it_leaves_the_mirror_to_the_others(
    plan_file, opened, monkeypatch, task_context
) -> None:
    def evidence(ctx: Context, gate: GateName) -> Evidence:
        return Evidence(
            gate=gate,
            migration="played",
            taken_at=datetime.now(UTC),
            scope=ctx.scope.key,
            facts={"topics": {"names": "t"}},
            checks=Gate.of("cutover", [CheckResult(name="lag", verdict=Verdict.PASS, evidence="none")]),
            tables=(),
        )

    monkeypatch.setattr(approvals, "evidence", evidence)
    monkeypatch.setattr(hitl, "upsert_hitl_detail", lambda **question: None)
    monkeypatch.setattr(looks, "take", lambda ctx, groups: {})
    monkeypatch.setattr(translate, "selected_groups", lambda ctx: ())
    # Asked to stop, it would fail: there is no link.
    opened.link = None

    def operator() -> ApproveGateOperator:
        options: dict[str, Any] = {"subject": "?", **WAVE}
        return ApproveGateOperator(plan_file=plan_file, gate="cutover", **options)

    task = operator()
    with pytest.raises(TaskAwaitingInput) as asked:
        task.execute(task_context)
    assert "approve the cutover of wave first?" in (task.body or "")
    kwargs = asked.value.kwargs or {}
    found = operator().execute_complete(task_context, answer("Approve"), **kwargs)
    assert found["approver"] == "Ann"
    with pytest.raises(AirflowFailException, match=r"of wave first; the mirror runs on(.|\n)*clear this task$"):
        operator().execute_complete(task_context, answer("Reject"), **kwargs)
    assert list(opened.journal.all("approval")) == ["cutover/first/1-approved", "cutover/first/2-rejected"]


def test_run_of_the_dag_with_computed_waves_fails_before_anything_is_done_and_validation_does_not(
    make_plan, tmp_path, task_context
) -> None:
    file = str(write_plan(make_plan(waves=AUTO), tmp_path))
    with pytest.raises(AirflowFailException, match=r"waves\.auto[\s\S]*waves PLAN --given"):
        PlanSnapshotOperator(task_id="take_snapshot", plan_file=file, moves=True).execute(task_context)
    assert PlanSnapshotOperator(task_id="take_snapshot", plan_file=file).execute(task_context)["digest"]
