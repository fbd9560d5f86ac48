"""The mirror's task: it submits, and holds no slot; who submits hands secrets on through the environment alone."""

import asyncio
import json
import logging
import os
import signal
import stat
import subprocess
import sys
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import structlog
from airflow.providers.apache.spark.hooks import spark_submit
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import BaseHook
from airflow.sdk import log as airflow_log
from airflow.sdk.definitions.connection import Connection
from airflow.sdk.exceptions import AirflowException, AirflowFailException, AirflowNotFoundException, TaskDeferred
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance
from airflow.sdk.serde import deserialize, serialize

from kafka_migration.airflow import submit
from kafka_migration.airflow.alerts import TaskAlert
from kafka_migration.airflow.mirror import MirrorTrigger, SparkMirrorOperator
from kafka_migration.airflow.opening import opened_context
from kafka_migration.airflow.submit import job_environment, spark_master
from kafka_migration.domain.errors import BadInput, ClusterUnreachable, Refused
from kafka_migration.domain.seal import Seal
from kafka_migration.domain.types import Desired
from kafka_migration.kafka import lookup
from kafka_migration.kafka.lookup import find_connection
from kafka_migration.link.heartbeat import PHASE
from kafka_migration.migration import context as migration_context
from kafka_migration.migration.joined import begun_mirror, mirror_began
from kafka_migration.migration.signing import FILE_VARIABLE
from kafka_migration.overview import board
from kafka_migration.overview.notices import Notice
from kafka_migration.plans.load import load_plan
from kafka_migration.plans.snapshot import Snapshot
from kafka_migration.state.link import LinkState, Wish
from kafka_migration.state.store import MemoryStore
from kafka_migration.steps import mirror as phase
from kafka_migration.steps import mirror_watch
from tests.airflow.conftest import PASSWORD, connection
from tests.steps.worlds import FakeClock
from tests.waiting import wait_until

DIED = {"exit_code": 3, "message": "the Spark application ended", "facts": {"died": True}}
SMTP = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
PAUSED = {"exit_code": 3, "message": "the mirror is started again", "facts": {}}


@pytest.fixture
def spark(monkeypatch, opened, tmp_path):
    """Spark connections of the test's choice, and the processes that were started."""
    opened.link = LinkState("played", MemoryStore(), None, None)
    found = SimpleNamespace(
        connections={"spark_default": Connection(conn_id="spark_default", conn_type="spark", host="local[2]")}
    )
    found.submissions = []

    def get_connection(conn_id):
        if conn_id not in found.connections:
            raise AirflowNotFoundException(conn_id)
        return found.connections[conn_id]

    def popen(command, **options):
        found.submissions.append(SimpleNamespace(command=command, **options))
        return SimpleNamespace(pid=4711)

    found.folder = tmp_path / "submissions"
    monkeypatch.setattr("kafka_migration.airflow.mirror.OUTPUT_FOLDER", found.folder)
    monkeypatch.setattr(phase, "check", lambda ctx: ["t"])
    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(get_connection))
    monkeypatch.setattr(lookup, "time", FakeClock())
    played = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL, STDOUT=subprocess.STDOUT)
    monkeypatch.setattr(submit, "subprocess", played)
    for conn_id in ("k_source", "k_target"):
        variable = json.dumps({"conn_type": "kafka", "extra": dict(connection(conn_id).properties)})
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", variable)
    return found


def mirror(plan_file, conn_id="spark_default", **options):
    return SparkMirrorOperator(task_id="mirror", plan_file=plan_file, conn_id=conn_id, **options)


def trigger(opened, plan_file, gives_up_at=None, times="2020-01-01T00:00:00+00:00"):
    snapshot = Snapshot.take(opened.plan)
    return MirrorTrigger(
        packed=snapshot.pack(),
        digest=snapshot.digest,
        run_of_plan="d/r",
        plan_file=plan_file,
        since=times,
        asked_since=times,
        gives_up_at=gives_up_at,
    )


