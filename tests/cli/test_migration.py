"""A whole migration by commands alone, between two real clusters, of which one asks for a password.

One test, because a migration is one story: each command's exit code and words are checked where it stands in it. At
its end everything that was printed or written is searched for the password.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from demo.brokers import EmbeddedKafka
from kafka_migration.cli.app import app
from kafka_migration.groups.move import Mover
from kafka_migration.plans.load import load_plan
from tests.cli.processes import ME, Ended, connection, environment, finish, start
from tests.kafka_tools import ToSend, commit, committed, create_topics, produce

PASSWORD = "hunter2-must-never-be-shown"
PLAN = """
version: 1
name: story
source: guarded
target: open
topics: {include: ['story\\..*']}
groups: {include: ['story\\..*']}
lag_gate: {threshold_records: 0, samples: 2, interval_seconds: 1, deadline_seconds: 120}
approvals: {approvers: [APPROVER]}
cutover: {rest_seconds: 1, stopped_groups: [story.app, story.later]}
mirror: {epoch_seconds: 5}
drain: {window_seconds: 2, deadline_seconds: 120}
""".replace("APPROVER", ME)
RECORDS = 300


@pytest.fixture(scope="module")
def guarded() -> Iterator[EmbeddedKafka]:
    """A source whose clients need a password; tests themselves use its internal listener."""
    jaas = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_mover="{PASSWORD}";'
    properties = {
        "listener.security.protocol.map": "CLIENT:SASL_PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.client.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.client.plain.sasl.jaas.config": jaas,
    }
    with EmbeddedKafka(name="guarded", properties=properties) as cluster:
        yield cluster


def credentials(cluster: EmbeddedKafka, password: str) -> str:
    """The connection to a guarded cluster."""
    return connection(
        cluster.bootstrap_servers,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_username="mover",
        sasl_password=password,
    )


class Story:
    """Runs the commands, and keeps all that they said."""

    def __init__(self, directory: Path, environ: pytest.MonkeyPatch) -> None:
        self.directory = directory
        self.said: list[str] = []
        self._environ = environ
        environ.chdir(directory)
        environ.setenv("COLUMNS", "80")

    def connect(self, conn_id: str, value: str) -> None:
        self._environ.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", value)

    def run(self, command: str, *words: str, code: int = 0) -> Ended:
        """In this process, which saves seconds of imports each time; but the mirror, which takes signals over."""
        gate = words[:1] if command == "approve" else ()
        line = [command, *gate, "plan.yaml", *words[len(gate) :]]
        if command == "mirror":
            process = start(*line, connections={}, directory=self.directory)
            ended = finish(process, seconds=600)
        else:
            result = CliRunner().invoke(app, line)
            ended = Ended(result.exit_code, result.stdout, result.stderr)
        self.said += [ended.out, ended.err]
        assert ended.code == code, f"{command} {words}: {ended}"
        return ended

    @contextmanager
    def after_first_move(self, patch: pytest.MonkeyPatch, command: str, *words: str) -> Iterator[None]:
        """Run ``command`` as soon as a group was moved."""
        move, todo = Mover.move, [words]

        def moved(mover: Mover, group: str) -> object:
            done = move(mover, group)
            if todo:
                self.run(command, *todo.pop())
            return done

        with patch.context() as patched:
            patched.setattr(Mover, "move", moved)
            yield

    def approve(self, gate: str) -> None:
        shown = self.run("approve", gate, "--show", "--json").json
        digest = shown["digest"]
        answer = self.run("approve", gate, "--receipt", shown["receipt"], "--yes", "--json").json
        assert (answer["approver"], answer["digest"]) == (ME, digest)


def test_init_makes_of_addresses_and_client_properties_what_check_takes(
    guarded: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path
) -> None:
    inside = guarded.internal_servers
    create_topics(inside, {"begun.orders": 2, "heartbeats": 1}, {"retention.ms": "604800000"})
    produce(inside, "begun.orders", (ToSend(value=b"x", partition=n % 2) for n in range(10)))
    commit(inside, "begun.app", {("begun.orders", 0): 1, ("begun.orders", 1): 2})
    (tmp_path / "client.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config="
        f'org.apache.kafka.common.security.plain.PlainLoginModule required username="mover" password="{PASSWORD}";\n'
    )
    clusters = f"--source {guarded.bootstrap_servers} --source-config client.properties"
    clusters += f" --target {target_cluster.bootstrap_servers}"
    km = f"{sys.executable} -m kafka_migration"
    line = f"{km} init begun.yaml {clusters} && . ./begun.env && {km} check begun.yaml --json"
    done = subprocess.run(
        ["sh", "-c", line], cwd=tmp_path, env=environment({}), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    plan = load_plan(tmp_path / "begun.yaml")
    assert r"begun\.orders" in plan.topics.include
    assert "heartbeats" not in plan.topics.include
    assert r"begun\.app" in plan.groups.include
    assert "2 partitions, " in (tmp_path / "begun.yaml").read_text()
    assert PASSWORD not in done.stdout + done.stderr + (tmp_path / "begun.yaml").read_text()


@pytest.mark.timeout(1500)
def test_commands_alone_migrate_topics_and_a_group(
    guarded: EmbeddedKafka,
    target_cluster: EmbeddedKafka,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    inside = guarded.internal_servers
    create_topics(inside, {"story.orders": 2}, {"retention.ms": "604800000"})
    produce(inside, "story.orders", (ToSend(value=f"{n}".encode(), partition=n % 2) for n in range(2 * RECORDS)))
    commit(inside, "story.app", {("story.orders", 0): 100, ("story.orders", 1): RECORDS})
    commit(inside, "story.later", {("story.orders", 0): 200, ("story.orders", 1): 0})
    (tmp_path / "plan.yaml").write_text(PLAN)
    story = Story(tmp_path, monkeypatch)
    story.connect("guarded", credentials(guarded, PASSWORD))
    story.connect("open", connection(target_cluster.bootstrap_servers))

    # Before: looked at, refused, approved.
    assert story.run("check", "--json").json["open"] is True
    assert "nothing has been done yet" in story.run("status").out
    assert "nobody has approved it yet" in story.run("create", code=1).err
    assert "run `create` first" in story.run("stop", code=1).err
    story.approve("plan")
    planned = story.run("create", "--dry-run").err
    assert story.run("status", "--json").json["topics"] == 0
    assert [line for line in story.run("create").err.splitlines() if line.startswith("create topic")] == [
        line for line in planned.splitlines() if line.startswith("create topic")
    ]

    # Copied, caught up, compared.
    assert story.run("lag", "--json").json["total"] == 2 * RECORDS
    copied = story.run("mirror", "--until-caught-up", "--master", "local[2]", "--json").json
    assert (copied["reason"], copied["records"]) == ("caught_up", 2 * RECORDS)
    assert story.run("lag", "--gate", "--json").json["passed"] is True
    lag = 'kafka_migration_lag_offsets{direction="forward",migration="story",topic="story.orders"} 0.0'
    assert lag in story.run("metrics", "--once").out.splitlines()
    assert "nothing was validated yet" in story.run("cutover", code=1).err
    verdict = story.run("validate", "--master", "local[2]", "--json").json
    assert (verdict["verdict"], verdict["totals"]["source_records"]) == ("EQUAL", 2 * RECORDS)

    # Moved: translated as shown, by approval only.
    shown, later = (group["positions"] for group in story.run("translate", "--json").json["groups"])
    offsets = story.run("translate", "--offset", "story.orders:0:100", "--json").json["offsets"]
    assert offsets[0]["target"] == shown[0]["target"]
    assert "nobody has approved it yet" in story.run("cutover", code=1).err
    story.approve("cutover")
    assert "would move" in story.run("cutover", "--dry-run").out
    assert committed(target_cluster.bootstrap_servers, "story.app") == {}
    # Taken back while the first group is moved: the second one is not.
    with story.after_first_move(monkeypatch, "approve", "cutover", "--revoke", "--yes"):
        moved = story.run("cutover", "--json", code=1).json["groups"]
    assert [group["outcome"] for group in moved] == ["moved", "refused"]
    assert "revoked" in moved[1]["reason"]
    expected = {("story.orders", it["partition"]): it["target"] for it in shown}
    assert committed(target_cluster.bootstrap_servers, "story.app") == expected
    assert committed(target_cluster.bootstrap_servers, "story.later") == {}
    story.approve("cutover")
    moved = story.run("cutover", "--json").json["groups"]
    assert [group["outcome"] for group in moved] == ["already_moved", "moved"]
    expected = {("story.orders", place["partition"]): place["target"] for place in later}
    assert committed(target_cluster.bootstrap_servers, "story.later") == expected
    assert [watched["life"] for watched in story.run("watch", "--json").json["groups"]] == ["alive"] * 2

    # After: stopped, reported.
    assert story.run("stop", "--json").json["stopped"] is True
    story.run("report")
    report = json.loads((tmp_path / "reports" / "story" / "report.json").read_text())
    assert report["exceptions"] == []
    assert [(it["name"], it["outcome"]) for it in report["phases"] if it["name"] != "mirror"] == [
        ("create_targets", "done"),
        ("validate", "done"),
        ("cut_over", "done"),
        ("watch_groups", "done"),
        ("stop_mirror", "done"),
    ]
    assert report["mirror"]["records"] == 2 * RECORDS
    assert [(it["source_records"], it["target_records"]) for it in report["validation"]["partitions"]] == [
        (RECORDS, RECORDS)
    ] * 2
    assert {(it["gate"], it["approver"]) for it in report["approvals"]} == {("plan", ME), ("cutover", ME)}
    group, other = report["groups"]
    assert [(moved["step"], moved["alive"]) for moved in (group, other)] == [("alive", True)] * 2
    assert {it["partition"]: (it["source"], it["target"], it["read_back"]) for it in group["positions"]} == {
        it["partition"]: (it["source"], it["target"], it["target"]) for it in shown
    }
    assert report["data_docs"] == "data_docs/index.html"
    page = story.run("status")
    assert max(map(len, page.out.splitlines())) <= 80
    assert {
        f'kafka_migration_mirror_records{{direction="forward",migration="story"}} {2 * RECORDS:.1f}',
        'kafka_migration_mirror_state{direction="forward",migration="story",state="sealed"} 1.0',
        'kafka_migration_groups{migration="story",step="alive"} 2.0',
        'kafka_migration_validation_verdict{direction="forward",migration="story",verdict="EQUAL"} 1.0',
    } <= set(story.run("metrics", "--once").out.splitlines())

    # A wrong password is a no, not a silence; and nothing that was said or written holds the right one.
    story.connect("guarded", credentials(guarded, "a wrong one"))
    assert "authentication failed" in " ".join(story.run("check", code=1).out.split())
    assert 'kafka_migration_unknown{migration="story",part="lag"} 1.0' in story.run("metrics", "--once").out
    written = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(written) > 5
    assert [file for file in written if PASSWORD.encode() in file.read_bytes()] == []
    # Clients write to the terminal past Python, too.
    assert not any(PASSWORD in text for text in (*story.said, *capfd.readouterr()))
