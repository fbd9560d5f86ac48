"""The whole migration by one command: asked at a terminal, killed on the way, and run again."""

from __future__ import annotations

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
lag_gate: {threshold_records: 0, samples: 2, interval_seconds: 0.5, deadline_seconds: 120}
approvals: {plan: false, cutover: true, approvers: [ME]}
cutover: {rest_seconds: 1, stopped_groups: [NAME.app]}
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
@pytest.mark.timeout(1500)
def test_run_that_was_killed_goes_on_asks_once_and_ends_with_restored_topics_and_a_report(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    name = f"whole-{uuid.uuid4().hex[:8]}"
    topic, group = f"{name}.orders", f"{name}.app"
    create_topics(source, {topic: 2}, {"retention.ms": "604800000"})
    produce(source, topic, (ToSend(b"%d" % n, partition=n % 2) for n in range(RECORDS)))
    commit(source, group, {(topic, 0): 100, (topic, 1): 200})
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN.replace("NAME", name))
    connections = {"first": connection(source), "second": connection(target)}
    words = ("run", str(plan), "--master", "local[2]", "--output", str(tmp_path / "reports"))

    first = start(*words, connections=connections, directory=tmp_path)
    assert first.stderr is not None
    # The mirror copies beside it.
    assert any(line.startswith("validate:") for line in first.stderr)
    first.send_signal(signal.SIGKILL)
    finish(first)
    wait_until(lambda: not processes_of(plan), "nothing of the first run is left", deadline_seconds=30)

    unasked = finish(start(*words, connections=connections, directory=tmp_path))
    assert unasked.code == 1
    assert "cutover gate: nobody can be asked here" in unasked.err
    wait_until(lambda: not processes_of(plan), "the mirror of a run that ended has ended", deadline_seconds=60)

    terminal, stdin = pty.openpty()
    os.write(terminal, b"yes\n")
    second = start(*words, connections=connections, directory=tmp_path, stdin=stdin)
    done = finish(second)
    os.close(stdin)
    os.close(terminal)
    assert done.code == 0, done
    assert done.out.count("Type yes") == 1
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
    assert {"create_targets", "mirror", "cut_over", "stop_mirror", "validate_end", "restore", "release"} <= set(
        outcomes
    )

    again = finish(start(*words, "--json", connections=connections, directory=tmp_path))
    assert [step["step"] for step in again.json["steps"]] == ["release", "report"], "what is over is not begun anew"
