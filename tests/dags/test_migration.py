"""Whole migrations through Airflow, as a person sees them: by its API, on real clusters, with a mirror on Spark.

Two plans on one Airflow. One is approved by a stranger, and rejected. The other fails first, is repaired and cleared,
and goes on to the end while a producer writes to the source: with a batch of groups that fails, a mirror that is
killed, and a moved group that is active on the source again. What needs a person is mailed. The source asks for a
password and the target for a certificate; neither's secret may show up anywhere.
"""

from __future__ import annotations

import json
import re
import shutil
import signal
import threading
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import httpx
import psutil
import pytest
import yaml
from confluent_kafka.admin import AdminClient

from demo import jars
from demo.airflow import EmbeddedAirflow
from demo.airflow_api import ENDED, AirflowApi, AirflowError, Approval
from demo.airflow_approver import DELAY_SECONDS, DemoApprover
from demo.brokers import EmbeddedKafka, security
from demo.brokers.certificates import Authority
from demo.brokers.process import tail
from kafka_migration.domain import ledger
from kafka_migration.kafka.topic_log import TopicLog
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import TopicStore
from tests.dags.mail import MAIL, MailServer, serving, text_of
from tests.dags.patience import PATIENCE_SECONDS, QUICK
from tests.dags.test_dags import plan_document
from tests.dags.users import LOCAL_SETTINGS
from tests.kafka_tools import ToSend, commit, committed, create_topics, delete_topic, produce, read_all
from tests.locked import key_lines, with_back_door
from tests.waiting import wait_until

PASSWORD = "unseen-9f2c-open-sesame"
RECORDS = 3_000
LINEAGE = "lineage.jsonl"
#: States of tasks that nothing happens to any more by itself.
OVER = ("success", "failed", "upstream_failed", "skipped")
# In `make test`: DAGs are parsed, and their operators run without a scheduler (tests/dags, tests/airflow).
pytestmark = [pytest.mark.long, pytest.mark.timeout(2 * PATIENCE_SECONDS)]


