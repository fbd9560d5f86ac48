"""The plans and the schema in migration_plans/: valid, complete, current."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel

from kafka_migration.domain.levels import Level
from kafka_migration.plans.load import (
    SCHEMA_FILE,
    load_plan,
    parse_plan,
    plan_schema,
    restore_plan,
    schema_text,
    write_schema,
)
from kafka_migration.plans.model import Plan
from kafka_migration.plans.snapshot import Snapshot

PLANS = Path(__file__).parents[2] / "migration_plans"
SHIPPED = sorted(PLANS.glob("*.yaml"))


@pytest.fixture(scope="module")
def schema() -> Draft202012Validator:
    Draft202012Validator.check_schema(plan_schema())
    return Draft202012Validator(plan_schema())


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_plan_loads_and_fits_the_schema(path: Path, schema: Draft202012Validator) -> None:
    assert load_plan(path).name == path.stem
    schema.validate(yaml.safe_load(path.read_text()))
    assert path.read_text().startswith(f"# yaml-language-server: $schema={SCHEMA_FILE}\n")


def test_schema_file_is_current(tmp_path: Path) -> None:
    written = write_schema(tmp_path)
    assert (PLANS / SCHEMA_FILE).read_text() == written.read_text() == schema_text(), (
        "run: PYTHONPATH=plugins python -m kafka_migration.plans.load migration_plans"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"miror": {}},
        {"name": "Orders"},
        {"name": 5},
        {"version": 2},
        {"topics": {}},
        {"mirror": {"num_streams": 0}},
        {"cutover": {"uncommitted": "latest"}},
        {"consumers": {"stop": [{"command": []}]}},
        {"topic_defaults": {"replication_factor": "two"}},
    ],
)
def test_schema_refuses_what_an_editor_can_see(change: dict[str, Any], schema: Draft202012Validator) -> None:
    plan = yaml.safe_load((PLANS / "demo.yaml").read_text())
    assert list(schema.iter_errors(plan | change))


def test_schema_takes_the_short_form_of_patterns(schema: Draft202012Validator) -> None:
    plan = yaml.safe_load((PLANS / "demo.yaml").read_text())
    schema.validate(plan | {"topics": {"include": "a.*, b", "exclude": "c"}})


def test_every_field_has_a_description() -> None:
    # A section without one of its own shows that of its definition.
    bare = [
        f"{part['title']}.{name}"
        for part in (plan_schema(), *plan_schema()["$defs"].values())
        for name, field in part["properties"].items()
        if "description" not in field and "$ref" not in field
    ]
    assert bare == []


def _fields(model: BaseModel) -> set[str]:
    found = set()
    for name in type(model).model_fields:
        found.add(name)
        value = getattr(model, name)
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, BaseModel):
                found |= _fields(part)
    return found


def test_reference_plan_names_every_field() -> None:
    text = (PLANS / "reference.yaml").read_text()
    written = set(re.findall(r"^[\s-]*([a-z0-9_]+):", text, re.MULTILINE))
    assert _fields(load_plan(PLANS / "reference.yaml")) - written == set()


def test_reference_plan_shows_defaults_except_where_it_says_example() -> None:
    text = (PLANS / "reference.yaml").read_text()
    # Without its examples the reference plan is the smallest plan: everything else in it is a default.
    kept, skipping = [], None
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        if skipping is not None and (not line.strip() or indent > skipping):
            continue
        skipping = None
        if re.search(r"# example", line):
            skipping = indent
            continue
        kept.append(line)
    kept_text = "\n".join(kept).replace("\ntopics:", "\ntopics:\n  include: [orders]").replace("\ngroups:\n", "\n")
    smallest = parse_plan(
        "version: 1\nname: reference\nsource: kafka_source\ntarget: kafka_target\ntopics: {include: [orders]}\n"
    )
    assert parse_plan(kept_text) == smallest


def test_demo_plan_says_what_the_demo_relies_on() -> None:
    plan: Plan = load_plan(PLANS / "demo.yaml")
    assert (plan.source, plan.target, plan.mirror.num_streams) == ("kafka_source", "kafka_target", 2)
    assert plan.topics.matches("demo.clicks")
    assert plan.groups.matches("demo.caught-up")
    assert plan.cutover.stopped_groups == ("demo.stopped",)
    assert plan.approvals.plan
    assert plan.approvals.cutover
    assert all(h.command and h.command[0] == "demo-consumers" for h in (*plan.consumers.stop, *plan.consumers.start))


def test_plan_that_uses_nothing_new_has_the_digest_that_it_always_had() -> None:
    # By it runs that are in flight, approvals and mirrors know their plan again after an update.
    text = "version: 1\nname: reference\nsource: kafka_source\ntarget: kafka_target\ntopics: {include: [orders]}\n"
    digest = "sha256:b43f53ba9d061d7748bd1ad24e71de2c8e954b38844cf9e7f4ec5f5b5cdc3ab7"
    assert Snapshot.take(parse_plan(text)).digest == digest
    dedicated = parse_plan(f"{text}mirror: {{dedicated_streams: [{{topics: [orders]}}]}}\n")
    digest = "sha256:5dfc2f6ea8efeaa39b97e015689bf52b6c59eb066e00d5ff0063539a0f9ccb30"
    assert Snapshot.take(dedicated).digest == digest
    assert restore_plan(dedicated.snapshot()) == dedicated


def test_plan_of_an_earlier_version_that_asks_for_a_sample_is_read_and_everything_is_compared() -> None:
    text = "version: 1\nname: reference\nsource: kafka_source\ntarget: kafka_target\ntopics: {include: [orders]}\n"
    plan = parse_plan(f"{text}validation: {{level: sampled}}\n")
    assert Level(plan.validation.level) is Level.RECORD
    # Runs that are in flight, approvals and mirrors know it again.
    assert Snapshot.take(plan).digest == "sha256:5f78577a1de6427d7842b44d08e88bbdcb75ac83720a00d30732ad60fd358509"
