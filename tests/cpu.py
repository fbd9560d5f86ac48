"""Where the CPU time of a command goes, by kind of process: `python -m tests.cpu make test`.

Seconds of CPU compare across machines' loads, where seconds of the clock do not. Linux only: /proc is looked at four
times a second, and what a process used after the last look shows as "between looks": the kernel hands the sum of all to
whoever waits for them (all but those whose parent ignores their end).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

_LOOK_SECONDS = 0.25
_TICKS = os.sysconf("SC_CLK_TCK")
_PR_SET_CHILD_SUBREAPER = 36
KINDS = (
    # The first with a mark in the command line: a leash has its broker's in its own.
    ("leashes", ("/leash.py ",)),
    ("broker JVMs", (" kafka.Kafka ",)),
    ("StorageTool JVMs", ("kafka.tools.StorageTool",)),
    ("ZooKeeper JVMs", ("QuorumPeerMain",)),
    ("Spark JVMs", ("org.apache.spark.",)),
    ("other JVMs", ("/java ",)),
    ("Spark's Python workers", ("pyspark.daemon", "pyspark/daemon", "pyspark.worker")),
    ("Airflow", ("airflow",)),
    ("Spark drivers in Python", ("spark_jobs/",)),
    ("commands", ("-m kafka_migration", "-m demo", "-m tests.", "-m bench.")),
    ("pytest", ("-m pytest", "[pytest-xdist", "sys.stdin.readline")),
)


def kind(command: str) -> str:
    """What a process is, by its command line."""
    words = f" {command} "
    return next((name for name, marks in KINDS if any(mark in words for mark in marks)), "other")


class Tree:
    """The processes below this one, and what each used so far."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: dict[tuple[int, int], tuple[str, int]] = {}

    def look(self) -> None:
        """Note the CPU time of all that run now."""
        parents: dict[int, int] = {}
        found: dict[int, tuple[int, int]] = {}
        for entry in os.listdir("/proc"):
            if not entry.isdigit():
                continue
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # ended meanwhile
            parents[int(entry)] = int(fields[1])
            found[int(entry)] = int(fields[19]), int(fields[11]) + int(fields[12])
        ours = {os.getpid(): True, 0: False}

        def is_ours(pid: int) -> bool:
            if pid not in ours:
                ours[pid] = is_ours(parents.get(pid, 0))
            return ours[pid]

        for pid, (started, ticks) in found.items():
            if pid == os.getpid() or not is_ours(pid):
                continue
            before, used = self._seen.get((pid, started), ("other", -1))
            if ticks != used:
                # Read again: what was forked becomes another program, and Airflow names its processes as it goes.
                self._seen[pid, started] = _command_kind(pid) or before, ticks

    def by_kind(self) -> tuple[Counter[str], Counter[str]]:
        """Seconds, and how many processes, of each kind."""
        seconds: Counter[str] = Counter()
        count: Counter[str] = Counter()
        for name, ticks in self._seen.values():
            seconds[name] += ticks / _TICKS  # type: ignore[assignment]  # a Counter of floats
            count[name] += 1
        return seconds, count


def _command_kind(pid: int) -> str | None:
    try:
        raw = Path("/proc", str(pid), "cmdline").read_bytes()
    except OSError:
        return None
    return kind(raw.replace(b"\0", b" ").decode(errors="replace")) if raw else None


def main() -> int:
    """Run the command of the arguments, print the table to standard error; its status."""
    # Whatever loses its parent becomes our child, so that nothing escapes the account.
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    began, lasted, tree = time.monotonic(), 0.0, Tree()
    command, status = subprocess.Popen(sys.argv[1:]).pid, 1
    with contextlib.suppress(ChildProcessError):  # none is left
        while True:
            tree.look()
            # At once: somebody may wait until an orphan is gone.
            while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
                if ended[0] == command:
                    status, lasted = os.waitstatus_to_exitcode(ended[1]), time.monotonic() - began
            time.sleep(_LOOK_SECONDS)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, count = tree.by_kind()
    seen = sum(seconds.values())
    unseen = max(0.0, used.ru_utime + used.ru_stime - seen)
    print(f"\n{'CPU s':>9} {'processes':>9}  kind", file=sys.stderr)
    for name, value in seconds.most_common():
        print(f"{value:9.1f} {count[name]:9,}  {name}", file=sys.stderr)
    print(f"{unseen:9.1f} {'':9}  between looks", file=sys.stderr)
    print(f"{seen + unseen:9.1f} {sum(count.values()):9,}  in all, in {lasted:.0f} s of the clock", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
