"""The mirror as a Spark application, on a local master and on a standalone cluster."""

import ast
import base64
import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
import threading
import uuid
import venv
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JNetworkError

from kafka_migration.copy import spark
from kafka_migration.copy.orders import Limits
from kafka_migration.copy.package import package_zip
from kafka_migration.copy.session import close_session
from kafka_migration.copy.spark import SparkRunner, TaskJob, _preserve, _revive, receipts_of, slots_of
from kafka_migration.copy.task import task as copy_task
from kafka_migration.domain.errors import (
    AuthenticationFailed,
    BadInput,
    ClusterUnreachable,
    CouldNotFindOut,
    HaltedPartition,
    MigrationError,
    NotAuthorized,
)
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.link import LinkState
from tests.copy.bench import assert_same, bench
from tests.copy.plans import SmallPlan, small_plan
from tests.kafka_tools import ToSend, create_topics, produce, read_all
from tests.spark_standalone import spark_standalone
from tests.waiting import HANGS_SECONDS, wait_until

ROOT = Path(__file__).resolve().parents[2]


def _submit(
    plan: SmallPlan, job: Path, *options: str, cwd: Path, python: str = sys.executable, python_path: str = ""
) -> dict[str, object]:
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {**plan.environment, "PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PYSPARK_DRIVER_PYTHON"] = sys.executable
    environment["PYTHONPATH"] = python_path
    command = [str(submit), "--conf", "spark.ui.enabled=false", *options, str(job), str(plan.path), "--until-caught-up"]
    done = subprocess.run(
        command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=HANGS_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outcome: dict[str, object] = ast.literal_eval(done.stdout.strip().splitlines()[-1])
    return outcome


def _assert_equal(source: str, target: str, plan: SmallPlan, topics: dict[str, int]) -> None:
    link = LinkState.on_target(plan.name, {"bootstrap.servers": target})
    maps = link.offset_maps()
    link.close()
    there = read_all(target, topics)
    for tp, rows in read_all(source, topics).items():
        assert [r.without_offset() for r in there[tp]] == [r.without_offset() for r in rows]
        assert [maps[tp].to_target(r.offset) for r in rows] == [r.offset for r in there[tp]]


@pytest.mark.long
def test_standalone_cluster_copies_with_the_package_from_py_files_only(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"standalone-{uuid.uuid4().hex[:8]}": 4}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, b"k", n % 4) for n in range(60_000)), **{"compression.type": "zstd"})
    plan = small_plan(tmp_path, source, target, topics)
    # The job stands alone in a folder without plugins/ beside it: only the zip can bring the package.
    job = Path(shutil.copy(ROOT / "spark_jobs" / "mirror.py", tmp_path / "mirror.py"))
    with spark_standalone(tmp_path, workers=2) as master:
        outcome = _submit(plan, job, "--master", master, "--py-files", str(package_zip(tmp_path)), cwd=tmp_path)
    assert outcome["records"] == 60_000
    assert outcome["executors"] == ["0", "1"], "one task on each of the two workers' executors"
    _assert_equal(source, target, plan, topics)


@pytest.mark.long
def test_handler_that_only_the_driver_has_reaches_the_executors(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"handled-{uuid.uuid4().hex[:8]}": 2}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, b"k", n % 2) for n in range(1_000)), **{"compression.type": "lz4"})
    driver = tmp_path / "driver"
    driver.mkdir()
    module = driver / "evens_of_test.py"
    module.write_text("def evens(record):\n    return None if record.offset % 2 else record._replace(value=b'*')\n")
    function = {"function": "evens_of_test:evens", "sha256": hashlib.sha256(module.read_bytes()).hexdigest()}
    plan = small_plan(tmp_path, source, target, topics, handlers=[{"topics": [topic], **function}])
    job = Path(shutil.copy(ROOT / "spark_jobs" / "mirror.py", tmp_path / "mirror.py"))
    with spark_standalone(tmp_path, workers=1) as master:
        zipped = str(package_zip(tmp_path))
        outcome = _submit(plan, job, "--master", master, "--py-files", zipped, cwd=tmp_path, python_path=str(driver))
    assert (outcome["records"], outcome["halted"], outcome["executors"]) == (500, [], ["0"])
    assert {row.value for rows in read_all(target, topics).values() for row in rows} == {b"*"}


