"""What differs between two plans, and whether it may while the migration runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kafka_migration.plans.changes import Change, changes
from kafka_migration.plans.load import restore_plan

BEFORE: dict[str, Any] = {
    "version": 1,
    "name": "shop",
    "source": "a",
    "target": "b",
    "topics": {"include": ["orders"]},
    "groups": {"include": ["app"]},
}


def snapshot(**fields: Any) -> dict[str, Any]:
    return restore_plan({**BEFORE, **fields}).snapshot()


@pytest.mark.parametrize(
    ("fields", "field", "before", "now", "holds"),
    [
        ({"lag_gate": {"threshold_records": 7}}, "lag_gate.threshold_records", "1000", "7", "next step"),
        ({"topics": {"include": ["orders", "x"]}}, "topics.include", '["orders"]', '["orders", "x"]', "`create`"),
        ({"mirror": {"num_streams": 4}}, "mirror.num_streams", "2", "4", "next start of the mirror"),
        ({"mirror": {"start": "latest"}}, "mirror.start", '"earliest"', '"latest"', "first time"),
        (
            {"topic_defaults": {"replication_factor": 3}},
            "topic_defaults.replication_factor",
            '"source"',
            "3",
            "created",
        ),
        (
            {"waves": {"given": [{"name": "all", "topics": [".*"]}]}},
            "waves",
            "null",
            json.dumps(
                {
                    "given": [{"name": "all", "topics": [".*"], "groups": [], "canary": False}],
                    "auto": None,
                    "spanning_groups": [],
                    "spanning_transactions": [],
                }
            ),
            "next step",
        ),
        ({"approvals": {"approvers": ["eve"]}}, "approvals.approvers", "[]", '["eve"]', "next step"),
    ],
)
def test_field_that_may_change_is_named_with_both_values_and_from_when_it_holds(
    fields: dict[str, Any], field: str, before: str, now: str, holds: str
) -> None:
    (change,) = changes(snapshot(), snapshot(**fields))
    assert (change.field, change.before, change.now, change.remedy) == (field, before, now, "")
    assert holds in change.holds
    assert Change.from_dict(change.as_dict()) == change


@pytest.mark.parametrize("field", ["name", "source", "target", "naming"])
def test_field_that_would_make_it_another_migration_has_a_remedy(field: str) -> None:
    (change,) = changes(snapshot(), {**snapshot(), field: "other"})
    assert change.field == field
    assert change.remedy
    assert f"{field} was " in str(change)
    assert 'is "other" (may not change while the migration runs)' in str(change)


def test_part_of_what_may_not_change_may_not_change_either() -> None:
    before = {**snapshot(), "naming": {"prefix": "west", "separator": ".", "topics": {}}}
    (change,) = changes(before, {**before, "naming": {**before["naming"], "prefix": "east"}})
    assert change.field == "naming.prefix"
    assert change.remedy
    assert "may not change" in str(change)


def test_same_plan_has_no_changes_and_a_field_that_one_lacks_is_null_there() -> None:
    assert changes(snapshot(), snapshot()) == ()
    old = snapshot()
    del old["drain"]
    (change,) = changes(old, snapshot())
    assert (change.field, change.before) == ("drain", "null")
