"""What a gate, an answer or a measurement is about: the whole plan, or a wave of it.

Lag, evidence and approvals are the same code for both: the whole plan is the scope that is given today.
"""

from __future__ import annotations

import re
from collections.abc import Set
from dataclasses import dataclass

#: As a wave may be called: its name is a part of journal keys, whose parts slashes separate.
_KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """``topics`` and ``groups`` of a plan by name; None: all of them. ``key`` is the wave's name, "" for all."""

    key: str = ""
    topics: frozenset[str] | None = None
    groups: frozenset[str] | None = None

    def __post_init__(self) -> None:
        if self.key and not _KEY.fullmatch(self.key):
            raise ValueError(f"a scope cannot be called {self.key!r}: use a-z, 0-9, dots, dashes and underscores")
        if bool(self.key) != (self.topics is not None and self.groups is not None):
            raise ValueError("a wave has a name, its topics and its groups; the whole plan has none of the three")

    @classmethod
    def wave(cls, key: str, *, topics: Set[str], groups: Set[str]) -> Scope:
        """Some topics and groups under a name of their own."""
        return cls(key=key, topics=frozenset(topics), groups=frozenset(groups))

    @property
    def is_whole(self) -> bool:
        """Whether all of the plan is meant."""
        return not self.key

    def has_topic(self, topic: str) -> bool:
        """Whether ``topic`` is meant, if it is one of the plan."""
        return self.topics is None or topic in self.topics

    def has_group(self, group: str) -> bool:
        """Whether ``group`` is meant, if it is one of the plan."""
        return self.groups is None or group in self.groups

    def own(self, name: str) -> str:
        """``name`` of the journal as this scope's own: ``cutover``, or ``cutover/<wave>``."""
        return f"{name}/{self.key}" if self.key else name


WHOLE = Scope()
