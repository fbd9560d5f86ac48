"""What a person meets first: help, wrong input, clusters that do not answer, Ctrl-C; by the process's own exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from demo.brokers import EmbeddedKafka
from demo.brokers.ports import PortReservation
from tests.cli.processes import ROOT, Ended, connection, environment, finish, start
from tests.kafka_tools import create_topics
from tests.waiting import UNDER_LOAD

PLAN = """
version: 1
name: first-steps
source: here
target: there
topics: {include: ['first-steps\\..*']}
"""


def run(directory: Path, *words: str, **connections: str) -> Ended:
    return finish(start(*words, connections=connections, directory=directory))


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


def test_help_names_every_command_without_loading_a_client(tmp_path: Path) -> None:
    heavy = "pyspark great_expectations airflow fastapi confluent_kafka kafka pandas jinja2 pydantic"
    script = (
        "import sys; sys.argv = ['kafka_migration', '--help']\n"
        "from kafka_migration.cli.app import main\n"
        "try: main()\n"
        f"except SystemExit: print('LOADED', [name for name in '{heavy}'.split() if name in sys.modules])"
    )
    said = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment({}), check=True, timeout=60
    ).stdout
    for command in ("check", "create", "mirror", "lag", "validate", "translate", "cutover", "status", "stop", "report"):
        assert f"│ {command} " in said
    assert "LOADED []" in said


def test_help_costs_less_than_a_second_of_work(tmp_path: Path) -> None:
    # Processor time: the clock on the wall also counts what else the machine does.
    assert min(_processor_seconds("--help", directory=tmp_path) for _ in range(3)) < 1.0


def _processor_seconds(*words: str, directory: Path) -> float:
    process = start(*words, connections={}, directory=directory)
    assert process.stdout is not None
    process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    return used.ru_utime + used.ru_stime


def test_plan_file_that_is_not_there_exits_2_and_names_an_example(tmp_path: Path) -> None:
    ended = run(tmp_path, "check", "nowhere.yaml")
    assert (ended.code, ended.out) == (2, "")
    assert "nowhere.yaml: cannot be read: No such file or directory" in ended.err
    assert "remedy: give the path of a plan file; migration_plans/reference.yaml" in ended.err


def test_invalid_plan_exits_2_with_every_line_field_value_and_remedy(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text(PLAN + "mirror: {num_streams: 0}\nmirrors: {}\n")
    ended = run(tmp_path, "status", "bad.yaml", here=connection("127.0.0.1:1"), there=connection("127.0.0.1:1"))
    assert ended.code == 2
    assert "bad.yaml: 2 problems in the plan, nothing was started" in ended.err
    assert "line 7: mirror.num_streams = 0" in ended.err
    assert "line 8: mirrors" in ended.err
    assert ended.err.count("remedy: ") == 2


def test_unknown_connection_exits_2_with_file_field_value_and_remedy(plan: Path) -> None:
    ended = run(plan.parent, "check", "plan.yaml", "--json", here=connection("127.0.0.1:1"))
    assert ended.code == 2
    error = ended.json["error"]
    assert (error["file"], error["field"], error["value"]) == ("plan.yaml", "target", "there")
    assert "AIRFLOW_CONN_THERE" in error["remedy"]
    assert "plan.yaml: target: no connection has the id 'there'" in ended.err


def test_property_that_cannot_be_translated_exits_2(plan: Path) -> None:
    ended = run(
        plan.parent, "check", "plan.yaml", here=connection("127.0.0.1:1", no_such_thing="1"), there=connection("x:1")
    )
    assert ended.code == 2
    assert "no.such.thing" in ended.err


@pytest.mark.parametrize(
    "words",
    [["check"], ["chekc", "plan.yaml"], ["check", "plan.yaml", "--jsn"], ["mirror", "plan.yaml", "--throttle", "0"]],
)
def test_wrong_usage_exits_2(words: list[str], plan: Path) -> None:
    ended = run(plan.parent, *words)
    assert (ended.code, ended.out) == (2, "")


def test_schema_is_the_one_that_editors_use(tmp_path: Path) -> None:
    ended = run(tmp_path, "schema")
    assert ended.code == 0
    assert ended.out == (ROOT / "migration_plans" / "plan.schema.json").read_text()


def test_clusters_that_do_not_answer_exit_3_and_no_password_is_shown(plan: Path, target_cluster: EmbeddedKafka) -> None:
    reserved = PortReservation(1)
    try:
        (port,) = reserved
        silent = connection(
            f"127.0.0.1:{port}",
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="PLAIN",
            sasl_username="mover",
            sasl_password="hunter2-never-shown",
        )
        answers = connection(target_cluster.bootstrap_servers)
        # Both wait for their deadlines, so they wait together.
        no_target = start("status", "plan.yaml", connections={"here": answers, "there": silent}, directory=plan.parent)
        no_source = start(
            "check", "plan.yaml", "--debug", connections={"here": silent, "there": answers}, directory=plan.parent
        )
        target, source = finish(no_target), finish(no_source)
    finally:
        reserved.release()
    assert (target.code, target.out) == (3, "")
    assert f"target: no broker at 127.0.0.1:{port} answered" in target.err
    assert "remedy: check bootstrap.servers" in target.err
    assert source.code == 3
    assert "UNCHECKED" in source.out
    assert f"no broker at 127.0.0.1:{port} answered" in " ".join(source.out.split())
    assert "hunter2" not in target.err + target.out + source.err + source.out


def test_same_cluster_twice_is_refused_and_nothing_is_made(plan: Path, source_cluster: EmbeddedKafka) -> None:
    create_topics(source_cluster.bootstrap_servers, {"first-steps.a": 1})
    both = {"here": connection(source_cluster.bootstrap_servers), "there": connection(source_cluster.bootstrap_servers)}
    ended = finish(start("create", "plan.yaml", connections=both, directory=plan.parent))
    assert ended.code == 1
    assert "the connections of source and target lead to one and the same cluster" in ended.err
    assert "point the target's connection at the cluster to migrate to" in ended.err
    again = finish(start("status", "plan.yaml", "--json", connections=both, directory=plan.parent))
    assert (again.json["topics"], again.json["phases"]) == (0, [])


def test_plan_that_matches_no_topic_is_refused(
    plan: Path, source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    plan.write_text(PLAN.replace("first-steps\\..*", "no-such-topic"))
    ended = run(
        plan.parent,
        "check",
        "plan.yaml",
        "--json",
        here=connection(source_cluster.bootstrap_servers),
        there=connection(target_cluster.bootstrap_servers),
    )
    assert ended.code == 1
    (failed,) = [it for it in ended.json["checks"] if it["verdict"] == "FAIL"]
    assert failed["name"] == "plan matches topics"
    assert "correct topics.include" in failed["remedy"]


def test_interrupted_command_exits_130(
    plan: Path, source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    plan.write_text(PLAN.replace("first-steps", "interrupted") + "approvals: {plan: false}\n")
    create_topics(source_cluster.bootstrap_servers, {"interrupted.a": 1})
    both = {"here": connection(source_cluster.bootstrap_servers), "there": connection(target_cluster.bootstrap_servers)}
    assert finish(start("create", "plan.yaml", connections=both, directory=plan.parent)).code == 0
    watching = start("lag", "plan.yaml", "--watch", "--json", connections=both, directory=plan.parent)
    assert watching.stdout is not None
    assert json.loads(watching.stdout.readline())["partitions"] == {"interrupted.a-0": 0}
    watching.send_signal(signal.SIGINT)
    assert finish(watching, seconds=UNDER_LOAD * 10).code == 130
    # Who closes the terminal, or ends the container, has it leave nothing half done, either.
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Under nohup, or where these tests run so, it is to go on.
        before = signal.signal(number, signal.SIG_DFL)
        ended = start("lag", "plan.yaml", "--watch", "--json", connections=both, directory=plan.parent)
        signal.signal(number, before)
        assert ended.stdout is not None
        ended.stdout.readline()
        ended.send_signal(number)
        assert finish(ended, seconds=UNDER_LOAD * 10).code == 130
