"""The mirror's submission: secrets through the environment alone, and no start that nobody wants."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.sdk import BaseHook
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException

from kafka_migration.airflow import mirror as spark_mirror
from kafka_migration.airflow import spark_connection
from kafka_migration.airflow.mirror import SparkMirrorOperator, job_environment
from kafka_migration.airflow.spark_connection import spark_master
from kafka_migration.domain.errors import BadInput, Refused
from kafka_migration.domain.types import Desired, TopicPartition
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.plans.load import load_plan
from kafka_migration.steps import mirror as phase
from tests.airflow.conftest import PASSWORD, connection
from tests.waiting import wait_until


class Link:
    """As much of the link's state as the task looks at."""

    name = "played"

    def __init__(
        self,
        desired=Desired.RUN,
        state="running",
        halts=(),
        at="2100-01-01T00:00:00+00:00",
        attempts=(),
        reason="stopped",
        seal=None,
    ):
        self._seal = seal
        self._desired = desired
        self._run = {"state": state, "reason": reason, "at": at}
        self._looks = [{}, dict(attempts)]
        self._halts = {TopicPartition("t", n): SimpleNamespace(reason=reason) for n, reason in enumerate(halts)}

    def seal(self):
        return self._seal

    def topics(self):
        return {"t": None}

    def attempts(self):
        return self._looks.pop(0) if self._looks else {}

    def wished(self):
        return SimpleNamespace(desired=self._desired)

    def run(self):
        return self._run

    def halts(self):
        return self._halts


