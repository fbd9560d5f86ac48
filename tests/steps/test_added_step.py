"""The worked example of docs/architecture.md: a step is added by one row and one module, and by nothing else."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from kafka_migration.steps import runner, table
from kafka_migration.steps.step import Decision, Step
from tests.steps.gates import Migration

ROW = Step(
    name="count_topics",
    after=("create_targets",),
    does="count the topics of the plan",
    passes_if="there is one at least",
    undo="nothing to undo: it only reads",
    module="count_topics",
    writes=True,
)


def count_topics(ctx) -> Decision:
    count = len(ctx.plan.topics.select(ctx.source.topics()))
    return Decision(exit_code=0 if count else 1, message=f"{count} topics", facts={"topics": count})


@pytest.fixture
def shop() -> Migration:
    return Migration()


@pytest.fixture
def added(monkeypatch: pytest.MonkeyPatch) -> None:
    """The row, and its module."""
    module = ModuleType("kafka_migration.steps.count_topics")
    module.run = count_topics  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(table, "STEPS", (*table.STEPS, ROW))


def test_added_step_runs_and_is_in_the_journal(added: None, shop: Migration) -> None:
    ctx = shop.ctx()
    assert runner.run(ctx, "count_topics").facts == {"topics": 2}
    account = ctx.journal.read("phase", "count_topics")
    assert account is not None
    assert (account["outcome"], account["detail"], account["evidence"]) == ("done", "2 topics", {"topics": 2})


def test_added_step_writes_nothing_in_a_dry_run(added: None, shop: Migration) -> None:
    ctx = shop.ctx(dry_run=True)
    assert runner.run(ctx, "count_topics").exit_code == 0
    assert ctx.journal.read("phase", "count_topics") is None


def test_added_step_is_a_task_of_the_workflow(added: None, shop: Migration) -> None:
    assert "count_topics" in {row.name for row in table.workflow(shop.ctx().plan)}
