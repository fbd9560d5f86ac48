"""The workflow as a table: in order, connected, each row saying how it is undone."""

from typing import Any

import pytest

from kafka_migration.domain.direction import Direction
from kafka_migration.plans.load import restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.steps.step import Step
from kafka_migration.steps.table import BACK, STEPS, SWITCH, by_waves, step_named, without, workflow, workflow_back


@pytest.mark.parametrize("rows", [STEPS, BACK], ids=["there", "back"])
def test_rows_are_in_order_and_connected(rows):
    seen: set[str] = set()
    for row in rows:
        assert set(row.after) <= seen, f"{row.name} comes before what it waits for"
        assert row.after or not seen, f"{row.name} waits for nothing"
        assert row.name not in seen
        seen.add(row.name)


def test_every_row_says_what_it_does_when_it_passes_and_how_it_is_undone():
    assert all(row.does and row.passes_if and row.undo for row in (*STEPS, *SWITCH, *BACK))


def test_every_module_of_a_row_has_the_verbs_that_the_row_needs():
    for row in (*STEPS, *SWITCH, *BACK):
        assert bool(row.module) != bool(row.approval or row.runs_on), row.name
        if row.module:
            assert hasattr(row.verbs, "Wait") == row.waits, row.name
            assert hasattr(row.verbs, "run") or not row.writes, row.name
            assert hasattr(row.verbs, "batches") or not row.batched, row.name


def test_row_is_known_by_its_name_alone_and_only_the_report_stands_in_both_ways():
    names = [row.name for row in (*STEPS, *SWITCH, *BACK)]
    assert {name for name in names if names.count(name) > 1} == {"report"}
    assert all(step_named(row.name) is row for row in (*STEPS, *SWITCH, *BACK[:-1]))


def test_way_back_is_of_the_reverse_link_wherever_a_module_works_on_one():
    forward = {row.name for row in BACK if row.direction is Direction.FORWARD}
    # The gate finds it, and each group is watched by the link that moved it last.
    assert forward == {"approve_rollback", "watch_rolled_back", "report"}
    assert {row.direction for row in (*STEPS, *SWITCH)} == {Direction.FORWARD}


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


PLAN = {"version": 1, "name": "shop", "source": "a", "target": "b", "topics": {"include": ["t.*"]}}
WAVES = ["canary", "b.2", "last"]


def steps_of(**fields: Any) -> dict[str, tuple[str, ...]]:
    """Of a plan with these fields: id of each row, and what it comes after."""
    return {row.id: row.after for row in workflow(restore_plan({**PLAN, **fields}))}


def waves_of(*names: str) -> dict[str, Any]:
    return {"waves": {"given": [{"name": name, "topics": [f"t{name}"]} for name in names]}}


def test_waves_stand_in_their_order_and_each_waits_for_the_moves_and_the_watch_of_the_one_before():
    found = steps_of(**waves_of(*WAVES))
    names = ["approve_cutover", "cut_over", "watch_groups"]
    first, second, last = ([f"wave_{wave}.{name}" for name in names] for wave in ("canary", "b_2", "last"))
    ids = [row.name for row in STEPS]
    at = ids.index("approve_cutover")
    assert list(found) == [*ids[:at], *first, *second, *last, *ids[at + 3 :]]
    assert [found[name] for name in (*first, *second, *last, "stop_mirror")] == [
        ("validate",),
        (first[0],),
        (first[1],),
        tuple(first[1:]),
        (second[0],),
        (second[1],),
        tuple(second[1:]),
        (last[0],),
        (last[1],),
        tuple(last[1:]),
    ]
    unchanged = {row.name: row.after for row in STEPS if not row.by_wave and row.name != "stop_mirror"}
    assert {name: found[name] for name in unchanged} == unchanged


def test_waves_that_nobody_is_asked_about_follow_one_another_all_the_same():
    found = steps_of(**waves_of("a", "b"), approvals={"cutover": False})
    assert found["wave_a.cut_over"] == ("validate",)
    assert found["wave_b.cut_over"] == ("wave_a.cut_over", "wave_a.watch_groups")
    assert not [name for name in found if "approve_cutover" in name]


@pytest.mark.parametrize("fields", [{}, {"waves": {"auto": {}}}])
def test_rows_are_those_of_the_table_where_the_plan_names_no_waves(fields):
    assert steps_of(**fields) == {row.name: row.after for row in STEPS}


