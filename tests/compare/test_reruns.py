"""Validation again, on real brokers: after a little more was written, and after it was killed."""

import json
import os
import signal
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from bench.ours import MASTER, Migration
from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.result import Equality, ValidationResult
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore, SegmentStore
from kafka_migration.validation import validate
from kafka_migration.validation.job import run
from tests.broker_bytes import bytes_sent
from tests.compare.lab import Lab
from tests.copy.bench import Bench, bench
from tests.kafka_tools import ToSend, create_topics, delete_topic, produce
from tests.losing import UNCLEAN, lose, until_alone

#: Of the validation that is killed: 80 segments, far more than the sample of twenty and than are read at once.
_PARTITIONS, _RECORDS = 16, 80_000


def _records(first: int, count: int, partitions: int) -> Iterator[ToSend]:
    for n in range(first, first + count):
        # Not to be compressed away: what is counted are bytes on the wire.
        yield ToSend(b"%d:" % n + os.urandom(500), b"key-%d" % n, n % partitions)


class Mirrored:
    """A topic that a mirror copies, and validations of it, in this process."""

    def __init__(self, it: Bench, spark: SparkSession, folder: Path, **validation: object) -> None:
        self.bench, self._spark, self._folder, self._validation = it, spark, folder, validation
        (self.topic,), self.written = it.topics, 0
        self._segments, self._journal = SegmentStore(), Journal(MemoryStore(), "lab")
        self._journal.record("topic", self.topic, {"created": True, "spec": {"partitions": it.topics[self.topic]}})

    def write(self, count: int) -> None:
        """Records on the source, and a mirror run that takes them along."""
        self.write_alone(count)
        self.bench.mirror().run(until_caught_up=True)

    def write_alone(self, count: int) -> None:
        """Records on the source that no mirror takes along."""
        produce(self.bench.source, self.topic, _records(self.written, count, self.bench.topics[self.topic]))
        self.written += count

    def validate(self, expected: Equality = Equality.EQUAL, **options: Any) -> ValidationResult:
        """A validation, by real Spark tasks, which ends as ``expected``."""
        servers = {"source": self.bench.source, "target": self.bench.target}
        clusters: dict[str, Any] = {
            side: Cluster(side, ClusterConnection(f"lab_{side}", {"bootstrap.servers": address}))  # type: ignore[arg-type]
            for side, address in servers.items()
        }
        plan = {
            "version": 1,
            "name": "lab",
            "source": "lab_source",
            "target": "lab_target",
            "topics": {"include": [self.topic]},
            "validation": self._validation,
        }
        with clusters["source"], clusters["target"]:
            ctx = Context(
                plan=restore_plan(plan),
                journal=self._journal,
                link=self.bench.link,
                segments=self._segments,
                **clusters,
            )
            tools = validate.Tools(run=self._run, suite=_agrees, consumers=lambda _ctx: {})
            found = validate.apply(ctx, reports=self._folder, tools=tools, **options)
        assert found.verdict is expected
        return found.result

    def _run(self, asked: Path, answer: Path) -> None:
        request = ValidationRequest.from_dict(json.loads(asked.read_text()))
        lab = Lab(self.bench.source, self.bench.target)
        answer.write_text(json.dumps(run(self._spark, request, lab.connections, lab.wires).as_dict()))


def _agrees(_summary: Path, _directory: Path, _environ: Mapping[str, str]) -> Expectations:
    return Expectations(success=True, failed=())


def test_rerun_after_one_percent_of_new_records_reads_three_percent_of_the_bytes_at_most(
    source_cluster, target_cluster, spark, tmp_path, monkeypatch
):
    clusters, topic = (source_cluster, target_cluster), f"reruns-{uuid.uuid4().hex[:8]}"

    def sent() -> int:
        return sum(bytes_sent(cluster, topic) for cluster in clusters)

    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {topic: 4}) as link:
        it = Mirrored(link, spark, tmp_path, segment_records=20_000, level="batch")
        it.write(160_000)
        before = sent()
        it.validate()
        whole = sent() - before
        assert whole > 2 * 160_000 * 500, "both sides were read"
        it.write(1_600)
        before = sent()
        again = it.validate()
        read = sent() - before
        assert 2 * 1_600 * 500 < read <= 0.03 * whole
        assert again.totals.source_records == again.totals.target_records == 161_600
        assert [sum(segment.kept for segment in p.segments) for p in again.partitions] == [2, 2, 2, 2]
        read_at = {segment.level for p in again.partitions for segment in p.segments if not segment.kept}
        assert read_at == {"batch"}
        before = sent()
        it.validate()
        assert sent() == before, "nothing is new"
        whole_again = it.validate(full=True)
        assert [(p.source, p.target) for p in again.partitions] == [
            (p.source, p.target) for p in whole_again.partitions
        ]


