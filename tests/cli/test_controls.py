"""pause, resume and throttle: in memory for what they say, and on a mirror that Spark runs for what they do."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.state.link import LinkState
from tests.cli.conftest import Terminal
from tests.cli.processes import ROOT
from tests.copy.plans import SmallPlan, small_plan
from tests.kafka_tools import ToSend, create_topics, log_ends, produce
from tests.steps import histories
from tests.waiting import HANGS_SECONDS, UNDER_LOAD, wait_until


@pytest.fixture
def created(terminal: Terminal) -> Terminal:
    histories.created(terminal.shop)
    histories.mirroring(terminal.shop)
    return terminal


def test_pause_is_told_by_status_lag_and_its_gate_with_who_and_when(created: Terminal) -> None:
    result = created.run("pause", "--as", "ada", "--reason", "backup")
    assert result.exit_code == 0
    assert "mirror: running; paused by ada at 2030-" in result.stdout
    assert "(backup)" in result.stdout
    for words in (["status"], ["lag"]):
        assert "paused by ada at" in " ".join(created.run(*words).stdout.split()), words
    assert created.json("status")["mirror"]["controls"]["pause"]["by"] == "ada"
    created.write_plan(lag_gate={"threshold_records": 10, "deadline_seconds": 60})
    gate = created.run("lag", "--gate")
    assert gate.exit_code == 1
    assert "lag was not at or under 10 within 60 s; the mirror is paused by ada at" in " ".join(gate.stdout.split())
    assert "; the mirror is paused by ada" in gate.stderr


def test_second_pause_keeps_the_first_and_resume_takes_it_back(created: Terminal) -> None:
    created.run("pause", "--as", "ada")
    assert created.json("pause", "--as", "bob")["pause"]["by"] == "ada"
    value = created.json("resume", "--as", "bob")
    assert (value["pause"], value["mirror"], value["dry_run"]) == (None, "running", False)
    assert "nothing holds the mirror back" in created.run("resume").stdout


def test_throttle_is_in_force_until_it_is_taken_off(created: Terminal) -> None:
    assert created.json("throttle", "50MB", "--as", "ada")["throttle"]["bytes_per_second"] == 50_000_000
    assert "throttled to 50 MB/s by ada at" in " ".join(created.run("status").stdout.split())
    assert created.json("throttle", "off", "--as", "bob")["throttle"] | {"at": ""} == {
        "bytes_per_second": None,
        "by": "bob",
        "at": "",
    }
    assert "throttled" not in created.run("status").stdout


def test_dry_run_says_what_would_be_done_and_changes_nothing(created: Terminal) -> None:
    before = created.shop.links.items()
    said = [created.run(*words, "--dry-run").stderr for words in (["pause"], ["throttle", "1MB"], ["throttle", "off"])]
    assert said == [
        "pause the mirror: it neither fetches nor sends until `resume`\n",
        "throttle the mirror to 1 MB/s\n",
        "take the throttle off the mirror\n",
    ]
    assert created.shop.links.items() == before


@pytest.mark.parametrize("words", [["pause"], ["resume"], ["throttle", "1MB"]])
def test_before_anything_was_created_there_is_nothing_to_hold_back(words: list[str], terminal: Terminal) -> None:
    result = terminal.run(*words)
    assert result.exit_code == 1
    assert "run `create` first" in result.stderr


@pytest.mark.parametrize("words", [["throttle", "fast"], ["throttle", "0"], ["mirror", "--throttle", "off"]])
def test_what_is_no_rate_exits_2(words: list[str], created: Terminal) -> None:
    assert created.run(*words).exit_code == 2


# -- on Spark ---------------------------------------------------------------------------------------------------------


class Commands:
    """Commands on a plan, each a process of its own, as people run them."""

    def __init__(self, plan: SmallPlan, folder: Path) -> None:
        self.plan, self.folder = plan, folder
        self.environment = {**plan.environment, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}", "COLUMNS": "200"}

    def begin(self, *words: str) -> subprocess.Popen[str]:
        command, *rest = words
        arguments = [sys.executable, "-m", "kafka_migration", command, str(self.plan.path), *rest]
        pipe = subprocess.PIPE
        return subprocess.Popen(
            arguments,
            env=self.environment,
            cwd=self.folder,
            stdout=pipe,
            stderr=pipe,
            text=True,
            stdin=subprocess.DEVNULL,
        )

    def run(self, *words: str) -> str:
        process = self.begin(*words)
        out, err = process.communicate(timeout=HANGS_SECONDS)
        assert process.returncode == 0, err
        return out


def last_growth(read: Callable[[], int], *, still_for: float) -> float:
    """When (monotonic) what `read` tells grew last, once it stood still for so many seconds."""
    seen, at = read(), time.monotonic()

    def is_still() -> bool:
        nonlocal seen, at
        now = read()
        if now != seen:
            seen, at = now, time.monotonic()
        return time.monotonic() - at > still_for

    wait_until(is_still, f"no growth for {still_for} s")
    return at


@pytest.mark.long
def test_mirror_on_spark_obeys_within_two_seconds_and_is_taken_over_while_it_is_paused(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka, tmp_path: Path
) -> None:
    source, target = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    topics = {f"held-{uuid.uuid4().hex[:8]}": 2}
    (topic,) = topics
    create_topics(source, topics)
    backlog = 40_000
    produce(source, topic, (ToSend(b"x" * 500, None, n % 2) for n in range(backlog)), **{"batch.size": 5_000})
    plan = small_plan(tmp_path, source, target, topics, mirror={"num_streams": 2, "epoch_seconds": 120})
    commands = Commands(plan, tmp_path)
    first = commands.begin("mirror", "--master", "local[2]", "--throttle", "500kB")
    others = [first]
    link: LinkState | None = None
    try:
        wait_until(lambda: log_ends(target, topics) > 500, "records flow", deadline_seconds=150)
        link = LinkState.on_target(plan.name, {"bootstrap.servers": target})
        assert json.loads(commands.run("pause", "--as", "ada", "--json"))["pause"]["by"] == "ada"
        asked = time.monotonic()
        assert last_growth(lambda: log_ends(target, topics), still_for=2.5) - asked < UNDER_LOAD * 2
        paused_at = log_ends(target, topics)
        assert paused_at < backlog
        mirror = json.loads(commands.run("status", "--json"))["mirror"]
        assert (mirror["state"], mirror["controls"]["pause"]["by"]) == ("running", "ada")
        assert mirror["controls"]["throttle"]["bytes_per_second"] == 500_000
        fences = len(link.fences())
        second = commands.begin("mirror", "--master", "local[2]")
        others.append(second)
        _, said = first.communicate(timeout=HANGS_SECONDS)
        assert first.returncode == 3
        assert "taken over" in said
        wait_until(lambda: len(link.fences()) > fences, "the second has fenced")
        assert last_growth(lambda: log_ends(target, topics), still_for=2)
        assert log_ends(target, topics) == paused_at + 2, "a marker in each partition, and no record"
        commands.run("throttle", "off")
        commands.run("resume")
        wait_until(lambda: log_ends(target, topics) > paused_at + 2, "it goes on", deadline_seconds=UNDER_LOAD * 2)
        wait_until(lambda: log_ends(target, topics) == backlog + 4, "all is copied")
        commands.run("stop", "--now")
        second.communicate(timeout=HANGS_SECONDS)
        assert second.returncode == 0
    finally:
        for process in others:
            if process.poll() is None:
                process.kill()
                process.communicate()
        if link is not None:
            link.close()