def deferred(work, *arguments) -> Any:
    """How ``work`` defers."""
    with pytest.raises(TaskDeferred) as raised:
        work(*arguments)
    return raised.value


def resumed(operator, task_context, before: Any, event) -> Any:
    """How the task defers again after ``event``, with what Airflow kept of the deferral ``before``."""
    kwargs: Any = deserialize(json.loads(json.dumps(serialize(before.kwargs))))
    return deferred(operator.ended, task_context, event, kwargs["watched"])


def begin(opened, submission=""):
    """A mirror of the plan begins."""
    at = datetime.now(UTC).isoformat()
    mirror_began(noting(opened, at), submission)
    opened.link.record_run({"state": "running", "at": at})


def noting(opened, at="2030-01-01T00:00:00+00:00") -> Any:
    """A context as far as notes of submissions need one."""
    return SimpleNamespace(journal=opened.journal, plan=opened.plan, stamp=lambda: at, own=lambda name: name)


def submission_of(opened) -> Any:
    """The newest submission."""
    return mirror_watch.submission(noting(opened))


def end(opened, desired, reason):
    """The last mirror ended, long ago."""
    opened.link.wish(Wish(desired=desired, at="2020-01-01T00:00:00+00:00"))
    opened.link.record_run({"state": "ended", "reason": reason, "at": "2020-01-01T00:00:00+00:00"})


def test_task_submits_and_waits_in_a_trigger_and_names_the_log(plan_file, opened, spark, task_context, capsys):
    waiting = deferred(mirror(plan_file).execute, task_context)
    (submission,) = spark.submissions
    assert isinstance(waiting.trigger, MirrorTrigger)
    assert waiting.method_name == "ended"
    assert waiting.timeout is None
    assert submission.start_new_session
    assert submission.stdin == subprocess.DEVNULL
    assert submission.stderr == subprocess.STDOUT
    (file,) = (spark.folder / "played").rglob("output.log")
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(file.parent.stat().st_mode)) == (0o600, 0o700)
    assert load_plan(submission.command[4]) == opened.plan
    assert Path(submission.command[4]).parent == file.parent, "a folder that is no other submission's"
    assert f"its output goes to {file} there" in capsys.readouterr().out


def test_folders_of_the_newest_submissions_are_kept(plan_file, opened, spark, task_context):
    earlier = [spark.folder / "played" / f"20200101T0000{n:02}.000000Z" for n in range(25)]
    for folder in earlier:
        folder.mkdir(parents=True)
    deferred(mirror(plan_file).execute, task_context)
    assert [folder.exists() for folder in earlier] == [False] * 6 + [True] * 19


def test_connections_travel_in_the_environment_of_the_process_alone(
    plan_file, spark, task_context, make_plan, monkeypatch
):
    # A shell would drop a variable of such a name.
    spark.connections["my-spark"] = Connection(
        conn_id="my-spark",
        conn_type="spark",
        host="spark://h",
        port=7077,
        password="also-secret",
        extra='{"queue": "q"}',
    )
    monkeypatch.setenv(FILE_VARIABLE, "/run/keys")
    waiting = deferred(mirror(plan_file, "my-spark").execute, task_context)
    (submission,) = spark.submissions
    shown = json.dumps([submission.command, waiting.trigger.serialize(), waiting.kwargs])
    assert PASSWORD not in shown
    assert "also-secret" not in shown
    assert submission.command[:3] == [sys.executable, "-m", "kafka_migration.airflow.submit"]
    plan = make_plan()
    for conn_id in (plan.source, plan.target):
        assert find_connection(conn_id, submission.env).properties["sasl.password"] == PASSWORD
    assert json.loads(submission.env["AIRFLOW_CONN_MY-SPARK"]) == {
        "conn_type": "spark",
        "host": "spark://h",
        "port": 7077,
        "password": "also-secret",
        "extra": {"queue": "q"},
    }
    assert submission.env["PYSPARK_PYTHON"] == sys.executable
    assert FILE_VARIABLE not in submission.env


