"""Reading plan files: every problem at once, each with file, line, field, value and remedy."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.domain.errors import BadInput
from kafka_migration.plans.load import LARGEST_PLAN_BYTES, load_plan, parse_plan, read_yaml, restore_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import InvalidPlan, Problem

HEAD = "version: 1\nname: orders\nsource: kafka_source\ntarget: kafka_target\ntopics: {include: [orders]}\n"

Problems = Callable[..., tuple[Problem, ...]]


def refused(text: str) -> InvalidPlan:
    with pytest.raises(InvalidPlan) as caught:
        parse_plan(text, file="plan.yaml")
    return caught.value


# One row for each rule: what is set, the field reported, and words of its message and remedy.
BAD: dict[str, tuple[dict[str, Any], str, str, str]] = {
    "unknown key, near": ({"mirror": {"num_stream": 2}}, "mirror.num_stream", "unknown field", "num_streams"),
    "unknown key, dashes": ({"lag-gate": {}}, "lag-gate", "unknown field", "did you mean lag_gate?"),
    "unknown key, far": ({"zzz": 1}, "zzz", "unknown field", "known here: version, name"),
    "missing": ({"target": None}, "target", "required", "Airflow connection"),
    "another version": ({"version": 2}, "version", "must be 1", "Version of this format"),
    "name with a slash": ({"name": "a/b"}, "name", "must match", "migration's name"),
    "name too long": ({"name": "a" * 64}, "name", "must match", "migration's name"),
    "number for text": ({"name": 5}, "name", "must be text", "in quotes"),
    "text for a number": ({"mirror": {"num_streams": "2"}}, "mirror.num_streams", "whole number", "Copy tasks"),
    "true for a number": ({"lag_gate": {"samples": True}}, "lag_gate.samples", "whole number", "in a row"),
    "text for true": ({"cutover": {"rewind": "yes"}}, "cutover.rewind", "true or false", "committing below"),
    "list for a mapping": ({"mirror": []}, "mirror", "mapping of fields", "running copy"),
    "same connection": ({"target": "kafka_source"}, "target", "same connection", "two connections"),
    "same but for case": ({"target": "KAFKA_source"}, "target", "same connection", "two connections"),
    "no topics": ({"topics": {"include": []}}, "topics.include", "must not be empty", "Regular expressions"),
    "no topics, as text": ({"topics": {"include": " "}}, "topics.include", "must not be empty", "Regular"),
    "bad regex": ({"topics": {"include": ["ok", "a("]}}, "topics.include[1]", "not a regular expression", "backslash"),
    "bad regex, as text": (
        {"topics": {"include": "ok,*"}},
        "topics.include[1]",
        "no argument for repetition",
        "backslash",
    ),
    "empty regex": ({"topics": {"include": "a,,b"}}, "topics.include[1]", "empty pattern", "remove the entry"),
    "comma in braces": ({"topics": {"include": "a{1,3}"}}, "topics.include", "braces", "YAML list"),
    "in and out": (
        {"topics": {"include": ["a", "b"], "exclude": ["b"]}},
        "topics.include[1]",
        "selects nothing",
        "remove it",
    ),
    "exclude from nothing": ({"groups": {"exclude": ["a"]}}, "groups.exclude", "include is empty", "fill include"),
    "bad group regex": ({"groups": {"include": ["["]}}, "groups.include[0]", "not a regular", "backslash"),
    "another naming": ({"naming": "prefix"}, "naming", "must be 'identity'", "identity"),
    "naming that renames nothing": ({"naming": {}}, "naming.prefix", "renames nothing", "identity"),
    "prefix that makes an internal name of _x": (
        {"naming": {"prefix": "_", "separator": ""}},
        "naming.prefix",
        "Kafka's own",
        "choose another",
    ),
    "prefix, misspelled": ({"naming": {"prefx": "west"}}, "naming.prefx", "unknown field", "prefix"),
    "prefix of internal topics": ({"naming": {"prefix": "__"}}, "naming.prefix", "Kafka's own", "choose another"),
    "name of an internal topic": (
        {"naming": {"topics": {"orders": "kafka-migration.orders"}}},
        "naming.topics.orders",
        "the migration's",
        "choose another",
    ),
    "one name for two topics": (
        {"topics": {"include": ["a.*"]}, "naming": {"topics": {"ab": "b", "ac": "b"}}},
        "naming.topics.ac",
        "ab is called so",
        "name of its own",
    ),
    "no streams": ({"mirror": {"num_streams": 0}}, "mirror.num_streams", "must be 1 or more", "Copy tasks"),
    "start, another word": ({"mirror": {"start": "newest"}}, "mirror.start", "not a place", "2026-11-01T00:00:00Z"),
    "start, no such day": ({"mirror": {"start": "2026-13-01T00:00:00Z"}}, "mirror.start", "not a place", "latest"),
    "start, no zone": ({"mirror": {"start": "2026-11-01T00:00:00"}}, "mirror.start", "each machine", "its zone"),
    "start, too early": ({"mirror": {"start": "1969-11-01T00:00:00Z"}}, "mirror.start", "before 1970", "earliest"),
    "no samples": ({"lag_gate": {"samples": 0}}, "lag_gate.samples", "must be 1 or more", "in a row"),
    "negative threshold": (
        {"lag_gate": {"threshold_records": -1}},
        "lag_gate.threshold_records",
        "must be 0 or more",
        "lag",
    ),
    "gate that cannot pass": (
        {"lag_gate": {"samples": 10, "interval_seconds": 10, "deadline_seconds": 90}},
        "lag_gate.deadline_seconds",
        "never pass",
        "fewer samples",
    ),
    "no time": ({"cutover": {"rest_seconds": 0}}, "cutover.rest_seconds", "more than 0", "must not move"),
    "infinite time": (
        {"cutover": {"watch_seconds": float("inf")}},
        "cutover.watch_seconds",
        "finite",
        "translated offset",
    ),
    "drain that cannot pass": (
        {"drain": {"window_seconds": 60, "deadline_seconds": 60}},
        "drain.deadline_seconds",
        "never",
        "longer",
    ),
    "bad cron": ({"validation": {"schedule": "61 * * * *"}}, "validation.schedule", "not a cron", "five fields"),
    "cron with seconds": ({"validation": {"schedule": "0 0 3 * * *"}}, "validation.schedule", "five", "five fields"),
    "cron that never comes": ({"validation": {"schedule": "0 0 31 2 *"}}, "validation.schedule", "never", "03:00"),
    "bad replication": (
        {"topic_defaults": {"replication_factor": "two"}},
        "topic_defaults.replication_factor",
        "must be 'source', or must be a whole number",
        "Replicas",
    ),
    "policy unknown": ({"cutover": {"uncommitted": "latest"}}, "cutover.uncommitted", "'earliest' or 'cut'", "refuse"),
    "stopped but not selected": (
        {"groups": {"include": ["a"]}, "cutover": {"stopped_groups": ["a", "b"]}},
        "cutover.stopped_groups[1]",
        "does not select it",
        "groups.include",
    ),
    "stopped but excluded": (
        {"groups": {"include": [".*"], "exclude": ["b"]}, "cutover": {"stopped_groups": ["b"]}},
        "cutover.stopped_groups[0]",
        "does not select it",
        "groups.exclude",
    ),
    "stopped twice": (
        {"groups": {"include": ["a"]}, "cutover": {"stopped_groups": ["a", "a"]}},
        "cutover.stopped_groups[1]",
        "given twice",
        "remove one",
    ),
    "approvers not asked": (
        {"approvals": {"plan": False, "cutover": False, "approvers": ["alice"]}},
        "approvals.approvers",
        "no gate asks them",
        "approvals.plan",
    ),
    "nameless approver": ({"approvals": {"approvers": [" "]}}, "approvals.approvers[0]", "empty", "exactly"),
    "no waves": ({"waves": {}}, "waves", "neither given nor auto", "auto: {}"),
    "given and computed": (
        {"waves": {"given": [{"name": "a", "topics": "x"}], "auto": {}}},
        "waves.auto",
        "waves are given",
        "given or auto",
    ),
    "wave, no topics": ({"waves": {"given": [{"name": "a", "topics": []}]}}, "waves.given[0].topics", "empty", "match"),
    "wave, bad name": ({"waves": {"given": [{"name": "A/b", "topics": "x"}]}}, "waves.given[0].name", "match", "name"),
    "wave, bad pattern": (
        {"waves": {"given": [{"name": "a", "topics": ["x", "("]}]}},
        "waves.given[0].topics[1]",
        "not a regular",
        "backslash",
    ),
    "waves of one name": (
        {"waves": {"given": [{"name": "a", "topics": "x"}, {"name": "a", "topics": "y"}]}},
        "waves.given[1].name",
        "two waves",
        "another name",
    ),
    "pattern in two waves": (
        {"waves": {"given": [{"name": "a", "topics": "x, y"}, {"name": "b", "topics": "z, y"}]}},
        "waves.given[1].topics[1]",
        "stands in wave a",
        "in one wave",
    ),
    "group pattern in two waves": (
        {
            "groups": {"include": ["g"]},
            "waves": {"given": [{"name": n, "topics": n, "groups": "g"} for n in ("a", "b")]},
        },
        "waves.given[1].groups[0]",
        "stands in wave a",
        "in one wave",
    ),
    "canary is second": (
        {
            "groups": {"include": ["g"]},
            "waves": {"given": [{"name": "a", "topics": "x"}, {"name": "b", "topics": "y", "canary": True}]},
        },
        "waves.given[1].canary",
        "go before",
        "put it first",
    ),
    "canary without groups": (
        {"waves": {"given": [{"name": "a", "topics": "x", "canary": True}]}},
        "waves.given[0].canary",
        "no group is moved",
        "groups.include",
    ),
    "wave's groups without groups": (
        {"waves": {"given": [{"name": "a", "topics": "x", "groups": "g"}]}},
        "waves.given[0].groups",
        "no group is moved",
        "groups.include",
    ),
    "waves without room": ({"waves": {"auto": {"most_topics": 0}}}, "waves.auto.most_topics", "1 or more", "at most"),
    "canary of another plan": (
        {"waves": {"auto": {"canary_topic": "pay"}}},
        "waves.auto.canary_topic",
        "does not select it",
        "topics.include",
    ),
    "canary named, not wanted": (
        {"waves": {"auto": {"canary": False, "canary_topic": "orders"}}},
        "waves.auto.canary_topic",
        "canary is false",
        "remove canary_topic",
    ),
    "waiver of a group that is not moved": (
        {"waves": {"auto": {}, "spanning_groups": ["g"]}},
        "waves.spanning_groups[0]",
        "does not select it",
        "groups.include",
    ),
    "waiver given twice": (
        {"waves": {"auto": {}, "spanning_transactions": ["x", "x"]}},
        "waves.spanning_transactions[1]",
        "given twice",
        "remove one",
    ),
    "hooks without groups": (
        {"consumers": {"stop": [{"wait": True}]}},
        "consumers.stop",
        "no group is moved",
        "groups.include",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_field_is_refused_with_field_message_and_remedy(case: str, problems_of: Problems) -> None:
    fields, field, message, remedy = BAD[case]
    (problem,) = problems_of(**fields)
    assert problem.field == field
    assert message in problem.message
    assert remedy in problem.remedy
    assert problem.line > 0


def test_many_problems_are_reported_at_once_with_their_lines() -> None:
    error = refused(
        "version: 1\n"
        "name: Orders\n"
        "source: a\n"
        "target: a\n"
        "topics: {include: ['(']}\n"
        "groups: {include: [x]}\n"
        "lag_gate:\n"
        "  samples: 0\n"
        "cutover:\n"
        "  stopped_groups: [y]\n"
        "  rewnd: true\n"
    )
    assert [(p.line, p.field) for p in error.problems] == [
        (2, "name"),
        (4, "target"),
        (5, "topics.include[0]"),
        (8, "lag_gate.samples"),
        (11, "cutover.rewnd"),
    ]
    # What depends on a field that is wrong is looked at once that is right.
    assert str(error).startswith("plan.yaml: 5 problems")
    assert error.exit_code == 2
    assert (error.file, error.field) == ("plan.yaml", "name")


def test_contradictions_are_reported_beside_errors_elsewhere(problems_of: Problems) -> None:
    problems = problems_of(
        name="Bad Name",
        groups={"include": ["a"]},
        cutover={"stopped_groups": ["b"]},
        drain={"window_seconds": 9, "deadline_seconds": 3},
    )
    assert {p.field for p in problems} == {"name", "cutover.stopped_groups[0]", "drain.deadline_seconds"}


@pytest.mark.parametrize("start", ["earliest", "latest", "2026-11-01T00:00:00Z", "2026-11-01T02:00:00+02:00"])
def test_start_needs_no_quotes(start: str) -> None:
    assert parse_plan(HEAD + f"mirror:\n  start: {start}\n", file="plan.yaml").mirror.start == start


def test_doubled_key_is_refused_with_both_lines() -> None:
    (problem,) = refused(HEAD + "mirror:\n  num_streams: 1\n  epoch_seconds: 5\n  num_streams: 8\n").problems
    assert (problem.line, problem.field) == (9, "mirror.num_streams")
    assert "first in line 7" in problem.message


def test_doubled_key_and_other_problems_are_reported_together() -> None:
    fields = [p.field for p in refused(HEAD + "name: again\nmiror: {}\n").problems]
    assert fields == ["name", "miror"]


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("version: 1\ntopics: [a, b\nname: x\n", 3, "not valid YAML"),
        ("version: 1\n\tname: x\n", 2, "cannot start any token"),
        ("version: 1\nname: x: y\n", 2, "mapping values are not allowed"),
        ("a: 1\n---\nb: 2\n", 2, "another document"),
        ("", 0, "is empty"),
        ("# only a comment\n", 0, "is empty"),
        ("- a\n", 0, "not a mapping"),
        ("a: \x00", 0, "not valid YAML"),
        ("[" * 2000, 0, "not valid YAML"),
    ],
)
def test_text_that_is_no_plan_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    (problem,) = refused(text).problems
    assert problem.line == line
    assert message in problem.message
    assert problem.remedy


@pytest.mark.parametrize(
    ("addition", "field", "message"),
    [
        ("mirror: &m {num_streams: 1}\nvalidation: *m\n", "validation", "alias"),
        ("mirror: !!python/object:os.system {}\n", "mirror", "tag"),
        ("mirror: !!set {a}\n", "mirror", "tag"),
        ("mirror: {1: 2}\n", "mirror", "the key 1 is not text"),
        ("on: x\n", "", "the key on is not text"),
        ("mirror: {num_streams: !!int x}\n", "mirror.num_streams", "not a int"),
    ],
)
def test_yaml_beyond_plain_values_is_refused(addition: str, field: str, message: str) -> None:
    problem = next(p for p in refused(HEAD + addition).problems if message in p.message)
    assert (problem.field, problem.line) == (field, 7 if "&m" in addition else 6)


def test_alias_to_itself_is_refused_and_ends() -> None:
    assert "alias" in str(refused(HEAD + "mirror: &m {a: *m}\n"))


def test_unquoted_date_stays_text() -> None:
    assert parse_plan(HEAD.replace("orders\n", "2024-01-01\n", 1)).name == "2024-01-01"


def test_secret_in_a_plan_is_refused_without_being_shown() -> None:
    error = refused(HEAD + "sasl.password: hunter2\nmirror: {extra: {password: hunter2}}\n")
    assert {p.field for p in error.problems} == {"sasl.password", "mirror.extra"}
    assert "hunter2" not in str(error)


def test_long_value_is_shown_shortened(problems_of: Problems) -> None:
    (problem,) = problems_of(name="X" * 5000)
    assert len(problem.value) == 120


def test_file_that_is_absent_or_no_text_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="No such file") as caught:
        load_plan(tmp_path / "absent.yaml")
    assert caught.value.remedy
    with pytest.raises(BadInput, match="Is a directory"):
        load_plan(tmp_path)
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"name: \xff")
    with pytest.raises(BadInput, match="not UTF-8"):
        load_plan(binary)
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (LARGEST_PLAN_BYTES + 1))
    with pytest.raises(BadInput, match="larger than"):
        load_plan(str(large))


def test_file_with_byte_order_mark_loads(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + HEAD.encode())
    assert load_plan(path).name == "orders"


def test_refusal_survives_being_carried_between_processes() -> None:
    error = refused(HEAD + "miror: {}\n")
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error)
    assert copy.problems == error.problems


def test_snapshot_restores_to_an_equal_plan_of_equal_digest(plan_with: Callable[..., Plan]) -> None:
    plan = plan_with(
        topics={"include": "a.*, b"},
        groups={"include": ["g"]},
        consumers={"stop": [{"command": ["stop", "{group}"], "groups": "g,h"}], "start": [{"wait": True}]},
    )
    copy = restore_plan(plan.snapshot())
    assert copy == plan
    assert copy.digest == plan.digest


def test_snapshot_that_this_version_refuses_is_named_as_such(plan_with: Callable[..., Plan]) -> None:
    snapshot = plan_with().snapshot() | {"waves": []}
    with pytest.raises(InvalidPlan, match=r"stored snapshot of the plan") as caught:
        restore_plan(snapshot)
    assert caught.value.field == "waves"


def test_section_that_a_plan_lacks_is_no_part_of_its_digest(plan_with: Callable[..., Plan]) -> None:
    """A section of a later version voids no approval of a plan without it."""
    assert not {"waves", "producers"} & plan_with().snapshot().keys()
    assert "waves" in plan_with(waves={"auto": {"most_topics": 1}}).snapshot()


def test_digest_follows_meaning_not_form(plan_with: Callable[..., Plan]) -> None:
    plan = plan_with(topics={"include": ["a", "b"]})
    assert plan_with(topics={"include": "a, b"}, mirror={"num_streams": 2}).digest == plan.digest
    assert plan_with(topics={"include": ["b", "a"]}).digest != plan.digest
    assert plan_with(topics={"include": ["a", "b"]}, mirror={"num_streams": 3}).digest != plan.digest


@pytest.mark.parametrize("depth", [33, 200])
def test_plan_that_is_nested_too_deeply_is_refused_as_that(depth: int) -> None:
    document = read_yaml(f"a: {'[' * depth}{']' * depth}")
    assert [it.message for it in document.problems] == ["nested too deeply"]
    assert not read_yaml(f"a: {'[' * 31}{']' * 31}").problems
