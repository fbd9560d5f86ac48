"""`make scrape-check`: a real Prometheus scrapes real migrations: one goes on, the mirror of one is killed, records of
one are deleted before they are copied, and the target of one is away.

Each alert has to fire for its fault, with its migration's name, and no other one for anything, at any look. Every query
of the dashboard has to return data meanwhile. Then the mirror that was killed is started again, and what its alert is
for has to end (the alert itself stays for a quarter of an hour, `keep_firing_for`).

Rules and scrape configuration are those of monitoring/, but for the address of the exporter and the intervals. Takes
about ten minutes: `for:` of the rules. The last line is JSON; exit code 0 if nothing in it is a fault.
"""

from __future__ import annotations

import json
import multiprocessing
import shutil
import signal
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from bench.latency import produce
from bench.ours import Migration
from bench.processes import running
from demo.brokers import EmbeddedKafka
from demo.brokers.ports import HOST, PortReservation
from kafka_migration.domain.types import TopicPartition
from tests.kafka_tools import commit, create_topics, delete_records, log_ends
from tests.waiting import wait_until

_MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
_PREFIX = "KafkaMigration"
#: Of one partition each.
_TOPICS = 4
_WRITTEN = ("well", "killed", "lossy")
_PER_SECOND, _VALUE_BYTES = 200, 200
_INTERVAL_SECONDS = 5
_START_SECONDS = 480.0
#: The longest `for:` of a fault here is 5 minutes; the mirror is silent, and a reading failed, some time before.
_FIRE_SECONDS = 900.0
#: More than enough for each `for:` of one minute and less, of an alert that should not fire.
_QUIET_SECONDS = 90.0

Alert = tuple[str, str]
"""Its name without prefix, and the migration."""


@dataclass(frozen=True)
class Prometheus:
    """Its HTTP API."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an instant query."""
        return list(self._get("query", query=expression)["result"])

    def firing(self) -> set[Alert]:
        """The alerts that fire now."""
        return {
            (alert["labels"]["alertname"].removeprefix(_PREFIX), alert["labels"].get("migration", ""))
            for alert in self._get("alerts")["alerts"]
            if alert["state"] == "firing"
        }

    def is_up(self) -> bool:
        """Whether it answers, and the last scrape succeeded."""
        try:
            return [one["value"][1] for one in self.query("up")] == ["1"]
        except OSError:
            return False

    def _get(self, path: str, **parameters: str) -> dict[str, Any]:
        asked = urllib.parse.urlencode(parameters)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{asked}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)["data"]
        return found


@dataclass
class Notes:
    """What was seen."""

    fired: dict[Alert, int] = field(default_factory=dict)
    wrong: set[Alert] = field(default_factory=set)
    empty: list[str] = field(default_factory=list)
    queries: int = 0

    def look(self, prometheus: Prometheus, expected: set[Alert], began: float) -> set[Alert]:
        """What fires now; what should not is noted."""
        now = prometheus.firing()
        for alert in now - self.fired.keys():
            self.fired[alert] = round(time.monotonic() - began)
            _say(f"  after {self.fired[alert]} s: {alert[0]} of {alert[1] or 'nobody'}")
        self.wrong |= now - expected
        return now


