"""The mirror beside `run`: the command `mirror` in a process of its own, which ends with whoever started it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from kafka_migration.domain.errors import BadInput, CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.domain.leash import Leash
from kafka_migration.link.flight import was_taken_over
from kafka_migration.migration.signing import without_keys

#: Deaths in a row after which it is not started any more.
_MOST_STARTS = 5
_BETWEEN_STARTS_SECONDS = 5.0
#: A mirror that ran for so long did not die of its set-up.
_LONG_SECONDS = 60.0
_CLEAN_END_SECONDS = 30.0


#: The attempts to mirror the link (True while one runs), and the plan that the mirror goes by, for people.
Look = tuple[dict[str, bool], str]


class MirrorProcess:
    """Runs the mirror of ``plan``, and starts it again when it dies; ends it on exit. Its output goes to this process's
    standard error."""

    def __init__(
        self,
        plan: Path,
        *,
        master: str | None,
        log: Callable[[str], None],
        look: Callable[[], Look],
    ) -> None:
        """``look`` looks at the link: before a start, and after an end."""
        self._arguments = [sys.executable, "-m", "kafka_migration", "mirror", str(plan)]
        self._arguments += ["--master", master] if master else []
        self._log, self._look = log, look
        self._thread: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._ending, self._ended = threading.Event(), threading.Event()
        self._problem: MigrationError | None = None

    def __enter__(self) -> Self:
        return self

    def start(self) -> None:
        """Start it, and go on. A mirror that runs elsewhere is taken over by it, once: it is not started again where it
        was itself taken over since."""
        self._thread = threading.Thread(target=self._keep, name="mirror", daemon=True)
        self._thread.start()

    def require(self) -> None:
        """Raise CouldNotFindOut if it was started, has ended with a problem, and is not started any more; TakenOver if
        another mirror runs instead."""
        if self._problem:
            raise self._problem

    def require_ours(self) -> None:
        """Raise TakenOver if another mirror runs instead: whoever started that one goes on with the migration."""
        if isinstance(self._problem, TakenOver):
            raise self._problem

    def wait(self, seconds: float) -> None:
        """Return once it has ended for good, or after ``seconds``."""
        self._ended.wait(seconds)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_CLEAN_END_SECONDS)
        if self._thread is not None:
            self._thread.join(timeout=_CLEAN_END_SECONDS)

    def _keep(self) -> None:
        deaths = 0
        while not self._ending.is_set():
            began, before = time.monotonic(), self._looked()
            code = self._run()
            if code == 0 or self._ending.is_set():
                break
            after = self._looked()
            if before and after and was_taken_over(before[0], after[0]):
                self._problem = TakenOver(f"the mirror{f', by {after[1]},' if after[1] else ''}")
                self._log(str(self._problem))
                break
            if code in (Refused.exit_code, BadInput.exit_code):
                # Only a person can clear it: the steps that wait see that, and report it.
                self._problem = _problem(f"the mirror ended with exit code {code}")
                break
            deaths = 1 if time.monotonic() - began > _LONG_SECONDS else deaths + 1
            if deaths >= _MOST_STARTS:
                self._problem = _problem(f"the mirror died {deaths} times in a row, last with exit code {code}")
                break
            self._log(f"the mirror ended with exit code {code}; starting it again")
            self._ending.wait(_BETWEEN_STARTS_SECONDS)
        self._ended.set()

    def _looked(self) -> Look | None:
        try:
            return self._look()
        except MigrationError:
            # A cluster is away: the mirror itself reports that, and is started again.
            return None

    def _run(self) -> int:
        with ExitStack() as stack:
            leash = stack.enter_context(Leash())
            process = subprocess.Popen(
                self._arguments,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,
                # The mirror asks no gate, so it needs no approval key.
                env=without_keys(os.environ),
                # A group of its own, so that the leash ends its JVM, too.
                start_new_session=True,
            )
            leash.hold(process.pid)
            self._process = process
            if self._ending.is_set():
                process.terminate()
            return process.wait()


def _problem(text: str) -> CouldNotFindOut:
    return CouldNotFindOut(text, remedy="read the mirror's output above, correct what it reports, then run this again")