@dataclass
class Stage:
    """What the tests look at. ``base`` names topics, groups and plans of this run alone."""

    source: EmbeddedKafka
    target: EmbeddedKafka
    airflow: EmbeddedAirflow
    base: str
    reports: Path
    events: Path
    secrets: list[str]
    mail: MailServer
    runs: dict[str, str] = field(default_factory=dict)
    #: The run that validates a plan whose clusters nobody knows.
    lost: str = ""

    @property
    def api(self) -> AirflowApi:
        return self.airflow.api

    @property
    def topics(self) -> dict[str, int]:
        return {f"{self.base}.orders": 2, f"{self.base}.payments": 1}

    @property
    def groups(self) -> tuple[str, ...]:
        return f"{self.base}-audit", f"{self.base}-billing"

    def dag(self, plan: str) -> str:
        return f"migrate_{self.base}-{plan}"

    def state(self, plan: str) -> str:
        return self.api.state(self.dag(plan), self.runs[plan])

    def tasks(self, plan: str) -> dict[str, str | None]:
        return self.api.task_states(self.dag(plan), self.runs[plan])

    @contextmanager
    def as_user(self, user: str) -> Iterator[AirflowApi]:
        """The API as another user than admin; Airflow made the password, since a user without one cannot log in."""
        passwords = json.loads((self.airflow.home / "simple_auth_manager_passwords.json.generated").read_text())
        with closing(AirflowApi(self.airflow.url, user=user, password=passwords[user])) as api:
            yield api

    def wait_for_question(self, plan: str) -> Approval:
        """The one question of a plan, once it was there for as long as a person needs to read it."""
        self.api.wait(
            lambda: len(self.api.pending_approvals(self.dag(plan))) == 1,
            f"{plan} asks",
            deadline_seconds=PATIENCE_SECONDS,
        )
        asked, heartbeat = time.monotonic(), self.api.scheduler_heartbeat()
        # The scheduler has to look again: until then it takes the task that asks for one that runs.
        wait_until(
            lambda: time.monotonic() - asked > DELAY_SECONDS and self.api.scheduler_heartbeat() != heartbeat,
            "time to read",
            deadline_seconds=PATIENCE_SECONDS,
        )
        (approval,) = self.api.pending_approvals(self.dag(plan))
        return approval

    def wait_for_mail(self, plan: str, what: str, *, naming: str = "") -> None:
        """Wait until a mail of ``plan`` has ``what`` happened, and ``naming`` somewhere behind it."""
        wanted = f"{self.dag(plan)}: {what}"
        wait_until(
            lambda: any(subject.startswith(wanted) and naming in subject for subject in self.mail.subjects),
            f"a mail {wanted!r} {naming!r}; there are {self.mail.subjects}",
            deadline_seconds=PATIENCE_SECONDS,
        )

    def wait_for(self, plan: str, task: str, *states: str, bears: str = "no task") -> None:
        """Wait until a task is in one of ``states``; fail with its log if another than ``bears`` failed instead."""
        # One answer for both: each is work for the API server, which shares its cores with the migration.
        seen: dict[str, str | None] = {}

        def reached() -> bool:
            seen.update(self.tasks(plan))
            return seen.get(task) in states

        def failed() -> str:
            bad = [name for name, state in seen.items() if state == "failed" and not name.startswith(bears)]
            if not bad and all(state in OVER for state in seen.values()):
                return f"nothing of the run is left to do: {seen}"
            return "" if "failed" in states else "\n".join(f"{name} failed:\n{self.log(plan, name)}" for name in bad)

        what = f"{task} is {' or '.join(states)}"
        try:
            self.api.wait(reached, what, deadline_seconds=PATIENCE_SECONDS, unless=failed)
        except AirflowError as error:
            raise AirflowError(f"{error}\n{self._unfinished(plan)}") from error

    def _unfinished(self, plan: str) -> str:
        """What has not succeeded, with the ends of its logs, and where each process of Airflow stands."""
        states = {name: state for name, state in self.tasks(plan).items() if state != "success"}
        texts = []
        for name, state in states.items():
            try:
                texts.append(f"{name}: {state}\n{self.log(plan, name)[-2_000:]}")
            except AirflowError as error:
                # One that never ran has no log.
                texts.append(f"{name}: {state} ({error})")
        stacks = self.airflow.home / "stacks.log"
        for process in psutil.Process(self.airflow.pid).children(recursive=True):
            with suppress(psutil.NoSuchProcess, FileNotFoundError):
                caught = Path(f"/proc/{process.pid}/status").read_text().partition("SigCgt:")[2].split()[0]
                # Of a process that does not know this signal it would be the end.
                if int(caught, 16) >> (signal.SIGUSR1 - 1) & 1:
                    process.send_signal(signal.SIGUSR1)
        wait_until(lambda: tail(stacks), "the stacks are written")
        return "\n".join([*texts, tail(stacks, lines=400)])

    def succeeded(self, plan: str) -> list[str]:
        return [name for name, state in self.tasks(plan).items() if state == "success"]

    def wait_for_log(self, plan: str, task: str, text: str, *, try_number: int) -> None:
        """Wait until a try of a task has logged ``text``; a task that was cleared has its next try a moment later."""

        def logged() -> bool:
            (now,) = [it for it in self.api.task_instances(self.dag(plan), self.runs[plan]) if it["task_id"] == task]
            if now["try_number"] < try_number:
                return False
            return text in self.api.log(self.dag(plan), self.runs[plan], task, try_number=try_number)

        self.api.wait(
            logged,
            f"{task} logs {text!r}",
            deadline_seconds=PATIENCE_SECONDS,
        )

    def log(self, plan: str, name: str) -> str:
        task, _, index = name.rstrip("]").partition("[")
        found = [
            it
            for it in self.api.task_instances(self.dag(plan), self.runs[plan])
            if it["task_id"] == task and it["map_index"] == int(index or -1)
        ]
        tries = max(1, found[0]["try_number"])
        return self.api.log(self.dag(plan), self.runs[plan], task, try_number=tries, map_index=int(index or -1))


def plan_of(base: str, name: str, topics: list[str]) -> dict[str, Any]:
    return {
        "version": 1,
        "name": f"{base}-{name}",
        "source": "guarded_source",
        "target": "stored_target",
        "topics": {"include": topics},
        "groups": {"include": [f"{base}-.*"]},
        "mirror": {"num_streams": 1, "epoch_seconds": 5},
        "lag_gate": {"threshold_records": 500, "samples": 2, "interval_seconds": 1, "deadline_seconds": 800},
        "validation": {"segment_records": 1000},
        "cutover": {
            "rest_seconds": 1,
            "watch_seconds": 120,
            "batch_size": 1,
            "stopped_groups": [f"{base}-{name}" for name in ("audit", "billing")],
        },
        "drain": {"window_seconds": 2, "deadline_seconds": 300},
        "approvals": {"approvers": ["ann"]},
        "alerts": {"notifiers": [MAIL]},
    }


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    """Outside of every folder that is searched for secrets: the key itself has to be somewhere."""
    return Authority(tmp_path_factory.mktemp("authority") / "certificates")


