"""What stands beside the metrics: the document, the alert rules and the dashboard speak of metrics that there are."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from kafka_migration.metrics.exporter import READ_AT, READ_FOR, UP
from kafka_migration.metrics.table import METRICS, MIGRATION, PREFIX
from tests.metrics.document import PATH, with_table

MONITORING = PATH.parents[1] / "monitoring"
#: Those that Prometheus gives to whatever it scrapes.
_SCRAPED = {"job", "instance"}
LABELS = {metric.name: {*_SCRAPED, MIGRATION, *metric.labels} for metric in METRICS} | {
    name: {*_SCRAPED, MIGRATION} for name, _ in (UP, READ_AT, READ_FOR)
}
#: A metric, and the matchers behind it.
_SELECTOR = re.compile(rf"\b{PREFIX}(\w+)(?:\{{([^}}]*)\}})?")


def expressions() -> Iterator[tuple[str, str]]:
    """Every expression, by where it stands."""
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        yield from ((rule["alert"], rule["expr"]) for rule in group["rules"])
    yield from _queries(json.loads((MONITORING / "dashboard.json").read_text()))


def _queries(panel: Any) -> Iterator[tuple[str, str]]:
    for inner in panel.get("panels", ()):
        yield from _queries(inner)
    yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))


def test_document_has_every_metric() -> None:
    text = PATH.read_text(encoding="utf-8")
    assert with_table(text) == text, "write it anew: python -m tests.metrics.document"


@pytest.mark.parametrize(("place", "expression"), list(expressions()))
def test_expression_selects_metrics_and_labels_that_there_are(place: str, expression: str) -> None:
    found = _SELECTOR.findall(expression)
    assert found, place
    for name, matchers in found:
        assert name in LABELS
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= LABELS[name]
        for labels in re.findall(r"(?:by|on) \(([^)]*)\)", expression):
            assert set(re.findall(r"\w+", labels)) <= set().union(*(LABELS[one] for one, _ in found))


def test_migrations_of_one_name_on_several_targets_are_kept_apart_by_every_rule() -> None:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            for labels in re.findall(r"(?:by|on) \(([^)]*)\)", rule["expr"]):
                assert labels.startswith("job, instance, migration"), rule["alert"]


def test_every_rule_says_what_happened_to_which_migration_and_what_to_do() -> None:
    for group in yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert "$labels.migration" in rule["annotations"]["summary"] or "absent(" in rule["expr"]
            assert rule["annotations"]["remedy"]
