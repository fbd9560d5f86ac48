"""The Spark job on real brokers: pins hold, what cannot be read is reported by partition, and no secret is shown."""

import dataclasses
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil
import pytest

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.records.reader import aligned_records, by_segment, hashed
from kafka_migration.compare.result import Equality
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.verdict import judge
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.job import run as at_level
from tests.compare.lab import LEADING, records, run_at_record_level
from tests.kafka_tools import delete_records, produce
from tests.waiting import wait_until

every_level = pytest.mark.parametrize("level", [Level.RECORD, Level.BATCH])
PASSWORD = "Tr0ub4dor-and-3"
PLUGINS = Path(__file__).resolve().parents[2] / "plugins"


def _verdicts(request, report, starts=None):
    return {one.tp: one.verdict for one in judge(request, report, starts or {})}


@every_level
def test_same_pins_give_the_same_digests_while_the_topic_grows(lab, spark, level):
    copy = lab.copy(partitions=2)
    request = dataclasses.replace(lab.request(copy), level=level)
    before = at_level(spark, request, lab.connections, lab.wires)
    for side in (SOURCE, TARGET):
        produce(lab.servers[side], copy.topic, records(7))
    after = at_level(spark, request, lab.connections, lab.wires)
    assert sorted(map(repr, after.segments)) == sorted(map(repr, before.segments))
    assert set(_verdicts(request, after).values()) == {Equality.EQUAL}


def test_many_tasks_a_partition_give_the_same_digests_as_one(lab, spark, monkeypatch):
    copy = lab.copy(count=90)
    request = lab.request(copy)
    one = run_at_record_level(spark, request, lab.connections)
    monkeypatch.setattr("kafka_migration.compare.records.reader._OFFSETS_PER_TASK", 8)
    many = run_at_record_level(spark, request, lab.connections)
    assert sorted(map(repr, many.segments)) == sorted(map(repr, one.segments))
    assert _verdicts(request, many) == {TopicPartition(copy.topic, 0): Equality.EQUAL}


@every_level
def test_partition_that_cannot_be_read_is_inconclusive_and_its_neighbours_are_judged(lab, spark, level):
    broken, whole, expired = lab.copy(partitions=2), lab.copy(), lab.copy()
    request = dataclasses.replace(lab.request(broken, whole, expired), level=level)
    bad, good = TopicPartition(broken.topic, 1), TopicPartition(broken.topic, 0)
    delete_records(lab.servers[TARGET], {bad: 12})
    gone = TopicPartition(expired.topic, 0)
    delete_records(lab.servers[SOURCE], {gone: LEADING + 12})
    report = at_level(spark, request, lab.connections, lab.wires)
    starts = {tp: ends.start for tp, ends in lab.ends(SOURCE, [bad, good, gone]).items()}
    found = _verdicts(request, report, starts)
    assert found == {
        good: Equality.EQUAL,
        bad: Equality.INCONCLUSIVE,
        TopicPartition(whole.topic, 0): Equality.EQUAL,
        gone: Equality.EXPIRED,
    }
    assert found[bad].exit_code == found[gone].exit_code == 3
    assert {(failure.topic, failure.partition) for failure in report.failures} == {bad, gone}
    assert all(failure.reason for failure in report.failures)


def test_cluster_that_does_not_answer_leaves_everything_inconclusive_after_one_try(lab, spark):
    request = lab.request(lab.copy(partitions=2))
    nowhere = {
        "bootstrap.servers": "127.0.0.1:9",
        "default.api.timeout.ms": "2000",
        "request.timeout.ms": "1000",
        "sasl.jaas.config": f'Module required password="{PASSWORD}";',
    }
    told: list[str] = []
    connections = {SOURCE: nowhere, TARGET: lab.connections[TARGET]}
    report = run_at_record_level(spark, request, connections, secrets={PASSWORD}, log=told.append)
    assert set(_verdicts(request, report).values()) == {Equality.INCONCLUSIVE}
    assert len(told) == 1
    assert PASSWORD not in str(told) + str(report)


def test_cluster_that_does_not_answer_leaves_everything_inconclusive_at_batch_level_too(lab, spark):
    request = dataclasses.replace(lab.request(lab.copy(partitions=2)), level=Level.BATCH)
    nowhere = {"bootstrap_servers": "127.0.0.1:9", "sasl_plain_password": PASSWORD}
    report = at_level(spark, request, lab.connections, {**lab.wires, SOURCE: nowhere}, secrets={PASSWORD})
    assert set(_verdicts(request, report).values()) == {Equality.INCONCLUSIVE}
    assert all("127.0.0.1:9" in failure.reason for failure in report.failures)
    assert PASSWORD not in str(report)


