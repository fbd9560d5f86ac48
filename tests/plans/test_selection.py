"""Which topics and groups a plan means."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import Problem

PlanWith = Callable[..., Plan]


@pytest.mark.parametrize(
    ("include", "exclude", "name", "meant"),
    [
        (["orders"], [], "orders", True),
        (["orders"], [], "orders2", False),
        (["orders"], [], "my-orders", False),
        (["orders|pay"], [], "orders", True),
        (["orders|pay"], [], "ordersx", False),
        ("orders,pay.*", [], "payments", True),
        ("orders , pay.*", "payments", "payments", False),
        ("a{1}", [], "a", True),
        (["a{1,2}"], [], "aa", True),
        ([".*"], ["tmp\\..*"], "tmp.x", False),
        ([".*"], ["tmp"], "tmp.x", True),
        ([".*"], [], "a\n", False),
        (["(?i)orders"], [], "ORDERS", True),
        (["(?i)orders", "pay"], [], "PAY", False),
        (["(?i)a", "b"], [], "B", False),
    ],
)
def test_pattern_matches_whole_names(
    include: object, exclude: object, name: str, meant: bool, plan_with: PlanWith
) -> None:
    plan = plan_with(
        topics={"include": include, "exclude": exclude},
        groups={"include": include, "exclude": exclude} if exclude else {"include": include},
    )
    assert plan.topics.matches(name) is meant
    assert plan.groups.matches(name) is meant


@pytest.mark.parametrize("name", ["__consumer_offsets", "__x", "links.internal", "mm2-offset-syncs.b.internal"])
def test_internal_topics_are_left_out_by_default(name: str, plan_with: PlanWith) -> None:
    assert not plan_with(topics={"include": [".*"]}).topics.matches(name)


def test_internal_topics_may_be_asked_for_but_never_kafkas_own(plan_with: PlanWith) -> None:
    topics = plan_with(topics={"include": [".*"], "internal": []}).topics
    own = ["__consumer_offsets", "__transaction_state", "__share_group_state", "__cluster_metadata"]
    assert topics.select([*own, "orders.internal", "__x"]) == (
        "__x",
        "orders.internal",
    )


def test_select_sorts_and_names_each_once(plan_with: PlanWith) -> None:
    assert plan_with(topics={"include": "a.*"}).topics.select(["ab", "b", "aa", "ab"]) == ("aa", "ab")


def test_without_groups_no_group_is_meant(plan_with: PlanWith) -> None:
    assert not plan_with().groups.matches("anything")


def test_newline_at_the_end_is_part_of_a_name(plan_with: PlanWith) -> None:
    assert not plan_with(topics={"include": ["a$"]}).topics.matches("a\n")


def test_hooks_are_those_of_the_group_and_none_for_a_stopped_one(plan_with: PlanWith) -> None:
    plan = plan_with(
        groups={"include": ["g.*"]},
        cutover={"stopped_groups": ["g-stopped"]},
        consumers={
            "stop": [
                {"command": ["one"], "groups": ["g1"]},
                {"command": ["all"]},
                {"http": {"url": "http://127.0.0.1/x"}, "groups": "g2,g3"},
            ]
        },
    )
    assert [h.command for h in plan.stop_hooks("g1")] == [("one",), ("all",)]
    assert len(plan.stop_hooks("g3")) == 2
    assert plan.stop_hooks("g-stopped") == ()
    assert plan.start_hooks("g1") == ()


def test_topic_to_be_adopted_must_be_selected_and_named_once(problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    found = problems_of(topics={"include": ["a.*"], "exclude": ["ab"], "adopt": ["ab", "c", "aa", "aa"]})
    assert [problem.field for problem in found] == ["topics.adopt[0]", "topics.adopt[1]", "topics.adopt[3]"]
    assert "add it to topics.include" in str(found[0])


def test_adopted_topics_are_names_and_not_patterns(plan_with: PlanWith) -> None:
    assert plan_with(topics={"include": ["a.*"], "adopt": ["ab"]}).topics.adopt == ("ab",)
    assert plan_with().topics.adopt == ()
