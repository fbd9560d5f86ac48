"""Who starts the mirror again, and when it is a finding that it has ended. Its processes are made up here."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chaos.mirrors import Mirrors
from tests.waiting import wait_until

#: Does what is told in a file beside the plan, by the number of its start; without a word it waits to be killed.
MADE_UP = """
import pathlib, sys, time
plan = pathlib.Path(sys.argv[1])
started = plan.with_name("started")
number = len(started.read_text()) if started.exists() else 0
started.write_text("x" * (number + 1))
told = plan.read_text().splitlines()
word = told[number] if number < len(told) else "wait"
print(word, flush=True)
if word == "wait":
    time.sleep(600)
sys.exit(int(word.split()[-1]))
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


def test_mirror_that_could_not_find_out_is_started_again(starts):
    mirrors = starts("3", "3")
    running(mirrors, 3)
    assert mirrors.findings == []


def test_killed_mirror_is_started_again(starts):
    mirrors = starts()
    running(mirrors, 1)
    run = mirrors.current
    run.harm.append("driver killed")
    assert run.signal(run.pids("driver"), signal.SIGKILL) == [run.process.pid]
    running(mirrors, 2)
    assert mirrors.findings == []


@pytest.mark.parametrize("word", ["1", "2", "unexpected error: x 3", "0"])
def test_mirror_that_ends_otherwise_than_it_may_is_a_finding_and_not_started_again(starts, word):
    mirrors = starts(word)
    wait_until(lambda: mirrors.findings, "a finding")
    assert f"ended with {word[-1]}" in mirrors.findings[0]
    assert word in mirrors.findings[0]
    assert (len(mirrors.runs), mirrors.is_finished.is_set()) == (1, False)


def test_mirror_that_dies_though_nothing_was_done_to_it_is_a_finding(starts):
    mirrors = starts()
    running(mirrors, 1)
    mirrors.current.process.send_signal(signal.SIGSEGV)
    wait_until(lambda: mirrors.findings, "a finding")
    assert "nothing was done to it" in mirrors.findings[0]


def test_killed_mirror_that_says_something_unexpected_of_it_is_a_finding(starts):
    mirrors = starts("wait", "unexpected error: x 3")
    running(mirrors, 1)
    mirrors.current.harm.append("jvm killed")
    mirrors.current.signal(mirrors.current.pids("driver"), signal.SIGKILL)
    wait_until(lambda: len(mirrors.runs) == 2, "it is started again")
    mirrors.runs[-1].harm.append("jvm killed")
    wait_until(lambda: mirrors.findings, "a finding")


def test_mirror_may_end_once_it_is_drained(starts):
    mirrors = starts("3", "0")
    mirrors.may_finish = True
    assert mirrors.is_finished.wait(20)
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
