"""The leash: a command ends when whoever asked for it is gone, and only then."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from demo.brokers.process import BrokerError, LeashedProcess
from tests.waiting import wait_until

FOREVER = [sys.executable, "-I", "-c", "import signal; signal.pause()"]
ROOT = Path(__file__).resolve().parents[3]

# Starts a command on a leash, tells its pid, optionally leaves a fork behind that holds the pipe, and waits.
ASKER = """
import os, signal, sys
from pathlib import Path
from demo.brokers.process import LeashedProcess
work = Path(sys.argv[1])
process = LeashedProcess(sys.argv[3:], console=work / "console.log", scratch=work / "scratch" / "node")
fork = os.fork() if sys.argv[2] == "fork" else -1
if fork != 0:
    print(process.pid, fork, flush=True)
signal.pause()
"""


@contextlib.contextmanager
def asker(work: Path, *, fork: bool) -> Iterator[tuple[subprocess.Popen[str], psutil.Process, int]]:
    (work / "scratch" / "node").mkdir(parents=True)
    (work / "scratch" / "node" / "data").write_text("x")
    process = subprocess.Popen(
        [sys.executable, "-c", ASKER, str(work), "fork" if fork else "alone", *FOREVER],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        command_pid, fork_pid = map(int, process.stdout.readline().split())
        try:
            yield process, psutil.Process(command_pid), fork_pid
        finally:
            process.kill()
            if fork_pid > 0:
                os.kill(fork_pid, signal.SIGKILL)


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "a_fork_holds_the_pipe"])
def test_asker_is_killed_command_ends_and_scratch_goes(tmp_path: Path, fork: bool) -> None:
    with asker(tmp_path, fork=fork) as (process, command, _):
        assert command.is_running()
        process.kill()
        wait_until(lambda: not command.is_running(), "the command ends with its asker")
        wait_until(lambda: not (tmp_path / "scratch").exists(), "the scratch directory is removed")


def test_leash_is_killed_command_ends(tmp_path: Path) -> None:
    with asker(tmp_path, fork=False) as (_, command, _):
        leash = command.parent()
        assert leash is not None
        leash.kill()
        wait_until(lambda: not command.is_running(), "the command ends with its leash")


def test_command_is_paused_resumed_and_ended_by_its_asker(tmp_path: Path) -> None:
    process = LeashedProcess(FOREVER, console=tmp_path / "console.log", scratch=None)
    command = psutil.Process(process.pid)
    process.send(signal.SIGSTOP)
    wait_until(lambda: command.status() == psutil.STATUS_STOPPED, "the command is paused")
    assert process.alive()
    process.send(signal.SIGCONT)
    wait_until(lambda: command.status() != psutil.STATUS_STOPPED, "the command goes on")
    process.send(signal.SIGTERM)
    assert process.wait(180)
    assert not process.alive()
    process.send(signal.SIGTERM)


def test_command_prints_and_ends_output_is_in_the_console_file(tmp_path: Path) -> None:
    console = tmp_path / "console.log"
    talker = [sys.executable, "-c", "import sys; print('out', flush=True); print('err', file=sys.stderr)"]
    process = LeashedProcess(talker, console=console, scratch=tmp_path)
    assert process.wait(180)
    assert console.read_text() == "out\nerr\n"


def test_command_does_not_exist_error_shows_why(tmp_path: Path) -> None:
    with pytest.raises(BrokerError, match="No such file"):
        LeashedProcess(["/does/not/exist"], console=tmp_path / "console.log", scratch=None)
