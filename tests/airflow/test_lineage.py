"""What the mirror's task emits of its topics, where Airflow emits lineage. In earnest: tests/dags/test_migration.py."""

import json
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.openlineage import api

from kafka_migration.airflow import mirror
from kafka_migration.domain.direction import Direction

SERVERS = {"k_source": "a.example:9093, b.example:9093", "k_target": "c.example:9092"}


@pytest.fixture
def emitted(monkeypatch) -> list[dict[str, Any]]:
    """What was emitted, while Airflow emits."""
    found: list[dict[str, Any]] = []
    monkeypatch.setattr(api, "is_openlineage_active", lambda: True)
    monkeypatch.setattr(api, "emit_dataset_lineage", lambda **of: found.append(of))
    return found


@pytest.fixture
def ctx(opened, monkeypatch) -> Any:
    for conn_id, servers in SERVERS.items():
        variable = json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers}})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", variable)
    for topic in ("payments", "orders"):
        opened.journal.record("topic", topic, {})
    return SimpleNamespace(
        plan=opened.plan, journal=opened.journal, direction=Direction.FORWARD, selects_topic=lambda name: True
    )


def named(datasets: Any) -> list[tuple[str, str]]:
    return [(dataset.namespace, dataset.name) for dataset in datasets]


@pytest.mark.parametrize("direction", Direction)
def test_topics_of_both_clusters_are_named_by_the_first_server(ctx, emitted, direction):
    ctx.direction = direction
    mirror.emit_lineage(ctx, "ti")
    source = [("kafka://a.example:9093", "orders"), ("kafka://a.example:9093", "payments")]
    target = [("kafka://c.example:9092", "orders"), ("kafka://c.example:9092", "payments")]
    [event] = emitted
    assert event["task_instance"] == "ti"
    both = (source, target) if direction is Direction.FORWARD else (target, source)
    assert (named(event["inputs"]), named(event["outputs"])) == both


def test_nothing_is_emitted_without_a_transport(ctx, emitted, monkeypatch):
    monkeypatch.setattr(api, "is_openlineage_active", lambda: False)
    mirror.emit_lineage(ctx, "ti")
    assert emitted == []


@pytest.mark.parametrize("lacks", ["api", "openlineage"])
def test_nothing_is_emitted_without_the_provider_or_by_one_that_is_too_old(ctx, emitted, monkeypatch, lacks):
    if lacks == "api":
        monkeypatch.delattr(api, "emit_dataset_lineage")
    else:
        monkeypatch.setitem(sys.modules, "airflow.providers.openlineage.api", None)
    mirror.emit_lineage(ctx, "ti")
    assert emitted == []


def raising(*_: Any, **__: Any) -> Any:
    raise RuntimeError("of the lineage alone")


def test_transport_that_is_none_a_journal_that_is_away_and_a_receiver_that_refuses_fail_no_task(
    ctx, emitted, monkeypatch, caplog
):
    mirror.emit_lineage(SimpleNamespace(plan=ctx.plan, direction=ctx.direction), "ti")  # type: ignore[arg-type]
    monkeypatch.setattr(api, "is_openlineage_active", raising)
    mirror.emit_lineage(ctx, "ti")
    assert emitted == []
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "of the lineage alone" in caplog.text


def test_receiver_that_does_not_answer_is_not_waited_for(ctx, emitted, monkeypatch, caplog):
    answered = threading.Event()
    monkeypatch.setattr(api, "emit_dataset_lineage", lambda **_: answered.wait(60))
    monkeypatch.setattr(mirror, "_PATIENCE_SECONDS", 0.1)
    mirror.emit_lineage(ctx, "ti")
    answered.set()
    assert "was not emitted within 0.1 s" in caplog.text
