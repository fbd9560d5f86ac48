"""Where a command writes: results on standard output, progress and errors on standard error.

With ``--json`` standard output holds JSON alone, whatever happens, so that a machine can read it without guessing.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.printable import printable

_OBEYED = re.compile(r"[\x7f-\x9f]")


class _Console(Console):
    """One that shows what a terminal would obey as its code, wherever in a table or a text it stands."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """As rich calls it, of each part of what is printed."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=printable(segment.text))


class Output:
    """The two streams of one command."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        # Consoles look the streams up when they write, so they are right under a test's capture, too.
        self.out: Console
        self.err: Console
        self.out, self.err = _Console(highlight=False), _Console(stderr=True, highlight=False)

    def log(self, text: str) -> None:
        """Progress: one line, never wrapped, so that it can be searched for."""
        self.err.print(Text(printable(text)), soft_wrap=True)

    def line(self, text: str) -> None:
        """A line of the result, in the form for people."""
        self.out.print(Text(printable(text)), soft_wrap=True)

    def result(self, value: Mapping[str, Any], *shown: RenderableType) -> None:
        """The result: ``value`` with ``--json``, else what is ``shown``; a text is a line, and never markup."""
        if self.as_json:
            self.json(value)
            return
        for part in shown:
            if isinstance(part, str):
                self.line(part)
            else:
                self.out.print(part)

    def json(self, value: Mapping[str, Any], *, indent: int | None = 2) -> None:
        """A JSON document on standard output; ``indent`` None for one line of many."""
        text = json.dumps(value, indent=indent, ensure_ascii=False)
        # JSON itself escapes the rest of what a terminal obeys.
        sys.stdout.write(_OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        sys.stdout.flush()

    @property
    def is_live(self) -> bool:
        """Whether a person watches standard output, so that it may be redrawn."""
        return self.out.is_terminal and not self.as_json


def write_new(texts: Mapping[Path, str], *, secrets: Collection[Path] = (), field: str = "--write") -> list[Path]:
    """Write each file of ``texts``, all or none; those of ``secrets`` for their owner alone.

    Raises BadInput, about ``field``, for a file that is there, or cannot be written.
    """
    written: list[Path] = []
    contents = {path: text.encode() for path, text in texts.items()}
    try:
        for path, data in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = 0o600 if path in secrets else 0o666
            # Never through a link, and over nothing.
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
                written.append(path)
                file.write(data)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        reason = error.strerror or str(error)
        remedy = "remove it, or give another folder" if isinstance(error, FileExistsError) else "give another folder"
        folder = next(iter(texts)).parent
        raise BadInput(reason, field=field, value=str(error.filename or folder), remedy=remedy) from error
    return written
