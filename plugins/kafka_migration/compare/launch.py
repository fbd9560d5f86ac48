"""The two processes of a validation: Spark's, and Great Expectations'. Each with this very interpreter.

Whoever submits to Spark in another way (an Airflow operator, for one) gives a :data:`Runner` of their own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from kafka_migration.compare.session import spark_jars
from kafka_migration.domain.errors import BadInput, CouldNotFindOut
from kafka_migration.domain.hiding import hidden
from kafka_migration.domain.leash import Leash
from kafka_migration.domain.shipped import shipped

#: Given the paths of a request and of the result to write: answers it, or raises CouldNotFindOut or BadInput.
Runner = Callable[[Path, Path], None]

_PLUGINS = Path(__file__).resolve().parents[2]
VALIDATE_JOB = shipped("spark_jobs/validate.py")
_SHOWN_LINES = 15
_DOCS_SECONDS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectations:
    """The Great Expectations suite's answer: whether all expectations are met, and which are not."""

    success: bool
    failed: tuple[str, ...]


def local_runner(
    environ: Mapping[str, str],
    *,
    master: str | None = None,
    secrets: Collection[str] = (),
    log: Callable[[str], None] = lambda _text: None,
) -> Runner:
    """A runner that starts spark_jobs/validate.py here, as the driver, on ``master`` (None: this machine).

    ``environ`` holds the clusters' connections (AIRFLOW_CONN_*), which is the only way that they take. The process and
    its JVM are ended when the runner is interrupted.
    """
    spark_jars(environ)

    def run(request: Path, result: Path) -> None:
        command = [sys.executable, str(VALIDATE_JOB), str(request), str(result)]
        environment = _python_environment(environ)
        if master is not None:
            command += ["--master", master]
        code, errors = _run(command, environment, log)
        errors = hidden(errors, secrets)
        if code == BadInput.exit_code:
            raise BadInput(f"the Spark job refused its input:\n{errors}", remedy="correct what its message names")
        if code != 0 or not result.is_file():
            raise CouldNotFindOut(
                f"the Spark job of the validation ended with code {code}:\n{errors}",
                remedy="correct what its message names, then run `validate` again; nothing was changed",
            )

    return run


def run_expectations(summary: Path, directory: Path, environ: Mapping[str, str]) -> Expectations:
    """Run the suite over the summary file, Data Docs into ``directory``. Raises CouldNotFindOut if that fails."""
    command = [sys.executable, "-m", "kafka_migration.compare.expectations", str(summary), str(directory)]
    environment = {**_python_environment(environ), "GX_ANALYTICS_ENABLED": "false"}
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=_DOCS_SECONDS, check=False
        )
        answer = json.loads(done.stdout.splitlines()[-1])
        return Expectations(success=answer["success"] and done.returncode == 0, failed=tuple(answer["failed"]))
    except subprocess.TimeoutExpired as error:
        raise CouldNotFindOut(
            f"Great Expectations took longer than {_DOCS_SECONDS} s", remedy="run `validate` again on a calmer machine"
        ) from error
    except (IndexError, ValueError, KeyError) as error:
        raise CouldNotFindOut(
            f"Great Expectations gave no verdict, and ended with code {done.returncode}:\n{_tail(done.stderr)}",
            remedy="correct what its message names, then run `validate` again;"
            " without its verdict nothing counts as equal",
        ) from error


def _run(command: Sequence[str], environ: Mapping[str, str], log: Callable[[str], None]) -> tuple[int, str]:
    """Exit code and the last lines of standard error; standard output goes to ``log`` line by line."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as errors, Leash() as leash:
        # A group of its own: what ends the Python ends its JVM.
        process = leash.start(
            command, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        )
        with process:
            try:
                for line in process.stdout or ():
                    log(line.rstrip())
            except BaseException:
                # Before the wait at the end of the block, which would last as long as the job.
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                raise
        errors.seek(0)
        return process.returncode, _tail(errors.read())


def _tail(text: str) -> str:
    # Frames of stack traces are indented, of Java's and of Python's: messages are not.
    messages = [line for line in text.splitlines() if line.strip() and not line[0].isspace()]
    return "\n".join(messages[-_SHOWN_LINES:])


def _python_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """``environ``, in which the package and this interpreter are found."""
    path = os.pathsep.join(filter(None, (str(_PLUGINS), environ.get("PYTHONPATH", ""))))
    return {"PYSPARK_PYTHON": sys.executable, **environ, "PYTHONPATH": path}
