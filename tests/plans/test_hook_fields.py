"""What a hook may say in a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.plans.hooks import HttpCall, fill
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import Problem

GROUPS = {"include": ["g"]}

BAD: dict[str, tuple[Any, str, str]] = {
    "nothing": ({}, "", "exactly one"),
    "two kinds": ({"command": ["x"], "wait": True}, "", "exactly one"),
    "wait false": ({"wait": False}, ".wait", "must be true"),
    "no argv": ({"command": []}, ".command", "must not be empty"),
    "argv as text": ({"command": "stop {group}"}, ".command", "must be a list"),
    "number in argv": ({"command": ["x", 1]}, ".command[1]", "must be text"),
    "relative path": ({"command": ["bin/x"]}, ".command", "neither an absolute path nor a file name"),
    "path out": ({"command": ["../x"]}, ".command", "neither"),
    "program by template": ({"command": ["/opt/{group}"]}, ".command", "cannot be a placeholder"),
    "unknown placeholder": ({"command": ["x", "{grp}"]}, ".command[1]", "{grp} is not a placeholder"),
    "timeout on wait": ({"wait": True, "timeout_seconds": 3}, ".timeout_seconds", "commands only"),
    "for nobody": ({"wait": True, "groups": []}, ".groups", "never runs"),
    "bad group regex": ({"wait": True, "groups": ["("]}, ".groups[0]", "not a regular expression"),
    "no url": ({"http": {}}, ".http.url", "required"),
    "file url": ({"http": {"url": "file:///etc/passwd"}}, ".http.url", "http or https"),
    "no host": ({"http": {"url": "http:///x"}}, ".http.url", "http or https"),
    "bad port": ({"http": {"url": "http://h:99999/x"}}, ".http.url", "not a URL"),
    "host by template": ({"http": {"url": "http://{group}/x"}}, ".http.url", "host"),
    "blank in url": ({"http": {"url": "http://h/a b"}}, ".http.url", "blanks"),
    "unknown method": ({"http": {"url": "http://h/", "method": "BREW"}}, ".http.method", "'POST'"),
    "endless": ({"http": {"url": "http://h/", "timeout_seconds": 0}}, ".http.timeout_seconds", "more than 0"),
    "broken header": ({"http": {"url": "http://h/", "headers": {"X-A": "a\nb"}}}, ".http.headers.X-A", "printable"),
    "bad header name": ({"http": {"url": "http://h/", "headers": {"X A": "a"}}}, ".http.headers.X A", "header name"),
    "any variable": (
        {"http": {"url": "http://h/", "headers": {"X-A": "env:AIRFLOW_CONN_KAFKA"}}},
        ".http.headers.X-A",
        "may not be read",
    ),
}


@pytest.mark.parametrize(
    "name",
    [
        *("Host", "host", "Forwarded", "X-Forwarded-Host", "X-Forwarded-For", "X-Original-URL", "x_original_url"),
        *("X-Rewrite-Url", "X-HTTP-Method-Override", "Transfer-Encoding", "Content-Length", "Connection", "TE"),
    ],
)
def test_header_that_says_where_a_request_goes_is_refused(
    name: str, problems_of: Callable[..., tuple[Problem, ...]]
) -> None:
    http = {"url": "https://h/", "headers": {name: "h2"}}
    (problem,) = problems_of(groups=GROUPS, consumers={"stop": [{"http": http}]})
    assert problem.field == f"consumers.stop[0].http.headers.{name}"
    assert "another server or path" in problem.message


@pytest.mark.parametrize("case", BAD)
def test_bad_hook_is_refused_where_it_stands(case: str, problems_of: Callable[..., tuple[Problem, ...]]) -> None:
    hook, field, message = BAD[case]
    problems = problems_of(groups=GROUPS, consumers={"start": [{"wait": True}, hook]})
    assert [p.field for p in problems] == [f"consumers.start[1]{field}"]
    assert message in problems[0].message
    assert problems[0].remedy


@pytest.mark.parametrize(
    "http",
    [
        {"url": "https://user:hunter2@h/"},
        {"url": "ftp://user:hunter2@h/"},
        {"url": "http://h/", "headers": {"Authorization": "Bearer hunter2"}},
        {"url": "http://h/", "headers": {"X-Api-Key": "hunter2"}},
        {"url": "http://h/", "headers": {"Authorization": 5}, "secret": "hunter2"},
    ],
)
def test_secret_in_a_hook_is_refused_and_not_shown(
    http: dict[str, Any], problems_of: Callable[..., tuple[Problem, ...]]
) -> None:
    problems = problems_of(groups=GROUPS, consumers={"start": [{"http": http}]})
    assert problems
    assert "hunter2" not in " ".join(map(str, problems))


@pytest.mark.parametrize("url", ["https://h/", "http://127.0.0.1:8080/", "http://[::1]/", "http://localhost/"])
def test_header_from_the_environment_is_accepted(url: str, plan_with: Callable[..., Plan]) -> None:
    headers = {"Authorization": "env:KAFKA_MIGRATION_HOOK_TOKEN", "X-Plain": "yes"}
    plan = plan_with(groups=GROUPS, consumers={"stop": [{"http": {"url": url, "headers": headers}}]})
    (hook,) = plan.consumers.stop
    assert hook.http is not None
    assert hook.http.headers == headers


@pytest.mark.parametrize("url", ["http://h/", "http://10.0.0.1/", "http://localhost.example/"])
def test_header_from_the_environment_does_not_travel_in_clear(
    url: str, problems_of: Callable[..., tuple[Problem, ...]]
) -> None:
    headers = {"Authorization": "env:KAFKA_MIGRATION_HOOK_TOKEN"}
    (problem,) = problems_of(groups=GROUPS, consumers={"stop": [{"http": {"url": url, "headers": headers}}]})
    assert "travel in clear" in str(problem)
    assert "https" in str(problem)


def test_template_is_replaced_once_and_other_braces_stay() -> None:
    values = {"group": "{phase}", "phase": "cutover"}
    assert fill('{group}:{"a":1}:{phase}', values) == '{phase}:{"a":1}:cutover'


def test_group_in_a_url_is_percent_encoded() -> None:
    call = HttpCall(url="http://h/{group}?m={migration}")
    assert call.url_for({"group": "a/../b?x=1&y", "migration": "m"}) == "http://h/a%2F..%2Fb%3Fx%3D1%26y?m=m"
