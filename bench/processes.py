"""CPU of a process and all that descends from it, dead ones included."""

import psutil


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
