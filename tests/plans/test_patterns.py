"""Patterns that no name may hold up: plans are parsed by a process that all of them share."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from kafka_migration.plans import patterns
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import Problem

#: What takes exponential time on some name, for a matcher that backtracks: with letters of two cases, too.
ENDLESS = [
    "(a+)+b",
    "(a*)*b",
    "(a|aa)+b",
    "(a|a)*b",
    "(?i)(ax|AX)*b",
    "(.*a){20}b",
    "(?:a?){40}a{40}b",
    ".*.*.*.*.*.*=",
    "(a|b|ab)*c",
]


@pytest.mark.parametrize("pattern", ENDLESS)
def test_no_name_holds_a_pattern_up(pattern: str, plan_with: Callable[..., Plan]) -> None:
    plan = plan_with(groups={"include": [pattern]})
    began = time.process_time()
    for name in ("a" * 32_000, "ax" * 16_000, "aX" * 16_000):
        assert not plan.groups.matches(name)
    assert time.process_time() - began < 30, "a matcher that backtracks takes longer than the sun has left"


@pytest.mark.parametrize(
    "pattern", ["(?!tmp).*", "(?=a)b", "(?<=a)b", "(a)\\1", "a++b", "(?>a)b", "(x)?(?(1)a|b)", "a{1001}"]
)
def test_pattern_that_needs_backtracking_is_refused_with_what_to_do(
    pattern: str, problems_of: Callable[..., tuple[Problem, ...]]
) -> None:
    (problem,) = problems_of(topics={"include": [pattern]})
    assert problem.field == "topics.include[0]"
    assert pattern in problem.value or repr(pattern) in problem.value
    assert "linear time" in problem.message
    assert "exclude" in problem.remedy


@pytest.mark.parametrize("pattern", ["(", "[a", "*", "a)", "\\"])
def test_what_is_no_pattern_at_all_is_refused(pattern: str, problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems_of(topics={"include": [pattern]})
    assert "not a regular expression" in problem.message


def test_pattern_longer_than_any_name_is_refused(problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    (problem,) = problems_of(topics={"include": ["a" * 501]})
    assert "longer than 500 characters" in problem.message


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("orders", "orders"),
        (r"shop\.orders-v1\_2", "shop.orders-v1_2"),
        (r"orders\..*", "orders.eu"),
        (r"[a-z]+\.v[12]", "x.v1"),
        ("(orders|payments)-.*", "payments-1"),
        ("(?i)orders-[0-9]{1,4}", "ORDERS-0042"),
        (r"[a-z]+\.[a-z]+\.v\d+", "a.b.v12"),
        ("(foo|bar)+", "foobarfoo"),
        ("__.*", "__x"),
        ("app{0,10}", "appp"),
        (r"\Qa.b\E.*", "a.b.c"),
        ("grüße-.", "grüße-ß"),
        ("(?<name>a)b?", "ab"),
        ("[[:alpha:]]+", "abc"),
    ],
)
def test_pattern_of_ordinary_use_matches_whole_names(pattern: str, name: str, plan_with: Callable[..., Plan]) -> None:
    groups = plan_with(groups={"include": [pattern]}).groups
    assert groups.matches(name)
    assert not groups.matches(f"?{name}")
    assert not groups.matches(f"{name}\n")


def test_names_that_are_spelled_out_are_looked_up_and_mean_what_the_matcher_means() -> None:
    spelled = (r"shop\.orders", "a-b", r"a\-c", r"x\+\_y")
    for name in ("shop.orders", "shopXorders", "a-b", "a-c", "x+_y", "xx_y", "shop.orders2", ""):
        assert patterns.matches_any(spelled, name) is any(patterns._one(one).fullmatch(name) for one in spelled)
    names, others = patterns._matchers((*spelled, r"\d+", "a.c", r"\Qa.b\E", "ü"))
    assert (len(names), len(others)) == (4, 4)


def test_name_that_is_longer_than_names_are_is_refused(
    problems_of: Callable[..., tuple[Problem, ...]],
) -> None:
    (problem,) = problems_of(groups={"include": [".*"]}, cutover={"stopped_groups": ["a" * 256]})
    assert problem.field == "cutover.stopped_groups[0]"
    assert "255" in str(problem)
