"""The journal's account of phases."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_migration.domain.errors import BadInput, ClusterUnreachable, CouldNotFindOut, Refused, TakenOver
from kafka_migration.migration.context import Context
from kafka_migration.migration.history import Outcome, phase, record_death, remember_beginning
from tests.steps.gates import Migration


@pytest.fixture
def shop() -> Migration:
    return Migration()


def last(ctx: Context, name: str = "create_targets") -> dict[str, object]:
    return ctx.journal.read("phase", name) or {}


def test_phase_that_ends_leaves_its_times_outcome_and_evidence(shop: Migration) -> None:
    ctx = shop.ctx()
    with phase(ctx, "create_targets") as run:
        assert last(ctx)["outcome"] == "running"
        shop.clock.sleep(12.5)
        run.ends(0, topics=2)
    assert last(ctx) == {
        "started": "2030-01-01T00:00:00.000+00:00",
        "ended": "2030-01-01T00:00:12.500+00:00",
        "outcome": "done",
        "detail": "",
        "seconds": 12.5,
        "evidence": {"topics": 2},
        "earlier": [],
    }


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Refused("no room"), "refused"),
        (BadInput("no such group"), "bad input"),
        (CouldNotFindOut("no answer"), "failed"),
        (ValueError("what"), "failed"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_phase_that_raises_is_recorded_and_raises_the_same(error: BaseException, outcome: str, shop: Migration) -> None:
    ctx = shop.ctx()
    with pytest.raises(type(error)), phase(ctx, "create_targets"):
        raise error
    assert last(ctx)["outcome"] == outcome
    assert last(ctx)["ended"] is not None


def test_phase_taken_over_by_another_process_leaves_the_journal_to_it(shop: Migration) -> None:
    ctx = shop.ctx()
    with pytest.raises(TakenOver), phase(ctx, "create_targets"):
        raise TakenOver("link shop")
    assert last(ctx)["outcome"] == "running"


def test_phase_whose_journal_is_gone_raises_what_happened_first(shop: Migration) -> None:
    ctx = shop.ctx()

    def unreachable(kind: str, name: str, value: dict[str, Any]) -> None:
        raise ClusterUnreachable("target", "127.0.0.1:1", "down")

    def fails() -> None:
        ctx.journal.record = unreachable  # type: ignore[method-assign]
        raise Refused("no room")

    with pytest.raises(Refused, match="no room"), phase(ctx, "create_targets"):
        fails()


def test_killed_run_stays_running_and_the_next_keeps_it_as_an_earlier_one(shop: Migration) -> None:
    ctx = shop.ctx()
    # A generator that is never finished: what SIGKILL leaves.
    killed = phase(ctx, "create_targets")
    killed.__enter__()
    with phase(shop.ctx(), "create_targets") as run:
        run.ends(1, "2 topics exist")
    value = last(shop.ctx())
    assert (value["outcome"], value["detail"]) == ("refused", "2 topics exist")
    assert isinstance(value["earlier"], list)
    assert [it["outcome"] for it in value["earlier"]] == ["running"]


def test_dry_run_leaves_no_trace(shop: Migration) -> None:
    ctx = shop.ctx(dry_run=True)
    with phase(ctx, "create_targets") as run:
        run.ends(0)
    remember_beginning(ctx, None)
    assert last(ctx) == {}


@pytest.mark.parametrize(("code", "outcome"), [(0, "done"), (1, "refused"), (2, "bad input"), (3, "failed")])
def test_exit_code_says_the_outcome(code: int, outcome: str) -> None:
    assert Outcome.of_exit_code(code) == outcome


def test_end_of_a_process_that_died_without_a_word_is_told_for_it(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.now()
    shop.clock.sleep(1)
    killed = phase(ctx, "mirror")
    killed.__enter__()
    shop.clock.sleep(5)
    record_death(ctx, "mirror", since=began, detail="code 137")
    told = last(ctx, "mirror")
    assert (told["outcome"], told["detail"], told["seconds"], told["earlier"]) == ("failed", "code 137", 5.0, [])


def test_end_of_a_process_that_never_began_is_told_and_an_earlier_run_kept(shop: Migration) -> None:
    ctx = shop.ctx()
    with phase(ctx, "mirror") as run:
        run.ends(0, "drained")
    shop.clock.sleep(5)
    record_death(ctx, "mirror", since=shop.clock.now(), detail="no master")
    told = last(ctx, "mirror")
    assert (told["outcome"], told["detail"]) == ("failed", "no master")
    assert [it["detail"] for it in told["earlier"]] == ["drained"]  # type: ignore[attr-defined]


def test_end_that_was_told_is_left_alone(shop: Migration) -> None:
    ctx, began = shop.ctx(), shop.clock.now()
    with phase(ctx, "mirror") as run:
        run.ends(1, "halted")
    record_death(ctx, "mirror", since=began, detail="code 1")
    assert (last(ctx, "mirror")["outcome"], last(ctx, "mirror")["detail"]) == ("refused", "halted")