# In `make test`: executors of the same Python copy with what is shipped to them (above).
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_workers_with_nothing_but_python_copy_with_the_archive_of_one_command(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"bare-{uuid.uuid4().hex[:8]}": 4}
    (topic,) = topics
    create_topics(source, topics)
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce(source, topic, (ToSend(b"%d" % n, b"k", n % 4) for n in range(1_000)), **{"compression.type": codec})
    plan = small_plan(tmp_path, source, target, topics)
    job = Path(shutil.copy(ROOT / "spark_jobs" / "mirror.py", tmp_path / "mirror.py"))
    venv.create(tmp_path / "bare", with_pip=False)
    python = str(tmp_path / "bare" / "bin" / "python3")
    command = [sys.executable, "-m", "kafka_migration", "executors", "--output", "executors.tar.gz", "--json"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "plugins")}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    options = [
        part for name, value in json.loads(done.stdout)["spark"].items() for part in ("--conf", f"{name}={value}")
    ]
    with spark_standalone(tmp_path, workers=1, python=python) as master:
        zipped = str(package_zip(tmp_path))
        found = _submit(plan, job, "--master", master, "--py-files", zipped, *options, cwd=tmp_path, python=python)
    assert found["records"] == 4_000
    assert found["executors"] == ["0"]
    _assert_equal(source, target, plan, topics)


@pytest.mark.long
def test_local_master_copies_and_a_second_submission_finds_nothing_to_do(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"local-{uuid.uuid4().hex[:8]}": 2}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, None, n % 2) for n in range(5_000)), **{"compression.type": "gzip"})
    plan = small_plan(tmp_path, source, target, topics)
    job = ROOT / "spark_jobs" / "mirror.py"
    assert _submit(plan, job, "--master", "local[2]", cwd=tmp_path)["records"] == 5_000
    assert _submit(plan, job, "--master", "local[2]", cwd=tmp_path)["records"] == 0
    _assert_equal(source, target, plan, topics)
    assert TopicPartition(topic, 0) in read_all(target, topics)


@pytest.mark.parametrize(
    ("master", "cpus", "slots"),
    [("local", None, 1), ("local[3]", None, 3), ("local[4,2]", "2", 2), ("local[*]", None, 16), ("yarn", None, None)],
)
def test_slots_of_a_local_master_are_known_and_those_of_others_may_change(master, cpus, slots):
    context = MagicMock(master=master)
    context._jvm.java.lang.Runtime.getRuntime().availableProcessors.return_value = 16
    context.getConf().get.side_effect = lambda key, otherwise=None: cpus or otherwise
    assert slots_of(context) == slots


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({}, "spark.task.maxFailures=4, the mirror needs 1"),
        ({"spark.task.maxFailures": "1", "spark.speculation": "true"}, "spark.speculation=true"),
        ({"spark.task.maxFailures": "1"}, None),
    ],
)
def test_session_that_would_run_a_task_twice_is_refused_also_where_nothing_is_set(
    conf: dict[str, str], said: str | None
) -> None:
    session = MagicMock()
    session.sparkContext.getConf().get.side_effect = lambda key, otherwise=None: conf.get(key, otherwise)
    session.sparkContext.master = "yarn"
    if said is None:
        assert SparkRunner(session).slots is None
    else:
        with pytest.raises(MigrationError, match=said):
            SparkRunner(session)


ONE_TASK_ENDS = """
import os, sys
from dataclasses import replace
from pathlib import Path
from kafka_migration.copy.driver.mirror import Mirror, Settings
from kafka_migration.copy.driver import pace
from kafka_migration.copy.session import open_session
from kafka_migration.copy.spark import SparkRunner, _rows_of, again
from kafka_migration.state.link import LinkState

pace.SMALL_BACKLOG = -1
name, source, target, folder = sys.argv[1:]
link = LinkState.on_target(name, {"bootstrap.servers": target})
conf = {"spark.ui.enabled": "false", "spark.local.dir": folder}
session = open_session("one task ends", master="local[2]", conf=conf)
runner = SparkRunner(session)
began = []

class Careless:
    slots = runner.slots

    def start(self, orders):
        began.append(len(orders))
        if len(began) == 1:  # nothing is left for the second task, as if it had died
            orders = [orders[0], replace(orders[1], assignments=())]
        return runner.start(orders)

mirror = Mirror(
    link=link, source={"bootstrap_servers": source}, target={"bootstrap_servers": target}, runner=Careless(),
    settings=Settings(streams=2, epoch_seconds=300), log=lambda text: print(text, flush=True),
    interrupted=lambda: len(began) > 1 and sum(p.source for p in link.positions().values()) == 200,
)
print(mirror.run().as_dict())

def large(batches, orders=os.urandom(2 << 20)):
    for _ in batches:
        yield again(0)

_rows_of(session, large)
print("left", [each.name for each in Path(folder).rglob("*") if each.is_file() and each.stat().st_size > 1 << 20])
session.stop()
"""


