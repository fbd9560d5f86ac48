"""The mirror's processes, and who starts them again: as an operator, or Airflow's retries, would."""

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

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "tests.chaos.short", "mirror")
_RETRYABLE = 3
_POLL_SECONDS, _REST_SECONDS = 0.1, 0.5
_GIVES_WAY_SECONDS = 120.0


@dataclass(eq=False)
class Run:
    """One start of the command, with all that it starts: a session of its own. `harm` is what was done to it."""

    process: "subprocess.Popen[bytes]"
    log: Path
    harm: list[str] = field(default_factory=list)
    is_frozen: bool = False
    is_over: bool = False

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

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
        self.process.wait(30)


class Mirrors:
    """Keeps one mirror running until one ends well. What ends otherwise than it may is a finding, and nothing is
    started again."""

    def __init__(
        self, plan: Path, environment: Mapping[str, str], folder: Path, *, command: Sequence[str] = COMMAND
    ) -> None:
        self._arguments = [*command, str(plan), "--master", "local[2]"]
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
        with log.open("wb") as out:
            process = subprocess.Popen(
                self._arguments,
                env={**self._environment, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=ROOT,
                start_new_session=True,
            )
        run = Run(process, log)
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

    @staticmethod
    def _may_be_started_again(run: Run) -> bool:
        """Whether it could not find something out, was taken over, or was killed. Whatever is done to it, what it says
        of it must not be an error that nobody expected."""
        code = run.process.returncode
        return "unexpected error" not in run.said if code == _RETRYABLE else code < 0 and bool(run.harm)

    def _judge(self, run: Run) -> None:
        """Whether it may end as it did."""
        code = run.process.returncode
        if code == 0 and self.may_finish:
            self.is_finished.set()
        elif not self._may_be_started_again(run):
            self.findings.append(
                f"{run.log.name} ended with {code}, after {', '.join(run.harm) or 'nothing was done to it'}:"
                f" {run.said[-1500:].strip()}"
            )
