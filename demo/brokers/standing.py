"""Two clusters that stay up after the command that started them: `make brokers` and `make brokers-down`.

Each cluster has a directory below `.run/brokers/`, with its data and a pid file. A pid alone proves nothing, as the
kernel gives it out again; so the file also holds the start time, and the process must name the directory on its command
line. What does not fit is another process, and is left alone.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from demo.brokers.cluster import EmbeddedKafka
from demo.brokers.ports import HOST
from demo.brokers.process import BrokerError

ROOT = Path(__file__).resolve().parent.parent.parent
RUN_DIRECTORY = ROOT / ".run" / "brokers"
CLOCK_TOLERANCE_SECONDS = 2.0
"""Start times are computed from the wall clock, which is corrected now and then."""
STOP_GRACE_SECONDS = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A cluster to keep: its name, which is its directory's, and the port of its one node."""

    name: str
    port: int

    def __post_init__(self) -> None:
        if not self.name.isidentifier():
            raise ValueError(f"cluster name {self.name!r} is not a plain word.")
        if not 0 < self.port < 65536:
            raise ValueError(f"port {self.port} of cluster {self.name} is not between 1 and 65535.")

    @property
    def servers(self) -> str:
        """`host:port`, as clients take it."""
        return f"{HOST}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The pid file of one cluster. `started` is the process's start time, seconds since the epoch."""

    pid: int
    started: float
    port: int

    @classmethod
    def read(cls, directory: Path) -> "Record | None":
        """The record of a cluster; None when there is no file, or only part of one.

        The file is written in one step, so a partial one is no pid of ours.
        """
        try:
            return cls(**json.loads((directory / "broker.json").read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return None

    def write(self, directory: Path) -> None:
        """Put the record into the cluster's directory, in one step."""
        partial = directory / "broker.json.partial"
        partial.write_text(json.dumps(asdict(self)), encoding="utf-8")
        partial.replace(directory / "broker.json")

    def process(self, directory: Path) -> psutil.Process | None:
        """The broker's process; None when it is gone, whatever has its pid now."""
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(self.pid)
            if (
                abs(process.create_time() - self.started) <= CLOCK_TOLERANCE_SECONDS
                and any(str(directory) in argument for argument in process.cmdline())
                and process.status() != psutil.STATUS_ZOMBIE
            ):
                return process
        return None


def up(addresses: Sequence[Address], *, run_directory: Path = RUN_DIRECTORY) -> list[str]:
    """Start the clusters that do not run yet; what was done, a line for each.

    All or nothing: when one does not come up, those started by this call are ended.

    Raises:
        PortError: a port is taken by something else.
        BrokerError: a broker did not come up, or runs on another port than asked for.
    """
    lines = []
    launched: list[tuple[Address, EmbeddedKafka]] = []
    with _alone(run_directory):
        try:
            for address in addresses:
                directory = run_directory / address.name
                record = Record.read(directory)
                if record is not None and record.process(directory) is not None:
                    if record.port != address.port:
                        raise BrokerError(
                            f"cluster {address.name} runs already, on port {record.port} instead of {address.port}."
                            " End it first with `make brokers-down`."
                        )
                    lines.append(f"{address.name}: runs already at {address.servers}, pid {record.pid}")
                    continue
                cluster = EmbeddedKafka(
                    name=address.name, client_ports=[address.port], data_dir=directory, standing=True
                )
                launched.append((address, cluster))
                cluster.launch()
                # Before it is ready: if this process dies while waiting, brokers-down still finds the broker.
                pid = cluster.pids.get(1)
                if pid is None:
                    raise BrokerError(f"cluster {address.name} ended at once:\n{cluster.log_tail()}")
                Record(pid=pid, started=psutil.Process(pid).create_time(), port=address.port).write(directory)
            for address, cluster in launched:
                cluster.wait_ready()
                lines.append(f"{address.name}: up at {address.servers}, pid {cluster.pids.get(1)}")
        except BaseException:
            for address, cluster in launched:
                cluster.stop(grace_seconds=0)
                (run_directory / address.name / "broker.json").unlink(missing_ok=True)
            raise
    return lines


def down(*, keep_data: bool = False, run_directory: Path = RUN_DIRECTORY) -> list[str]:
    """End every cluster that `up` started, and remove its data unless told to keep them; a line for each.

    Raises:
        BrokerError: a broker outlived SIGKILL.
    """
    lines = []
    with _alone(run_directory):
        for directory in _clusters(run_directory):
            record = Record.read(directory)
            process = None if record is None else record.process(directory)
            if process is None:
                lines.append(f"{directory.name}: was not running")
            else:
                _end(process)
                lines.append(f"{directory.name}: ended, pid {process.pid}")
            if keep_data:
                (directory / "broker.json").unlink(missing_ok=True)
            else:
                shutil.rmtree(directory)
    return lines or ["nothing was up"]


def status(*, run_directory: Path = RUN_DIRECTORY) -> dict[str, Record | None]:
    """Every cluster that has a directory, with its record if its broker runs."""
    found: dict[str, Record | None] = {}
    for directory in _clusters(run_directory):
        record = Record.read(directory)
        running = record is not None and record.process(directory) is not None
        found[directory.name] = record if running else None
    return found


def _end(process: psutil.Process) -> None:
    # psutil compares start times once more before each signal.
    with contextlib.suppress(psutil.NoSuchProcess):
        process.resume()
        process.terminate()
        try:
            process.wait(STOP_GRACE_SECONDS)
        except psutil.TimeoutExpired:
            process.kill()
            try:
                process.wait(STOP_GRACE_SECONDS)
            except psutil.TimeoutExpired as error:
                raise BrokerError(f"broker with pid {process.pid} outlived SIGKILL.") from error


def _clusters(run_directory: Path) -> list[Path]:
    return sorted(path for path in run_directory.glob("*") if path.is_dir())


@contextlib.contextmanager
def _alone(run_directory: Path) -> Iterator[None]:
    """Let one up or down run at a time; the others wait."""
    run_directory.mkdir(parents=True, exist_ok=True)
    lock = os.open(run_directory / "lock", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
