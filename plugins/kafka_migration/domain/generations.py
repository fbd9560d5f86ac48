"""One partition's offsets on both clusters, over all generations of its links: forward, back, forward again, and so on.

Each link begins where the one before was sealed: what stood on either side before is left out. So both logs hold the
same records in the same order, whoever copied which, and the offset maps of all links, one behind the other, say where
each stands. Each generation keeps its map: an offset of then stays valid, and what came later needs a later map.

An offset that names no record on its side (the marker of a fence or of the seal, a control record, what compaction
removed) means the next record that is there, be it in a later generation. A position behind the last record means
where the next one will land, which is right as soon as it does.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from kafka_migration.domain.direction import SOURCE, TARGET, Direction
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap, Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """What one link copied of a partition. The map's source is the link's origin, whichever cluster that is."""

    direction: Direction
    offsets: OffsetMap

    def end(self, cluster: str) -> int:
        """The link's position, in offsets of ``cluster``: the next record to copy, or where it will land."""
        return self.offsets.source_end if cluster == self.direction.origin else self.offsets.target_end

    def across(self, cluster: str, offset: int) -> int:
        """Where the first record at or behind ``offset`` of ``cluster`` stands on the other one; this link's position
        there if it has copied none. Raises NotMirroredYet beyond the position."""
        at_origin = cluster == self.direction.origin
        return self.offsets.to_target(offset) if at_origin else self.offsets.to_source(offset)


class Generations:
    """The maps of one partition, the oldest first. Has the face of an offset map from source to target.

    Raises StateConflict for maps that contradict each other: a link begins nowhere before the end of the one before.
    """

    __slots__ = ("_all",)

    def __init__(self, generations: Iterable[Generation]) -> None:
        self._all: Sequence[Generation] = tuple(generations)
        if not self._all:
            raise ValueError("no link has copied this partition")
        for before, after in zip(self._all, self._all[1:], strict=False):
            for cluster in (after.direction.origin, after.direction.destination):
                if _first(after, cluster) < before.end(cluster):
                    raise StateConflict(
                        f"offset maps: a link begins at {cluster} offset {_first(after, cluster)}, and the one before"
                        f" it ended at {before.end(cluster)}",
                        remedy="the stored maps contradict each other; nothing is translated by them",
                    )

    @property
    def source_end(self) -> int:
        """The newest link's position, in source offsets."""
        return self._all[-1].end(SOURCE)

    @property
    def target_end(self) -> int:
        """The newest link's position, in target offsets."""
        return self._all[-1].end(TARGET)

    def runs(self) -> Iterator[Run]:
        """All runs of all links, in order, as the source and the target have them, whichever of both a link reads."""
        for one in self._all:
            for run in one.offsets.runs():
                is_forward = one.direction is Direction.FORWARD
                yield run if is_forward else Run(source=run.target, target=run.source, length=run.length)

    def to_target(self, source_offset: int) -> int:
        """Where a consumer that would read ``source_offset`` next goes on, on the target.

        Raises NotMirroredYet beyond the newest link's position.
        """
        return self._across(Direction.FORWARD, source_offset)

    def to_source(self, target_offset: int) -> int:
        """The inverse: where a consumer that would read ``target_offset`` next goes on, on the source."""
        return self._across(Direction.REVERSE, target_offset)

    def _across(self, direction: Direction, offset: int) -> int:
        cluster, newest = direction.origin, self._all[-1]
        if offset > newest.end(cluster):
            raise NotMirroredYet(
                f"{cluster} offset {offset} lies beyond the mirror's position {newest.end(cluster)}",
                remedy="wait until the mirror has copied up to it (lag), then translate again",
            )
        # A link's position is behind its last record, so an offset from there on is a later link's.
        for at in range(bisect_left(self._all, offset + 1, key=lambda one: one.end(cluster)), len(self._all)):
            found = self._all[at].across(cluster, offset)
            if found < self._all[at].end(direction.destination):
                return found
        return newest.end(direction.destination)


def _first(generation: Generation, cluster: str) -> int:
    """Where the first record stands that a link copied; its position if there is none."""
    run = next(generation.offsets.runs(), None)
    if run is None:
        return generation.end(cluster)
    return run.source if cluster == generation.direction.origin else run.target
