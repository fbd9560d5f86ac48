"""The whole phase on real clusters: Spark and Great Expectations in their own processes, as a command runs them."""

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from demo import jars
from kafka_migration.cli.render.evidence import validation
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.compare.session import JARS_VARIABLE
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.types import Desired, PartitionEnds, TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import report
from kafka_migration.validation import job, validate, verdict
from kafka_migration.validation.pins import foreign_partitions
from kafka_migration.validation.record import KIND
from tests.compare.lab import FIRST_TIMESTAMP, LEADING, Copied, Copy, Lab, Partitions, Wanted
from tests.kafka_tools import ToSend, produce
from tests.waiting import wait_until


class _Ended(Copied):
    """The same, as the report asks it."""

    def offset_maps(self, tps: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetMap]:
        return super().offset_maps(self.maps if tps is None else tps)

    def run(self) -> dict[str, Any]:
        return {"state": "ended", "reason": "caught_up", "at": "2030-01-01T00:00:00+00:00"}

    def wished(self) -> Any:
        return SimpleNamespace(desired=Desired.RUN, reason="")

    def fences(self) -> tuple[int, ...]:
        return ()


def _context(lab: Lab, copies: Iterable[Copy], told: list[str], **validation: object) -> Context:
    copies = list(copies)
    journal = Journal(MemoryStore(), "lab")
    for copy in copies:
        spec = {"partitions": len(copy.maps), "replication_factor": 1}
        made = {"at": "2030-01-01T00:00:00+00:00", "adopted": False, "configs_source": {}, "left_out": {}}
        journal.record("topic", copy.topic, {"created": True, "spec": spec, **made})
    plan = restore_plan(
        {
            "version": 1,
            "name": "lab",
            "source": "lab_source",
            "target": "lab_target",
            "topics": {"include": ["validation-.*"]},
            "validation": {"segment_records": 1000, **validation},
        }
    )
    clusters: dict[str, Any] = {
        side: Cluster(side, ClusterConnection(f"lab_{side}", properties))  # type: ignore[arg-type]
        for side, properties in lab.connections.items()
    }
    link: Any = _Ended({tp: found for copy in copies for tp, found in copy.maps.items()})
    return Context(plan=plan, journal=journal, link=link, log=told.append, **clusters)


def _nobody(_ctx: Context) -> dict[str, Any]:
    return {}


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
    found = validate.apply(ctx, spark_master="local[2]", reports=tmp_path, tools=validate.Tools(consumers=_nobody))
    assert (found.verdict, found.exit_code) == (Equality.DIFFERENT, 1)
    assert {partition.tp: partition.verdict for partition in found.result.partitions} == {
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
    (wrong,) = (one for one in written["partitions"] if one["drilled"])
    assert (wrong["topic"], wrong["partition"]) == (copies["wrong"].topic, 1)
    assert wrong["drilled"]["counts"] == {"reorder": 2}
    assert [one["source_offset"] for one in wrong["drilled"]["examples"]] == [LEADING + 3, LEADING + 4]
    assert [one["target_offset"] for one in wrong["drilled"]["examples"]] == [4, 3]
    assert any(
        f"{copies['wrong'].topic}-1: 2 reorder; first reorder: source offset {LEADING + 3}" in line for line in told
    )
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


_MARKER = b"do-not-tell"
_SECRET = ToSend(_MARKER + b"-value", _MARKER + b"-key", 0, FIRST_TIMESTAMP, [("header", _MARKER + b"-header")])


def _damage_secrets(partitions: Partitions) -> None:
    """One of each class that shows bytes."""
    sent = partitions[0]
    other = replace(_SECRET, value=_MARKER + b"-VALUE", headers=[("header", _MARKER + b"-HEADER")])
    sent[3], sent[7] = other, replace(_SECRET, key=_MARKER + b"-KEY", timestamp=FIRST_TIMESTAMP + 7)
    del sent[12]
    sent.append(replace(_SECRET, value=_MARKER + b"-foreign", timestamp=FIRST_TIMESTAMP + 99))


def test_private_payloads_appear_in_nothing_that_a_validation_writes_or_tells(lab, spark, tmp_path):
    special = {at: replace(_SECRET, timestamp=FIRST_TIMESTAMP + at) for at in (3, 7, 12)}
    (copy,) = lab.copies({"": Wanted(special=special, damage=_damage_secrets)}).values()

    def digest(asked: Path, answer: Path) -> None:
        request = ValidationRequest.from_dict(json.loads(asked.read_text()))
        answer.write_text(json.dumps(job.run(spark, request, lab.connections, lab.wires).as_dict()))

    def everything(ctx: Context, folder: Path, told: list[str]) -> str:
        """Whatever a person, a log or a file gets."""
        found = validate.apply(ctx, reports=folder, tools=validate.Tools(run=digest, consumers=_nobody))
        assert found.result.partitions[0].drilled is not None
        assert found.result.partitions[0].drilled.counts.keys() >= {Fault.LOSS, Fault.FOREIGN, Fault.MUTATION}
        report.apply(ctx, folder)
        Console(file=(terminal := StringIO()), width=400).print(validation(found))
        journal = [*ctx.journal.all(KIND).values()]
        files = [path.read_text(errors="replace") for path in folder.rglob("*") if path.is_file()]
        assert len(list(folder.rglob("*.html"))) > 1, "report and Data Docs"
        return "\n".join([*told, terminal.getvalue(), json.dumps([journal, found.as_dict()]), *files])

    told: list[str] = []
    shown = everything(ctx := _context(lab, [copy], told, private_payloads=False), tmp_path / "open", told)
    assert _MARKER.hex() in shown, "what is looked for can be found"
    private = replace(ctx, plan=_context(lab, [copy], []).plan)
    report.apply(private, tmp_path / "since")
    for path in (tmp_path / "since").rglob("report.*"):
        assert "mutation: source offset" in path.read_text()
        assert _MARKER.hex() not in path.read_text(), "recorded before the plan said that payloads are private"
    told.clear()
    hidden = everything(private, tmp_path / "private", told)
    assert "mutation: source offset" in hidden
    for secret in (_MARKER, _MARKER.upper()):
        assert secret.hex() not in hidden
        assert secret.decode() not in hidden


def test_spark_job_that_cannot_start_is_an_error_with_its_last_words(lab, tmp_path, jars_in_environment):
    copy = lab.copy()
    ctx = _context(lab, [copy], [])
    with pytest.raises(CouldNotFindOut, match=re.compile("ended with code 1:.*Master must", re.DOTALL)) as caught:
        validate.apply(ctx, spark_master="no-such-master", reports=tmp_path, tools=validate.Tools(consumers=_nobody))
    assert caught.value.exit_code == 3
    assert ctx.journal.read("validation", "latest") is None
    assert list(Path(tmp_path / "lab").iterdir()) == []
