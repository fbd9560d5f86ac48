"""One broker process: on a leash, so that it ends with this process, or standing, so that it does not."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from demo.errors import DemoError

LEASH = Path(__file__).with_name("leash.py")


class BrokerError(DemoError):
    """A broker did not do as told; the message shows the end of its log."""


class BrokerProcess(Protocol):
    """What a cluster needs to know of a process that it started."""

    pid: int

    def alive(self) -> bool:
        """Whether it has not ended; a stopped (SIGSTOP) one is alive."""

    def send(self, number: signal.Signals) -> None:
        """Send a signal. One that has ended is left alone."""

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False when the time is up first."""


class LeashedProcess:
    """A process that the kernel's closing of a pipe ends when this process is gone. See leash.py for the reasons."""

    def __init__(
        self,
        command: list[str],
        *,
        console: Path,
        scratch: Path | None,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Start it.

        Args:
            command: what to run.
            console: file that its output is appended to.
            scratch: directory to remove if this process dies before the command ends; None keeps everything.
            cwd: its working directory, if not this process's.
            env: its environment, if not this process's.

        Raises:
            BrokerError: it could not be started at all.
        """
        with console.open("ab") as output:
            self._leash = subprocess.Popen(
                [sys.executable, "-I", str(LEASH), str(os.getpid()), str(scratch or ""), *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                cwd=cwd,
                env=env,
                # Ctrl-C in a terminal goes to the whole group: the asker decides what it means for brokers.
                start_new_session=True,
            )
        if self._leash.stdin is None or self._leash.stdout is None:
            raise BrokerError("the leash has no pipes.")
        self._requests = self._leash.stdin
        with self._leash.stdout as answers:
            first = answers.readline()
        if not first:
            self._requests.close()
            raise BrokerError(f"{command[0]} could not be started:\n{tail(console)}")
        self.pid = int(first)

    def alive(self) -> bool:
        """Whether it has not ended; a stopped (SIGSTOP) one is alive."""
        return self._leash.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal through the leash. One that has ended is left alone."""
        if self._requests.closed:
            return
        with contextlib.suppress(BrokenPipeError):
            self._requests.write(f"{number.name}\n".encode("ascii"))
            self._requests.flush()

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False when the time is up first."""
        try:
            self._leash.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        return True

    @property
    def status(self) -> int | None:
        """The command's exit status, a signal as 128 plus its number; None while it runs."""
        return self._leash.poll()


class StandingProcess:
    """A process that outlives this one."""

    def __init__(self, command: list[str], *, console: Path) -> None:
        """Start it in a session of its own, its output appended to `console`."""
        with console.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.pid = self._process.pid

    def alive(self) -> bool:
        """Whether it has not ended; a stopped (SIGSTOP) one is alive."""
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal. One that has ended is left alone."""
        self._process.send_signal(number)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait for the end; False when the time is up first."""
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            return False
        return True


def tail(path: Path, *, lines: int = 30) -> str:
    """The end of a log file, for an error message; empty when there is no such file."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 64 * 1024))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])
    except FileNotFoundError:
        return ""
