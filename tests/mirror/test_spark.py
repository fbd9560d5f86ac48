"""The mirror as a Spark application, on a local master and on a standalone cluster."""

import ast
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

from kafka_migration.domain.types import TopicPartition
from kafka_migration.mirror.package import package_zip
from kafka_migration.state.link import LinkState
from tests.kafka_tools import ToSend, create_topics, produce, read_all
from tests.mirror.plans import SmallPlan, small_plan
from tests.spark_standalone import spark_standalone

ROOT = Path(__file__).resolve().parents[2]


def _submit(plan: SmallPlan, job: Path, *options: str, cwd: Path) -> dict[str, object]:
    submit = Path(sys.executable).with_name("spark-submit")
    environment = {**plan.environment, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment.pop("PYTHONPATH", None)
    command = [str(submit), "--conf", "spark.ui.enabled=false", *options, str(job), str(plan.path), "--until-caught-up"]
    done = subprocess.run(command, env=environment, cwd=cwd, capture_output=True, text=True, timeout=200, check=False)
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


def test_standalone_cluster_copies_with_the_package_from_py_files_only(source_cluster, target_cluster, tmp_path):
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"standalone-{uuid.uuid4().hex[:8]}": 4}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, b"k", n % 4) for n in range(20_000)), **{"compression.type": "zstd"})
    plan = small_plan(tmp_path, source, target, topics)
    # The job stands alone in a folder without plugins/ beside it: only the zip can bring the package.
    job = Path(shutil.copy(ROOT / "spark_jobs" / "mirror.py", tmp_path / "mirror.py"))
    with spark_standalone(tmp_path, workers=2) as master:
        outcome = _submit(plan, job, "--master", master, "--py-files", str(package_zip(tmp_path)), cwd=tmp_path)
    assert outcome["records"] == 20_000
    assert outcome["executors"] == ["0", "1"], "one task on each of the two workers' executors"
    _assert_equal(source, target, plan, topics)


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
