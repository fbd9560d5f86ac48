"""Patterns that no name may hold up: plans are parsed by a process that all of them share."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from kafka_migration.plans.model import Plan
from kafka_migration.plans.pattern_cost import AFFORDABLE, cost_of
from kafka_migration.plans.problems import Problem

#: Each takes longer than a test on a name of some dozens of letters.
ENDLESS = [
    "(a+)+",
    "(a*)*b",
    "(a|aa)+",
    "(a|a)*",
    "(.*a){20}",
    "(?:a?){40}a{40}",
    "a?" * 40 + "a" * 40,
    ".*.*.*.*.*=",
    "(?=(a+)+b)a",
    "(a|b|ab)*c",
    "([a-z]+\\.?)*x",
    "(x)?(?(1)a|(a+)+)b",
]


@pytest.mark.parametrize("pattern", ENDLESS)
def test_pattern_that_may_take_for_ever_is_refused(
    pattern: str, problems_of: Callable[..., tuple[Problem, ...]]
) -> None:
    began = time.process_time()
    (problem,) = problems_of(groups={"include": [pattern]}, cutover={"stopped_groups": ["a" * 60 + "!"]})[:1]
    assert time.process_time() - began < 5
    assert problem.field == "groups.include[0]"
    assert "take for ever" in str(problem)


@pytest.mark.parametrize(
    "pattern",
    [
        "orders",
        r"orders\..*",
        r".*\.internal",
        "(orders|payments)-.*",
        "(?i)orders-[0-9]{1,4}",
        r"[a-z]+\.[a-z]+\.v\d+",
        "(foo|bar)+",
        "(dev|test|prod)\\.(orders|payments)(\\.dlq)?",
        "__.*",
        "(?!tmp).*",
        "a++b",
        "(a)\\1",
        "app{0,10}",
    ],
)
def test_pattern_of_ordinary_use_is_accepted(pattern: str, plan_with: Callable[..., Plan]) -> None:
    assert plan_with(groups={"include": [pattern]}).groups.include == (pattern,)


def test_the_costliest_pattern_that_is_accepted_takes_a_moment_on_the_longest_name() -> None:
    pattern = ".*.*.*="
    assert cost_of(pattern) <= AFFORDABLE
    began = time.process_time()
    assert re.fullmatch(pattern, "a" * 255) is None
    assert time.process_time() - began < 5


def test_name_that_is_longer_than_patterns_are_safe_for_is_refused(
    problems_of: Callable[..., tuple[Problem, ...]],
) -> None:
    (problem,) = problems_of(groups={"include": [".*"]}, cutover={"stopped_groups": ["a" * 256]})
    assert problem.field == "cutover.stopped_groups[0]"
    assert "255" in str(problem)


def test_pattern_longer_than_any_name_is_refused(problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems_of(groups={"include": ["a" * 501]})
    assert problem.field == "groups.include[0]"
