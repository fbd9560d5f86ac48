"""The mirror's processes, and who starts them again: as an operator, or Airflow's retries, would."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from kafka_migration.copy.driver.outcome import EpochsLost
from kafka_migration.copy.driver.takeover import Overtaken
from kafka_migration.domain.errors import ClusterUnreachable, CouldNotFindOut, TakenOver
from kafka_migration.wire.cluster import LeaderUnknown

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.chaos.short", "mirror")
_RETRYABLE = 3
#: The errors that end with that code and that whoever operates the mirror answers by starting it again: a cluster did
#: not answer, or another mirror came. All others are findings: a state that contradicts itself, an error in a task that
#: nobody foresaw, a topic that does not exist.
_PASSING = frozenset(it.__name__ for it in (CouldNotFindOut, ClusterUnreachable, LeaderUnknown, TakenOver, Overtaken))
#: Those that only a process that something was done to may end with.
_OF_HARM = frozenset({EpochsLost.__name__})
_POLL_SECONDS, _REST_SECONDS = 0.1, 0.5
_GIVES_WAY_SECONDS = 120.0


@dataclass(eq=False)
class Run:
    """One start of the command, with all that it starts: a session of its own. `harm` is what was done to it.

    `log` is what it says to people, `answer` what it says to machines, once it ends.
    """

    process: "subprocess.Popen[bytes]"
    log: Path
    answer: Path
    harm: list[str] = field(default_factory=list)
    is_frozen: bool = False
    is_over: bool = False

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def error(self) -> str:
        """The kind of error that it ended with, by its own word; empty if it said none, or not to its end."""
        try:
            value = json.loads(self.answer.read_text(errors="replace"))
        except json.JSONDecodeError:
            return ""
        return str(value.get("error", {}).get("kind", ""))

    def _living(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with suppress(psutil.Error, ProcessLookupError):
                if os.getsid(process.pid) == self.process.pid and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def pids(self, what: str) -> list[int]:
        """Of its living processes the `driver`, the `jvm`, the Python `worker`s with the daemon that forks them, or
        `all` that are there."""
        living = self._living()
        workers = []
        for it in living:
            with suppress(psutil.Error):
                if any("pyspark.daemon" in argument for argument in it.cmdline()):
                    workers.append(it.pid)
        return {
            "driver": [it.pid for it in living if it.pid == self.process.pid],
            "jvm": [it.pid for it in living if it.name() == "java"],
            "worker": workers,
            "all": [it.pid for it in living],
        }[what]

    def signal(self, pids: Iterable[int], number: signal.Signals) -> list[int]:
        """Send it; those that were still there."""
        reached = []
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
                reached.append(pid)
        return reached

    def end(self) -> None:
        """Kill what is left of it."""
        for _ in range(3):
            left = self.pids("all")
            if not left:
                break
            self.signal(left, signal.SIGKILL)
        self.process.wait(180)


def may_be_started_again(run: Run) -> bool:
    """Whether it could not find something out, was taken over, or was killed. Whatever is done to it, what it says
    of it must not be an error of another kind."""
    if run.process.returncode == _RETRYABLE:
        return run.error in (_PASSING | _OF_HARM if run.harm else _PASSING)
    return run.process.returncode < 0 and bool(run.harm)


class Mirrors:
    """Keeps one mirror running until one ends well. What ends otherwise than it may is a finding, and nothing is
    started again."""

    def __init__(
        self, plan: Path, environment: Mapping[str, str], folder: Path, *, command: Sequence[str] = COMMAND
    ) -> None:
        self._arguments = [*command, str(plan), "--master", "local[2]", "--json"]
        self._environment, self._folder = dict(environment), folder
        self.runs: list[Run] = []
        self.findings: list[str] = []
        self.is_finished = threading.Event()
        self.may_finish = False
        self._lock, self._over = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)

    def __enter__(self) -> "Mirrors":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)
        for run in self.runs:
            run.end()

    def start(self) -> Run:
        """Start one more, whether another runs or not."""
        log = self._folder / f"mirror-{len(self.runs) + 1}.log"
        answer = log.with_suffix(".json")
        with log.open("wb") as err, answer.open("wb") as out:
            process = subprocess.Popen(
                self._arguments,
                env={**self._environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=ROOT,
                start_new_session=True,
            )
        run = Run(process, log, answer)
        with self._lock:
            self.runs.append(run)
        return run

    @property
    def current(self) -> Run | None:
        """The newest one that runs."""
        running = [run for run in self.runs if not run.is_over and not run.is_frozen and run.process.poll() is None]
        return running[-1] if running else None

    def gives_way(self, run: Run) -> bool:
        """Whether `run` ends within two minutes, as one does that was taken over; a finding if it does not."""
        try:
            run.process.wait(_GIVES_WAY_SECONDS)
        except subprocess.TimeoutExpired:
            self.findings.append(f"{run.log.name}: it was taken over, and runs on")
            return False
        return True

    # -- the supervisor ---------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while not self._over.wait(_POLL_SECONDS):
            for run in [run for run in self.runs if not run.is_over and run.process.poll() is not None]:
                run.is_over = True
                self._judge(run)
            if self.is_finished.is_set() or self.findings:
                continue
            if self.current is None:
                # Whoever starts it again does not do so the very moment that it dies.
                time.sleep(_REST_SECONDS)
                self.start()

    def _judge(self, run: Run) -> None:
        """Whether it may end as it did."""
        code = run.process.returncode
        if code == 0 and self.may_finish:
            self.is_finished.set()
        elif not may_be_started_again(run):
            self.findings.append(
                f"{run.log.name} ended with {code} ({run.error or 'no error'}), after"
                f" {', '.join(run.harm) or 'nothing was done to it'}: {run.said[-1500:].strip()}"
            )
