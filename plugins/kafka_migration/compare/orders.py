"""What one task of a validation reads, and what it answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_migration.compare.digests import SegmentOutcome
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition

#: Properties of kafka-python's connections, by side. They hold secrets.
Wires = Mapping[str, Mapping[str, Any]]
#: A segment, or a part of one, by the segment's number.
Tile = tuple[int, PartitionRange]


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How tasks read: at which ``level``, whether of the source ``committed`` records only, how many
    ``seconds`` they wait for a leader, and how the clusters are reached. Holds credentials: never printed."""

    level: Level
    committed: bool
    seconds: float
    wires: Wires = field(repr=False)

    def failure(self, tile: Tile, reason: str) -> SegmentOutcome:
        """The outcome of a tile that could not be read."""
        return SegmentOutcome.of(*tile, self.level, failure=reason)


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a task found: an outcome of each of its tiles. ``unreachable`` is which cluster no broker of which answers;
    ``unanswered`` are partitions whose leaders do not, with why; ``kernel`` is what decoded records, if any were."""

    outcomes: list[SegmentOutcome] = field(default_factory=list)
    unreachable: str = ""
    unanswered: dict[TopicPartition, str] = field(default_factory=dict)
    kernel: str = ""

    def fail(self, orders: Orders, tiles: Iterable[Tile], reason: str) -> None:
        """None of ``tiles`` could be read."""
        self.outcomes += [orders.failure(tile, reason) for tile in tiles]
