"""The workflow as a table: in order, connected, each row saying how it is undone."""

import pytest

from kafka_migration.steps.table import PHASES, Phase, phase_named, without


def test_rows_are_in_order_and_connected():
    seen: set[str] = set()
    for row in PHASES:
        assert set(row.after) <= seen, f"{row.name} comes before what it waits for"
        assert row.after or not seen, f"{row.name} waits for nothing"
        assert row.name not in seen
        seen.add(row.name)


def test_every_row_says_what_it_does_when_it_passes_and_how_it_is_undone():
    assert all(row.does and row.gate and row.undo for row in PHASES)


def test_nothing_waits_for_the_mirror_to_end_but_the_report():
    assert phase_named("mirror").runs_on
    assert [row.name for row in PHASES if "mirror" in row.after] == ["report"]


def test_row_left_out_leaves_its_neighbours_joined():
    rows = {row.name: row for row in without(PHASES, {"approve_plan", "approve_cutover"})}
    assert rows["create_targets"].after == ("inventory_and_preflight",)
    assert rows["cut_over"].after == ("validate",)


def test_rows_left_out_in_a_chain_leave_the_ends_joined():
    rows = {row.name: row for row in without(PHASES, {"watch_lag", "validate", "approve_cutover"})}
    assert rows["cut_over"].after == ("create_targets",)


@pytest.mark.parametrize(("name", "after"), [("two words", ()), ("loop", ("loop",))])
def test_row_that_cannot_be_a_task_is_refused(name, after):
    with pytest.raises(ValueError, match=name.split(maxsplit=1)[0]):
        Phase(name=name, after=after, does="", gate="", undo="")
