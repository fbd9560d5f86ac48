"""What rounds found, in a file: a run that ended early, or was ended, goes on behind the last one that went well."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

from tests.chaos.compare import Found
from tests.chaos.schedule import Fault


class OtherRun(Exception):
    """The file is of a run with other settings, or of none."""


@dataclass(frozen=True)
class Note:
    """A round that went well: what was compared, which kinds of faults fell, which are left to later rounds."""

    round: int
    found: Found
    injected: list[str]
    missed: list[Fault]
    innocent_stall: float = 0.0
    problems: ClassVar[tuple[str, ...]] = ()


class Notes:
    """Reads and writes the file, a JSON object a line; `path` None keeps nothing. `settings` make a run what it is."""

    def __init__(self, path: Path | None, settings: Mapping[str, object]) -> None:
        self._path, self._settings = path, dict(settings)

    def read(self) -> list[Note]:
        """The rounds that went well. Raises OtherRun."""
        if self._path is None or not self._path.exists():
            return []
        return [self._note(line) for line in self._path.read_text().splitlines()]

    def write(self, note: Note) -> None:
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps({"settings": self._settings, **asdict(note)}) + "\n")

    def _note(self, line: str) -> Note:
        try:
            told = json.loads(line)
            settings = told.pop("settings")
            found = Found(**told.pop("found"))
            note = Note(**{**told, "missed": [Fault(**fault) for fault in told["missed"]]}, found=found)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OtherRun(f"{self._path} holds something else than rounds of chaos: {line[:80]!r}") from error
        if settings != self._settings:
            raise OtherRun(
                f"{self._path} is of a run with {settings}, this one has {self._settings}; name another file"
            )
        return note
