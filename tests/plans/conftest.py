"""Plans as text, built from one smallest valid plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from kafka_migration.plans.load import parse_plan
from kafka_migration.plans.model import Plan
from kafka_migration.plans.problems import InvalidPlan, Problem

SMALLEST: dict[str, Any] = {
    "version": 1,
    "name": "orders",
    "source": "kafka_source",
    "target": "kafka_target",
    "topics": {"include": ["orders"]},
}


class _Plain(yaml.SafeDumper):
    """Writes a value out each time, as a person would; plans have no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(plan: dict[str, Any]) -> str:
    return yaml.dump(plan, Dumper=_Plain, allow_unicode=True)


@pytest.fixture
def plan_with() -> Callable[..., Plan]:
    """The smallest plan with some of its top-level fields set."""

    def build(**fields: Any) -> Plan:
        return parse_plan(_text({**SMALLEST, **fields}), file="plan.yaml")

    return build


@pytest.fixture
def problems_of() -> Callable[..., tuple[Problem, ...]]:
    """What is wrong with the smallest plan after some of its top-level fields were set. ``None`` removes one."""

    def refuse(**fields: Any) -> tuple[Problem, ...]:
        plan = {key: value for key, value in {**SMALLEST, **fields}.items() if value is not None}
        with pytest.raises(InvalidPlan) as caught:
            parse_plan(_text(plan), file="plan.yaml")
        return caught.value.problems

    return refuse
