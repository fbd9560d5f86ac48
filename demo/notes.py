"""What a run leaves on disk: every client's notes, from which alone losses are counted.

Below the run directory:

    settings.json                                   what the clients share (mode 0600: it may hold credentials)
    obligations.json                                where logs and groups began, noted at set-up
    notes/producers/<producer>.tsv                  one line a record: sent, acknowledged or not
    notes/consumers/<group>/<cluster>/<member>.tsv  one line a record: processed
    notes/….json beside each                        how far its client is
    logs/<client>.log                               what the client printed
"""

import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.clients.settings import ClusterName, Settings

COLUMNS = ("id", "topic", "partition", "offset", "noted_ns")
"""Of a line, separated by tabs. `offset` is the record's own, on the cluster that the client talks to, or
NOT_ACKNOWLEDGED. `noted_ns` is nanoseconds on the machine's monotonic clock, which all its processes share."""

NOT_ACKNOWLEDGED = -1


class NotesWriter:
    """Appends notes to one file. A note is safe once `sync` returned."""

    def __init__(self, path: Path) -> None:
        """Create the file.

        Raises:
            FileExistsError: another client notes there; two writers would make both unreadable.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lines: list[str] = []
        self._unsynced = False

    def add(self, record_id: str, topic: str, partition: int, offset: int) -> None:
        """Note one record, with the time of this call."""
        self._lines.append(f"{record_id}\t{topic}\t{partition}\t{offset}\t{time.monotonic_ns()}\n")

    def write(self) -> None:
        """Hand the notes to the operating system: they outlive this process, not the machine."""
        if self._lines:
            data = memoryview("".join(self._lines).encode("ascii"))
            self._lines.clear()
            self._unsynced = True
            while data:
                data = data[os.write(self._file, data) :]

    def sync(self) -> None:
        """Write, and wait until the disk has it."""
        self.write()
        if self._unsynced:
            os.fdatasync(self._file)
            self._unsynced = False

    def close(self) -> None:
        """Sync and close."""
        self.sync()
        os.close(self._file)


@dataclass(frozen=True, slots=True, kw_only=True)
class Obligations:
    """Where everything began. Offsets by topic, in order of partition, on the source.

    Attributes:
        log_starts: each partition's first offset after DeleteRecords.
        groups: each group's starting commits: from there on every record is to be processed, once.
    """

    log_starts: Mapping[str, list[int]]
    groups: Mapping[str, Mapping[str, list[int]]]

    def __post_init__(self) -> None:
        for group, topics in self.groups.items():
            for topic, starts in topics.items():
                logs = self.log_starts.get(topic, [])
                if len(logs) != len(starts) or any(s < log for s, log in zip(starts, logs, strict=True)):
                    raise ValueError(f"{group} starts at {starts} in {topic}, whose logs start at {logs}.")


class RunDirectory:
    """The paths of one run, and the small files in it."""

    def __init__(self, path: Path) -> None:
        """Name the directory; nothing is created."""
        self.path = path.absolute()

    @property
    def logs(self) -> Path:
        """Where clients print to."""
        return self.path / "logs"

    @property
    def producers(self) -> Path:
        """Where producers note."""
        return self.path / "notes" / "producers"

    @property
    def consumers(self) -> Path:
        """Where consumers note, a directory for each group."""
        return self.path / "notes" / "consumers"

    def producer_notes(self, producer: str) -> Path:
        """One producer's notes."""
        return self.producers / f"{producer}.tsv"

    def member_notes(self, group: str, cluster: ClusterName, member: str) -> Path:
        """One member's notes of what it processed on one cluster."""
        return self.consumers / group / cluster / f"{member}.tsv"

    def group_notes(self, group: str, cluster: ClusterName) -> list[Path]:
        """The notes of all of a group's members on one cluster."""
        return sorted((self.consumers / group / cluster).glob("*.tsv"))

    def create(self, settings: Settings) -> None:
        """Make the directory and write the settings.

        Raises:
            FileExistsError: it holds a run already; notes of two runs don't mix.
        """
        self.logs.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path / "settings.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(file, "w") as out:
            out.write(settings.to_json())

    def settings(self) -> Settings:
        """The settings of the run."""
        return Settings.from_json((self.path / "settings.json").read_text())

    def write_obligations(self, obligations: Obligations) -> None:
        """Note where everything began."""
        write_json(self.path / "obligations.json", {"log_starts": obligations.log_starts, "groups": obligations.groups})

    def obligations(self) -> Obligations:
        """Where everything began."""
        return Obligations(**json.loads((self.path / "obligations.json").read_text()))


def status_path(notes: Path) -> Path:
    """Where the client that writes these notes says how far it is."""
    return notes.with_suffix(".json")


def write_json(path: Path, value: object) -> None:
    """Replace a small file at once: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps(value))
    new.replace(path)


def read_status(notes: Path) -> dict[str, Any]:
    """How far the client of these notes is; empty before it said anything."""
    try:
        status: dict[str, Any] = json.loads(status_path(notes).read_text())
    except FileNotFoundError:
        return {}
    return status


def producer_statuses(run: RunDirectory) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every producer that ever noted anything in this run, and how far it is."""
    for notes in sorted(run.producers.glob("*.tsv")):
        yield notes.stem, read_status(notes)
