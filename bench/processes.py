"""Processes that are measured: their CPU, with all that descends from them, dead ones included, and their end."""

import subprocess

import psutil


def end(process: "subprocess.Popen[bytes]", seconds: float) -> None:
    """Ask ``process`` to end, and kill it if it has not within ``seconds``."""
    process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
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
