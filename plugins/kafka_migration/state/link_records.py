"""What the state of a link holds, as values."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_migration.domain.types import Desired, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTopic:
    """A topic as the link pinned it: another id under the same name is another topic."""

    name: str
    source_id: uuid.UUID
    target_id: uuid.UUID

    @property
    def key(self) -> str:
        """What the offset map calls the topic: its target id, or its name where brokers know no ids."""
        return str(self.target_id) if self.target_id.int else self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a person wants of the link. ``ends`` (with DRAIN) are the source offsets up to which to copy."""

    desired: Desired
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    reason: str = ""
    at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaltRecord:
    """Why a partition's mirror stopped, as recorded, and into which target topic it copied (its key)."""

    reason: str
    detail: str
    source_offset: int
    target_offset: int
    at: str
    topic_key: str = ""