@pytest.fixture(scope="module")
def guarded_source(authority) -> Iterator[EmbeddedKafka]:
    """A source whose clients need a password, over TLS; tests themselves use its internal listener."""
    locks = with_back_door(security.scram(authority, {"mover": PASSWORD}), "SASL_SSL", "mover")
    with EmbeddedKafka(name="guarded-source", security=locks) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def guarded_target(authority) -> Iterator[EmbeddedKafka]:
    """A target whose clients need a certificate; tests themselves use its internal listener."""
    locks = with_back_door(security.mutual_tls(authority), "SSL", "writer")
    with EmbeddedKafka(name="guarded-target", security=locks) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mail_server() -> Iterator[MailServer]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def stage(guarded_source, guarded_target, authority, mail_server, tmp_path_factory) -> Iterator[Stage]:
    """Airflow with two plans, both started: one whose target topic is in the way, and one that nobody wants."""
    folder, base = tmp_path_factory.mktemp("migration"), f"shop{uuid.uuid4().hex[:6]}"
    plans = folder / "plans"
    plans.mkdir()
    for name, topics in (("wanted", [rf"{base}\..*"]), ("unwanted", [f"{base}-unwanted"])):
        (plans / f"{name}.yaml").write_text(yaml.safe_dump(plan_of(base, name, topics)), encoding="utf-8")
    lost = plan_document(f"{base}-lost", alerts={"notifiers": [MAIL], "validation_seconds": 1.0})
    (plans / "lost.yaml").write_text(yaml.safe_dump(lost), encoding="utf-8")
    source, target = guarded_source.internal_servers, guarded_target.internal_servers
    create_topics(source, {f"{base}.orders": 2, f"{base}.payments": 1, f"{base}-unwanted": 1})
    for topic, partitions in ((f"{base}.orders", 2), (f"{base}.payments", 1)):
        records = (ToSend(b"%d" % n, b"k%d" % n, n % partitions) for n in range(RECORDS))
        produce(source, topic, records, **{"compression.type": "lz4"})
    commit(source, f"{base}-billing", {(f"{base}.orders", 0): 500, (f"{base}.orders", 1): 1_000})
    commit(source, f"{base}-audit", {(f"{base}.payments", 0): 1_500})
    # Somebody was there before: the wanted plan's preflight refuses, until it is gone.
    create_topics(target, {f"{base}.payments": 3})
    servers = {"bootstrap.servers": guarded_source.bootstrap_servers}
    sasl = servers | security.scram_client(authority, "mover", PASSWORD)
    events = folder / "events"
    (folder / "spark").mkdir()
    events.mkdir()
    # Plain: Spark 4 compresses event logs by default, and nothing could be searched for in them.
    settings = f"spark.eventLog.enabled true\nspark.eventLog.compress false\nspark.eventLog.dir {events.as_uri()}\n"
    (folder / "spark" / "spark-defaults.conf").write_text(settings, encoding="utf-8")
    (folder / "airflow" / "config").mkdir(parents=True)
    (folder / "airflow" / "config" / "airflow_local_settings.py").write_text(LOCAL_SETTINGS, encoding="utf-8")
    certified = {"bootstrap.servers": guarded_target.bootstrap_servers, **authority.client("writer")}
    airflow = EmbeddedAirflow(
        home=folder / "airflow",
        plans_dir=plans,
        connections={
            "guarded_source": {"conn_type": "kafka", "extra": sasl},
            "spark_default": {"conn_type": "spark", "host": "local[1]"},
            "mail": mail_server.connection,
        },
        env={
            # The approver; one who may do more, but is none; one who may look, and one who may not even do that.
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,ann:user,mallory:op,stranger:viewer,nobody:",
            **QUICK,
            "KAFKA_MIGRATION_REPORTS_DIR": str(folder / "reports"),
            "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(
                {"type": "file", "log_file_path": str(folder / "airflow" / LINEAGE), "append": True}
            ),
            "SPARK_CONF_DIR": str(folder / "spark"),
            "KAFKA_MIGRATION_SPARK_JARS": ",".join(str(path) for path in jars.paths("spark")),
        },
        start_timeout_seconds=PATIENCE_SECONDS,
    )
    with airflow:
        secrets = [PASSWORD, *key_lines(authority.directory / "writer.key")]
        it = Stage(guarded_source, guarded_target, airflow, base, folder / "reports", events, secrets, mail_server)
        # This one is Airflow's own, in its database: workers, triggerer and API server each ask in their own way.
        extra = json.dumps(certified)
        body = {"connection_id": "stored_target", "conn_type": "kafka", "extra": extra}
        it.api.call("POST", "/connections", json=body)
        airflow.wait_for_dags([it.dag("wanted"), it.dag("unwanted")], deadline_seconds=PATIENCE_SECONDS)
        it.api.unpause(f"validate_{base}-lost")
        it.lost = it.api.trigger(f"validate_{base}-lost")
        for plan in ("wanted", "unwanted"):
            it.api.unpause(it.dag(plan))
            it.runs[plan] = it.api.trigger(it.dag(plan))
        yield it
    shutil.rmtree(folder / "airflow")


