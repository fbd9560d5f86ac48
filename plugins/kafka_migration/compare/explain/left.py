"""What drill-down keeps of records that have no equal on the other side, where it should be. Bounded."""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field

from kafka_migration.compare.digests import SOURCE
from kafka_migration.compare.explain.fields import Record
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.stream import digest
from kafka_migration.domain.types import TopicPartition

Content = tuple[int, bytes]


class TooMany(Exception):
    """More records differ than are kept: what follows is not looked at."""


@dataclass(slots=True, eq=False)
class Left:
    """A record that has no equal on the other side, where it should be.

    ``place`` is its offset on the source, or where the map puts a record of the target; ``in_run`` whether the map has
    one there. ``twin`` stands in its stead on the other side, if anything does.
    """

    tp: TopicPartition
    record: Record
    place: int
    in_run: bool = True
    twin: Left | None = None


@dataclass(frozen=True, slots=True)
class Misplaced:
    """``count`` records in a row that are equal, and in order, but not where the map says: the first of them."""

    tp: TopicPartition
    source: Record
    target: Record
    expected: int | None


def left_of(side: str, record: Record, places: Places) -> Left:
    """What is left of ``side``, with its place."""
    tp, at = places.range.tp, record.offset
    if side == SOURCE:
        return Left(tp, record, at, places.target_of(at) is not None)
    return Left(tp, record, places.place_of(at), places.source_of(at) is not None)


@dataclass(slots=True)
class Thin:
    """Records in order of which only the offset and a digest is kept. ``oldest`` is their smallest timestamp."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))
    oldest: int = 1 << 62

    def add(self, record: Record) -> None:
        """One more."""
        self.offsets.append(record.offset)
        self.digests.append(digest(record))
        self.oldest = min(self.oldest, record.timestamp)


class Leftovers:
    """What is left of a topic's partitions: at most so many records and bytes, and of long rows that one side has alone
    (``thin``, by side and partition) sixteen bytes each of so many more."""

    def __init__(self, *, most: int = 20_000, most_bytes: int = 64 << 20, most_thin: int = 4 << 20) -> None:
        self.source: list[Left] = []
        self.target: list[Left] = []
        self.misplaced: list[Misplaced] = []
        self.thin: defaultdict[tuple[str, TopicPartition], Thin] = defaultdict(Thin)
        self._most, self._room, self._thin_room = most, most_bytes, most_thin

    def add(self, to: list[Left], left: Left) -> None:
        """Keep one. Raises TooMany."""
        self._room -= len(left.record.rest)
        if len(self.source) + len(self.target) >= self._most or self._room < 0:
            raise TooMany
        to.append(left)

    def add_thin(self, side: str, tp: TopicPartition, record: Record) -> None:
        """Keep that there is one. Raises TooMany."""
        self._thin_room -= 1
        if self._thin_room < 0:
            raise TooMany
        self.thin[side, tp].add(record)

    def of(self, side: str) -> list[Left]:
        """What is left of ``side``, and kept whole."""
        return self.source if side == SOURCE else self.target

    def thin_of(self, side: str) -> dict[TopicPartition, Thin]:
        """The same of what is kept by its digests."""
        return {tp: it for (its, tp), it in self.thin.items() if its == side and it.digests}