def test_driver_sees_a_spark_task_that_ended_before_its_time_and_leaves_no_orders_on_disk(
    source_cluster, target_cluster, tmp_path
):
    name = f"ends-{uuid.uuid4().hex[:8]}"
    with bench(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers, {name: 2}) as it:
        produce(it.source, name, (ToSend(b"%d" % n, None, n % 2) for n in range(200)))
        done = subprocess.run(
            [sys.executable, "-c", ONE_TASK_ENDS, it.link.name, it.source, it.target, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=HANGS_SECONDS,
            env={name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_DIRS"},
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "a task ended before its time, with 1 partitions" in done.stdout
        # They hold credentials, and there is a round every few seconds, for days.
        assert "left []" in done.stdout
        assert assert_same(it) == 200


def test_task_of_a_virtual_machine_that_is_gone_is_unknown_until_its_job_tells_why() -> None:
    task = object.__new__(TaskJob)
    task._spark, task._group, task._thread, task._abandoned = MagicMock(), "group", MagicMock(), None
    task._spark.sparkContext.statusTracker.side_effect = Py4JNetworkError("gone")
    assert task.is_over() is None
    task._thread.is_alive.return_value = False
    assert task.is_over() is True


def test_task_that_is_abandoned_is_over_and_failed_whatever_it_does_later() -> None:
    task, spark = object.__new__(TaskJob), MagicMock()
    task._spark, task._group, task._thread, task._abandoned = spark, "group", MagicMock(), None
    task.abandon(CouldNotFindOut("it hangs"))
    wait_until(lambda: spark.sparkContext.cancelJobGroup.called, "its job is cancelled")
    assert (task.is_done(), task.is_over()) == (True, True)
    with pytest.raises(CouldNotFindOut, match="it hangs"):
        task.receipts()


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("gone")])
def test_session_whose_virtual_machine_is_gone_is_closed_without_an_error_that_hides_the_first(error):
    session = MagicMock()
    session.stop.side_effect = error
    close_session(session)
    assert session.stop.called
    session.stop.side_effect = ValueError("another")
    with pytest.raises(ValueError, match="another"):
        close_session(session)


class Planted:
    """What unpickles it runs a program of its choice."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self._file,)


def test_driver_runs_nothing_that_an_executor_sends_instead_of_an_error(tmp_path: Path) -> None:
    file = tmp_path / "planted"
    found = _revive(base64.b64encode(pickle.dumps(Planted(file))).decode())
    assert not file.exists()
    assert type(found) is MigrationError
    assert "an error that this version does not know" in found.message


@pytest.mark.parametrize(
    "error",
    [
        CouldNotFindOut("nobody answers", remedy="wait"),
        ClusterUnreachable("target", "one:9092", "timed out"),
        AuthenticationFailed("source", "one:9092", "wrong password"),
        NotAuthorized("target", "Write", "topic t"),
        BadInput("no", field="a.b", value="c", file="f", remedy="r"),
        HaltedPartition(topic="t", partition=1, reason="CORRUPT", detail="d", source_offset=3, remedy="look"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_of_a_task_reaches_the_driver_as_it_was(error: MigrationError) -> None:
    found = _revive(_preserve(error))
    assert (type(found), str(found), found.__dict__) == (type(error), str(error), error.__dict__)
    assert found.exit_code == error.exit_code


def test_task_gives_way_as_its_limits_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def run_task(_orders: object) -> list[object]:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return []

    monkeypatch.setattr(copy_task, "run_task", run_task)
    # It has this process's collector look away for good.
    monkeypatch.setattr(spark, "keep_imports", lambda: None)
    own = os.getpriority(os.PRIO_PROCESS, 0)
    for niceness in (0, own + 5):
        receipts_of(MagicMock(limits=Limits(niceness=niceness)))
    assert seen == [own, own + 5]


def test_error_of_a_kind_that_only_the_task_knows_arrives_as_its_nearest_kind() -> None:
    class Odd(CouldNotFindOut):
        """Known to nobody else."""

    found = _revive(_preserve(Odd("odd", remedy="even")))
    assert (type(found), found.message, found.remedy) == (CouldNotFindOut, "odd", "even")


@pytest.mark.parametrize(
    "text", ["", "null", "[]", '{"kind": "SystemExit", "text": "x", "evidence": {}}', '{"kind": "Fatal"}']
)
def test_whatever_else_arrives_is_an_error_too(text: str) -> None:
    assert type(_revive(text)) is MigrationError