@pytest.fixture
def spark(monkeypatch):
    """Spark connections of the test's choice, and the submissions that were made; each ends with ``code``."""
    found = SimpleNamespace(
        connections={"spark_default": Connection(conn_id="spark_default", conn_type="spark", host="local[2]")}
    )
    found.submissions, found.code = [], 0

    def get_connection(conn_id):
        if conn_id not in found.connections:
            raise AirflowNotFoundException(conn_id)
        return found.connections[conn_id]

    def popen(command, **options):
        file = Path(command[-1])
        shut = stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        found.submissions.append(SimpleNamespace(command=command, plan=load_plan(file), is_private=shut, **options))
        return SimpleNamespace(stdout=["said\n"], wait=lambda: found.code, returncode=found.code, pid=0, poll=lambda: 0)

    monkeypatch.setattr(phase, "check", lambda ctx: ["t"])
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get_connection))
    played = SimpleNamespace(Popen=popen, PIPE=subprocess.PIPE, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(spark_submit, "subprocess", played)
    for conn_id in ("k_source", "k_target"):
        variable = json.dumps({"conn_type": "kafka", "extra": dict(connection(conn_id).properties)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", variable)
    return found


def mirror(plan_file, conn_id="spark_default"):
    return SparkMirrorOperator(task_id="mirror", plan_file=plan_file, conn_id=conn_id)


def test_connections_travel_in_the_environment_of_the_submission_alone(
    plan_file, opened, spark, task_context, make_plan
):
    opened.link = Link()
    mirror(plan_file).execute(task_context)
    (submission,) = spark.submissions
    assert PASSWORD not in " ".join(submission.command)
    assert not any("AIRFLOW_CONN" in part for part in submission.command)
    assert submission.plan == opened.plan, "in a file that the driver reads"
    assert not os.path.exists(submission.command[-1]), "and which is gone with the try"
    assert submission.is_private
    plan = make_plan()
    for conn_id in (plan.source, plan.target):
        assert find_connection(conn_id, submission.env).properties["sasl.password"] == PASSWORD
    assert submission.env["PYSPARK_PYTHON"] == sys.executable
    assert submission.start_new_session


def test_nothing_of_a_connection_and_no_plan_is_a_rendered_field(plan_file):
    shown = {name: getattr(mirror(plan_file), name) for name in mirror(plan_file).template_fields}
    assert shown == {}


def test_environment_of_the_job_keeps_the_workers_own_interpreter_for_executors(spark, make_plan):
    found = job_environment(make_plan(), {**os.environ, "PYSPARK_PYTHON": "/opt/workers/python"})
    assert found["PYSPARK_PYTHON"] == "/opt/workers/python"
    assert found["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_unknown_spark_connection_is_refused_instead_of_meaning_yarn(plan_file, opened, spark, task_context):
    opened.link = Link()
    with pytest.raises(AirflowFailException, match=r"no connection has the id 'nowhere'[\s\S]*remedy"):
        mirror(plan_file, "nowhere").execute(task_context)
    assert not spark.submissions


@pytest.mark.parametrize("master", ["yarn", "spark://h", "k8s://https://h"])
def test_cluster_mode_is_refused_because_secrets_would_become_configuration(
    plan_file, opened, spark, task_context, master
):
    opened.link = Link()
    extra = json.dumps({"deploy-mode": "cluster"})
    spark.connections["spark_default"] = Connection(
        conn_id="spark_default", conn_type="spark", host=master, port=7077, extra=extra
    )
    with pytest.raises(AirflowFailException, match="deploy-mode is cluster"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_kubernetes_without_its_client_is_refused_with_what_to_install(
    plan_file, opened, spark, task_context, monkeypatch
):
    opened.link = Link()
    spark.connections["spark_default"] = Connection(conn_id="spark_default", conn_type="spark", host="k8s://https://h")
    monkeypatch.setattr(spark_connection, "find_spec", lambda _name: None)
    with pytest.raises(AirflowFailException, match="cncf-kubernetes"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_retry_after_the_stop_gate_has_drained_the_mirror_starts_nothing(plan_file, opened, spark, task_context):
    opened.link = Link(Desired.DRAIN, "ended", reason="drained")
    task_context["ti"].try_number = 2
    mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_retry_of_a_drain_that_ended_short_goes_on(plan_file, opened, spark, task_context):
    opened.link = Link(Desired.DRAIN, "ended", reason="stopped")
    task_context["ti"].try_number = 2
    mirror(plan_file).execute(task_context)
    assert len(spark.submissions) == 1


def test_new_run_after_a_drain_starts_the_mirror_again(plan_file, opened, spark, task_context):
    opened.link = Link(Desired.DRAIN, "ended", reason="drained")
    mirror(plan_file).execute(task_context)
    assert len(spark.submissions) == 1


def test_new_run_after_the_seal_ends_with_success_as_nothing_is_left_to_copy(snapshot, opened, spark, task_context):
    opened.link = Link(Desired.DRAIN, "ended", reason="drained", seal=SimpleNamespace(at="2030-01-01"))
    mirror(snapshot).execute(task_context)
    assert not spark.submissions
    # A topic of the plan that was never mirrored must not pass for copied.
    opened.link.topics = dict
    opened.journal.record("topic", "t", {})
    with pytest.raises(AirflowFailException, match="was sealed at 2030-01-01"):
        mirror(snapshot).execute(task_context)


def test_mirror_that_was_taken_over_names_the_plan_that_the_other_goes_by(
    snapshot, opened, spark, task_context, make_plan
):
    opened.link, spark.code = Link(attempts={"theirs": True, "ours": False}), 3
    other = {"digest": "sha256:other", "at": "2030-01-01T00:00:00", "topics": {}}
    opened.journal.record("plan", "mirror", {"plans": [other]})
    with pytest.raises(AirflowFailException, match="copies now, by plan sha256:other, since 2030-01-01"):
        mirror(snapshot).execute(task_context)


@pytest.mark.parametrize(
    ("code", "link", "final"),
    [
        (1, Link(), False),
        (3, Link(), False),
        (137, Link(), False),
        # Of two attempts that began since, one is another process's; while it runs, this task leaves it alone.
        (3, Link(attempts={"ours": True}), False),
        (3, Link(attempts={"theirs": True, "ours": False}), True),
        (3, Link(attempts={"theirs": False, "ours": False}), False),
        (2, Link(), True),
        (1, Link(Desired.STOP, "ended", halts=["FOREIGN_WRITER"]), True),
        (1, Link(Desired.RUN, "ended", halts=["FOREIGN_WRITER"]), True),
        # It crashed, and others than the halted partition are left.
        (1, Link(halts=["FOREIGN_WRITER"]), False),
        (137, Link(Desired.RUN, "ended", halts=["FOREIGN_WRITER"]), False),
        # An earlier run ended; this submission died before it said a word, or without a halt.
        (1, Link(Desired.RUN, "ended", halts=["FOREIGN_WRITER"], at="2020-01-01T00:00:00+00:00"), False),
        (1, Link(Desired.RUN, "ended"), False),
        # It ended of something else than the halts.
        (1, Link(Desired.RUN, "ended", reason="failed", halts=["FOREIGN_WRITER"]), False),
    ],
)
def test_mirror_that_died_is_started_again_but_not_one_that_ended_by_itself(
    plan_file, opened, spark, task_context, code, link, final
):
    opened.link, spark.code = link, code
    with pytest.raises(AirflowException) as raised:
        mirror(plan_file).execute(task_context)
    assert isinstance(raised.value, AirflowFailException) is final
    assert opened.journal.all("phase")["mirror"]["outcome"] == "failed"


def test_mirror_that_would_be_refused_is_not_submitted_and_not_tried_again(
    plan_file, opened, spark, task_context, monkeypatch
):
    def refused(ctx):
        raise Refused("migration played has no target topics yet", remedy="run `create` first")

    opened.link = Link()
    monkeypatch.setattr(phase, "check", refused)
    with pytest.raises(AirflowFailException, match=r"no target topics yet[\s\S]*run `create` first"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_mirror_that_never_began_is_given_up_after_five_tries_with_where_to_look(
    plan_file, opened, spark, task_context
):
    opened.link, spark.code = Link(), 1
    opened.link._run = None
    final = []
    for tries in (1, 2, 3, 4, 5):
        task_context["ti"].try_number = tries
        with pytest.raises(AirflowException) as raised:
            mirror(plan_file).execute(task_context)
        final.append(isinstance(raised.value, AirflowFailException))
    assert final == [False] * 4 + [True]
    assert "before the mirror began, 5 times in a row" in str(raised.value)
    assert "wrong jar" in str(raised.value)


def test_mirror_that_began_once_and_then_cannot_start_is_tried_again_and_says_that_nothing_is_copied(
    plan_file, opened, spark, task_context
):
    opened.link, spark.code = Link(Desired.RUN, "running", at="2020-01-01T00:00:00+00:00"), 1
    task_context["ti"].try_number = 7
    with pytest.raises(AirflowException) as raised:
        mirror(plan_file).execute(task_context)
    assert not isinstance(raised.value, AirflowFailException)
    assert str(raised.value).startswith("the Spark application ended with code 1 before the mirror began (try 7)\n")
    assert "nothing is copied until a try succeeds" in str(raised.value)


@pytest.mark.parametrize(
    ("takes_long", "ends"), [(False, "asked to end"), (True, "")], ids=["clean_end", "clean_end_that_takes_too_long"]
)
def test_kill_of_the_task_asks_the_driver_to_end_and_then_ends_the_whole_group(
    plan_file, monkeypatch, tmp_path, takes_long, ends
):
    """As spark-submit: a process that starts the driver and ends with it, and a worker that is nobody's to end."""
    ended = tmp_path / "ended"
    job = tmp_path / "mirror.py"
    end = "pass" if takes_long else f"open({str(ended)!r}, 'w').write('asked to end'); sys.exit(0)"
    job.write_text(
        "import signal, sys, time\n"
        f"def end(*_): {end}\n"
        "signal.signal(signal.SIGTERM, end)\n"
        "print('ready', flush=True)\n"
        "while True: time.sleep(0.05)\n"
    )
    script = (
        "import subprocess, sys, signal\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit('Spark was ended under the mirror'))\n"
        "worker = subprocess.Popen(['sleep', '600'])\n"
        f"subprocess.run([sys.executable, {str(job)!r}])\n"
        "worker.kill()\n"
    )
    monkeypatch.setattr(spark_mirror, "MIRROR_JOB", job)
    monkeypatch.setattr(spark_mirror, "_CLEAN_END_SECONDS", 0.5 if takes_long else 60.0)
    submission = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    with submission:
        assert submission.stdout is not None
        assert submission.stdout.readline() == b"ready\n"
        started = psutil.Process(submission.pid).children()
        operator = mirror(plan_file)
        operator._hook = SimpleNamespace(_submit_sp=submission)
        operator.on_kill()
        assert submission.wait(60) == (-signal.SIGKILL if takes_long else 0)
        for it in started:
            wait_until(lambda it=it: not it.is_running() or it.status() == psutil.STATUS_ZOMBIE, "it has ended")
    assert (ended.read_text() if ended.exists() else "") == ends


@pytest.mark.parametrize(
    "values",
    [
        {"conn_type": "spark", "host": "local[2]"},
        {"conn_type": "spark", "host": "yarn"},
        {"conn_type": "spark", "host": "spark://h", "port": 7077},
        {"conn_type": "spark", "host": "h", "port": 7077},
    ],
)
def test_master_of_a_connection_is_what_the_provider_makes_of_it(spark, values):
    spark.connections["c"] = Connection(conn_id="c", **values)
    assert spark_master("c", field="f") == spark_submit.SparkSubmitHook(conn_id="c")._connection["master"]


def test_unknown_connection_of_a_validation_names_the_plans_field(spark):
    with pytest.raises(BadInput, match=r"validation\.spark_connection"):
        spark_master("nowhere", field="validation.spark_connection")
