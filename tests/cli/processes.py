"""Commands as a person runs them: in a process of their own."""

from __future__ import annotations

import json
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
#: Who approves: commands find that out by themselves.
ME = pwd.getpwuid(os.getuid()).pw_name


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def connection(servers: str, **properties: str) -> str:
    """The value of AIRFLOW_CONN_<ID>. Underscores in names of ``properties`` stand for dots."""
    extra = {name.replace("_", "."): value for name, value in properties.items()}
    return json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers, **extra}})


def environment(connections: Mapping[str, str]) -> dict[str, str]:
    """This process's environment, and ``connections`` as Airflow's variables for them."""
    ours = {f"AIRFLOW_CONN_{name.upper()}": value for name, value in connections.items()}
    more = {"PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}", "COLUMNS": "80", "PYTHONFAULTHANDLER": "1"}
    return {**os.environ, **ours, **more}


def start(
    *words: str, connections: Mapping[str, str], directory: Path, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[str]:
    """Begin a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "kafka_migration", *words],
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(connections),
        cwd=directory,
    )


def run(*words: str, connections: Mapping[str, str], directory: Path, code: int = 0, seconds: float = 600.0) -> Ended:
    """A command from its beginning to its end, which has to be ``code``."""
    ended = finish(start(*words, connections=connections, directory=directory), seconds=seconds)
    assert ended.code == code, f"{words}: {ended}"
    return ended


def finish(process: subprocess.Popen[str], *, seconds: float = 600.0) -> Ended:
    """Wait for its end. One that does not come to it shows where it stands."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        raise AssertionError(f"it did not end within {seconds:g} s: {process.communicate()[1]}") from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    return Ended(process.returncode, out, err)