def test_nothing_of_a_connection_and_no_plan_is_a_rendered_field(plan_file):
    shown = {name: getattr(mirror(plan_file), name) for name in mirror(plan_file).template_fields}
    assert shown == {}


def test_environment_of_the_job_keeps_the_workers_own_interpreter_for_executors(spark, make_plan):
    environ = {**os.environ, "PYSPARK_PYTHON": "/opt/workers/python"}
    found = job_environment(make_plan(), environ, spark=spark.connections["spark_default"])
    assert found["PYSPARK_PYTHON"] == "/opt/workers/python"
    assert found["PYSPARK_DRIVER_PYTHON"] == sys.executable


def test_environment_of_the_job_has_the_connections_to_schema_registries(spark, make_plan, monkeypatch):
    registry = {"conn_type": "http", "host": "https://registry.example", "password": "secret"}
    monkeypatch.setenv("AIRFLOW_CONN_OLD_REGISTRY", json.dumps(registry))
    plan = make_plan(schemas={"source": "old_registry", "target": "nowhere"})
    found = job_environment(plan, {}, spark=spark.connections["spark_default"])
    assert json.loads(found["AIRFLOW_CONN_OLD_REGISTRY"]) == registry
    assert "AIRFLOW_CONN_NOWHERE" not in found


def test_secrets_of_schema_registries_are_masked_and_a_missing_connection_hinders_nothing(make_plan, monkeypatch):
    registry = {"conn_type": "http", "host": "https://registry.example", "login": "app", "password": "secret"}
    monkeypatch.setenv("AIRFLOW_CONN_OLD_REGISTRY", json.dumps(registry))
    masked: list[str] = []
    cluster = SimpleNamespace(connection=SimpleNamespace(secrets=frozenset))
    ctx = SimpleNamespace(source=cluster, target=cluster)
    monkeypatch.setattr(migration_context, "open_context", lambda *_, **__: nullcontext(ctx))
    monkeypatch.setattr(airflow_log, "mask_secret", masked.append)
    plan = make_plan(schemas={"source": "old_registry", "target": "nowhere"})
    with opened_context(plan, logging.getLogger()):
        assert masked == ["secret"]
        assert not logging.getLogger("httpx").isEnabledFor(logging.INFO), "a line for each request"


def test_unknown_spark_connection_is_refused_instead_of_meaning_yarn(plan_file, spark, task_context):
    with pytest.raises(AirflowFailException, match=r"no connection has the id 'nowhere'[\s\S]*remedy"):
        mirror(plan_file, "nowhere").execute(task_context)
    assert not spark.submissions


