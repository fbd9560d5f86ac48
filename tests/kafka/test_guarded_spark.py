"""A mirror and a validation by tokens (OAUTHBEARER), on Spark executors of their own, which show no secret anywhere,
while a driver without the secret of the Spark cluster is turned away.

Executors of a standalone cluster have nothing of ours but what is shipped to them, and JVMs of their own, which fetch
tokens only from addresses that they were told.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from demo.brokers.ports import PortReservation
from kafka_migration.kafka.lookup import variable_of
from tests.cli.processes import Ended, finish, start
from tests.copy.plans import small_plan
from tests.kafka.guarded import CLIENT_SECRET, Guarded
from tests.kafka_tools import ToSend, create_topics, log_ends, produce
from tests.spark_standalone import spark_standalone
from tests.waiting import wait_until

RECORDS = 4_000
LONG_SECONDS = 600.0
COUNTED = """
import sys
from kafka_migration.copy.session import open_session

session = open_session("counted", master=sys.argv[1])
assert session.sparkContext.parallelize(range(4), 2).sum() == 6
session.stop()
"""


@dataclass
class Watch:
    """Every command line that any process of this machine shows meanwhile."""

    lines: set[str] = field(default_factory=set)

    @contextmanager
    def looking(self) -> Iterator[None]:
        done = threading.Event()
        thread = threading.Thread(target=self._look, args=(done,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def _look(self, done: threading.Event) -> None:
        while not done.wait(0.2):
            for process in psutil.process_iter(["cmdline"]):
                self.lines.add(" ".join(process.info["cmdline"] or ()))


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


def pages_of(ui: str) -> Iterator[str]:
    """What Spark's own pages and their API tell about the application."""
    (application,) = json.loads(get(f"{ui}/api/v1/applications"))
    for part in ("environment", "jobs", "stages", "allexecutors"):
        yield get(f"{ui}/api/v1/applications/{application['id']}/{part}")
    for page in ("environment", "jobs", "stages", "executors", "SQL"):
        yield get(f"{ui}/{page}/")


# What stays in `make test`: executors of a cluster of their own (tests/copy/test_spark.py), tokens in Python and in the
# JVM (test_guarded.py), a mirror behind locks (test_guarded_mirror.py).
@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_tokens_serve_executors_and_neither_they_nor_the_clients_secret_are_shown(
    guarded: Guarded, target_cluster: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = guarded.cluster.internal_servers, target_cluster.bootstrap_servers  # type: ignore[attr-defined]
    topics = {f"tokens-{uuid.uuid4().hex[:8]}": 2}
    (topic,) = topics
    create_topics(source, topics)
    produce(source, topic, (ToSend(b"%d" % n, b"k", n % 2) for n in range(RECORDS)))
    plan = small_plan(tmp_path, source, target, topics)
    by_token = {"conn_type": "kafka", "extra": guarded.properties(mechanism="OAUTHBEARER")}
    plan.environment[variable_of(f"{plan.name}_source")] = json.dumps(by_token)
    events, settings = tmp_path / "events", tmp_path / "spark"
    for folder in (events, settings):
        folder.mkdir()
    watch, said, shown = Watch(), list[str](), list[str]()
    reserved = PortReservation(1)
    (port,) = reserved
    # What docs/security.md advises: both ends of each of Spark's connections know the secret, and encrypt.
    spark_secret = secrets.token_hex(32)
    protection = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": spark_secret,
        "spark.network.crypto.enabled": "true",
    }
    with spark_standalone(tmp_path, workers=1, settings=protection) as master, watch.looking():
        defaults = {
            **protection,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": events.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.ui.port": str(port),
            "spark.driver.host": "127.0.0.1",
        }
        text = "".join(f"{name} {value}\n" for name, value in defaults.items())
        (settings / "spark-defaults.conf").write_text(text, encoding="utf-8")
        stranger = counting(
            master, tmp_path / "stranger", {**protection, "spark.authenticate.secret": secrets.token_hex(32)}
        )
        for name, value in {**connections(plan.environment), "SPARK_CONF_DIR": str(settings)}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")  # a driver of a cluster listens for its executors
        mirror = start("mirror", str(plan.path), "--master", master, connections={}, directory=tmp_path)
        wait_until(
            lambda: copied(target, topics) or mirror.poll() is not None, "all copied", deadline_seconds=LONG_SECONDS
        )
        assert mirror.poll() is None, finish(mirror)
        shown += pages_of(f"http://127.0.0.1:{port}")
        ended = ended_by_signal(mirror)
        assert ended.code == 130, ended
        said += [ended.out, ended.err]
        validated = finish(
            start("validate", str(plan.path), "--master", master, connections={}, directory=tmp_path),
            seconds=LONG_SECONDS,
        )
        said += [validated.out, validated.err]
        assert "EQUAL" in validated.out, validated
        assert validated.code == 0, validated
        unprotected = {name: value for name, value in protection.items() if "crypto" not in name}
        counted = finish(counting(master, tmp_path / "known", unprotected), seconds=LONG_SECONDS)
        assert counted.code == 0, counted
        assert "cross the network in clear" in counted.out
        turned_away = finish(stranger, seconds=LONG_SECONDS)
        assert turned_away.code == 1, turned_away
        assert "All masters are unresponsive" in turned_away.err, turned_away
        assert "cross the network in clear" not in turned_away.out
    reserved.release()
    assert not [text for text in said if "WARN: Spark" in text]
    hidden = [CLIENT_SECRET, spark_secret, *guarded.endpoint.tokens]
    assert len(hidden) > 4, "driver, executor and the JVM have each asked for a token"
    assert any("kafka_migration mirror" in line for line in watch.lines)
    assert any("CoarseGrainedExecutorBackend" in line for line in watch.lines)
    own = {settings / "spark-defaults.conf", tmp_path / "known" / "spark-defaults.conf", tmp_path / "daemons.conf"}
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path not in own]
    logs = [path.read_text(encoding="utf-8", errors="replace") for path in files]
    assert sum("SparkListenerEnvironmentUpdate" in text for text in logs) == 2, "the mirror's and the validation's"
    assert any("spark.eventLog.dir" in text for text in shown)
    everywhere = [*watch.lines, *said, *shown, *logs]
    assert not [text[:200] for text in everywhere if any(secret in text for secret in hidden)]


def counting(master: str, folder: Path, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    """A session on ``master`` that only counts, begun. ``folder`` takes its settings."""
    folder.mkdir()
    text = "".join(f"{name} {value}\n" for name, value in settings.items())
    (folder / "spark-defaults.conf").write_text(text, encoding="utf-8")
    return subprocess.Popen(
        [sys.executable, "-c", COUNTED, master],
        env={**os.environ, "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def connections(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("AIRFLOW_CONN_")}


def copied(target: str, topics: Mapping[str, int]) -> bool:
    # A fence's marker in each partition besides.
    return log_ends(target, topics) >= RECORDS + sum(topics.values())


def ended_by_signal(process: subprocess.Popen[str]) -> Ended:
    process.send_signal(signal.SIGTERM)
    return finish(process)
