"""The workflow as a table: in order, connected, each row saying how it is undone."""

import pytest

from kafka_migration.steps.step import Step
from kafka_migration.steps.table import STEPS, step_named, without


def test_rows_are_in_order_and_connected():
    seen: set[str] = set()
    for row in STEPS:
        assert set(row.after) <= seen, f"{row.name} comes before what it waits for"
        assert row.after or not seen, f"{row.name} waits for nothing"
        assert row.name not in seen
        seen.add(row.name)


def test_every_row_says_what_it_does_when_it_passes_and_how_it_is_undone():
    assert all(row.does and row.passes_if and row.undo for row in STEPS)


def test_every_module_of_a_row_has_the_verbs_that_the_row_needs():
    for row in STEPS:
        assert bool(row.module) != bool(row.approval or row.runs_on), row.name
        if row.module:
            assert hasattr(row.verbs, "Wait") == row.waits, row.name
            assert hasattr(row.verbs, "run") or not row.writes, row.name


def test_nothing_waits_for_the_mirror_to_end_but_who_gives_up_its_locks():
    assert step_named("mirror").runs_on
    assert [row.name for row in STEPS if "mirror" in row.after] == ["release"]


def test_row_left_out_leaves_its_neighbours_joined():
    rows = {row.name: row for row in without(STEPS, {"approve_plan", "approve_cutover"})}
    assert rows["create_targets"].after == ("inventory_and_preflight",)
    assert rows["cut_over"].after == ("validate",)


def test_rows_left_out_in_a_chain_leave_the_ends_joined():
    rows = {row.name: row for row in without(STEPS, {"watch_lag", "validate", "approve_cutover"})}
    assert rows["cut_over"].after == ("create_targets",)


@pytest.mark.parametrize(("name", "after"), [("two words", ()), ("loop", ("loop",))])
def test_row_that_cannot_be_a_task_is_refused(name, after):
    with pytest.raises(ValueError, match=name.split(maxsplit=1)[0]):
        Step(name=name, after=after, does="", passes_if="", undo="")
