"""What a Spark session of ours opens to the network: nothing on a local master, and a warning on any other."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from kafka_migration.domain.spark_settings import exposure
from tests.waiting import HANGS_SECONDS

OPENED = """
import sys, time
from pathlib import Path
from kafka_migration.{room}.session import open_session

session = open_session("listens", {master})
assert session.sparkContext.parallelize(range(4), 2).map(lambda n: n + 1).sum() == 10
print("ready", flush=True)
seen = Path(sys.argv[1])
while not seen.exists():
    time.sleep(0.05)
session.stop()
"""
SUBMIT = Path(sys.executable).with_name("spark-submit")


@contextmanager
def session_process(command: list[str], seen: Path) -> Iterator[psutil.Process]:
    """A process whose session has run a job, without any word to Spark about where it listens."""
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_LOCAL_IP"}
    process = subprocess.Popen(
        [*command, str(seen)],
        env={**environment, "PYSPARK_PYTHON": sys.executable},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        assert any(line.strip() == "ready" for line in process.stdout)
        yield psutil.Process(process.pid)
    finally:
        # spark-submit passes no input on.
        seen.touch()
        process.communicate(timeout=HANGS_SECONDS)


@pytest.mark.parametrize("room", ["copy", "compare"])
@pytest.mark.parametrize("submitted", [False, True], ids=["own", "submitted"])
def test_session_on_a_local_master_listens_on_loopback_only(tmp_path: Path, room: str, *, submitted: bool) -> None:
    script = tmp_path / "opened.py"
    script.write_text(OPENED.format(room=room, master="" if submitted else 'master="local[2]"'), encoding="utf-8")
    own = [str(SUBMIT), "--master", "local[2]"] if submitted else [sys.executable]
    with session_process([*own, str(script)], tmp_path / "seen") as process:
        family = [process, *process.children(recursive=True)]
        sockets = [it for one in family for it in one.net_connections("inet") if it.status == psutil.CONN_LISTEN]
        listening = {it.laddr.ip for it in sockets}
    assert listening, "the driver listens for its own executor"
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}, listening


@pytest.mark.parametrize(
    ("master", "settings", "said"),
    [
        ("local[4]", {}, None),
        ("spark://host:7077", {}, "without spark.authenticate"),
        ("yarn", {"spark.network.crypto.enabled": "true"}, "without spark.authenticate"),
        ("spark://host:7077", {"spark.authenticate": "true"}, "cross the network in clear"),
        ("yarn", {"spark.authenticate": "true", "spark.network.crypto.enabled": "true"}, None),
        ("yarn", {"spark.authenticate": "true", "spark.ssl.rpc.enabled": "true"}, None),
    ],
)
def test_session_on_a_cluster_is_warned_of_what_is_open(
    master: str, settings: dict[str, str], said: str | None
) -> None:
    found = exposure(master, settings.get)
    assert found == "" if said is None else said in found and found.startswith("WARN: ")