def test_rows_by_wave_are_neighbours():
    places = [at for at, row in enumerate(STEPS) if row.by_wave]
    assert places == list(range(places[0], places[-1] + 1))
    only = by_waves(STEPS[places[0] :], ["a"])
    assert [row.id for row in only][:2] == ["wave_a.approve_cutover", "wave_a.cut_over"], (
        "also of the rows left to make"
    )


#: Of the plan below.
DIGEST = "sha256:88135b124f9f824ea5135e43b37ada7a62c1040eebb94de1f1ac43fd5ed6092a"


def plan_with(**producers: object) -> Plan:
    topics = {"include": ["shop"]}
    fields: dict[str, object] = {"version": 1, "name": "shop", "source": "a", "target": "b", "topics": topics}
    return restore_plan({**fields, **({"producers": {"fence": {"probe": "c"}, **producers}} if producers else {})})


def test_plan_without_the_step_for_producers_has_the_rows_that_it_had():
    plan = plan_with()
    assert workflow(plan) == STEPS
    # As it was before plans could have this.
    assert (plan.digest, "producers" in plan.snapshot()) == (DIGEST, False)
    assert workflow(plan_with(switch_seconds=50)) == STEPS


def test_plan_with_the_step_switches_producers_in_the_place_of_waiting_for_them():
    rows = {row.name: row for row in workflow(plan_with(in_workflow=True))}
    names = [row.name for row in STEPS]
    at = names.index("stop_mirror")
    switching = ["approve_producers", "switch_producers", "lift_fence"]
    left = [name for name in names[at + 1 :] if name != "release"]
    assert list(rows) == names[:at] + switching + left, "released topics would have no way back"
    assert rows["report"].after == ("restore", "mirror")
    assert rows["validate_end"].after == ("switch_producers",)
    assert [row.name for row in rows.values() if row.is_teardown] == ["lift_fence"]
    assert not any("lift_fence" in row.after for row in rows.values()), "nothing waits for a teardown"
    unasked = {row.name: row for row in workflow(plan_with(in_workflow=True, approval=False))}
    assert unasked["switch_producers"].after == ("cut_over", "watch_groups")


def test_producers_that_go_first_are_switched_behind_the_validation_and_groups_move_behind_them():
    rows = {row.name: row for row in workflow(plan_with(in_workflow=True, first=True))}
    names = [row.name for row in STEPS]
    moves, stop = names.index("approve_cutover"), names.index("stop_mirror")
    switching = ["approve_producers", "switch_producers", "lift_fence"]
    left = [name for name in names[stop + 1 :] if name != "release"]
    assert list(rows) == [*names[:moves], *switching, *names[moves:stop], *left]
    after = {name: rows[name].after for name in ("approve_producers", "approve_cutover", "validate_end", "report")}
    assert after == {
        "approve_producers": ("validate",),
        "approve_cutover": ("switch_producers",),
        "validate_end": ("cut_over", "watch_groups"),
        "report": ("restore", "mirror"),
    }
    assert workflow(plan_with(first=True)) == STEPS, "by the command alone"
    waves = restore_plan({**plan_with(in_workflow=True, first=True).snapshot(), **waves_of("a", "b")})
    found = {row.id: row.after for row in workflow(waves)}
    assert found["wave_a.approve_cutover"] == ("switch_producers",)
    assert found["validate_end"] == ("wave_b.cut_over", "wave_b.watch_groups")


def test_way_back_of_a_plan_without_producers_is_that_of_its_groups():
    rows = {row.name: row.after for row in workflow_back(plan_with())}
    moves = [
        "check_rollback",
        "reverse_mirror",
        "watch_reverse_lag",
        "approve_rollback",
        "rollback",
        "watch_rolled_back",
    ]
    assert list(rows) == [*moves, "report"]
    assert rows["report"] == ("rollback", "watch_rolled_back")
    assert workflow_back(plan_with(switch_seconds=50)) == BACK


def test_way_back_asks_nobody_where_the_cutover_did_not():
    rows = {row.name: row.after for row in workflow_back(restore_plan({**PLAN, "approvals": {"cutover": False}}))}
    assert rows["rollback"] == ("watch_reverse_lag",)
    assert "approve_rollback" not in rows
