"""The section `producers` of a plan: what contradicts is refused by field, value and remedy."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from kafka_migration.plans.changes import changes
from kafka_migration.plans.load import parse_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import InvalidPlan, Problem


def plan(**producers: Any) -> Plan:
    smallest = {"version": 1, "name": "a", "source": "s", "target": "t", "topics": {"include": ["x"]}}
    return parse_plan(yaml.safe_dump({**smallest, "producers": producers} if producers else smallest))


def problem(**producers: Any) -> Problem:
    with pytest.raises(InvalidPlan) as caught:
        plan(**producers)
    (found,) = caught.value.problems
    assert found.remedy
    return found


HOOKS = {"kind": "hook", "close": [{"command": ["close"]}], "open": [{"command": ["open"]}]}


def test_without_the_section_producers_are_left_alone() -> None:
    assert plan().producers is None


def test_fence_by_acls_needs_a_probe_and_nothing_else() -> None:
    found = plan(fence={"probe": "p"}).producers
    assert found is not None
    assert (found.fence.kind, found.fence.probe, found.fence.deadline_seconds) == ("acl_deny", "p", 30.0)
    assert problem(fence={}).field == "producers.fence.probe"


def test_fence_that_outlasts_the_patience_of_producers_is_refused() -> None:
    with pytest.raises(InvalidPlan) as caught:
        plan(fence={"probe": "p", "deadline_seconds": 30}, patience_seconds=30)
    (found,) = (one for one in caught.value.problems if one.field == "producers.patience_seconds")
    assert found.value == "30.0"
    assert "delivery.timeout.ms" in found.remedy


@pytest.mark.parametrize("seconds", [30, 60, 61])
def test_switch_has_more_time_than_its_fence_and_less_than_producers_wait(seconds: float) -> None:
    found = problem(fence={"probe": "p", "deadline_seconds": 30}, patience_seconds=60, switch_seconds=seconds)
    assert (found.field, float(found.value)) == ("producers.switch_seconds", seconds)


@pytest.mark.parametrize(
    ("fence", "field", "words"),
    [
        ({"probe": "p", "principals": ["User:*"]}, "fence.principals[0]", "reverse link"),
        ({"probe": "p", "principals": ["orders"]}, "fence.principals[0]", "not a principal"),
        ({"probe": "p", "principals": ["User:a", "User:a"]}, "fence.principals[1]", "given twice"),
        ({"probe": "p", "principals": ["User:a"], "super_users": ["User:a"]}, "fence.principals[0]", "super user"),
        ({"probe": "p", "principals": ["User:a"], "own_principal": "User:a"}, "fence.principals[0]", "own"),
        ({"probe": "p", "principals": ["User:a"], "probe_principal": "User:a"}, "fence.principals[0]", "probe's"),
        ({"probe": "p", "close": [{"command": ["x"]}]}, "fence.close", "kind hook"),
        ({"probe": "p", "settle_seconds": 23}, "fence.deadline_seconds", "never be proved"),
        ({**HOOKS, "open": []}, "fence.open", "needs it"),
        ({**HOOKS, "principals": ["User:a"]}, "fence.principals", "acl_deny only"),
        ({"kind": "none", "window_seconds": 40}, "fence.deadline_seconds", "never be proved"),
    ],
)
def test_fence_that_contradicts_itself_is_refused_by_field(fence: dict[str, Any], field: str, words: str) -> None:
    found = problem(fence=fence)
    assert found.field == f"producers.{field}"
    assert words in found.message


@pytest.mark.parametrize(
    ("hook", "field"),
    [
        ({"command": ["x", "{group}"]}, "producers.stop[0]"),
        ({"http": {"url": "https://a.example/{group}"}}, "producers.stop[0]"),
        ({"command": ["x"], "groups": ["a"]}, "producers.stop[0].groups"),
        ({"wait": True}, "producers.stop[0].wait"),
    ],
)
def test_hook_for_producers_knows_no_group(hook: dict[str, Any], field: str) -> None:
    assert problem(fence={"probe": "p"}, stop=[hook]).field == field


def test_change_of_the_section_holds_for_the_next_fence() -> None:
    before, now = (plan(fence={"probe": name}).snapshot() for name in ("p", "q"))
    (found,) = changes(before, now)
    assert (found.field, found.remedy) == ("producers.fence.probe", "")
    assert "next fence" in found.holds
