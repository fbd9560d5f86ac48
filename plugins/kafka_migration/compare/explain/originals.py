"""Whether the source has, anywhere in a topic, what stands on the target only: then it was written twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kafka_migration.compare.explain.left import Left, Row
from kafka_migration.compare.explain.log import Chunk
from kafka_migration.domain.types import TopicPartition

#: A record that is on the target only is looked for among so many records of the source.
_MOST_SEARCHED = 50_000_000

#: Partition and offset on the source.
Original = tuple[TopicPartition, int]


class Enough(Exception):
    """As much was read as shall be. Its text names how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Originals:
    """What the source has of records that are on the target only: where (in its own partition, if it is there), and of
    digests those that it has. ``note`` names what was not looked through."""

    places: Mapping[Left, Original] = field(default_factory=dict)
    digests: Collection[int] = ()
    note: str = ""


class OriginalSearch:
    """Looks for ``wanted`` records, and for those of ``rows``, in the source's partitions, one after the other."""

    def __init__(self, wanted: Collection[Left], rows: Mapping[TopicPartition, Row]) -> None:
        self._wanted: defaultdict[int, list[Left]] = defaultdict(list)
        for left in wanted:
            self._wanted[left.record.digest].append(left)
        self._oldest = min([left.record.timestamp for left in wanted] + [row.oldest for row in rows.values()])
        #: Those whose own partition may still have it, and digests that were not seen yet.
        self._open, self._open_digests = set(wanted), {found for row in rows.values() for found in row.digests}
        self._places: dict[Left, Original] = {}
        self._digests: set[int] = set()
        self._looked_at = 0
        #: Where the wanted records stand on the target.
        self.homes = {left.tp for left in wanted} | rows.keys()

    def look_at(self, tp: TopicPartition, chunk: Chunk) -> None:
        """Search a chunk of the source's partition. Raises Enough, and CannotRead."""
        self._looked_at += chunk.count
        if chunk.newest is None or chunk.newest >= self._oldest:
            self._look_at_all(tp, chunk)
        # Else none of its records is as new as any that is looked for.
        if self._looked_at > _MOST_SEARCHED:
            raise Enough(f"only {self._looked_at:,} records of the source were looked through for its original")

    def _look_at_all(self, tp: TopicPartition, chunk: Chunk) -> None:
        wanted, unseen, columns = self._wanted, self._open_digests, chunk.columns()
        for n, digest in enumerate(columns.hashes.tolist()):
            for left in wanted.get(digest, ()):
                if left in self._open and (left not in self._places or left.tp == tp):
                    self._places[left] = (tp, int(columns.offsets[n]))
                    if left.tp == tp:
                        self._open.discard(left)
            if digest in unseen:
                unseen.discard(digest)
                self._digests.add(digest)

    def is_over(self) -> bool:
        """At the end of a partition: whether all that was looked for has been found."""
        self._open -= self._places.keys()
        return not self._open and not self._open_digests

    def found(self, note: str) -> Originals:
        return Originals(places=self._places, digests=self._digests, note=note)
