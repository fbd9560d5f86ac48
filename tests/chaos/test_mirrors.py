"""Who starts the mirror again, and when it is a finding that it has ended. Its processes are made up here."""

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.chaos.mirrors import Mirrors, Run, may_be_started_again
from tests.waiting import wait_until

#: Does what is told in the plan, by the number of its start: ends with a code, and a kind of error, if one is told.
#: Without a word it waits to be killed.
MADE_UP = """
import json, pathlib, sys, time
plan = pathlib.Path(sys.argv[1])
started = plan.with_name("started")
number = len(started.read_text()) if started.exists() else 0
started.write_text("x" * (number + 1))
told = plan.read_text().splitlines()
word = told[number] if number < len(told) else "wait"
print(word, file=sys.stderr, flush=True)
if word == "wait":
    time.sleep(600)
kind, code = word.rpartition(" ")[::2]
if kind:
    print(json.dumps({"error": {"kind": kind, "exit_code": int(code)}}, indent=2))
sys.exit(int(code))
"""

Starts = Callable[..., Mirrors]


@pytest.fixture
def starts(tmp_path: Path) -> Iterator[Starts]:
    with ExitStack() as stack:

        def start(*words: str) -> Mirrors:
            plan = tmp_path / "plan"
            plan.write_text("\n".join(words))
            mirrors = Mirrors(plan, os.environ, tmp_path, command=(sys.executable, "-c", MADE_UP))
            return stack.enter_context(mirrors)

        yield start


def running(mirrors: Mirrors, number: int) -> None:
    wait_until(
        lambda: len(mirrors.runs) == number and "wait" in mirrors.runs[-1].said, f"run {number} waits to be killed"
    )


def test_mirror_that_could_not_find_out_or_was_taken_over_is_started_again(starts):
    kinds = ("CouldNotFindOut", "ClusterUnreachable", "LeaderUnknown", "TakenOver", "Overtaken")
    mirrors = starts(*(f"{kind} 3" for kind in kinds))
    running(mirrors, len(kinds) + 1)
    assert [run.error for run in mirrors.runs[:-1]] == list(kinds)
    assert mirrors.findings == []


@pytest.mark.parametrize(
    ("code", "harm", "kind", "may_be"),
    [
        (3, [], "CouldNotFindOut", True),
        (3, [], "EpochsLost", False),
        (3, ["jvm killed"], "EpochsLost", True),
        (3, ["jvm killed"], "StateConflict", False),
        (3, ["jvm killed"], "", False),
        (-9, ["driver killed"], "", True),
        (-9, [], "", False),
    ],
)
def test_epochs_may_die_only_of_what_was_done_to_their_mirror(tmp_path, code, harm, kind, may_be):
    answer = tmp_path / "answer"
    answer.write_text(json.dumps({"error": {"kind": kind}}) if kind else "")
    process: Any = SimpleNamespace(returncode=code)
    assert may_be_started_again(Run(process, tmp_path / "log", answer, harm)) is may_be


def test_killed_mirror_is_started_again(starts):
    mirrors = starts()
    running(mirrors, 1)
    run = mirrors.current
    run.harm.append("driver killed")
    assert run.signal(run.pids("driver"), signal.SIGKILL) == [run.process.pid]
    running(mirrors, 2)
    assert mirrors.findings == []


@pytest.mark.parametrize(
    "word",
    [
        "1",
        "2",
        "0",
        # Nothing said: it did not get so far.
        "3",
        # Nobody expected it, in the driver or in a task.
        "IndexError 3",
        "MigrationError 3",
        # What it holds for true is not.
        "StateConflict 3",
        # They answered, and it is not for a while.
        "UnknownTopic 3",
        "AuthenticationFailed 3",
        "NotSupported 3",
    ],
)
def test_mirror_that_ends_otherwise_than_it_may_is_a_finding_and_not_started_again(starts, word):
    mirrors = starts(word)
    wait_until(lambda: mirrors.findings, "a finding")
    assert f"ended with {word[-1]}" in mirrors.findings[0]
    assert (word[:-2] or "no error") in mirrors.findings[0]
    assert (len(mirrors.runs), mirrors.is_finished.is_set()) == (1, False)


def test_mirror_that_dies_though_nothing_was_done_to_it_is_a_finding(starts):
    mirrors = starts()
    running(mirrors, 1)
    mirrors.current.process.send_signal(signal.SIGSEGV)
    wait_until(lambda: mirrors.findings, "a finding")
    assert "nothing was done to it" in mirrors.findings[0]


def test_mirror_may_end_once_it_is_drained(starts):
    mirrors = starts("TakenOver 3", "0")
    mirrors.may_finish = True
    assert mirrors.is_finished.wait(180)
    assert (len(mirrors.runs), mirrors.findings) == (2, [])


def test_frozen_mirror_does_not_count_as_running_and_must_give_way_when_it_wakes(starts):
    mirrors = starts()
    running(mirrors, 1)
    first = mirrors.current
    first.is_frozen = True
    first.harm.append("all frozen")
    first.signal(first.pids("all"), signal.SIGSTOP)
    second = mirrors.start()
    running(mirrors, 2)
    assert mirrors.current is second
    first.signal(first.pids("all"), signal.SIGCONT)
    first.signal(first.pids("all"), signal.SIGTERM)
    assert mirrors.gives_way(first)
    wait_until(lambda: first.is_over, "it was noticed")
    assert mirrors.findings == []


def test_nothing_is_left_of_them(starts, tmp_path):
    mirrors = starts()
    running(mirrors, 1)
    run = mirrors.current
    run.signal(run.pids("all"), signal.SIGSTOP)
    mirrors.__exit__()
    assert run.pids("all") == []


def test_real_command_says_its_kind_of_error_where_it_is_looked_for(tmp_path):
    plan = tmp_path / "plan.yaml"
    plan.write_text("version: 1\nname: x\nsource: nowhere\ntarget: nowhere-else\ntopics: {include: [x]}\n")
    with Mirrors(plan, os.environ, tmp_path) as mirrors:
        wait_until(lambda: mirrors.findings, "there are no such connections")
    assert "ended with 2 (BadInput)" in mirrors.findings[0]
