"""Run one command, and end it with everything that it started. Started as a script; standard library only.

    python -I airflow_keeper.py ASKER GRACE COMMAND...

Airflow is a tree of processes, some in sessions of their own (tasks, spark-submit, a JVM), and a leash on its root
would leave the rest behind. So this process makes itself the one to whom Linux gives the orphans among its
descendants; what it started, directly or not, is then always below it, and can be ended without asking for names.

The asker, whose process id is ASKER, holds the other end of standard input; end of file, or a parent that is no longer
ASKER, means that the asker is gone or wants the end. ASKER 0 is nobody: then only SIGTERM or the command's own end do.
The command gets SIGINT and GRACE seconds, and whatever is left then is killed.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time

_PR_SET_CHILD_SUBREAPER = 36
_LOOK_SECONDS = 0.5
_KILL_SECONDS = 20.0


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _parents() -> dict[int, int]:
    """The parent of every process, by process id."""
    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    if listing:
        return {int(pid): int(parent) for pid, parent in (line.split() for line in listing.splitlines())}
    # No ps: then this is Linux (a slim container), where /proc says it.
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:
            # The second field is the command in parentheses, and may hold anything, parentheses too.
            found[int(name)] = int(file.read().rpartition(")")[2].split()[1])
    return found


def _descendants() -> set[int]:
    parents = _parents()
    found: set[int] = set()
    fresh = {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


class _Keeper:
    def __init__(self, command: list[str]) -> None:
        self.asked_to_end = False
        self.status: int | None = None
        for number in (signal.SIGINT, signal.SIGHUP):
            # Whoever signals the whole group means the asker.
            signal.signal(number, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, self._ask)
        # Kept, though only its id is used: one that goes takes the status of a command that has ended already.
        # The hook is safe here: this process has one thread.
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=2,
            preexec_fn=_default_signals,  # noqa: PLW1509
            start_new_session=True,
        )
        self.main = self._process.pid

    def _ask(self, _number: int, _frame: object) -> None:
        self.asked_to_end = True

    def reap(self) -> None:
        """Take the statuses of processes that ended; orphans among them."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self.main:
                    self.status = os.waitstatus_to_exitcode(status)

    def serve(self, asker: int) -> None:
        """Return once the command has ended or nobody wants it any more."""
        while self.status is None and not self.asked_to_end:
            if asker:
                readable, _, _ = select.select([0], [], [], _LOOK_SECONDS)
                if os.getppid() != asker or (readable and not os.read(0, 4096)):
                    return
            else:
                time.sleep(_LOOK_SECONDS)
            self.reap()

    def end(self, grace: float) -> None:
        """End the command, and then whatever is left of its descendants."""
        deadline = time.monotonic() + grace
        if self.status is None:
            os.kill(self.main, signal.SIGINT)
        while self.status is None and time.monotonic() < deadline:
            time.sleep(0.1)
            self.reap()
        deadline = time.monotonic() + _KILL_SECONDS
        while time.monotonic() < deadline:
            # Again until nobody is left: one may start another between the look and the kill. The ps is gone by then.
            left = _descendants()
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.reap()
            if not left & _descendants():
                return
            time.sleep(0.05)


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def main() -> int:
    """Exit with the command's status, a signal as 128 plus its number."""
    asker, grace, *command = sys.argv[1:]
    _adopt_orphans()
    keeper = _Keeper(command)
    keeper.serve(int(asker))
    keeper.end(float(grace))
    status = keeper.status or 0
    return 128 - status if status < 0 else status


if __name__ == "__main__":
    sys.exit(main())
