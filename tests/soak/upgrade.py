"""Finish with this version what another one began: ``python -m tests.soak.upgrade --from COMMIT`` (make upgrade).

The version of COMMIT begins a migration of a live workload by its own commands, and is stopped at a place: after
``create``, with a mirror that is killed, after approval, between two groups, after ``stop``. This version's ``run``
goes on from there, and approves what has to be approved anew. Where it is refused it is run again, since that is the
remedy of all that can be refused here. An independent reader compares both clusters record by record, and where the
groups stand.
"""

import argparse
import json
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka
import psutil
import yaml

from demo.brokers import EmbeddedKafka
from kafka_migration.kafka.lookup import variable_of
from kafka_migration.migration.signing import FILE_VARIABLE
from kafka_migration.state.link import LinkState
from tests.kafka_tools import Row, ToSend, commit, committed, create_topics, log_ends, produce, read_all
from tests.soak.kill import WRONG, differences, is_exact
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
#: Where the version before is stopped, in the order of a migration.
PLACES = ("created", "killed", "approved", "between", "stopped")
_PARTITIONS = 2
_RECORDS = 20_000
_THROTTLE = "200KB"
"""Slow enough for a mirror to be killed in the midst of its copy."""
_TRIES = 3
_COMMAND_SECONDS = 1_800.0
_MASTER = ("--master", "local[2]")


class Unexpected(Exception):
    """A command of the version before did not end as it must for the test to go on."""


