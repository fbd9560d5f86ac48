"""With the journal on real brokers: steps as `run` takes them, and the thread that follows with clients of its own."""

from __future__ import annotations

import json
import uuid

import pytest

from kafka_migration.kafka.lookup import variable_of
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import restore_plan
from kafka_migration.steps import runner, schemas
from tests.kafka_tools import create_topics
from tests.schemas.worlds import Registries, record
from tests.shared import SharedCluster
from tests.waiting import wait_until


def test_registry_of_a_running_migration_is_filled_followed_and_emptied(
    both: Registries,
    source_cluster: SharedCluster,
    target_cluster: SharedCluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    name = f"s{uuid.uuid4().hex[:8]}"
    for side, cluster in (("a", source_cluster), ("b", target_cluster)):
        extra = {"bootstrap.servers": cluster.bootstrap_servers}
        monkeypatch.setenv(variable_of(f"{name}_{side}"), json.dumps({"conn_type": "kafka", "extra": extra}))
    create_topics(source_cluster.bootstrap_servers, {f"{name}.orders": 1})
    plan = restore_plan(
        {
            "version": 1,
            "name": name,
            "source": f"{name}_a",
            "target": f"{name}_b",
            "topics": {"include": [rf"{name}\..*"]},
            "approvals": {"plan": False},
            "schemas": both.section,
        }
    )
    values = f"{name}.orders-value"
    both.source.configs[""] = {"compatibilityLevel": "NONE"}
    both.source.register(values, record("Order", "number"))
    monkeypatch.setattr(schemas, "FOLLOW_SECONDS", 0.2)
    with open_context(plan) as ctx:
        for step in ("copy_schemas", "create_targets"):
            assert runner.run(ctx, step).exit_code == 0
        assert both.target.subjects[values].keys() == {1}
        with schemas.following(ctx):
            both.source.register(values, record("Order", "number", "price"))
            wait_until(lambda: both.target.subjects[values].keys() == {1, 2}, "the new version is on the target")
        assert schemas.check(ctx).is_none
        assert schemas.undo(ctx).facts == {"schemas": 2}
    assert not both.target.subjects