@pytest.mark.parametrize("master", ["yarn", "spark://h", "k8s://https://h"])
def test_cluster_mode_is_refused_because_secrets_would_become_configuration(plan_file, spark, task_context, master):
    extra = json.dumps({"deploy-mode": "cluster"})
    spark.connections["spark_default"] = Connection(
        conn_id="spark_default", conn_type="spark", host=master, port=7077, extra=extra
    )
    with pytest.raises(AirflowFailException, match="deploy-mode is cluster"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_kubernetes_without_its_client_is_refused_with_what_to_install(plan_file, spark, task_context, monkeypatch):
    spark.connections["spark_default"] = Connection(conn_id="spark_default", conn_type="spark", host="k8s://https://h")
    monkeypatch.setattr(submit, "find_spec", lambda _name: None)
    with pytest.raises(AirflowFailException, match="cncf-kubernetes"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_retry_after_the_stop_gate_has_drained_the_mirror_starts_nothing(plan_file, opened, spark, task_context):
    end(opened, Desired.DRAIN, "drained")
    task_context["ti"].try_number = 2
    mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_new_run_after_the_seal_ends_with_success_as_nothing_is_left_to_copy(plan_file, opened, spark, task_context):
    end(opened, Desired.DRAIN, "drained")
    opened.link.record_seal(Seal(at="2030-01-01", ends={}))
    mirror(plan_file).execute(task_context)
    assert not spark.submissions
    # A topic of the plan that was never mirrored must not pass for copied.
    opened.journal.record("topic", "t", {})
    with pytest.raises(AirflowFailException, match="was sealed at 2030-01-01"):
        mirror(plan_file).execute(task_context)


@pytest.mark.parametrize(("tries", "reason"), [(2, "stopped"), (1, "drained")], ids=["drain_ended_short", "new_run"])
def test_mirror_starts_again_after_a_drain_that_ended_short_and_in_a_new_run(
    plan_file, opened, spark, task_context, tries, reason
):
    end(opened, Desired.DRAIN, reason)
    task_context["ti"].try_number = tries
    deferred(mirror(plan_file).execute, task_context)
    assert len(spark.submissions) == 1


def test_mirror_that_is_active_is_watched_instead_of_taken_over(plan_file, opened, spark, task_context):
    begin(opened)
    waiting = deferred(mirror(plan_file).execute, task_context)
    assert not spark.submissions
    begun = begun_mirror(noting(opened))
    assert begun is not None
    assert waiting.trigger.since == begun.at


def test_try_that_finds_the_submission_of_the_one_before_watches_it(plan_file, spark, task_context):
    first = deferred(mirror(plan_file).execute, task_context)
    task_context["ti"].try_number = 2
    second = deferred(mirror(plan_file).execute, task_context)
    assert len(spark.submissions) == 1
    assert second.trigger.since == first.trigger.since


def test_mirror_that_would_be_refused_is_not_submitted_and_not_tried_again(plan_file, spark, task_context, monkeypatch):
    def refused(ctx):
        raise Refused("migration played has no target topics yet", remedy="run `create` first")

    monkeypatch.setattr(phase, "check", refused)
    with pytest.raises(AirflowFailException, match=r"no target topics yet[\s\S]*run `create` first"):
        mirror(plan_file).execute(task_context)
    assert not spark.submissions


def test_mirror_that_ended_as_it_should_is_a_success_and_one_that_needs_a_person_a_failure(
    plan_file, spark, task_context, board
):
    waiting = deferred(mirror(plan_file).execute, task_context)
    watched = waiting.kwargs["watched"]
    done = {"exit_code": 0, "message": "the mirror was drained", "facts": {}}
    assert mirror(plan_file).ended(task_context, done, watched) is None
    with pytest.raises(AirflowFailException, match="halted"):
        mirror(plan_file).ended(task_context, {"exit_code": 1, "message": "halted", "facts": {}}, watched)
    assert board == ["played", "played"]


def test_mirror_that_died_is_started_again_by_the_same_try_after_a_pause_that_grows(
    plan_file, opened, spark, task_context, make_plan, monkeypatch, capsys
):
    alerted = []
    monkeypatch.setattr(TaskAlert, "_send", lambda self, context: alerted.append((self.has, context["exception"])))
    alert = TaskAlert(plan=make_plan(), has="died, and is tried again", is_moderated=True)
    operator = mirror(plan_file, on_retry_callback=[alert])
    waiting = deferred(operator.execute, task_context)
    pauses = []
    for starts in range(1, 8):
        newest = submission_of(opened)
        begin(opened, newest.id)
        mirror_watch.record_end(noting(opened), newest.id, f"the last line of {starts}")
        with monkeypatch.context() as patch:
            patch.setattr("kafka_migration.airflow.mirror.time", SimpleNamespace(time=lambda: 1000.0))
            waiting = resumed(operator, task_context, waiting, DIED)
        pauses.append(waiting.trigger.gives_up_at - 1000.0)
        assert len(spark.submissions) == starts, "not before the pause is over"
        assert f"the last line of {starts}" in capsys.readouterr().out
        waiting = resumed(operator, task_context, waiting, PAUSED)
        assert waiting.trigger.gives_up_at is None
        assert len(spark.submissions) == starts + 1
    assert pauses == [10, 20, 40, 80, 160, 300, 300]
    assert alerted == [("died, and is tried again", "the Spark application ended")] * 3, "deaths 1, 2 and 4"
    assert opened.journal.all("phase")["mirror"]["outcome"] == "failed"


def test_death_after_an_hour_is_the_first_in_a_row(plan_file, opened, spark, task_context):
    begin(opened)
    watched = {"since": "2020-01-01T00:00:00+00:00", "asked_since": "2020-01-01T00:00:00+00:00", "deaths": 7}
    waiting = deferred(mirror(plan_file).ended, task_context, DIED, watched)
    assert waiting.kwargs["watched"]["deaths"] == 1


def test_pause_that_ends_because_somebody_started_the_mirror_starts_no_other(plan_file, opened, spark, task_context):
    waiting = deferred(mirror(plan_file).execute, task_context)
    opened.link.record_run({"state": "ended", "reason": "failed", "at": "2020-01-01T00:00:00+00:00"})
    waiting = resumed(mirror(plan_file), task_context, waiting, DIED)
    begin(opened)
    waiting = resumed(mirror(plan_file), task_context, waiting, PAUSED)
    assert waiting.trigger.gives_up_at is None
    assert len(spark.submissions) == 1


def test_mirror_that_never_began_is_given_up_after_five_tries_with_where_to_look(
    plan_file, opened, spark, task_context
):
    waiting = deferred(mirror(plan_file).execute, task_context)
    never = {**DIED, "message": "the Spark application ended before the mirror began"}
    for _ in range(4):
        mirror_watch.record_end(noting(opened), submission_of(opened).id)
        waiting = resumed(mirror(plan_file), task_context, waiting, never)
        waiting = resumed(mirror(plan_file), task_context, waiting, PAUSED)
    with pytest.raises(AirflowFailException) as raised:
        mirror(plan_file).ended(task_context, never, waiting.kwargs["watched"])
    assert "before the mirror began, 5 times in a row" in str(raised.value)
    assert "wrong jar" in str(raised.value)
    assert len(spark.submissions) == 5


def test_mirror_that_began_once_and_then_cannot_start_is_tried_again_and_nothing_is_copied_meanwhile(
    plan_file, opened, spark, task_context, capsys
):
    opened.link.record_run({"state": "running", "at": "2020-01-01T00:00:00+00:00"})
    waiting = deferred(mirror(plan_file).execute, task_context)
    watched = {**waiting.kwargs["watched"], "deaths": 6}
    never = {**DIED, "message": "the Spark application ended before the mirror began"}
    waiting = deferred(mirror(plan_file).ended, task_context, never, watched)
    assert waiting.trigger.gives_up_at is not None
    assert (
        "before the mirror began (death 7 in a row); nothing is copied until a new start succeeds"
        in capsys.readouterr().out
    )


def test_target_that_is_away_at_a_new_start_uses_up_no_retry_of_the_task(
    plan_file, opened, spark, task_context, monkeypatch
):
    waiting = deferred(mirror(plan_file).execute, task_context)
    mirror_watch.record_end(noting(opened), submission_of(opened).id)

    def away(ctx):
        raise ClusterUnreachable("target", "h:1", "gone")

    monkeypatch.setattr(phase, "check", away)
    again = resumed(mirror(plan_file), task_context, waiting, PAUSED)
    assert again.trigger.gives_up_at is not None
    with pytest.raises(AirflowException, match="no broker"):
        mirror(plan_file).execute(task_context)


def test_trigger_survives_being_stored_and_holds_its_runs_plan(opened, plan_file):
    kept = trigger(opened, plan_file, gives_up_at=1.5)
    kind, values = kept.serialize()
    assert kind == f"{MirrorTrigger.__module__}.{MirrorTrigger.__name__}"
    stored: Any = deserialize(json.loads(json.dumps(serialize(values))))
    assert MirrorTrigger(**stored).serialize() == (kind, values)
    assert MirrorTrigger(**stored).snapshot().load() == opened.plan


def test_trigger_watches_the_mirrors_end_or_the_pause(plan_file, opened, spark, board):
    def event(gives_up_at: float | None = None) -> list[Any]:
        async def first() -> list[Any]:
            return [found.payload async for found in trigger(opened, plan_file, gives_up_at).run()]

        return asyncio.run(first())

    assert event(gives_up_at=1.0) == [PAUSED]
    opened.link.record_run({"state": "ended", "reason": "failed", "at": "2020-01-01T00:00:01+00:00"})
    assert event() == [{**DIED, "message": "the mirror failed"}]
    assert board == ["played from now on", "played until now"] * 2


@pytest.mark.parametrize("is_named", [True, False])
def test_what_needs_a_person_is_sent_from_beside_the_watch_where_the_plan_names_somebody(
    opened, spark, hand_on, make_plan, monkeypatch, is_named
):
    sent, looks = [], []

    @contextmanager
    def publishing(_plan, _place, _log, notices):
        looks.append(notices is not None and notices._send(Notice("needs a person: it", "do that")))
        yield

    monkeypatch.setattr(board, "publishing", publishing)
    monkeypatch.setattr(
        SmtpNotifier, "notify", lambda self, context: sent.append((self.subject, context["ti"].task_id))
    )
    arguments = {"to": "oncall@example.org", "subject": "{dag}: {what}: {remedy}"}
    opened.plan = make_plan(alerts={"notifiers": [{"notifier": SMTP, "arguments": arguments}] if is_named else []})
    found = trigger(opened, hand_on(opened.plan))
    found.task_instance = SimpleNamespace(dag_id="migrate_played", task_id="mirror")
    opened.link.record_run({"state": "ended", "reason": "failed", "at": "2020-01-01T00:00:01+00:00"})
    asyncio.run(anext(found.run()))
    assert looks == [is_named]
    assert sent == ([("migrate_played: needs a person: it: do that", "mirror")] if is_named else [])


@pytest.mark.parametrize(
    ("states", "stops"),
    [
        ({"mirror": "failed"}, "its task was marked as failed"),
        ({"mirror": "success"}, "its task was marked as success"),
        (None, "its task was deleted"),
        ({"mirror": None}, ""),
        ({"mirror": "scheduled"}, ""),
        ({"mirror": "deferred"}, ""),
    ],
)
def test_task_that_is_taken_away_ends_the_mirror_unless_a_next_try_watches_it(
    plan_file, opened, spark, task_context, monkeypatch, states, stops
):
    begin(opened)
    ti = SimpleNamespace(dag_id="d", run_id="r", task_id="mirror")
    found = {} if states is None else {"r": states}
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", staticmethod(lambda **asked: found))
    monkeypatch.setattr(MirrorTrigger, "task_instance", ti)
    asyncio.run(trigger(opened, plan_file).on_kill())
    wish = opened.link.wished()
    assert (wish.desired, wish.reason) == ((Desired.STOP, stops) if stops else (Desired.RUN, ""))


@pytest.fixture
def application(tmp_path, plan_file, opened, spark, monkeypatch):
    """What spark-submit is, as a script of the test's, and the arguments of the process that submits it."""
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "local[2]"}')
    script = tmp_path / "bin" / "spark-submit"
    script.parent.mkdir()
    script.touch(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(script.parent), os.environ["PATH"]]))
    made = mirror_watch.submit(noting(opened), host="h", log="")
    arguments = ["--plan", plan_file, "--connection", "spark_default", "--submission", made.id]
    logging = structlog.get_config()
    yield SimpleNamespace(script=script, arguments=arguments, id=made.id)
    structlog.configure(**logging)


