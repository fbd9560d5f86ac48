"""Clusters that all processes of a test run share: started for whoever asks first, ended with the run.

    python -m tests.shared FOLDER NAME

runs one of them, the keeper: workers come and go, so no worker can own a cluster. The run's first process, which hands
out the tests or is the only one, holds a lock for as long as it exists; the kernel drops it however that process ends,
and each keeper, who waits for that lock, ends its cluster.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from demo.brokers import BrokerError, EmbeddedKafka
from demo.brokers.process import tail
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
#: Nothing expires: tests write records of 1970, which the retention of topics would have deleted every five minutes.
_KEPT = {"log.initial.task.delay.ms": "86400000", "log.retention.check.interval.ms": "86400000"}
PROPERTIES: dict[str, dict[str, str]] = {
    "source": _KEPT,
    "target": _KEPT,
    # The cleaner looks for work five times a second.
    "compacting": {**_KEPT, "log.cleaner.backoff.ms": "200"},
}
#: Hundreds of tests use these, for as long as the run takes. Unlike in other JVMs of tests, optimized code has saved
#: what it took to make after a minute of work; after that the same work takes a third less.
OPTIMIZED = frozenset({"source", "target"})
START_SECONDS = 180.0
END_SECONDS = 120.0


@dataclass(frozen=True, kw_only=True)
class SharedCluster:
    """A single node that others use, too: name topics and groups of your own, and leave the broker as it is."""

    bootstrap_servers: str
    data_dir: Path
    pids: dict[int, int]


class Run:
    """What the first process of a run holds: the folder of its keepers, and the lock that they wait for."""

    def __init__(self) -> None:
        """Make both."""
        self.folder = Path(tempfile.mkdtemp(prefix="kafka-migration-run-"))
        self._lock = os.open(self.folder / "run", os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def end(self) -> None:
        """Let the keepers go, and wait until they have. Raises AssertionError if one does not."""
        os.close(self._lock)
        keepers = list(self.folder.glob("*.keeper"))
        wait_until(lambda: all(map(_is_free, keepers)), "shared clusters are gone", deadline_seconds=END_SECONDS)
        shutil.rmtree(self.folder)


def shared_cluster(folder: Path, name: str) -> SharedCluster:
    """The cluster ``name`` of the run whose folder this is, which runs.

    Raises:
        BrokerError: it could not be started; the next one who asks tries again.
    """
    address, log = folder / f"{name}.json", folder / f"{name}.log"
    with _locked(folder / f"{name}.lock"):
        if not address.exists():
            with log.open("ab") as output:
                keeper = subprocess.Popen(
                    [sys.executable, "-m", "tests.shared", str(folder), name],
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}"},
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    # Ctrl-C in a terminal ends the run; the keeper sees that.
                    start_new_session=True,
                )
            wait_until(
                lambda: address.exists() or keeper.poll() is not None,
                f"the shared cluster {name} runs",
                deadline_seconds=START_SECONDS,
            )
            if not address.exists():
                raise BrokerError(f"the shared cluster {name} did not start:\n{tail(log)}")
    known = json.loads(address.read_text(encoding="utf-8"))
    return SharedCluster(
        bootstrap_servers=known["bootstrap_servers"], data_dir=Path(known["data_dir"]), pids=dict(known["pids"])
    )


def keep(folder: Path, name: str) -> None:
    """Run the cluster until the run is over."""
    with _locked(folder / f"{name}.keeper"), _cluster(name) as cluster:
        known = {
            "bootstrap_servers": cluster.bootstrap_servers,
            "data_dir": str(cluster.data_dir),
            "pids": list(cluster.pids.items()),
        }
        new = folder / f"{name}.new"
        new.write_text(json.dumps(known), encoding="utf-8")
        new.replace(folder / f"{name}.json")
        with _locked(folder / "run"):
            pass


def _cluster(name: str) -> EmbeddedKafka:
    options = ["-XX:TieredStopAtLevel=4"] if name in OPTIMIZED else []
    return EmbeddedKafka(name=name, properties=PROPERTIES[name], jvm_options=options)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    lock = os.open(path, os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _is_free(path: Path) -> bool:
    lock = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


if __name__ == "__main__":
    keep(Path(sys.argv[1]), sys.argv[2])
