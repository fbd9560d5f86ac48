"""The whole migration by one command: in waves, asked at a terminal, killed on the way, and run again."""

from __future__ import annotations

import json
import os
import pty
import signal
import uuid
from pathlib import Path

import psutil
import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.migration.context import open_context
from kafka_migration.plans.load import load_plan
from tests.cli.processes import ME, connection, environment, finish, start
from tests.kafka_tools import ToSend, commit, committed, create_topics, produce, read_all
from tests.waiting import wait_until

PLAN = """
version: 1
name: NAME
source: first
target: second
topics: {include: ['NAME\\..*']}
groups: {include: ['NAME\\..*']}
lag_gate: {threshold_records: 0, samples: 2, interval_seconds: 0.5, deadline_seconds: 900}
approvals: {plan: false, cutover: true, approvers: [ME]}
cutover: {rest_seconds: 1, stopped_groups: [NAME.app, NAME.first]}
waves: {given: [{name: small.one, topics: ['NAME\\.small'], canary: true}, {name: rest, topics: ['NAME\\.orders']}]}
mirror: {epoch_seconds: 5}
drain: {window_seconds: 2, deadline_seconds: 120}
""".replace("ME]", f"{ME}]")
RECORDS = 500


def processes_of(plan: Path) -> list[psutil.Process]:
    """What runs with this plan, however deep."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if str(plan) in " ".join(process.info["cmdline"] or ()):
            found.append(process)
    return found


# Three runs, nine starts of Spark: 130 s on a machine of its own, four times that beside six other workers.
# The steps of it stay in `make test`: tests/cli/test_migration.py and tests/dags/test_migration.py.
@pytest.mark.long
@pytest.mark.timeout(1500)
def test_run_that_was_killed_goes_on_asks_once_for_each_wave_and_ends_with_restored_topics_and_a_report(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    name = f"whole-{uuid.uuid4().hex[:8]}"
    topic, group = f"{name}.orders", f"{name}.app"
    small, first_group = f"{name}.small", f"{name}.first"
    create_topics(source, {topic: 2, small: 1}, {"retention.ms": "604800000"})
    produce(source, topic, (ToSend(b"%d" % n, partition=n % 2) for n in range(RECORDS)))
    produce(source, small, (ToSend(b"%d" % n) for n in range(20)))
    commit(source, group, {(topic, 0): 100, (topic, 1): 200})
    commit(source, first_group, {(small, 0): 7})
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("NAME", name))
    connections = {"first": connection(source), "second": connection(target)}
    words = ("run", str(plan), "--master", "local[2]", "--output", str(tmp_path / "reports"))

    first = start(*words, connections=connections, directory=tmp_path)
    assert first.stderr is not None
    # The mirror copies beside it.
    lines: list[str] = []
    while not lines or (lines[-1] and not lines[-1].startswith("validate:")):
        lines.append(first.stderr.readline())
    assert lines[-1], "".join(lines)
    first.send_signal(signal.SIGKILL)
    finish(first)
    wait_until(lambda: not processes_of(plan), "nothing of the first run is left")

    terminal, stdin = pty.openpty()
    os.write(terminal, b"yes\nno\n")
    declined = finish(start(*words, connections=connections, directory=tmp_path, stdin=stdin))
    assert (declined.code, declined.out.count("Type yes")) == (1, 2), declined
    assert "cutover gate of wave rest: not approved" in declined.err
    assert committed(target, first_group)
    assert not committed(target, group), "it is of the wave that was not approved"
    wait_until(lambda: not processes_of(plan), "the mirror of a run that ended has ended")

    os.write(terminal, b"yes\n")
    done = finish(start(*words, connections=connections, directory=tmp_path, stdin=stdin))
    os.close(stdin)
    os.close(terminal)
    assert done.code == 0, done
    assert done.out.count("Type yes") == 1
    assert "wave small.one has moved: continuing with what follows it" in done.err
    assert (tmp_path / "reports" / name / "report.html").is_file()
    stands = committed(target, group)
    left = {tp: [row for row in rows if row.offset >= stands[tp]] for tp, rows in read_all(target, {topic: 2}).items()}
    values = {tp.partition: rows[0].value for tp, rows in left.items()}
    # The records that its commits on the source point to: each partition has every other number.
    assert values == {0: b"200", 1: b"401"}
    assert all(len(rows) == RECORDS / 2 - read for rows, read in zip(left.values(), (100, 200), strict=True))
    for variable, value in environment(connections).items():
        monkeypatch.setenv(variable, value)
    with open_context(load_plan(plan)) as ctx:
        assert ctx.journal.holders([topic]) == {}
        assert ctx.target.topic_configs([topic])[topic]["retention.ms"].value == "604800000"
        outcomes = {step: account["outcome"] for step, account in ctx.journal.all("phase").items()}
    assert set(outcomes.values()) == {"done"}
    steps = {"create_targets", "mirror", "stop_mirror", "validate_end", "restore", "release"}
    steps |= {f"{step}[{wave}]" for step in ("cut_over", "watch_groups") for wave in ("small.one", "rest")}
    assert steps <= set(outcomes)
    report = json.loads((tmp_path / "reports" / name / "report.json").read_text())
    assert [(w["wave"], w["stands"], w["approval"]["approver"]) for w in report["waves"]] == [
        ("small.one", "moved: 1 groups", ME),
        ("rest", "moved: 1 groups", ME),
    ]
    assert all(w["pause_seconds"] is not None for w in report["waves"])

    again = finish(start(*words, "--json", connections=connections, directory=tmp_path))
    assert [step["step"] for step in again.json["steps"]] == ["release", "report"], "what is over is not begun anew"