# A loss on the target is seen in the same way: `make test` has the one that is also written over.
@pytest.mark.parametrize("side", ["source", pytest.param("target", marks=pytest.mark.long)])
def test_what_was_equal_is_read_again_where_a_log_lost_it_by_an_unclean_election(
    lossy, source_cluster, target_cluster, spark, tmp_path, side
):
    """As many other records at the same offsets of the source, or none on the target: no verdict of before hides it."""
    topic = f"reruns-{uuid.uuid4().hex[:8]}"
    clusters = {"source": source_cluster, "target": target_cluster} | {side: lossy}
    config = {"source": "config", "target": "target_config"}[side]
    servers = (clusters["source"].bootstrap_servers, clusters["target"].bootstrap_servers)
    options: dict[str, Any] = {config: UNCLEAN, f"{side}_brokers": [1, 2]}
    with bench(*servers, {topic: 1}, **options) as link:
        tp, there = TopicPartition(topic, 0), lossy.bootstrap_servers
        it = Mirrored(link, spark, tmp_path, segment_records=1_000)
        it.write(2_000)
        lossy.kill(2)
        until_alone(there, tp)
        it.write(2_000)
        it.validate()
        (all_kept,) = it.validate().partitions
        assert [segment.kept for segment in all_kept.segments] == [True] * 4
        lose(lossy, there, tp)
        if side == "source":
            it.write_alone(2_000)
        (found,) = it.validate(Equality.DIFFERENT).partitions
        assert [segment.verdict for segment in found.segments] == [Equality.EQUAL] * 2 + [Equality.DIFFERENT] * 2
        assert [segment.kept for segment in found.segments[2:]] == [False] * 2
        assert found.drilled is not None
        assert found.drilled.first is not None
        assert found.drilled.first.source_offset == 2_000
        wrong = found.drilled.counts
        assert wrong == {Fault.LOSS: 2_000} if side == "target" else sum(wrong.values()) >= 2_000


def test_nothing_stands_of_a_topic_that_was_made_anew(source_cluster, target_cluster, spark, tmp_path):
    topic = f"reruns-{uuid.uuid4().hex[:8]}"
    servers = (source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    with bench(*servers, {topic: 1}) as link:
        it = Mirrored(link, spark, tmp_path, segment_records=1_000)
        it.write(2_000)
        it.validate()
        delete_topic(servers[0], topic)
        create_topics(servers[0], {topic: 1}, {"retention.ms": "-1"})
        it.write_alone(2_000)
        (found,) = it.validate(Equality.DIFFERENT).partitions
        assert [(segment.kept, segment.verdict) for segment in found.segments] == [(False, Equality.DIFFERENT)] * 2


# In `make test`: what is kept is not read again (above), also of a validation that died half-way
# (tests/steps/test_validate_segments.py).
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_validation_that_is_killed_goes_on_where_it_was_and_ends_with_the_same_digests(
    source_cluster, target_cluster, tmp_path
):
    clusters = (source_cluster, target_cluster)
    topic, source = f"reruns-{uuid.uuid4().hex[:8]}", source_cluster.bootstrap_servers
    create_topics(source, {topic: _PARTITIONS})
    produce(source, topic, _records(0, _RECORDS, _PARTITIONS))
    validation = {"segment_records": 1_000}
    migration = Migration(tmp_path, source, target_cluster.bootstrap_servers, [topic], validation=validation)
    migration.run("create")
    with migration.mirroring("--until-caught-up") as (mirror, log):
        mirror.wait(180)
        assert mirror.status == 0, log.read_text()[-3000:]

    command = ["validate", "--master", MASTER, "--output", str(tmp_path), "--level", "batch"]

    def validated(*words: str) -> tuple[dict[str, Any], int]:
        """The result, and how many bytes both brokers sent for it."""
        before = sum(bytes_sent(cluster, topic) for cluster in clusters)
        migration.run(*command, *words)
        sent = sum(bytes_sent(cluster, topic) for cluster in clusters) - before
        return json.loads((tmp_path / migration.name / "validation.json").read_text()), sent

    words = migration.command(*command)
    process = subprocess.Popen(
        words, env=migration.environment, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    told = []
    with process:
        for line in process.stdout:
            told.append(line)
            if " segments, " in line and "ETA" in line:
                children = _children(process.pid)
                os.kill(process.pid, signal.SIGKILL)
                for child in children:
                    # Spark's driver leads a group of its own, with its JVM and workers.
                    with suppress(ProcessLookupError):
                        os.killpg(child, signal.SIGKILL)
                break
    assert process.returncode == -signal.SIGKILL, told
    done, of = _segments(told[-1])
    assert 0 < done < of == _RECORDS / 1_000
    found, read = validated()
    kept = sum(partition["kept_segments"] for partition in found["partitions"])
    assert done <= kept < of
    whole, read_whole = validated("--full")
    assert sum(partition["kept_segments"] for partition in whole["partitions"]) == 0
    records = 2 * _RECORDS * 500
    assert read_whole > records, "both sides were read"
    assert read_whole - read >= 0.9 * records * kept / of
    for partition, other in zip(found["partitions"], whole["partitions"], strict=True):
        assert partition["source_digest"] == other["source_digest"]
        assert partition["target_digest"] == other["target_digest"]
        assert [one["source_digest"] for one in partition["segments"]] == [
            one["source_digest"] for one in other["segments"]
        ]
    assert found["totals"]["source_records"] == _RECORDS


def _segments(line: str) -> tuple[int, int]:
    words = line.split()
    at = next(n for n, word in enumerate(words) if word.startswith("segments"))
    return int(words[at - 3]), int(words[at - 1])


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        found += [int(word) for word in (task / "children").read_text().split()]
    return found
