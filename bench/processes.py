"""Processes that are measured: their CPU, with all that descends from them, dead ones included, and their end."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import psutil

from demo.brokers.process import LeashedProcess


@contextmanager
def running(
    command: list[str], log: Path, *, cwd: Path, seconds: float, env: Mapping[str, str] | None = None
) -> Iterator[LeashedProcess]:
    """``command`` while the block runs, with its output in ``log``; asked to end afterwards, and killed ``seconds``
    later. On a leash: else, if the bench is killed, it would ask for ever for clusters that are gone."""
    process = LeashedProcess(command, console=log, scratch=None, cwd=cwd, env=env)
    try:
        yield process
    finally:
        process.send(signal.SIGTERM)
        if not process.wait(seconds):
            process.send(signal.SIGKILL)
            process.wait(seconds)


def end_with_parent() -> None:
    """Have this process, which multiprocessing spawned, end when its parent does, however that ends."""

    def wait() -> None:
        parent = multiprocessing.parent_process()
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


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
