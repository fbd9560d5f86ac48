"""`make demo-full`: its acts, its plan, and its clients on a real broker, Java's among them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest
from confluent_kafka.admin import AdminClient

from checker.verdict import Verdict
from demo import full
from demo.brokers import EmbeddedKafka
from demo.clients.moving_java import java_properties
from demo.clients.scenarios import FULL, WAVES
from demo.clients.settings import Settings
from demo.clients.topics import create_health
from demo.errors import DemoError
from demo.judging import Judgement, judge
from demo.notes import RunDirectory
from demo.workload import CONTROL_COMMAND, Workload
from kafka_migration.plans.load import load_plan
from tests.waiting import wait_until


def test_plan_has_each_topic_and_group_in_one_wave_and_no_producer_in_two() -> None:
    plan = load_plan(full.PLAN)
    assert plan.waves is not None
    assert [wave.name for wave in plan.waves.given] == list(WAVES)
    wave_of = {
        topic.name: [wave.name for wave in plan.waves.given if any(re.fullmatch(it, topic.name) for it in wave.topics)]
        for topic in FULL.topics
    }
    assert all(len(waves) == 1 for waves in wave_of.values())
    for producer in FULL.producers:
        assert len({wave_of[topic][0] for topic in producer.topics}) == 1, producer
    for group in FULL.groups:
        assert {wave_of[topic][0] for topic in group.topics} == {group.name.split(".")[1].split("-")[0]}


def test_workload_has_every_kind_of_producer_of_both_clients_and_enough_groups() -> None:
    assert len(FULL.producers) >= 10
    assert len(FULL.groups) >= 10
    of_java = {producer.kind for producer in FULL.producers if producer.java}
    of_librdkafka = {producer.kind for producer in FULL.producers if not producer.java}
    assert of_java == {"idempotent", "transactional"}
    assert of_librdkafka == {*of_java, "acks=1"}
    assert {group.protocol for group in FULL.groups} == {"classic", "consumer"}


def test_java_gets_the_same_connection_as_librdkafka() -> None:
    found = java_properties(
        {
            "bootstrap.servers": "h:1", "security.protocol": "SASL_SSL", "ssl.ca.location": "/c/ca.crt",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "u", "sasl.password": "p", "linger.ms": 5,
        }
    )  # fmt: skip
    assert found["ssl.truststore.location"] == "/c/ca.crt"
    assert found["sasl.jaas.config"].endswith('ScramLoginModule required username="u" password="p";')
    assert "sasl.password" not in found
    found = java_properties({"security.protocol": "SSL", "ssl.ca.location": "/c/a", "ssl.key.location": "/c/x.key"})
    assert (found["ssl.keystore.type"], found["ssl.keystore.location"]) == ("PEM", "/c/x.pem")


class _Stage:
    """A theatre without clusters; its workload leaves the notes that ``directory`` holds."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.fence: dict[str, list[float | None]] = {"proved": [40.0], "until_started": [900.0]}
        self.said: list[str] = []
        self.ended: list[str] = []

    def log(self, line: str) -> None:
        self.said.append(line)

    def finish(self) -> Judgement:
        self.ended.append("finish")
        return judge(self.directory)


def _notes(folder: Path, *, lost: bool) -> None:
    run = RunDirectory(folder)
    run.write_owed({"g": {"t": [0]}})
    from checker.recorder import Recorder

    producer = Recorder(run.producer_notes("p"), client="p", cluster="source", kind="idempotent")
    producer.ack(producer.send("v", "t"), 0, 0)
    producer.close()
    member = Recorder(run.member_notes("g", "source", "m"), client="m", cluster="source", group="g")
    if not lost:
        member.receipt("t", 0, 0, "v")
    member.close()


