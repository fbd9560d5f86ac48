"""A migration by commands that begins with what is written from now on: validated, told, and moved like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.domain.types import TopicPartition
from tests.cli.processes import ME, connection
from tests.cli.test_migration import Story
from tests.kafka_tools import ToSend, commit, committed, create_topics, produce, read_all

PLAN = """
version: 1
name: recent
source: old
target: new
topics: {include: ['recent\\..*']}
groups: {include: ['recent\\..*']}
lag_gate: {threshold_records: 0, samples: 2, interval_seconds: 1, deadline_seconds: 120}
approvals: {approvers: [APPROVER]}
cutover: {rest_seconds: 1, stopped_groups: [recent.app]}
mirror: {epoch_seconds: 5, start: latest}
drain: {window_seconds: 2, deadline_seconds: 120}
""".replace("APPROVER", ME)
ORDERS = "recent.orders"


def _write(servers: str, first: int, count: int) -> None:
    produce(servers, ORDERS, (ToSend(b"%d" % n, partition=n % 2) for n in range(first, first + count)))


@pytest.mark.soak
@pytest.mark.timeout(1500)
def test_what_lies_before_is_neither_copied_nor_missed_and_told_at_every_gate(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    create_topics(source, {ORDERS: 2}, {"retention.ms": "604800000"})
    _write(source, 0, 200)
    commit(source, "recent.app", {(ORDERS, 0): 70, (ORDERS, 1): 130})
    (tmp_path / "plan.yaml").write_text(PLAN)
    story = Story(tmp_path, monkeypatch)
    story.connect("old", connection(source))
    story.connect("new", connection(target))

    story.approve("plan")
    story.run("create")
    begun = story.run("mirror", "--until-caught-up", "--master", "local[2]")
    assert f"{ORDERS}-0: begins at source offset 100; 100 offsets before it are not copied" in begun.err
    _write(source, 200, 200)
    copied = story.run("mirror", "--until-caught-up", "--master", "local[2]", "--json").json
    assert (copied["records"], copied["halted"]) == (200, [])
    assert story.run("lag", "--gate", "--json").json["passed"] is True
    verdict = story.run("validate", "--master", "local[2]", "--json").json
    assert verdict["verdict"] == "EQUAL"
    assert verdict["totals"]["source_records"] == verdict["totals"]["target_records"] == 200

    (group,) = story.run("translate", "--json").json["groups"]
    assert f"never reads 30 offsets of {ORDERS}-0" in " ".join(group["flags"])
    seen = story.run("approve", "cutover", "--show", "--json").out
    assert "are not copied: the plan begins at latest" in seen
    story.approve("cutover")
    assert story.run("cutover", "--json").json["groups"][0]["outcome"] == "moved"
    here, there = read_all(source, {ORDERS: 2}), read_all(target, {ORDERS: 2})
    for (topic, partition), place in committed(target, "recent.app").items():
        tp = TopicPartition(topic, partition)
        left = [row.value for row in here[tp] if row.offset >= (100 if partition == 0 else 130)]
        assert [row.value for row in there[tp] if row.offset >= place] == left
    assert story.run("watch", "--json").json["groups"][0]["life"] == "alive"
    assert story.run("stop", "--json").json["stopped"] is True
    story.run("report")
    report = json.loads((tmp_path / "reports" / "recent" / "report.json").read_text())
    assert [(it["partition"], it["start"], it["end"], it["halt"]) for it in report["losses"]] == [
        (0, 0, 100, "START"),
        (1, 0, 100, "START"),
    ]
    assert ["are not copied" in it for it in report["exceptions"]] == [True, True]