@pytest.mark.parametrize("code", [0, 7])
def test_process_submits_with_the_providers_hook_hides_secrets_and_notes_the_end(
    application, opened, capsys, code, plan_file
):
    application.script.write_text(
        f'#!/bin/sh\necho "$*"\necho "password {PASSWORD}"\necho "[$AIRFLOW_CONN_SPARK_DEFAULT]"\nexit {code}\n'
    )
    assert submit.main(application.arguments) == (1 if code else 0)
    printed = capsys.readouterr().out
    assert f"mirror.py {plan_file} --submission {application.id}" in printed
    assert "--master local[2]" in printed
    assert "password <hidden>\n[]\n" in printed, "Spark needs none of its own connection"
    assert PASSWORD not in printed
    noted = submission_of(opened)
    assert noted.ended
    assert "password <hidden>" in noted.last_lines
    assert ("Error code is: 7" in noted.last_lines) is bool(code)


def test_process_submits_though_the_connection_to_a_registry_was_removed(application, opened, capsys, plan_file):
    application.script.write_text("#!/bin/sh\nexit 0\n")
    path = Path(plan_file)
    path.write_text(f"{path.read_text()}\nschemas: {{source: nowhere, target: elsewhere}}\n")
    assert submit.main(application.arguments) == 0


def test_end_of_the_process_ends_spark_with_it(application, opened, tmp_path, monkeypatch):
    """In a session of its own, as it is started; its connections and the plan are all that it needs."""
    application.script.write_text(
        f"#!/bin/sh\necho $$ > {tmp_path}/spark.part\nmv {tmp_path}/spark.part {tmp_path}/spark\nsleep 600\n"
    )
    spark_default = Connection(conn_id="spark_default", conn_type="spark", host="local[2]")
    # As Airflow has it in a task.
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "airflow-db-not-allowed:///")
    environment = job_environment(opened.plan, os.environ, spark=spark_default)
    assert environment["PATH"].startswith(str(application.script.parent))
    with (
        (tmp_path / "log").open("wb") as log,
        subprocess.Popen(
            [sys.executable, "-m", "kafka_migration.airflow.submit", *application.arguments],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        ) as process,
    ):
        try:
            wait_until((tmp_path / "spark").exists, "Spark was submitted")
            submitted = psutil.Process(int((tmp_path / "spark").read_text()))
            process.kill()
            process.wait(180)
            wait_until(lambda: not _is_alive(submitted), "Spark has ended")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _is_alive(process):
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


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


