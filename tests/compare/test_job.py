"""The Spark job on real brokers: pins hold, what cannot be read is reported by partition, and no secret is shown."""

import dataclasses
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from unittest.mock import Mock

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.future import Future
from pyspark.sql import functions as f

from kafka_migration.compare import task
from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.faults import reason_of
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.placing import TargetSums
from kafka_migration.compare.records import spark_source
from kafka_migration.compare.result import Equality
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import tiles
from kafka_migration.compare.task import Connections, clients, obey, side_of
from kafka_migration.compare.verdict import judge
from kafka_migration.domain.errors import ClusterUnreachable
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.job import run as at_level
from tests.compare.lab import LEADING, records, run_at_record_level
from tests.kafka_tools import delete_records, produce

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
    assert sorted(map(repr, after.outcomes)) == sorted(map(repr, before.outcomes))
    assert set(_verdicts(request, after).values()) == {Equality.EQUAL}


def test_many_tasks_a_partition_give_the_same_digests_as_one(lab, spark, monkeypatch):
    copy = lab.copy(count=90)
    request = lab.request(copy)
    one = run_at_record_level(spark, request, lab)
    monkeypatch.setattr("kafka_migration.compare.job._LEAST_BYTES", 2_000)
    many = run_at_record_level(spark, request, lab)
    assert sorted(map(repr, many.outcomes)) == sorted(map(repr, one.outcomes))
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
    assert {one.tp for one in report.outcomes if one.failure} == {bad, gone}


@every_level
def test_cluster_that_does_not_answer_leaves_everything_inconclusive(lab, spark, level):
    request = dataclasses.replace(lab.request(lab.copy(partitions=2)), level=level)
    nowhere = {"bootstrap_servers": "127.0.0.1:9", "sasl_plain_password": PASSWORD}
    report = at_level(spark, request, lab.connections, {**lab.wires, SOURCE: nowhere}, secrets={PASSWORD})
    assert set(_verdicts(request, report).values()) == {Equality.INCONCLUSIVE}
    assert all("127.0.0.1:9" in one.failure for one in report.outcomes)
    assert PASSWORD not in str(report)


@pytest.mark.parametrize("trouble", ["gone", "different"])
def test_readers_that_disagree_make_nothing_equal(lab, spark, monkeypatch, trouble):
    """Spark's own source reads some of it again: without it, or against it, no segment of those is equal."""
    copy = lab.copy(partitions=2)
    request = dataclasses.replace(lab.request(copy), level=Level.RECORD)
    lines: list[str] = []
    report = at_level(spark, request, lab.connections, lab.wires, log=lines.append)
    assert set(_verdicts(request, report).values()) == {Equality.EQUAL}
    assert any("were read again by Spark's Kafka source: it agrees" in line for line in lines)
    connections = lab.connections
    if trouble == "gone":
        timeouts = {"default.api.timeout.ms": "2000", "request.timeout.ms": "1000"}
        jaas = {"sasl.jaas.config": f'Module required password="{PASSWORD}";'}
        connections = {**connections, SOURCE: {"bootstrap.servers": "127.0.0.1:9", **timeouts, **jaas}}
    else:
        real = spark_source._read

        def otherwise(*args):
            frame = real(*args)
            assert frame is not None
            return frame.withColumn("value", f.lit(b"as if it decoded something else"))

        monkeypatch.setattr(spark_source, "_read", otherwise)
    differs: list[str] = []
    report = at_level(
        spark,
        request,
        connections,
        lab.wires,
        secrets={PASSWORD},
        log=lines.append,
        on_read=lambda found: differs.extend(one.failure for one in found if one.failure),
    )
    assert Equality.INCONCLUSIVE in _verdicts(request, report).values()
    reasons = [one.failure for one in report.outcomes if one.failure]
    assert 0 < len(reasons) < 6, "one segment of each kind of batch"
    wanted = "not read by Spark's Kafka source" if trouble == "gone" else "of the source we read 10 records ("
    # Where they disagree, nothing of this reading is kept as equal.
    assert len(differs) == (8 if trouble == "different" else len(reasons))
    assert set(reasons) <= set(differs)
    assert wanted in reasons[0]
    assert PASSWORD not in str(report) + str(lines)


