"""The whole phase on real clusters: Spark and Great Expectations in their own processes, as a command runs them."""

import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from demo import jars
from kafka_migration.clusters.cluster import Cluster
from kafka_migration.clusters.connections import ClusterConnection
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.phases import validate, verdict
from kafka_migration.phases.context import Context
from kafka_migration.phases.validate_pins import foreign_partitions
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from kafka_migration.validation.result import Equality
from kafka_migration.validation.session import JARS_VARIABLE
from tests.kafka_tools import ToSend, produce
from tests.validation.lab import LEADING, Copied, Copy, Lab, Partitions, Wanted
from tests.waiting import wait_until


def _context(lab: Lab, copies: Iterable[Copy], told: list[str]) -> Context:
    copies = list(copies)
    journal = Journal(MemoryStore(), "lab")
    for copy in copies:
        journal.record("topic", copy.topic, {"created": True, "spec": {"partitions": len(copy.maps)}})
    plan = restore_plan(
        {
            "version": 1,
            "name": "lab",
            "source": "lab_source",
            "target": "lab_target",
            "topics": {"include": ["validation-.*"]},
            "validation": {"segment_records": 1000},
        }
    )
    clusters: dict[str, Any] = {
        side: Cluster(side, ClusterConnection(f"lab_{side}", properties))  # type: ignore[arg-type]
        for side, properties in lab.connections.items()
    }
    link: Any = Copied({tp: found for copy in copies for tp, found in copy.maps.items()})
    return Context(plan=plan, journal=journal, link=link, tell=told.append, **clusters)


def _swap(partitions: Partitions) -> None:
    sent = partitions[1]
    sent[3], sent[4] = sent[4], sent[3]


@pytest.fixture
def jars_in_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(JARS_VARIABLE, ",".join(str(path) for path in jars.paths("spark")))


def test_command_finds_equal_what_is_equal_and_different_what_is_not(lab, tmp_path, jars_in_environment):
    copies = lab.copies({"right": Wanted(partitions=2), "wrong": Wanted(partitions=2, damage=_swap)})
    told: list[str] = []
    ctx = _context(lab, copies.values(), told)
    found = validate.apply(ctx, spark_master="local[2]", reports=tmp_path)
    assert (found.verdict, found.exit_code) == (Equality.DIFFERENT, 1)
    assert {it.tp: it.verdict for it in found.result.partitions} == {
        TopicPartition(copies["right"].topic, 0): Equality.EQUAL,
        TopicPartition(copies["right"].topic, 1): Equality.EQUAL,
        TopicPartition(copies["wrong"].topic, 0): Equality.EQUAL,
        TopicPartition(copies["wrong"].topic, 1): Equality.DIFFERENT,
    }
    assert not found.expectations.success
    assert "order-dependent sums of source and target are equal" in found.expectations.failed
    assert "order-independent sums of source and target are equal" not in found.expectations.failed
    assert found.result.summary() in told
    folder = tmp_path / "lab"
    written = json.loads((folder / "validation.json").read_text())
    assert written["totals"]["source_records"] == written["totals"]["target_records"] == 120
    (wrong,) = (it for it in written["partitions"] if it["drilled"])
    assert (wrong["topic"], wrong["partition"]) == (copies["wrong"].topic, 1)
    assert wrong["drilled"]["counts"] == {"reorder": 2}
    assert [it["source_offset"] for it in wrong["drilled"]["examples"]] == [LEADING + 3, LEADING + 4]
    assert [it["target_offset"] for it in wrong["drilled"]["examples"]] == [4, 3]
    assert any(f"{copies['wrong'].topic}-1: 2 reorder; first reorder: source offset {LEADING + 3}" in it for it in told)
    pages = [path.read_text() for path in (folder / "data_docs").rglob("*.html")]
    assert any(f"{copies['wrong'].topic}-1" in page for page in pages), "the docs name the partition"
    assert verdict.check(ctx).verdict is Verdict.FAIL


def test_partitions_that_the_source_lacks_are_told_with_what_they_hold(lab):
    copy = lab.copy()
    ctx = _context(lab, [copy], [])
    assert foreign_partitions(ctx, [copy.topic]) == {}
    ctx.target.create_partitions(copy.topic, 3)
    wait_until(lambda: ctx.target.topics([copy.topic])[copy.topic].partitions == 3, "the target has grown")
    assert foreign_partitions(ctx, [copy.topic]) == {}
    produce(lab.servers["target"], copy.topic, [ToSend(b"stray", partition=2)] * 4)
    assert foreign_partitions(ctx, [copy.topic]) == {TopicPartition(copy.topic, 2): PartitionEnds(start=0, end=4)}


def test_spark_job_that_cannot_start_is_an_error_with_its_last_words(lab, tmp_path, jars_in_environment):
    copy = lab.copy()
    ctx = _context(lab, [copy], [])
    with pytest.raises(CouldNotFindOut, match=re.compile("ended with code 1:.*Master must", re.DOTALL)) as caught:
        validate.apply(ctx, spark_master="no-such-master", reports=tmp_path)
    assert caught.value.exit_code == 3
    assert ctx.journal.read("validation", "latest") is None
    assert list(Path(tmp_path / "lab").iterdir()) == []
