"""`python -m demo run|up|down`: the whole demo, watched in the terminal or left running for a person."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import psutil
from rich.console import Console
from rich.table import Table

from checker.__main__ import show as show_verdict
from demo.errors import DemoError
from demo.full import Theatre, play
from demo.memory import PeakMemory
from demo.run import Patience, Result, run
from demo.stage import Places, Stage

ROOT = Path(__file__).resolve().parent.parent
RUNS = ROOT / ".run"
UP = RUNS / "up"
STATE = UP / "state.json"
_UP_SECONDS = 420.0
_DOWN_SECONDS = 120.0
_DAYS = 3 * 86_400.0


def run_demo(
    *,
    directory: Path | None = None,
    reports: Path | None = None,
    secure: bool = False,
    kerberos: bool = False,
    installed: bool = False,
) -> int:
    """The whole demo, on open clusters or (``secure``, ``kerberos``) on locked ones; the exit code is 0 only if every
    check holds.

    ``installed``: with the wheel instead of the checkout.
    """
    console = Console(highlight=False, soft_wrap=True)
    places = Places(directory=_new_folder(directory, "demo"), reports=(reports or ROOT / "reports").resolve())
    _end_on_sigterm()
    began = time.monotonic()
    stage = Stage(places, log=console.print, secure=secure, kerberos=kerberos, installed=installed)
    with PeakMemory() as memory, stage:
        result = run(stage, approve=True, log=console.print, patience=Patience(), memory=memory)
    _show(console, result, places, time.monotonic() - began)
    return 0 if result.good else 1


def run_full(*, directory: Path | None = None, per_second: int | None = None) -> int:
    """Producers and groups in waves, forward and back; the last line is JSON. 0 only if the judge finds nothing."""
    console = Console(highlight=False, soft_wrap=True)
    _end_on_sigterm()
    with Theatre(_new_folder(directory, "full"), log=console.print, per_second=per_second) as stage:
        result = play(stage)
    show_verdict(result.judgement.verdict, console)
    print(json.dumps(result.as_dict()))
    return 0 if result.good else 1


def up(*, airflow_port: int) -> str:
    """Start the demo in the background, approvals left to a person; returns once Airflow can be opened.

    Raises:
        DemoError: it runs already, or did not come up.
    """
    if _standing() is not None:
        raise DemoError("the demo is up already. See `make down`.")
    UP.mkdir(parents=True, exist_ok=True)
    STATE.unlink(missing_ok=True)
    log = UP / "log.txt"
    # It tells the user and password of Airflow.
    with _private(log) as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "demo", "keep", "--airflow-port", str(airflow_port)],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            cwd=ROOT,
        )
    deadline = time.monotonic() + _UP_SECONDS
    while not (state := _read()).get("url"):
        if process.poll() is not None or time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            raise DemoError(f"the demo did not come up; {log} ends with:\n{_tail(log)}")
        time.sleep(0.5)
    return (
        f"Airflow: {state['url']}  user {state['user']}  password {state['password']}\n"
        f"The migration waits for you: approve the plan, later the cutover (DAG migrate_demo, Required Actions).\n"
        f"What goes on: {log}\nEnd everything: make down"
    )


def keep(*, airflow_port: int) -> int:
    """The background process of ``up``: holds the stage until SIGTERM, whatever becomes of the migration."""
    places = Places(directory=UP / f"run-{os.getpid()}", reports=ROOT / "reports")
    log = _stamped
    _end_on_sigterm()
    with (
        contextlib.suppress(KeyboardInterrupt),
        PeakMemory() as memory,
        Stage(places, log=log, airflow_port=airflow_port) as stage,
    ):
        own = psutil.Process()
        _write(
            {
                "pid": own.pid,
                "started": own.create_time(),
                "url": stage.airflow.url,
                "user": stage.airflow.user,
                "password": stage.airflow.password,
                "source": stage.source.bootstrap_servers,
                "target": stage.target.bootstrap_servers,
            }
        )
        try:
            patience = Patience(migration=_DAYS)
            result = run(stage, approve=False, log=log, patience=patience, memory=memory)
            for name, holds, seen in result.checks:
                log(f"{'ok ' if holds else 'NOT'} {name}: {seen}")
        except DemoError as error:
            log(str(error))
        log("the migration is over; everything stays up until `make down`")
        while True:
            signal.pause()
    return 0


def down() -> str:
    """End what ``up`` started, and nothing else."""
    process = _standing()
    if process is None:
        STATE.unlink(missing_ok=True)
        return "nothing is up"
    process.terminate()
    try:
        process.wait(_DOWN_SECONDS)
    except psutil.TimeoutExpired:
        raise DemoError(f"pid {process.pid} did not end within {_DOWN_SECONDS:g} s; see {UP / 'log.txt'}") from None
    STATE.unlink(missing_ok=True)
    return "everything is down"


def _standing() -> psutil.Process | None:
    state = _read()
    with contextlib.suppress(KeyError, psutil.NoSuchProcess):
        process = psutil.Process(state["pid"])
        # A pid is given out again; a pid with its start time is not.
        if abs(process.create_time() - state["started"]) < 2:
            return process
    return None


def _read() -> dict[str, Any]:
    try:
        return dict(json.loads(STATE.read_text(encoding="utf-8")))
    except (FileNotFoundError, ValueError):
        return {}


def _write(state: dict[str, Any]) -> None:
    partial = STATE.with_suffix(".partial")
    with _private(partial) as file:
        file.write(json.dumps(state).encode())
    partial.replace(STATE)


def _private(path: Path) -> BinaryIO:
    """A new file that this user alone may read, whatever one stood there before."""
    path.unlink(missing_ok=True)
    return open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb")


def _tail(file: Path) -> str:
    return "\n".join(file.read_text(encoding="utf-8", errors="replace").splitlines()[-20:])


def _stamped(text: str) -> None:
    print(f"{datetime.now(UTC):%H:%M:%S}  {text}", flush=True)


def _new_folder(directory: Path | None, kind: str) -> Path:
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return (directory or RUNS / f"{kind}-{stamp}-{os.getpid()}").resolve()


def _end_on_sigterm() -> None:
    """SIGTERM as Ctrl-C: what was started is ended in order."""

    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, interrupt)


def _show(console: Console, result: Result, places: Places, seconds: float) -> None:
    account = result.judgement.account
    groups = Table(title="Consumer groups, by the clients' own notes", title_justify="left")
    for column in ("group", "on source", "on target"):
        groups.add_column(column, justify="left" if column == "group" else "right")
    for name, group in sorted(account["groups"].items()):
        groups.add_row(name, f"{group['on_source']:,}", f"{group['on_target']:,}")
    console.print(groups)
    show_verdict(result.judgement.verdict, console)
    checks = Table(title="Checks", title_justify="left")
    for column in ("check", "", "seen"):
        checks.add_column(column)
    for name, holds, seen in result.checks:
        checks.add_row(name, "ok" if holds else "NOT OK", seen)
    console.print(checks)
    console.print(f"records produced: {account['records_produced']:,}; {seconds:.0f} s in all,")
    console.print(
        f"{result.peak_bytes / 2**30:.1f} GiB of memory at most. Report: {places.report.with_suffix('.html')}"
    )