def main() -> int:
    """0 if each alert fired for its fault alone, and every query returned data."""
    if (program := shutil.which("prometheus")) is None:
        print("error: no prometheus on PATH. On Debian and Ubuntu: apt install prometheus", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scrape-check-")))
        source = stack.enter_context(EmbeddedKafka(name="scraped-source"))
        target = stack.enter_context(EmbeddedKafka(name="scraped-target"))
        ports = PortReservation(3)
        stack.callback(ports.release)
        nobody, exporter, web = ports
        here, there = source.bootstrap_servers, target.bootstrap_servers
        well, killed, lossy = written = [_migration(folder, kind, here, there) for kind in _WRITTEN]
        away = _migration(folder, "away", here, f"{HOST}:{nobody}")
        stack.enter_context(_load(here))
        for migration in written:
            migration.run("create")
        victim, _ = stack.enter_context(killed.mirroring())
        for migration in (well, lossy):
            stack.enter_context(migration.mirroring())
        _say("three mirrors; one migration is validated, and its group moved")
        wait_until(
            lambda: _copied(there), lambda: f"the mirrors copy nothing{_logs(folder)}", deadline_seconds=_START_SECONDS
        )
        well.run("validate", "--master", "local[1]")
        well.run("cutover")
        prometheus = stack.enter_context(_scraped(program, folder, exporter, web, [*written, away]))
        notes, began = Notes(), time.monotonic()
        names = "|".join(migration.name for migration in written)
        running_now = f'kafka_migration_mirror_state{{state="running",migration=~"{names}"}} == 1'
        wait_until(lambda: len(prometheus.query(running_now)) == len(written), "not every mirror is seen to run")

        _say("nothing is wrong yet, but for the one whose target is away")
        unread = ("Unread", away.name)
        while time.monotonic() < began + _QUIET_SECONDS:
            notes.look(prometheus, {unread}, began)
            time.sleep(_INTERVAL_SECONDS)

        _say("a mirror is killed; records of another migration are deleted before they are copied")
        victim.send(signal.SIGKILL)
        _lose(lossy, here)
        expected = {unread, ("MirrorSilent", killed.name), ("PartitionsHalted", lossy.name)}
        wait_until(
            lambda: notes.look(prometheus, expected, began) >= expected,
            lambda: f"{expected - notes.fired.keys()} did not fire",
            deadline_seconds=_FIRE_SECONDS,
        )
        _ask_dashboard(prometheus, notes)

        _say("the mirror is started again")
        stack.enter_context(killed.mirroring())
        silent = f'kafka_migration_mirror_state{{state="silent",migration="{killed.name}"}} == 1'
        wait_until(lambda: not prometheus.query(silent), "it is silent still", deadline_seconds=_START_SECONDS)
        notes.look(prometheus, expected, began)
    figures = {
        "fired": {name: seconds for (name, _), seconds in notes.fired.items()},
        "wrong": sorted(notes.wrong),
        "queries": notes.queries,
        "empty": notes.empty,
    }
    print(json.dumps(figures))
    return 1 if notes.wrong or notes.empty else 0


def _migration(folder: Path, kind: str, source: str, target: str) -> Migration:
    return Migration(
        folder,
        source,
        target,
        _topics(kind),
        groups={"include": [f"{kind}-.*"]},
        mirror={"num_streams": 1},
        approvals={"plan": False, "cutover": False},
    )


@contextmanager
def _load(servers: str) -> Iterator[None]:
    """Topics of every migration that has a source, written to all the while, and a group of each that read once."""
    topics = [topic for kind in _WRITTEN for topic in _topics(kind)]
    create_topics(servers, dict.fromkeys(topics, 1))
    places = [(topic, 0) for topic in topics]
    spawn = multiprocessing.get_context("spawn")
    over = spawn.Event()
    writer = spawn.Process(target=produce, args=(servers, places, _PER_SECOND, _VALUE_BYTES, over), daemon=True)
    writer.start()
    try:
        wait_until(lambda: all(_end(servers, topic) for topic in topics), "nothing is written")
        for kind in _WRITTEN:
            commit(servers, f"{kind}-readers", {(f"{kind}-0", 0): 1})
        yield
    finally:
        over.set()
        writer.join(30)


def _topics(kind: str) -> list[str]:
    return [f"{kind}-{number}" for number in range(_TOPICS)]


def _end(servers: str, topic: str) -> int:
    return log_ends(servers, {topic: 1})


def _copied(there: str) -> bool:
    """Whether records of each migration stand on the target; a fence's marker stands there before."""
    return all(_end(there, f"{kind}-0") > 1 for kind in _WRITTEN)


def _lose(migration: Migration, here: str) -> None:
    """Records are deleted that the mirror, which is paused, has not copied."""
    migration.run("pause")
    topic = f"{_WRITTEN[-1]}-0"
    paused_at = _end(here, topic)
    wait_until(lambda: _end(here, topic) > paused_at + 100, "nothing is written")
    delete_records(here, {TopicPartition(topic, 0): _end(here, topic)})
    migration.run("resume")


@contextmanager
def _scraped(program: str, folder: Path, exporter: int, web: int, migrations: list[Migration]) -> Iterator[Prometheus]:
    """The exporter of all of them, and the Prometheus that asks it, while the block runs."""
    first, *others = migrations
    address = f"{HOST}:{exporter}"
    plans = [str(migration.path) for migration in others]
    command = first.command("metrics", *plans, "--listen", address, "--interval", str(_INTERVAL_SECONDS))
    environment = first.environment | {k: v for one in others for k, v in one.environment.items()}
    config = yaml.safe_load((_MONITORING / "prometheus.yaml").read_text())
    config["global"] = {"scrape_interval": f"{_INTERVAL_SECONDS}s", "evaluation_interval": f"{_INTERVAL_SECONDS}s"}
    config["scrape_configs"][0]["static_configs"] = [{"targets": [address]}]
    config["rule_files"] = [str(_MONITORING / name) for name in config["rule_files"]]
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    server = [
        program,
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address={HOST}:{web}",
    ]
    with (
        running(command, folder / "metrics.log", cwd=folder, env=environment, seconds=30),
        running(server, folder / "prometheus.log", cwd=folder, seconds=30),
    ):
        prometheus = Prometheus(f"http://{HOST}:{web}")
        wait_until(prometheus.is_up, lambda: f"Prometheus does not scrape{_logs(folder)}")
        yield prometheus


def _ask_dashboard(prometheus: Prometheus, notes: Notes) -> None:
    """Every query of the dashboard, for all migrations, as Grafana asks it."""
    dashboard = json.loads((_MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for target in panel.get("targets", ()):
            notes.queries += 1
            if not prometheus.query(target["expr"].replace("$migration", ".*")):
                notes.empty.append(panel["title"])


def _logs(folder: Path) -> str:
    """The ends of all logs there."""
    return "".join(f"\n{log.name}:\n{log.read_text()[-2000:]}" for log in sorted(folder.glob("*.log")))


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
