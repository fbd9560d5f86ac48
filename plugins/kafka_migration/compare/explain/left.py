"""What drill-down keeps of records that have no equal on the other side, where it should be. Bounded.

Of long rows that one side has alone only offsets and digests are kept. What of these has an equal on the other side
has changed places; the rest is lost, written twice, or foreign. Since none is kept whole, none can be seen to be
altered.
"""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import Record
from kafka_migration.compare.explain.log import Entry
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Fault
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    import numpy as np

    from kafka_migration.compare.explain.stream import Digests

    Flags = np.ndarray[tuple[int], np.dtype[np.bool_]]

Counts = defaultdict[TopicPartition, Counter[Fault]]

_GOLDEN = 0x9E3779B97F4A7C15


class TooMany(Exception):
    """More records differ than are kept: what follows is not looked at."""


@dataclass(slots=True, eq=False)
class Left:
    """A record of ``side`` that has no equal on the other side, where it should be.

    ``place`` is its offset on the source, or where the map puts a record of the target; ``in_run`` whether the map has
    one there. ``twin`` stands in its stead on the other side, if anything does.
    """

    side: str
    tp: TopicPartition
    record: Record
    place: int
    in_run: bool
    twin: Left | None = None

    @classmethod
    def of(cls, side: str, record: Record, places: Places) -> Left:
        """A record that is left of ``side``, with its place."""
        tp, at = places.range.tp, record.offset
        if side == SOURCE:
            return cls(side, tp, record, at, places.target_of(at) is not None)
        return cls(side, tp, record, places.place_of(at), places.source_of(at) is not None)

    @property
    def missing_on(self) -> str:
        return TARGET if self.side == SOURCE else SOURCE


@dataclass(slots=True)
class Row:
    """Records in order of which only the offset and a digest is kept. ``oldest`` is their smallest timestamp."""

    offsets: array[int] = field(default_factory=lambda: array("q"))
    digests: array[int] = field(default_factory=lambda: array("Q"))
    oldest: int = 1 << 62

    def add(self, entry: Entry) -> None:
        self.offsets.append(entry.offset)
        self.digests.append(entry.digest)
        self.oldest = min(self.oldest, entry.timestamp)

    def as_array(self) -> Digests:
        import numpy as np  # only who drills down pays for it

        return np.array(self.digests, dtype=np.uint64)

    def keep(self, stay: Flags) -> None:
        """Forget all but those that ``stay``."""
        import numpy as np

        offsets, digests = np.array(self.offsets)[stay], self.as_array()[stay]
        self.offsets, self.digests = array("q", offsets.tobytes()), array("Q", digests.tobytes())

    def take_matching(self, other: Row) -> int:
        """Take out of both rows what both have, each as often as both do; how many."""
        import numpy as np

        mine, its = _numbered(self.as_array()), _numbered(other.as_array())
        is_there, is_here = np.isin(mine, its), np.isin(its, mine)
        self.keep(~is_there)
        other.keep(~is_here)
        return int(is_there.sum())


class Leftovers:
    """What is left of a topic's partitions: at most so many records and bytes, and of long rows that one side has alone
    (``rows``, by side and partition) sixteen bytes each of so many more. ``misplaced`` are pairs of source and target
    that are equal, and in order, but not where the map has them: the first of all in a row."""

    def __init__(self, *, most: int = 20_000, most_bytes: int = 64 << 20, most_in_rows: int = 4 << 20) -> None:
        self._whole: dict[str, list[Left]] = {SOURCE: [], TARGET: []}
        self.misplaced: list[tuple[Left, Left]] = []
        self.rows: defaultdict[tuple[str, TopicPartition], Row] = defaultdict(Row)
        self._most, self._room, self._room_in_rows = most, most_bytes, most_in_rows

    def add(self, left: Left) -> None:
        """Keep one. Raises TooMany."""
        self._room -= left.record.size
        if sum(map(len, self._whole.values())) >= self._most or self._room < 0:
            raise TooMany
        self._whole[left.side].append(left)

    def add_to_row(self, side: str, tp: TopicPartition, entry: Entry) -> None:
        """Keep that there is one. Raises TooMany."""
        self._room_in_rows -= 1
        if self._room_in_rows < 0:
            raise TooMany
        self.rows[side, tp].add(entry)

    def of(self, side: str) -> list[Left]:
        return self._whole[side]

    def drop(self, explained: Collection[Left]) -> None:
        """Forget what needs no class."""
        self._whole = {side: [left for left in kept if left not in explained] for side, kept in self._whole.items()}

    def rows_of(self, side: str) -> dict[TopicPartition, Row]:
        """What of ``side`` is kept by its digests."""
        return {tp: row for (its, tp), row in self.rows.items() if its == side and row.digests}

    def make_whole(self, places: Mapping[TopicPartition, Places]) -> None:
        """Keep whole again what equals a whole record of the other side: by that, its content is known."""
        import numpy as np

        for (side, tp), row in self.rows.items():
            others = [(left.record.digest, left.record) for left in self.of(TARGET if side == SOURCE else SOURCE)]
            records, unmatched = dict(others), Counter(found for found, _ in others)
            stay = np.ones(len(row.digests), bool)
            for n in np.flatnonzero(np.isin(row.as_array(), np.array([*records], dtype=np.uint64))).tolist():
                found = row.digests[n]
                if unmatched[found]:
                    unmatched[found] -= 1
                    stay[n] = False
                    again = records[found]._replace(offset=row.offsets[n])
                    self.of(side).append(Left.of(side, again, places[tp]))
            row.keep(stay)

    def take_moved(self) -> Counts:
        """Take out of rows what both sides have: in one partition out of order, in two misrouted, which counts in
        both."""
        found: Counts = defaultdict(Counter)
        source, target = self.rows_of(SOURCE), self.rows_of(TARGET)
        for tp in source.keys() & target.keys():
            found[tp][Fault.REORDER] += source[tp].take_matching(target[tp])
        for tp, mine in source.items():
            for there, its in target.items():
                count = mine.take_matching(its) if there != tp else 0
                found[tp][Fault.MISROUTE] += count
                found[there][Fault.MISROUTE] += count
        return found

    def count_rest(self, found: Counts, on_source: Collection[int]) -> None:
        """Add what is left in rows to ``found``: lost; or on the target only, and ``on_source`` are digests of those
        that the source has as well."""
        import numpy as np

        for tp, row in self.rows_of(SOURCE).items():
            found[tp][Fault.LOSS] += len(row.digests)
        known = np.array([*on_source], dtype=np.uint64)
        for tp, row in self.rows_of(TARGET).items():
            doubled = int(np.isin(row.as_array(), known).sum())
            found[tp][Fault.DUPLICATE] += doubled
            found[tp][Fault.FOREIGN] += len(row.digests) - doubled


def _numbered(digests: Digests) -> Digests:
    """Digests, of which equal ones are made different by how many stand before them."""
    import numpy as np

    order = np.argsort(digests, kind="stable")
    ranked, places = digests[order], np.arange(len(digests))
    is_first = np.ones(len(digests), bool)
    is_first[1:] = ranked[1:] != ranked[:-1]
    nth = places - np.maximum.accumulate(np.where(is_first, places, 0))
    found = np.empty_like(digests)
    found[order] = ranked ^ (nth.astype(np.uint64) * np.uint64(_GOLDEN))
    return found
