"""What a run leaves on disk: every client's notes, from which alone it is judged (docs/checker.md).

Below the run directory:

    settings.json                                   what the clients share (mode 0600: it may hold credentials)
    notes/producers/<producer>.jsonl                    what a producer sent, and what was acknowledged
    notes/consumers/<group>/<cluster>/<member>.jsonl    what a member received and committed
    notes/owed/<group>.jsonl                            where a group begins: from there it has to receive everything
    notes/….json beside each of a client                how far it is
    logs/<client>.log                               what the client printed
"""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from checker.recorder import Recorder
from demo.clients.settings import ClusterName, Settings


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
    def notes(self) -> Path:
        """What is judged."""
        return self.path / "notes"

    def producer_notes(self, producer: str) -> Path:
        """One producer's notes."""
        return self.notes / "producers" / f"{producer}.jsonl"

    def member_notes(self, group: str, cluster: ClusterName, member: str) -> Path:
        """One member's notes of what it processed on one cluster."""
        return self.notes / "consumers" / group / cluster / f"{member}.jsonl"

    def group_notes(self, group: str, cluster: ClusterName) -> list[Path]:
        """The notes of all of a group's members on one cluster."""
        return sorted((self.notes / "consumers" / group / cluster).glob("*.jsonl"))

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

    def write_owed(self, starts: Mapping[str, Mapping[str, list[int]]]) -> None:
        """Note what each group has to receive: all from its starting commits on, by topic in order of partition."""
        for group, topics in starts.items():
            places = [(topic, number, at) for topic, offsets in topics.items() for number, at in enumerate(offsets)]
            path = self.notes / "owed" / f"{group}.jsonl"
            owed = Recorder(path, client=f"{group} owes", cluster="source", group=group, final=True)
            owed.assign(places)
            owed.committed(owed.commit(places), "ok")
            owed.close()


def status_path(notes: Path) -> Path:
    """Where the client that writes these notes says how far it is."""
    return notes.with_suffix(".json")


def write_json(path: Path, value: object) -> None:
    """Replace a small file at once: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Two hooks at once are answered by two threads.
    new = path.with_name(f".{path.name}.{os.getpid()}-{threading.get_ident()}")
    new.write_text(json.dumps(value))
    new.replace(path)


def read_status(notes: Path) -> dict[str, Any]:
    """How far the client of these notes is; empty before it said anything."""
    try:
        status: dict[str, Any] = json.loads(status_path(notes).read_text())
    except FileNotFoundError:
        return {}
    return status