class LiveProducer:
    """Writes to one topic, a few records a second, until it is stopped."""

    def __init__(self, servers: str, topic: str) -> None:
        self._stopping = threading.Event()
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        self._thread = threading.Thread(target=self._work, args=(topic,), daemon=True)
        self._thread.start()

    def _work(self, topic: str) -> None:
        while not self._stopping.wait(0.2):
            self._producer.produce(topic, b"live", partition=0)
            self._producer.poll(0)

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        assert self._producer.flush(30) == 0


@dataclass
class People:
    """Who works on the wanted migration meanwhile: a producer, an approver, and a member of a group on the source."""

    producer: LiveProducer
    approver: DemoApprover
    member: ExitStack


@pytest.fixture(scope="module")
def people(stage: Stage) -> Iterator[People]:
    with ExitStack() as stack:
        approver = DemoApprover(stack.enter_context(stage.as_user("ann")), stage.dag("wanted"))
        producer = LiveProducer(stage.source.internal_servers, f"{stage.base}.orders")
        stack.callback(producer.stop)
        stack.enter_context(approver)
        member = stack.enter_context(ExitStack())
        member.enter_context(running_member(stage))
        yield People(producer, approver, member)


def test_run_that_failed_goes_on_after_its_failed_task_is_cleared(stage: Stage, people: People) -> None:
    stage.wait_for("wanted", "inventory_and_preflight", "failed")
    assert f"{stage.base}.payments" in stage.log("wanted", "inventory_and_preflight")
    stage.api.wait(lambda: stage.state("wanted") == "failed", "the run failed", deadline_seconds=PATIENCE_SECONDS)
    stage.wait_for_mail("wanted", "inventory_and_preflight failed: 1 checks do not pass")
    delete_topic(stage.target.internal_servers, f"{stage.base}.payments")
    stage.api.clear(stage.dag("wanted"), stage.runs["wanted"], ["inventory_and_preflight"])
    # The others are looked at while it goes on.
    stage.wait_for("wanted", "approve_plan", "awaiting_input", "success")


def test_answer_of_a_stranger_changes_nothing_and_an_approvers_rejection_ends_the_run_with_nothing_changed(
    stage: Stage, people: People
) -> None:
    first = stage.wait_for_question("unwanted")
    approve, reject = first.options
    assert (approve.partition(" ")[0], reject) == ("Approve", "Reject")
    assert approve.partition(" ")[2] in first.body, "the option names the evidence that it approves"
    assert f"{stage.base}-unwanted" in first.body, "the evidence is in the question"
    # One who may look at the DAG, and no more: Airflow itself refuses.
    with stage.as_user("stranger") as stranger, pytest.raises(AirflowError, match="403"):
        stranger.answer(first, approve)
    assert stage.wait_for_question("unwanted") == first
    # One who may answer for tasks of the DAG, but whom the plan does not name.
    with stage.as_user("mallory") as mallory:
        with pytest.raises(AirflowError, match="400"):
            mallory.answer(first, "Approve 00000000")
        mallory.answer(first, approve)
    stage.wait_for_log("unwanted", "approve_plan", "mallory is not one of", try_number=1)
    stage.wait_for_question("unwanted")
    assert set(stage.succeeded("unwanted")) == {"take_snapshot", "inventory_and_preflight"}
    with stage.as_user("ann") as ann:
        ann.answer(stage.wait_for_question("unwanted"), "Reject")
    stage.api.wait(lambda: stage.state("unwanted") in ENDED, "the run ended", deadline_seconds=PATIENCE_SECONDS)
    assert stage.state("unwanted") == "failed"
    assert "ann rejected the plan gate" in stage.log("unwanted", "approve_plan")
    stage.wait_for_mail("unwanted", "approve_plan waits for an answer")
    stage.wait_for_mail("unwanted", "approve_plan failed: ann rejected the plan gate")
    assert set(stage.succeeded("unwanted")) == {"take_snapshot", "inventory_and_preflight"}
    assert (
        f"{stage.base}-unwanted"
        not in AdminClient({"bootstrap.servers": stage.target.internal_servers}).list_topics(timeout=30).topics
    )


