"""A demo in which too little happened says so."""

from pathlib import Path

import pytest

from demo.accounting import account
from demo.clients.groups import GROUPS
from demo.notes_reader import AccountingError, read_produced
from demo.production import production_rate, shortfalls
from tests.demo.made_up_notes import MadeUpRun

MILLISECOND_NS = 1_000_000


@pytest.fixture
def made_up(tmp_path: Path) -> MadeUpRun:
    return MadeUpRun(tmp_path / "run")


def test_steady_producers_have_equal_mean_and_lowest_rate(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(4002), step_ns=MILLISECOND_NS)
    rate = production_rate(read_produced(made_up.run), window_seconds=1)
    assert rate.seconds == 4.0
    assert rate.mean == pytest.approx(1000, abs=1)
    assert rate.lowest == pytest.approx(1000, abs=1)


def test_pause_of_a_producer_shows_as_the_lowest_rate(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(3000), step_ns=MILLISECOND_NS)
    made_up.produce(0, range(3000, 3010), step_ns=200 * MILLISECOND_NS)
    made_up.produce(0, range(3010, 5010), step_ns=MILLISECOND_NS)
    assert production_rate(read_produced(made_up.run), window_seconds=1).lowest < 10


def test_preload_does_not_count_as_live_production(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(5000), producer="preload-1", step_ns=MILLISECOND_NS)
    with pytest.raises(AccountingError, match="less than 1 s"):
        production_rate(read_produced(made_up.run), window_seconds=1)


def test_demo_in_which_little_happened_names_each_shortfall(made_up: MadeUpRun) -> None:
    made_up.consume(made_up.produce(0, range(10, 3000), step_ns=20 * MILLISECOND_NS))
    counts = account(made_up.run.path)
    counts["groups"] = {group.name: {"on_source": 9_999, "on_target": 5_000} for group in GROUPS}
    found = "\n".join(shortfalls(made_up.run.path, counts))
    for part in ("fewer than 8 topics", "no topic holds 1000000", "below 1000", "demo.behind processed 9999"):
        assert part in found
    assert "on_target" not in found
    assert "demo.stopped" not in found


def test_production_too_short_for_a_rate_is_a_shortfall(made_up: MadeUpRun) -> None:
    made_up.produce(0, range(10, 3000), step_ns=MILLISECOND_NS)
    counts = account(made_up.run.path)
    counts["groups"] = {group.name: {"on_source": 10_000, "on_target": 5_000} for group in GROUPS}
    assert any("less than 10 s" in shortfall for shortfall in shortfalls(made_up.run.path, counts))
