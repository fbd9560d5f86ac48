"""Reading a plan file. Either a whole, valid plan comes back, or one error that lists everything wrong with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kafka_migration.domain.errors import BadInput
from kafka_migration.plans.explain import explain
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import InvalidPlan, Problem
from kafka_migration.plans.strict_yaml import Document, read_yaml

#: A plan is a page of text; more is a wrong file, and is not read into memory.
LARGEST_PLAN_BYTES = 1_000_000


def load_plan(path: str | Path) -> Plan:
    """The plan in the YAML file at ``path``. Raises BadInput: file, line, field, value and remedy of every problem."""
    path = Path(path)
    try:
        with path.open("rb") as file:
            raw = file.read(LARGEST_PLAN_BYTES + 1)
    except OSError as error:
        raise BadInput(
            f"cannot be read: {error.strerror or error}",
            file=str(path),
            remedy="give the path of a plan file; migration_plans/reference.yaml is a commented example",
        ) from error
    if len(raw) > LARGEST_PLAN_BYTES:
        raise BadInput(
            f"larger than {LARGEST_PLAN_BYTES} bytes", file=str(path), remedy="this is no plan; give another file"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"not UTF-8 text (byte {error.start})", file=str(path), remedy="save the plan as UTF-8"
        ) from error
    return parse_plan(text, file=str(path))


def parse_plan(text: str, *, file: str = "") -> Plan:
    """The plan in ``text`` (YAML). ``file`` is for messages. Raises InvalidPlan with every problem."""
    document = read_yaml(text)
    if document.data is None or not isinstance(document.data, dict):
        if not document.problems:
            what = "is empty" if document.data is None else "is not a mapping of fields"
            document.problems.append(
                Problem(field="", message=f"the plan {what}", remedy="start from migration_plans/reference.yaml")
            )
        raise InvalidPlan(file, document.problems)
    plan, problems = _validated(document)
    if plan is None or document.problems or problems:
        raise InvalidPlan(file, [*document.problems, *problems])
    return plan


def restore_plan(snapshot: Mapping[str, Any]) -> Plan:
    """The plan that ``plan.snapshot()`` gave, validated again. Raises InvalidPlan, as a later version may refuse it."""
    plan, problems = _validated(Document(data=dict(snapshot)))
    if plan is None:
        raise InvalidPlan("the stored snapshot of the plan", problems)
    return plan


def _validated(document: Document) -> tuple[Plan | None, list[Problem]]:
    # Through JSON: there, a list is the strict form of a tuple, while 1 is still no string and "1" no number.
    try:
        return Plan.model_validate_json(json.dumps(document.data)), []
    except ValidationError as error:
        return None, explain(document, error)
