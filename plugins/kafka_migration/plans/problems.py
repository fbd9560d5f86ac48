"""What is wrong with a plan, as a person should read it: file, line, field, value, remedy, every problem at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kafka_migration.domain.errors import BadInput

_SECRET_NAME = re.compile(r"authorization|cookie|token|secret|password|passwd|credential|api[-_]?key|jaas", re.I)
_USER_INFO = re.compile(r"//[^/?#\s]*@")
_LONGEST_VALUE = 120


def is_secret_name(name: str) -> bool:
    """Whether a field or header of this name usually carries a secret."""
    return bool(_SECRET_NAME.search(name))


def without_user(text: str) -> str:
    """``text`` without who asks, and by which password, in URLs."""
    return _USER_INFO.sub("//(hidden)@", text)


def shown(value: object, *, field: str = "") -> str:
    """``value`` for a message: short, and without what looks like a secret.

    Mappings and lists show their shape only, because a secret may stand inside them.
    """
    if is_secret_name(field.rpartition(".")[2]):
        return "(hidden)"
    if isinstance(value, Mapping):
        return f"a mapping of {', '.join(map(str, value)) or 'nothing'}"
    if isinstance(value, str):
        text = repr(without_user(value))
    elif isinstance(value, Sequence):
        return f"a list of {len(value)}"
    elif value is None or isinstance(value, bool):
        text = {None: "nothing", True: "true", False: "false"}[value]
    else:
        text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 3] + "..."


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong. ``field`` is a dotted path, ``line`` counts from 1 (0: unknown)."""

    field: str
    message: str
    remedy: str
    value: str = ""
    line: int = 0

    def __str__(self) -> str:
        at = f"line {self.line}: " if self.line else ""
        what = f"{self.field or '(the file)'}{f' = {self.value}' if self.value else ''}"
        return f"{at}{what}: {self.message}\n    remedy: {self.remedy}"


class InvalidPlan(BadInput):
    """A plan that was refused. ``problems`` holds all of them; ``field`` and ``value`` are those of the first."""

    def __init__(self, file: str, problems: Sequence[Problem]) -> None:
        if not problems:
            raise ValueError("an invalid plan has a problem or more")
        self.problems = tuple(sorted(problems, key=lambda p: p.line))
        count = len(self.problems)
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{count} problem{'s' * (count > 1)} in the plan, nothing was started\n{lines}", file=file)
        first = self.problems[0]
        self.field, self.value, self.remedy = first.field, first.value, first.remedy
