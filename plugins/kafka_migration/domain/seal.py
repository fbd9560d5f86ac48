"""The seal: the end of a mirror's own right to write, once everything has been copied and clients have moved."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from kafka_migration.domain.ledger import pack_ends, unpack_ends
from kafka_migration.domain.types import Identity, TopicPartition

#: Where the journal keeps it.
KIND, NAME = "seal", "link"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """``identity`` is that of a fence whose epoch no mirror gets. ``ends`` are the final ends of the target's
    partitions: the offsets of the fence's markers. They are empty until every marker was read back.
    """

    at: str
    identity: Identity | None = None
    ends: Mapping[TopicPartition, int]

    def __post_init__(self) -> None:
        if self.ends and self.identity is None:
            raise ValueError("markers were read back of a fence that has no identity")

    @property
    def is_complete(self) -> bool:
        """True once the marker was read back in every partition; before that the link only refuses to be mirrored."""
        return bool(self.ends)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        identity = self.identity
        return {
            "at": self.at,
            "producer_id": None if identity is None else identity.producer_id,
            "producer_epoch": None if identity is None else identity.producer_epoch,
            "ends": pack_ends(self.ends),
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Self:
        """The inverse of ``as_dict``."""
        who = value["producer_id"]
        return cls(
            at=value["at"],
            identity=None if who is None else Identity(who, value["producer_epoch"]),
            ends=unpack_ends(value["ends"]),
        )