@pytest.mark.parametrize("where", ["of another file", "of another machine", "through a link"])
def test_note_in_the_journal_has_no_file_shown_but_a_submissions_own(
    plan_file, opened, spark, task_context, tmp_path, capsys, where
):
    waiting = deferred(mirror(plan_file).execute, task_context)
    made = submission_of(opened)
    secret, own = tmp_path / "approval.key", Path(made.log)
    secret.write_text("open-sesame")
    own.write_text("what Spark printed")
    changed = {
        "of another file": {"log": str(secret)},
        "of another machine": {"host": "elsewhere"},
        "through a link": {"log": str(own.parent / ".." / ".." / ".." / secret.name)},
    }[where]
    opened.journal.record(PHASE, "submitted", {**asdict(made), **changed, "ended": made.at})
    capsys.readouterr()
    resumed(mirror(plan_file), task_context, waiting, DIED)
    shown = capsys.readouterr().out
    assert "not to be read here" in shown
    assert "open-sesame" not in shown
    assert "what Spark printed" not in shown


def test_end_of_the_output_of_one_that_was_killed_is_read_from_its_file(plan_file, opened, spark, task_context, capsys):
    waiting = deferred(mirror(plan_file).execute, task_context)
    Path(submission_of(opened).log).write_text("what Spark printed last")
    capsys.readouterr()
    resumed(mirror(plan_file), task_context, waiting, DIED)
    assert "what Spark printed last" in capsys.readouterr().out