def test_secrets_are_in_no_plan_setting_or_event_log(lab, spark, event_log):
    copy = lab.copy()
    request = dataclasses.replace(lab.request(copy), level=Level.RECORD)
    secret = {"sasl.jaas.config": f'Module required username="u" password="{PASSWORD}";', "ssl.key.password": PASSWORD}
    connections = {side: {**properties, **secret} for side, properties in lab.connections.items()}
    wires = {side: {**config, "sasl_plain_password": PASSWORD} for side, config in lab.wires.items()}
    lines: list[str] = []
    report = at_level(spark, request, connections, wires, log=lines.append)
    assert set(_verdicts(request, report).values()) == {Equality.EQUAL}
    assert any("it agrees" in line for line in lines), "all readers have read"

    shown = []
    for side in (SOURCE, TARGET):
        spans = spark_source.spans(request.ranges, side)
        frame = spark_source._read(spark, request, spans, side, connections[side])
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


@pytest.mark.parametrize("forbidden", ["mirror", "wire", "state", "copy"])
def test_reader_shares_no_code_with_the_mirror(forbidden):
    """Not even by way of others: seen in a process that has loaded all that a validation loads."""
    load = (
        "import sys; from kafka_migration.compare import task; from kafka_migration.compare.records import compacted,"
        " confirm; from kafka_migration.compare.decode import compiled, plain; from kafka_migration.compare.explain"
        " import drill, matching; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", load],
        env={"PYTHONPATH": str(PLUGINS)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    loaded = done.stdout.split()
    assert "kafka_migration.compare.records.spark_source" in loaded
    assert not [name for name in loaded if name.startswith(f"kafka_migration.{forbidden}")]


def test_tasks_of_a_process_go_on_with_the_connections_of_the_one_before(lab, monkeypatch):
    wires, connections = lab.wires, Connections()
    orders = Orders(level=Level.BATCH, committed=True, seconds=30.0, wires=wires)
    (range_,) = lab.request(lab.copy(count=50)).ranges
    found = [obey(orders, list(tiles(range_, 1_000)), connections.reach).outcomes for _ in range(2)]
    assert found[0] == found[1]
    assert not found[0][0].failure
    with connections.reach(deepcopy(wires)) as first, connections.reach(wires) as same:
        assert same is first
    with suppress(KafkaTimeoutError):
        first[TARGET].wait(Future(), 0.01)
    with connections.reach(wires) as again:
        assert again is not first, "one gave no answer: whether its cluster is there is asked again"
    assert first[SOURCE]._manager.closed
    renamed = {**wires, TARGET: {**wires[TARGET], "client_id": "another"}}
    with connections.reach(renamed) as other:
        assert other is not again
    with monkeypatch.context() as patched:
        patched.setattr(task, "clients", Mock(side_effect=ClusterUnreachable(SOURCE, "a", "no answer")))
        assert obey(dataclasses.replace(orders, wires={}), [(0, range_)], connections.reach).unreachable
    with connections.reach(renamed) as back:
        assert back is not other, "those were closed for the cluster that was not reached"
        assert set(back) == {SOURCE, TARGET}


def test_large_offsets_are_placed_and_divided_exactly(lab):
    """Beyond 2^53 a double cannot tell neighbours apart."""
    (it,) = lab.request(lab.copy()).ranges
    shift = 2**60 + 3
    moved = Runs(dataclasses.replace(run, source=run.source + shift) for run in it.runs)
    ends = {"source_start": it.source_start + shift, "source_end": it.source_end + shift}
    far = dataclasses.replace(it, **ends, runs=Runs(moved))
    found = Counter[int]()
    # The source has nothing at such offsets: what counts is where the target's records are put.
    orders = Orders(level=Level.RECORD, committed=True, seconds=30.0, wires={TARGET: lab.wires[TARGET]})
    with clients(orders.wires) as both:
        for number, tile in tiles(far, 7):
            sums, side = TargetSums(tile), side_of(TARGET, tile, both[TARGET], orders)
            while (rows := side.next()) is not None:
                sums.add(rows)
            digest = sums.digest()
            assert digest.misplaced == 0
            found[number] += digest.rows
    offsets = [run.source + at for run in moved for at in range(run.length)]
    assert found == Counter(offset // 7 for offset in offsets)