@pytest.mark.parametrize(("lost", "good"), [(False, True), (True, False)])
def test_run_is_good_only_if_the_judge_finds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: bool, good: bool
) -> None:
    _notes(tmp_path, lost=lost)
    stage: Any = _Stage(tmp_path / "notes")
    monkeypatch.setattr(full, "ACTS", (("one", lambda it: it.ended.append("one")),))
    result = full.play(stage)
    assert stage.ended == ["one", "finish"]
    assert result.good is good
    last = json.loads(json.dumps(result.as_dict()))
    assert last["demo"]["records_lost"] == (0 if good else 1)
    assert set(last["pauses_ms"]) == {"producers", "consumers"}
    assert (last["acts"], last["fence_ms"]["proved"]) == (["one"], [40.0])
    assert last["not_run"] == {}


def test_act_that_fails_ends_the_acts_and_what_was_noted_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _notes(tmp_path, lost=False)
    stage: Any = _Stage(tmp_path / "notes")

    def fail(_stage: object) -> None:
        raise DemoError("the gate is shut")

    monkeypatch.setattr(full, "ACTS", (("one", fail), ("two", lambda it: it.ended.append("two"))))
    result = full.play(stage)
    assert stage.ended == ["finish"]
    assert not result.good
    assert result.judgement.verdict.exit_code == 0
    assert result.as_dict()["failure"] == "one: the gate is shut"
    assert list(result.as_dict()["not_run"]) == ["one", "two"]
    assert any("not run: two" in line for line in stage.said)


@pytest.mark.soak
def test_clients_moved_by_hooks_on_a_broker_note_what_the_judge_accepts(tmp_path: Path) -> None:
    with EmbeddedKafka(name="full-workload") as cluster:
        create_health(AdminClient(dict(cluster.admin_properties)))
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        # Source and target are one cluster: it is the clients that are tested.
        with Workload(tmp_path / "run", Settings(source=servers, target=servers, scenario="full")) as workload:
            workload.prepare()
            workload.start()
            at_work(workload, "source")
            java = sum(producer.java for producer in FULL.producers)
            wait_until(lambda: len(acknowledged(tmp_path)) == java, "Java's producers write to the source")
            call(workload, "stop-producers/source")
            for group in FULL.groups:
                hook(workload, "stop", group.name)
                hook(workload, "start", group.name)
            for token, path, code in (
                ("wrong", "stop-producers/source", 403),
                (workload.hook_token, "status/source", 404),
            ):
                assert call(workload, path, token=token, code=code)
            call(workload, "start-producers/target")
            assert "run on the target" in call(workload, "stop-producers/source")
            assert "run on the target" in call(workload, "start-producers/source", code=409)
            at_work(workload, "target")
            wait_until(lambda: len(acknowledged(tmp_path)) == 2 * java, "Java's producers write to the target")
            workload.stop_producers()
            workload.finish()
            verdict = workload.judge().verdict
    check(verdict, tmp_path)


def at_work(workload: Workload, cluster: str) -> None:
    workload.wait_until(
        lambda progress: all(getattr(group, f"on_{cluster}") > 20 for group in progress.groups.values()),
        timeout_seconds=180,
        what=f"every group receives records on the {cluster}",
    )


def hook(workload: Workload, *arguments: str) -> str:
    done = subprocess.run(
        [str(CONTROL_COMMAND), *arguments],
        env={"PATH": os.environ["PATH"], **workload.environment}, capture_output=True, text=True, check=False,
        timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def call(workload: Workload, path: str, *, token: str = "", code: int = 200) -> str:
    """As a hook for producers calls; the answer."""
    headers = {"Authorization": f"Bearer {token or workload.hook_token}"}
    answer = httpx.post(f"{workload.hook_url}/{path}", headers=headers, trust_env=False, timeout=200)
    assert answer.status_code == code, answer.text
    return answer.text


def check(verdict: Verdict, tmp_path: Path) -> None:
    assert verdict.exit_code == 0, verdict.findings.examples
    for pauses in verdict.pauses_ms.values():
        assert pauses["max"] is not None


def acknowledged(tmp_path: Path) -> list[Path]:
    """The notes of Java's producers, of either cluster, that have an acknowledged record."""
    notes = (tmp_path / "run" / "notes" / "producers").glob("*java*.jsonl")
    return [path for path in notes if '"ack"' in path.read_text()]