def test_secrets_are_in_no_plan_setting_or_event_log(lab, spark, event_log):
    copy = lab.copy()
    request = dataclasses.replace(lab.request(copy), level=Level.SAMPLED)
    secret = {"sasl.jaas.config": f'Module required username="u" password="{PASSWORD}";', "ssl.key.password": PASSWORD}
    connections = {side: {**properties, **secret} for side, properties in lab.connections.items()}
    wires = {side: {**config, "sasl_plain_password": PASSWORD} for side, config in lab.wires.items()}
    report = at_level(spark, request, connections, wires)
    assert set(_verdicts(request, report).values()) == {Equality.EQUAL}
    assert report.second, "both levels were read"

    shown = []
    for side in (SOURCE, TARGET):
        frame = aligned_records(spark, request, request.ranges, side, connections[side])
        assert frame is not None
        execution = frame.groupBy("topic").count()._jdf.queryExecution()
        shown += [
            execution.explainString(spark._jvm.org.apache.spark.sql.execution.ExplainMode.fromString(mode))
            for mode in ("simple", "extended", "codegen", "cost", "formatted")
        ]
        shown.append(execution.toString())
    assert any(copy.topic in text for text in shown), "these are the plans of what was read"
    shown += [f"{key}={value}" for key, value in spark.sparkContext.getConf().getAll()]
    logs = [path for path in event_log.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    shown += [path.read_text(encoding="utf-8", errors="replace") for path in logs]
    assert any("SparkListenerSQLExecutionStart" in text and copy.topic in text for text in shown)
    assert not [text[:200] for text in shown if PASSWORD in text]


def test_reason_names_the_root_and_hides_secrets():
    text = f"Job aborted\n\tat somewhere\nCaused by: java.lang.Boom: it\n\tat there\nCaused by: Root: {PASSWORD} spoils"
    assert reason_of(RuntimeError(text), {PASSWORD}) == "Root: <hidden> spoils"
    assert reason_of(ValueError("plain")) == "ValueError: plain"
    assert len(reason_of(ValueError("long " * 1000))) < 700


@pytest.mark.parametrize("forbidden", ["mirror", "wire", "state"])
def test_reader_shares_no_code_with_the_mirror(forbidden):
    """Not even by way of others: seen in a process that has loaded all that record level loads."""
    load = "import sys, kafka_migration.compare.records.job; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", load],
        env={"PYTHONPATH": str(PLUGINS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = done.stdout.split()
    assert "kafka_migration.compare.records.reader" in loaded
    assert not [name for name in loaded if name.startswith(f"kafka_migration.{forbidden}")]


def test_large_offsets_are_aligned_and_divided_exactly(lab, spark):
    """Beyond 2^53 a double cannot tell neighbours apart."""
    request = lab.request(lab.copy())
    (it,) = request.ranges
    shift = 2**60 + 3
    moved = Runs(dataclasses.replace(run, source=run.source + shift) for run in it.runs)
    far = dataclasses.replace(
        it, source_start=it.source_start + shift, source_end=it.source_end + shift, runs=Runs(moved)
    )
    frame = aligned_records(spark, request, [far], TARGET, lab.connections[TARGET])
    assert frame is not None
    offsets = sorted(row["source_offset"] for row in frame.select("source_offset").collect())
    assert offsets == [run.source + at for run in moved for at in range(run.length)]
    found = {row["segment"]: row["rows"] for row in by_segment(hashed(frame, TARGET, 7)).collect()}
    assert found == Counter(offset // 7 for offset in offsets)


def test_clients_are_closed_once_they_have_read(lab, spark):
    # Each holds megabytes of what it fetched, and nobody reads the same again.
    request = lab.request(lab.copy(partitions=8, count=3))
    assert set(_verdicts(request, run_at_record_level(spark, request, lab.connections)).values()) == {Equality.EQUAL}
    ports = {int(one.rpartition(":")[2]) for servers in lab.servers.values() for one in servers.split(",")}
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)
    wait_until(
        lambda: not any(one.raddr and one.raddr.port in ports for one in jvm.net_connections()),
        "its clients are closed",
    )