@dataclass(frozen=True)
class Scene:
    """One migration: its clusters, topics, groups and plan."""

    source: str
    target: str
    folder: Path
    name: str = field(default_factory=lambda: f"upgrade-{uuid.uuid4().hex[:8]}")

    @property
    def topics(self) -> dict[str, int]:
        return {f"{self.name}.{topic}": _PARTITIONS for topic in ("orders", "payments")}

    @property
    def groups(self) -> list[str]:
        return [f"{self.name}.{group}" for group in ("billing", "audit")]

    @property
    def plan(self) -> Path:
        return self.folder / "plan.yaml"

    def prepare(self) -> None:
        """Topics, records and commits on the source; the plan, and a key for its approvals."""
        create_topics(self.source, self.topics, {"retention.ms": "604800000"})
        for topic in self.topics:
            produce(self.source, topic, (_record(n) for n in range(_RECORDS // len(self.topics))))
        for at, group in enumerate(self.groups):
            commit(self.source, group, {(topic, p): 1_000 * (at + 1) + p for topic in self.topics for p in range(2)})
        document = {
            "version": 1,
            "name": self.name,
            "source": "before_source",
            "target": "before_target",
            "topics": {"include": [rf"{self.name}\..*"]},
            "groups": {"include": [rf"{self.name}\..*"]},
            "mirror": {"epoch_seconds": 5},
            "lag_gate": {"samples": 2, "interval_seconds": 0.5, "deadline_seconds": 900},
            "cutover": {"rest_seconds": 1, "stopped_groups": self.groups},
            "drain": {"window_seconds": 3, "deadline_seconds": 900},
        }
        self.plan.write_text(yaml.safe_dump(document))
        key = self.folder / "key"
        key.write_text(uuid.uuid4().hex * 2)
        key.chmod(0o600)

    def environment(self, checkout: Path) -> dict[str, str]:
        """For commands of the version in ``checkout``."""
        connections = {
            variable_of(f"before_{side}"): json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": servers}})
            for side, servers in (("source", self.source), ("target", self.target))
        }
        ours = {"PYTHONPATH": f"{checkout / 'plugins'}:{checkout}", FILE_VARIABLE: str(self.folder / "key")}
        spark = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "COLUMNS": "120"}
        return {**os.environ, **connections, **ours, **spark}


def _record(n: int) -> ToSend:
    return ToSend(b"%d:" % n + b"x" * 80, b"key-%d" % (n % 500), n % _PARTITIONS)


@contextmanager
def producing(scene: Scene) -> Iterator[Callable[[], None]]:
    """A workload that writes to all topics, until the function that is given is called."""
    ended = threading.Event()

    def write() -> None:
        producer, n = confluent_kafka.Producer({"bootstrap.servers": scene.source}), _RECORDS
        while not ended.wait(0.1):
            for topic in scene.topics:
                producer.produce(topic, b"%d: live" % n, b"key-%d" % (n % 500), n % _PARTITIONS)
                n += 1
            producer.poll(0)
        producer.flush(60)

    thread = threading.Thread(target=write, name="workload")
    thread.start()

    def end() -> None:
        ended.set()
        thread.join()

    try:
        yield end
    finally:
        end()


class Before:
    """The version before, and its mirror."""

    def __init__(self, scene: Scene, checkout: Path) -> None:
        self._scene, self._environment = scene, scene.environment(checkout)
        self._mirror: subprocess.Popen[bytes] | None = None

    def command(self, *words: str) -> str:
        """Run a command, which must succeed; its standard output."""
        name, *options = words
        where = [*name.split(), str(self._scene.plan)]
        done = subprocess.run(
            [sys.executable, "-m", "kafka_migration", *where, *options],
            env=self._environment,
            cwd=self._scene.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode:
            raise Unexpected(f"{' '.join(words)} of the version before ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def approve(self, gate: str) -> None:
        receipt = json.loads(self.command(f"approve {gate}", "--show", "--json"))["receipt"]
        self.command(f"approve {gate}", "--receipt", receipt, "--yes")

    def start_mirror(self, *options: str) -> None:
        with (self._scene.folder / "mirror.log").open("ab") as log:
            self._mirror = subprocess.Popen(
                [sys.executable, "-m", "kafka_migration", "mirror", str(self._scene.plan), *_MASTER, *options],
                env=self._environment,
                cwd=self._scene.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def kill_mirror(self) -> None:
        """The mirror's process, its JVM and its workers, all at once."""
        if self._mirror is None or self._mirror.poll() is not None:
            return
        mirror = psutil.Process(self._mirror.pid)
        for process in (*mirror.children(recursive=True), mirror):
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        self._mirror.wait()

    def bring_to(self, place: str, end_workload: Callable[[], None]) -> None:
        """Everything up to ``place``."""
        scene, at = self._scene, PLACES.index(place)
        self.approve("plan")
        self.command("create")
        if place == "created":
            return
        self.start_mirror(*(["--throttle", _THROTTLE] if place == "killed" else []))
        wait_until(lambda: log_ends(scene.target, scene.topics) > _RECORDS // 10, "it copies", deadline_seconds=900)
        if place == "killed":
            self.kill_mirror()
            if (copied := log_ends(scene.target, scene.topics)) >= _RECORDS:
                raise Unexpected(f"the mirror was killed too late: {copied} offsets were on the target")
            return
        self.command("lag", "--gate")
        self.command("validate", *_MASTER, "--output", str(scene.folder / "reports"))
        self.approve("cutover")
        for group in scene.groups[: max(0, at - PLACES.index("approved"))]:
            self.command("cutover", "--group", group)
        if place == "stopped":
            end_workload()
            self.command("stop")
        self.kill_mirror()


def finish(scene: Scene, end_workload: Callable[[], None]) -> list[str]:
    """``run`` of this version, until it succeeds; what it was refused with before. Raises AssertionError if it never
    does."""
    refusals: list[str] = []
    for _ in range(_TRIES):
        code, text = _run(scene, end_workload)
        if code == 0:
            return refusals
        refusals.append(refusal_of(text))
    raise AssertionError(f"not finished in {_TRIES} tries: {'; then '.join(refusals)}")


def _run(scene: Scene, end_workload: Callable[[], None]) -> tuple[int, str]:
    terminal, stdin = pty.openpty()
    os.write(terminal, b"yes\n" * 4)
    words = ["run", str(scene.plan), *_MASTER, "--output", str(scene.folder / "reports")]
    lines: list[str] = []
    try:
        with (scene.folder / "run.out").open("ab") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "kafka_migration", *words],
                env=scene.environment(ROOT),
                cwd=scene.folder,
                stdin=stdin,
                stdout=out,
                stderr=subprocess.PIPE,
                text=True,
            )
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line.startswith(("watch_groups:", "stop_mirror:")):
                # Its consumers are on the target; now its producers leave the source.
                end_workload()
        return process.wait(), "".join(lines)
    finally:
        os.close(stdin)
        os.close(terminal)
        (scene.folder / "run.err").write_text("".join(lines))


def refusal_of(text: str) -> str:
    """Why a command ended, from its standard error: its error and the remedy, or else its last lines."""
    lines = text.strip().splitlines()
    start = next((n for n, line in enumerate(lines) if "error:" in line), max(0, len(lines) - 3))
    return " ".join(line.strip() for line in lines[start : start + 4])


def compared(scene: Scene) -> dict[str, int]:
    """What is wrong with the copy, in records; and ``misplaced``, partitions where a group would not go on with the
    record that it would have read next on the source."""
    link = LinkState.on_target(scene.name, {"bootstrap.servers": scene.target})
    maps = link.offset_maps()
    link.close()
    here, there = read_all(scene.source, scene.topics), read_all(scene.target, scene.topics)
    counts = {"records": 0, **dict.fromkeys(WRONG, 0), "misplaced": 0}
    for tp, rows in here.items():
        counts["records"] += len(rows)
        for what, count in differences(rows, there[tp], maps.get(tp)).items():
            counts[what] += count
    for group in scene.groups:
        source, target = committed(scene.source, group), committed(scene.target, group)
        counts["misplaced"] += sum(
            tp not in target or next_record(here[tp], source[tp]) != next_record(there[tp], target[tp]) for tp in source
        )
    return counts


def next_record(rows: list[Row], offset: int) -> tuple[object, ...] | None:
    """What a consumer that stands at ``offset`` reads next, offsets aside; None at the end."""
    return next((row.without_offset() for row in rows if row.offset >= offset), None)


def upgraded(place: str, scene: Scene, checkout: Path) -> dict[str, Any]:
    """One place: what was refused on the way, and what is wrong in the end."""
    began = time.monotonic()
    scene.folder.mkdir()
    scene.prepare()
    before = Before(scene, checkout)
    with producing(scene) as end_workload:
        try:
            before.bring_to(place, end_workload)
        finally:
            before.kill_mirror()
        refusals = finish(scene, end_workload)
    return {"refused": refusals, **compared(scene), "seconds": round(time.monotonic() - began)}


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The files of ``commit`` in a folder of their own, with what `make setup` has fetched for this version."""
    with tempfile.TemporaryDirectory(prefix="upgrade-from-") as folder:
        archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
        cache = Path(folder) / ".cache"
        if not cache.exists():
            cache.symlink_to(ROOT / ".cache")
        yield Path(folder)


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak.upgrade", description=__doc__)
    parser.add_argument("--from", dest="commit", required=True, help="the commit that begins the migrations")
    parser.add_argument("--place", action="append", choices=PLACES, help="only this one; may be given again")
    parser.add_argument("--folder", type=Path, help="keep plans and logs here")
    options = parser.parse_args()
    is_good = True
    with (
        tempfile.TemporaryDirectory(prefix="upgrade-test-") as temporary,
        checked_out(options.commit) as checkout,
        EmbeddedKafka(name="upgrade-source") as source,
        EmbeddedKafka(name="upgrade-target") as target,
    ):
        folder = options.folder or Path(temporary)
        for place in options.place or PLACES:
            scene = Scene(source.bootstrap_servers, target.bootstrap_servers, folder / place)
            try:
                result = upgraded(place, scene, checkout)
            except (AssertionError, Unexpected, subprocess.SubprocessError) as error:
                is_good = False
                print(f"{place}: FAILED: {error}", flush=True)
                continue
            is_right = is_exact(result) and not result["misplaced"] and result["records"] > _RECORDS
            is_good &= is_right
            print(f"{place}: {'finished' if is_right else 'WRONG'}: {json.dumps(result)}", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
