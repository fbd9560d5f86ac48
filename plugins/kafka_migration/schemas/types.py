"""What a registry holds: subjects, their versions, and what holds for them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: Protobuf's comments, which a registry may drop.
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema that another one names as ``name``."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """A schema as an id stands for it. ``more`` are its metadata and rules, as the registry shows them."""

    type: str
    text: str
    references: tuple[Reference, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def is_same(self, other: Content) -> bool:
        """Whether both mean the same: registries keep schemas in their own spelling."""
        return (
            self.type == other.type
            and {*self.references} == {*other.references}
            and (self.text == other.text or _plain(self) == _plain(other))
            # Without any, some show none, and others an empty one.
            and all((self.more.get(name) or {}) == (other.more.get(name) or {}) for name in {*self.more, *other.more})
        )


def _plain(content: Content) -> Any:
    if content.type == "PROTOBUF":
        return "".join(_COMMENTS.sub("", content.text).split())
    try:
        return json.loads(content.text)
    except ValueError:
        return content.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version of a subject. ``is_deleted``: softly, so that its id still leads to it."""

    subject: str
    version: int
    id: int
    content: Content
    is_deleted: bool = False

    def __str__(self) -> str:
        deleted = ", soft-deleted" if self.is_deleted else ""
        return f"{self.subject} version {self.version} (id {self.id}{deleted})"

    def as_dict(self) -> dict[str, Any]:
        """JSON types only, without its text."""
        return {
            "subject": self.subject,
            "version": self.version,
            "id": self.id,
            "type": self.content.type,
            "references": [{"subject": one.subject, "version": one.version} for one in self.content.references],
            "deleted": self.is_deleted,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A subject with all its versions, by number. ``unreadable`` are soft-deleted ones that the registry does not show.
    ``config`` (compatibility, and what else the registry has there) and ``mode`` are what holds for it, its own or the
    registry's."""

    name: str
    versions: Mapping[int, Version] = field(default_factory=dict)
    unreadable: tuple[int, ...] = ()
    config: Mapping[str, Any] = field(default_factory=dict)
    mode: str = ""

    @property
    def is_there(self) -> bool:
        """Whether the registry has a version of it."""
        return bool(self.versions or self.unreadable)

    @property
    def newest(self) -> tuple[int, ...]:
        """Numbers of all versions, soft-deleted ones included, and the id of the last one (0 if it is not shown): what
        was deleted for good may have come again with the same number. () if there is none."""
        every = sorted({*self.versions, *self.unreadable})
        return (*every, self.versions[every[-1]].id if every[-1] in self.versions else 0) if every else ()
