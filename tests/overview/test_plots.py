"""What the report draws: shares of the drawing that fit what the report has in numbers."""

from __future__ import annotations

from typing import Any

import pytest

from kafka_migration.overview.plots import Plot, plots

NOW = "2026-11-01T10:10:00+00:00"


def phase(name: str, began: str, took: float | None, outcome: str = "done", **evidence: Any) -> dict[str, Any]:
    started = f"2026-11-01T10:{began}+00:00"
    return {"name": name, "started": started, "seconds": took, "outcome": outcome, "evidence": evidence}


def drawn(*, phases: tuple[dict[str, Any], ...] = (), pauses: dict[str, float | None] | None = None) -> list[Plot]:
    groups = [{"group": name, "pause_seconds": pause} for name, pause in (pauses or {}).items()]
    return list(plots({"written_at": NOW, "phases": phases, "groups": groups}))


def test_report_without_phases_and_groups_draws_nothing() -> None:
    assert drawn() == []
    assert drawn(pauses={"shop.app": None}) == []


def test_phases_lie_where_they_were_in_time_and_one_without_an_end_lasts_until_now() -> None:
    create, copy = phase("create_targets", "00:00", 60.0), phase("mirror", "05:00", None, "running")
    [plot] = drawn(phases=(create, copy))
    first, second = plot.bars
    assert (first.label, first.start, first.width, first.text) == ("create_targets", 0.0, 0.1, "60.0 s")
    assert (second.start, second.width, second.text, second.kind) == (0.5, 0.5, "-", "running")
    assert plot.ticks[:3] == ((0.0, "0 s"), (0.2, "2 min"), (0.4, "4 min"))
    assert plot.ticks[-1] == (1.0, "10 min")


def test_newest_of_many_phases_are_drawn() -> None:
    many = tuple(phase(f"cut_over[{at}]", f"{at:02}:00", 1.0) for at in range(45))
    [plot] = drawn(phases=many)
    assert (plot.bars[0].label, plot.bars[-1].label) == ("cut_over[5]", "cut_over[44]")
    assert plot.note == "5 earlier phases are left out"


def test_phases_that_took_no_time_are_drawn() -> None:
    [plot] = drawn(phases=(phase("create_targets", "00:00", 0.0),))
    assert [(bar.start, bar.width) for bar in plot.bars] == [(0.0, 0.0)]


def test_lag_is_a_line_under_its_highest_point() -> None:
    waited = phase("watch_lag", "00:00", 20.0, history=[[0, 500], [10, 1000], [20, 0]])
    _, plot = drawn(phases=(waited,))
    assert "watch_lag" in plot.title
    assert plot.line == ((0.0, 0.5), (0.5, 1.0), (1.0, 0.0))
    assert plot.top == "1,000"


@pytest.mark.parametrize("looks", [[], [[0, 7]], [[0, 7], [0, 8]]])
def test_lag_that_was_looked_at_once_is_no_line(looks: list[list[float]]) -> None:
    assert len(drawn(phases=(phase("watch_lag", "00:00", 20.0, history=looks),))) == 1


def test_lag_that_was_never_there_is_a_line_at_the_bottom() -> None:
    _, plot = drawn(phases=(phase("watch_lag", "00:00", 20.0, history=[[0, 0], [20, 0]]),))
    assert plot.line == ((0.0, 0.0), (1.0, 0.0))


def test_longest_pause_comes_first_and_those_beyond_forty_are_counted() -> None:
    pauses: dict[str, float | None] = {f"g{number}": float(number) for number in range(1, 43)}
    [plot] = drawn(pauses={**pauses, "unknown": None})
    assert [bar.label for bar in plot.bars[:2]] == ["g42", "g41"]
    assert (plot.bars[0].width, plot.bars[1].width) == (1.0, 41 / 42)
    assert (len(plot.bars), plot.note) == (40, "2 groups with shorter pauses are left out")


@pytest.mark.parametrize(("longest", "last"), [(0.3, "0.3 s"), (7.0, "6 s"), (3600.0, "1 h"), (86_400.0 * 9, "8 d")])
def test_axis_has_round_times(longest: float, last: str) -> None:
    [plot] = drawn(pauses={"shop.app": longest})
    assert plot.ticks[-1][1] == last
    assert 2 <= len(plot.ticks) <= 6