def test_failed_run_and_one_that_takes_too_long_are_mailed_to_whom_the_plan_says(stage: Stage) -> None:
    dag = f"validate_{stage.base}-lost"
    stage.api.wait(lambda: stage.api.state(dag, stage.lost) in ENDED, "it ended", deadline_seconds=PATIENCE_SECONDS)
    assert stage.api.state(dag, stage.lost) == "failed"

    def mailed() -> set[tuple[Any, Any, str]]:
        return {
            (mail["To"], mail["Subject"], text_of(mail)) for mail in stage.mail.mails if dag in str(mail["Subject"])
        }

    expected = {
        ("oncall@example.org", f"{dag}: {what}", f"{stage.base}-lost")
        for what in ("failed", "has not ended within 0:00:01")
    }
    wait_until(lambda: mailed() >= expected, "both are mailed", deadline_seconds=PATIENCE_SECONDS)
    assert mailed() == expected


def test_migration_ends_although_a_batch_failed_the_mirror_died_and_a_moved_group_came_back_on_the_source(
    stage: Stage, people: People
) -> None:
    stage.wait_for("wanted", "watch_lag", "success")
    _assert_no_command_line_shows_a_secret(stage)
    # Nobody stops the group's member: its batch is refused, and the other one is moved and watched.
    stage.wait_for("wanted", "watch_groups", "success", bears="cut_over")
    _assert_one_batch_failed_and_the_other_was_watched(stage)
    people.member.close()
    assert {it.task_id for it in people.approver.answered} == {"approve_plan", "approve_cutover"}
    stage.api.clear(stage.dag("wanted"), stage.runs["wanted"], ["cut_over"], only_failed=True)
    stage.wait_for("wanted", "stop_mirror", "deferred")
    stage.wait_for("wanted", "mirror", "deferred")
    assert _mirrors(stage), "it runs on for as long as producers write, and holds no slot"
    _clear_the_task_of_the_mirror(stage)
    _kill_the_mirror(stage)
    _hold_it_by_the_form(stage)
    validation = _validate_one_topic_again(stage)
    _come_back_on_the_source(stage)
    _let_it_go_on_by_the_form(stage)
    _assert_one_topic_was_validated(stage, validation)
    wait_until(lambda: _mirrors(stage), "it was started again", deadline_seconds=PATIENCE_SECONDS)
    stage.wait_for("wanted", "mirror", "deferred")
    stage.api.wait(
        lambda: "source partitions grow" in stage.log("wanted", "stop_mirror"),
        "the gate sees the producer",
        deadline_seconds=PATIENCE_SECONDS,
    )
    people.producer.stop()
    stage.wait_for("wanted", "report", "success")
    stage.api.wait(lambda: stage.state("wanted") in ENDED, "the run ended", deadline_seconds=PATIENCE_SECONDS)
    assert stage.state("wanted") == "success"
    source, target = stage.source.internal_servers, stage.target.internal_servers
    copied = read_all(target, stage.topics)
    for tp, rows in read_all(source, stage.topics).items():
        assert [row.without_offset() for row in copied[tp]] == [row.without_offset() for row in rows]
    for group in stage.groups:
        moved = committed(target, group)
        for place, offset in committed(source, group).items():
            here = [row for tp, rows in copied.items() if (tp.topic, tp.partition) == place for row in rows]
            assert len([row for row in here if row.offset < moved[place]]) == offset


