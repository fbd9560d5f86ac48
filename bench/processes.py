"""Processes that are measured: their CPU, with all that descends from them, dead ones included, and their end."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from demo.brokers.process import LEASH


@contextmanager
def running(
    command: Sequence[str], log: Path, *, cwd: Path, seconds: float, env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """``command`` while the block runs, with its output in ``log``; asked to end afterwards, and killed ``seconds``
    later. On a leash: if this process is killed, what it measures does not ask clusters that are gone for ever.
    """
    leash = [sys.executable, "-I", str(LEASH), str(os.getpid()), ""]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*leash, *command], cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=out
        )
        try:
            yield process
        finally:
            _end(process, seconds)


def _end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    if process.poll() is None and process.stdin is not None:
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            process.stdin.write(b"SIGTERM\n")
            process.stdin.flush()
            process.wait(seconds)
        # Whose leash ends the command at that, if it has not ended by itself.
        process.stdin.close()
    process.wait()


class CpuMeter:
    """Adds up user and system time of a process tree, in seconds. A process that ends keeps what it was last seen with:
    look often enough."""

    def __init__(self, pid: int) -> None:
        """``pid`` is the root of the tree."""
        self._root = pid
        self._seen: dict[tuple[int, float], float] = {}

    def seconds(self) -> float:
        """CPU seconds of the tree so far."""
        try:
            root = psutil.Process(self._root)
            for process in (root, *root.children(recursive=True)):
                try:
                    times = process.cpu_times()
                    self._seen[process.pid, process.create_time()] = times.user + times.system
                except psutil.Error:
                    continue
        except psutil.NoSuchProcess:
            pass
        return sum(self._seen.values())
