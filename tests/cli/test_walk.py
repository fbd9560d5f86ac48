"""The walk of `run` through the table, without what its steps do."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from kafka_migration.cli.commands import run
from kafka_migration.cli.commands.run import _done, _Walk
from kafka_migration.cli.output import Output
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Identity
from kafka_migration.fence import record
from kafka_migration.fence.bans import EARLY_WRITES
from kafka_migration.plans.load import restore_plan
from kafka_migration.steps.step import Decision, Step
from kafka_migration.steps.table import workflow
from tests.steps import histories
from tests.steps.gates import Migration

PLAN = restore_plan(
    {
        "version": 1,
        "name": "shop",
        "source": "a",
        "target": "b",
        "topics": {"include": ["shop"]},
        "producers": {"fence": {"probe": "c"}, "in_workflow": True},
    }
)


def walk(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Decision | Exception]) -> tuple[_Walk, list[str]]:
    """A walk whose steps come to ``outcomes``, or pass, and the steps that it has made."""
    steps: list[str] = []

    def once(_walk: _Walk, row: Step) -> Decision:
        steps.append(row.name)
        found = outcomes.get(row.name, Decision())
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(_Walk, "_once", once)
    monkeypatch.setattr(_Walk, "_left", lambda _walk, rows: rows)
    monkeypatch.setattr(_Walk, "_waves", lambda _walk: ())
    monkeypatch.setattr(_Walk, "_approve", lambda _walk, _gate, _wave: None)
    found = _Walk(Path("plan.yaml"), Output(as_json=True), master=None, reports=Path("reports"))
    monkeypatch.setattr(found.mirror, "start", lambda: None)
    monkeypatch.setattr(found.mirror, "wait", lambda _seconds: None)
    return found, steps


@pytest.mark.parametrize("failed", ["validate", "switch_producers", "validate_end"])
def test_fence_is_lifted_once_whatever_was_refused(monkeypatch: pytest.MonkeyPatch, failed: str) -> None:
    found, steps = walk(monkeypatch, {failed: Decision(exit_code=1, message="no")})
    assert found.through(workflow(PLAN)) == 1
    assert steps.count("lift_fence") == 1
    assert "report" not in steps


def test_fence_is_lifted_after_an_error_which_stays_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = CouldNotFindOut("a broker is gone")
    found, steps = walk(monkeypatch, {"switch_producers": gone, "lift_fence": CouldNotFindOut("so is the other")})
    with pytest.raises(CouldNotFindOut, match="a broker is gone"):
        found.through(workflow(PLAN))
    assert steps[-1] == "lift_fence"


def test_all_steps_are_made_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    found, steps = walk(monkeypatch, {})
    assert found.through(workflow(PLAN)) == 0
    assert steps[-5:] == ["switch_producers", "lift_fence", "validate_end", "restore", "report"]


def test_stop_that_died_behind_the_seal_is_gone_on_with_as_long_as_the_target_is_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shop = Migration()
    histories.created(shop)
    ctx = shop.ctx()
    histories.pinned(ctx)
    ctx.link.record_seal(Seal(at="noon", identity=Identity(7, 9), ends={histories.PAYMENTS: 5}))
    assert _done(ctx) == "stop_mirror"
    monkeypatch.setattr(record, "standing", lambda _ctx: {EARLY_WRITES.key: object()})
    assert _done(ctx) == "watch_groups"


def test_behind_the_seal_the_walk_goes_on_behind_the_last_wave(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [{"name": "first", "topics": ["shop"]}, {"name": "second", "topics": ["shop2"]}]
    rows = workflow(restore_plan({**PLAN.snapshot(), "waves": {"given": given}}))
    monkeypatch.setattr(run, "opened", lambda *_, **__: nullcontext())
    found = _Walk(Path("plan.yaml"), Output(as_json=True), master=None, reports=Path("reports"))
    for done in ("watch_groups", "validate", ""):
        monkeypatch.setattr(run, "_done", lambda _ctx, done=done: done)
        left = found._left(rows)
        assert all(row.wave == "" for row in left) is (done == "watch_groups")
        assert (
            left[0].name
            == {
                "watch_groups": "approve_producers",
                "validate": "approve_cutover",
                "": rows[0].name,
            }[done]
        )