@contextmanager
def running_member(stage: Stage) -> Iterator[None]:
    """A consumer of the audit group on the source, which commits nothing."""
    settings = {"bootstrap.servers": stage.source.internal_servers, "group.id": f"{stage.base}-audit"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    joined, stopping = threading.Event(), threading.Event()
    consumer.subscribe([f"{stage.base}.payments"], on_assign=lambda *_: joined.set())

    def poll() -> None:
        while not stopping.is_set():
            consumer.poll(0.2)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        wait_until(joined.is_set, "the member has joined")
        yield
    finally:
        stopping.set()
        thread.join()
        consumer.close()


def _assert_one_batch_failed_and_the_other_was_watched(stage: Stage) -> None:
    tasks = stage.tasks("wanted")
    assert sorted(str(tasks[f"cut_over[{n}]"]) for n in (0, 1)) == ["failed", "success"]
    assert (tasks["mirror"], tasks["report"]) == ("deferred", "upstream_failed")
    assert stage.state("wanted") == "running", "it fails once the mirror ends: nobody may wait for that alert"
    stage.wait_for_mail("wanted", "cut_over[0] failed: 1 of 1 groups were not moved")
    assert committed(stage.target.internal_servers, f"{stage.base}-billing")
    assert not committed(stage.target.internal_servers, f"{stage.base}-audit")


def _mirrors(stage: Stage) -> list[psutil.Process]:
    """The processes of the mirror's Spark application."""
    found = _processes(stage)
    return [process for command, process in found if any("spark_jobs/mirror.py" in part for part in command)]


def _hold_it_by_the_form(stage: Stage) -> None:
    """By whoever may trigger the DAG; what cannot be taken back, by an approver alone. The journal has their names."""
    plan, dag = f"{stage.base}-wanted", f"control_{stage.base}-wanted"
    stage.api.unpause(dag)
    with pytest.raises(AirflowError, match="action"):
        stage.api.trigger(dag)
    with stage.as_user("mallory") as mallory, stage.as_user("ann") as ann:
        runs = {
            "success": ann.trigger(dag, {"action": "pause", "reason": "lunch"}),
            "failed": mallory.trigger(dag, {"action": "cancel", "confirm": plan}),
        }
        assert {state: _ended(stage, dag, run) for state, run in runs.items()} == {state: state for state in runs}
        assert "mallory is not one of the plan's approvers" in stage.api.log(dag, runs["failed"], "control")
        status = stage.api.request("GET", f"/kafka-migration/{stage.dag('wanted')}/status").json()
        assert {name: status["mirror"]["controls"]["pause"][name] for name in ("by", "reason")} == {
            "by": "ann",
            "reason": "lunch",
        }


def _let_it_go_on_by_the_form(stage: Stage) -> None:
    """Once somebody was notified that it stands still, by the trigger that watches it."""
    dag = f"control_{stage.base}-wanted"
    stage.wait_for_mail("wanted", "needs a person: ", naming="the forward mirror is paused")
    with stage.as_user("mallory") as mallory:
        assert _ended(stage, dag, mallory.trigger(dag, {"action": "resume"})) == "success"


def _ended(stage: Stage, dag: str, run: str) -> str:
    """How a run has ended."""
    stage.api.wait(lambda: stage.api.state(dag, run) in ENDED, f"{dag} ended", deadline_seconds=PATIENCE_SECONDS)
    return stage.api.state(dag, run)


def _clear_the_task_of_the_mirror(stage: Stage) -> None:
    """The next try watches the mirror that runs."""
    before = {process.pid for process in _mirrors(stage)}
    stage.api.clear(stage.dag("wanted"), stage.runs["wanted"], ["mirror"])
    stage.wait_for_log("wanted", "mirror", "it is watched, and none is started", try_number=2)
    stage.wait_for("wanted", "mirror", "deferred")
    assert {process.pid for process in _mirrors(stage)} == before


def _kill_the_mirror(stage: Stage) -> None:
    for process in _mirrors(stage):
        process.kill()
    stage.wait_for_mail("wanted", "mirror died, and is tried again: ")


def _come_back_on_the_source(stage: Stage) -> None:
    """The task that would end the mirror fails at once, and mails why, while the mirror runs on."""
    group, place = f"{stage.base}-audit", (f"{stage.base}.payments", 0)
    commit(stage.source.internal_servers, group, {place: 1_501})
    stage.wait_for("wanted", "stop_mirror", "failed")
    stage.wait_for_mail("wanted", f"stop_mirror failed: moved groups are active on the source again: {group}")
    assert stage.tasks("wanted")["mirror"] != "failed"
    # Airflow loses what is cleared while its scheduler marks, one after the other, the tasks behind the failed one.
    stage.wait_for("wanted", "report", "upstream_failed", bears="stop_mirror")
    commit(stage.source.internal_servers, group, {place: 1_500})
    stage.api.clear(stage.dag("wanted"), stage.runs["wanted"], ["stop_mirror"])
    stage.wait_for("wanted", "stop_mirror", "deferred")


def _validate_one_topic_again(stage: Stage) -> str:
    """By hand, with the form: the migration is in flight, so it runs."""
    dag = f"validate_{stage.base}-wanted"
    stage.api.unpause(dag)
    return stage.api.trigger(dag, {"topics": [f"{stage.base}.payments"]})


def _assert_one_topic_was_validated(stage: Stage, run: str) -> None:
    dag = f"validate_{stage.base}-wanted"
    stage.api.wait(lambda: stage.api.state(dag, run) in ENDED, "validation ended", deadline_seconds=PATIENCE_SECONDS)
    assert stage.api.task_states(dag, run) == dict.fromkeys(("check_in_flight", "take_snapshot", "validate"), "success")
    verdict = json.loads((stage.reports / f"{stage.base}-wanted" / "partial" / "validation.json").read_text())
    assert verdict["verdict"] == "EQUAL"
    assert {it["topic"] for it in verdict["partitions"]} == {f"{stage.base}.payments"}


def _assert_no_command_line_shows_a_secret(stage: Stage) -> None:
    lines = [" ".join(command) for command, _ in _processes(stage)]
    assert any("spark_jobs/mirror.py" in line for line in lines)
    assert not showing(stage, lines)


def _processes(stage: Stage) -> list[tuple[list[str], psutil.Process]]:
    """Every process of Airflow with its command line."""
    assert stage.airflow.pid is not None
    found = []
    for process in psutil.Process(stage.airflow.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found.append((process.cmdline(), process))
    return found


def showing(stage: Stage, texts: Iterable[str]) -> list[str]:
    """Those of ``texts`` that show a secret, cut short."""
    return [text[:200] for text in texts if any(secret in text for secret in stage.secrets)]


def test_validation_of_a_migration_that_is_not_in_flight_is_skipped(stage):
    dag = f"validate_{stage.base}-unwanted"
    stage.api.unpause(dag)
    run = stage.api.trigger(dag)
    stage.api.wait(lambda: stage.api.state(dag, run) in ENDED, "validation ended", deadline_seconds=PATIENCE_SECONDS)
    states = {"check_in_flight": "success", "take_snapshot": "skipped", "validate": "skipped"}
    assert stage.api.task_states(dag, run) == states


def test_journal_holds_who_approved_what_and_how_long_each_phase_took(stage):
    log = TopicLog({"bootstrap.servers": stage.target.internal_servers}, ledger.JOURNAL_TOPIC)
    journal = Journal(TopicStore(log), f"{stage.base}-wanted")
    phases, approvals = journal.all("phase"), journal.all("approval")
    journal.close()
    assert set(phases) >= {
        "create_targets",
        "mirror",
        "watch_lag",
        "validate",
        "cut_over[0]",
        "cut_over[1]",
        "watch_groups",
        "stop_mirror",
    }
    assert {it["outcome"] for it in phases.values()} == {"done"}
    assert {(it["gate"], it["approver"], it["via"]) for it in approvals.values()} == {
        ("plan", "ann", "airflow"),
        ("cutover", "ann", "airflow"),
    }
    assert all(it["signature"].startswith("hmac-sha256:") for it in approvals.values())


def test_pages_are_served_to_who_may_see_the_dag_and_to_nobody_else(stage):
    prefix = f"/kafka-migration/{stage.dag('wanted')}"
    status = stage.api.request("GET", f"{prefix}/status")
    assert status.status_code == 200
    assert status.json()["migration"] == f"{stage.base}-wanted"
    report = stage.api.request("GET", f"{prefix}/report")
    assert report.status_code == 200
    assert all(group in report.text for group in stage.groups)
    assert stage.api.request("GET", f"{prefix}/docs/index.html").status_code == 200
    board = stage.api.request("GET", "/kafka-migration/").text
    assert re.search(rf'{prefix}/">{stage.base}-wanted</a></td>\s*<td>.*?EQUAL', board, re.DOTALL)
    page = stage.api.request("GET", f"{prefix}/")
    assert page.status_code == 200
    assert all(group in page.text for group in stage.groups)
    assert "Lag in offsets" in page.text
    roll_back = f"/dags/rollback_{stage.base}-wanted"
    assert roll_back in page.text
    with stage.as_user("stranger") as stranger:
        looked = stranger.request("GET", f"{prefix}/")
    assert looked.status_code == 200
    assert roll_back not in looked.text
    with stage.as_user("nobody") as nobody:
        for page in ("", "status", "report", "docs/index.html"):
            assert nobody.request("GET", f"{prefix}/{page}").status_code == 403, page
        assert f"{stage.base}-wanted" not in nobody.request("GET", "/kafka-migration/").text
    for page in ("", f"{stage.dag('wanted')}/", f"{stage.dag('wanted')}/status", f"{stage.dag('wanted')}/report"):
        answer = httpx.get(f"{stage.airflow.url}/kafka-migration/{page}", trust_env=False, timeout=60)
        assert answer.status_code == 401, page


@pytest.mark.parametrize(
    "path", ["docs/%2e%2e/%2e%2e/airflow/airflow.cfg", "docs//etc/passwd", "docs/%2e%2e/secret.txt"]
)
def test_pages_lead_to_no_file_outside_of_the_plans_reports(stage, path):
    (stage.reports / "secret.txt").write_text("not for anybody")
    answer = stage.api.request("GET", f"/kafka-migration/{stage.dag('wanted')}/{path}")
    assert answer.status_code == 404


def test_dag_that_is_no_migration_has_no_page(stage):
    assert stage.api.request("GET", "/kafka-migration/migrate_nothing/report").status_code == 404


def test_tasks_link_to_the_report_and_to_the_data_docs(stage):
    run = stage.runs["wanted"]
    links = stage.api.call("GET", f"/dags/{stage.dag('wanted')}/dagRuns/{run}/taskInstances/validate/links")
    assert links["extra_links"]["Migration report"] == f"/kafka-migration/{stage.dag('wanted')}/report"
    assert links["extra_links"]["Data Docs"] == f"/kafka-migration/{stage.dag('wanted')}/docs/index.html"


def test_lineage_has_the_mirror_between_the_topics_of_both_clusters(stage):
    lines = (stage.airflow.home / LINEAGE).read_text(encoding="utf-8").splitlines()
    events = [event for event in map(json.loads, lines) if event["job"]["name"] == f"{stage.dag('wanted')}.mirror"]
    edges = {
        tuple((it["namespace"], it["name"]) for it in event["inputs"] + event["outputs"])
        for event in events
        if event["inputs"]
    }
    sides = (cluster.bootstrap_servers for cluster in (stage.source, stage.target))
    assert edges == {tuple((f"kafka://{side}", topic) for side in sides for topic in sorted(stage.topics))}
    assert {event["eventType"] for event in events} >= {"START", "RUNNING", "COMPLETE"}


def test_secrets_are_in_no_file_log_event_log_rendered_field_or_xcom(stage):
    shown = []
    for plan in ("wanted", "unwanted"):
        for task in stage.api.task_instances(stage.dag(plan), stage.runs[plan]):
            path = f"/dags/{stage.dag(plan)}/dagRuns/{stage.runs[plan]}/taskInstances/{task['task_id']}/xcomEntries"
            for entry in stage.api.call("GET", path)["xcom_entries"]:
                value = stage.api.call("GET", f"{path}/{entry['key']}", params={"map_index": entry["map_index"]})
                shown.append(json.dumps(value))
            shown.append(json.dumps(task["rendered_fields"]))
    assert len(shown) > 20
    assert not showing(stage, shown)
    # Database, logs, snapshots, what the processes printed: everything that a run leaves behind.
    folders = (stage.airflow.home, stage.reports, stage.events)
    files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "airflow.db" for path in files)
    assert any("task_id=mirror" in str(path) for path in files)
    assert any(path.name == LINEAGE for path in files)
    logged = [path.read_bytes() for path in files if stage.events in path.parents]
    assert sum(b"SparkListenerEnvironmentUpdate" in content for content in logged) >= 2, "mirror's and validation's"
    searched = {path: path.read_bytes() for path in files}
    assert not [path for path, content in searched.items() if any(it.encode() in content for it in stage.secrets)]


def test_secrets_are_in_no_answer_of_airflows_api_and_on_no_page_of_ours(stage):
    dag, run = stage.dag("wanted"), stage.runs["wanted"]
    paths = ["/connections", "/connections/stored_target", "/variables", "/eventLogs", "/importErrors", "/plugins"]
    paths += ["/dags", f"/dags/{dag}/details", f"/dags/{dag}/dagRuns/{run}", f"/dags/{dag}/dagRuns/{run}/taskInstances"]
    paths += ["/dags/~/dagRuns/~/hitlDetails"]
    shown = [json.dumps(stage.api.call("GET", path)) for path in paths]
    assert any("stored_target" in text for text in shown)
    shown += [stage.log("wanted", name) for name in stage.tasks("wanted")]
    pages = ["", "status", "report", "docs/index.html"]
    answers = [stage.api.request("GET", f"/kafka-migration/{dag}/{page}") for page in pages]
    assert [it.status_code for it in answers] == [200] * len(pages)
    shown += [it.text for it in answers]
    assert not showing(stage, shown)
