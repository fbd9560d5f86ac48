"""Drill-down: which records make a segment unequal, and how (docs/validation.md).

Only unequal segments are read again, by bytes, in the driver: neighbours together, since a lost record shifts all that
follow over their borders. What is left on either side of a topic is then classified together, so that a record that
went to another partition is one finding and not two. A record that is on the target only is looked for on the source,
where alone the topic is read beyond its unequal segments.

Memory is bounded by a window of digests, and by how many differing records are kept; time by a deadline. Where any of
these ends it, a note says what was not looked through: never silence.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.align import Aligner, Apart
from kafka_migration.compare.explain.classes import Originals, classify, with_note
from kafka_migration.compare.explain.fields import Record
from kafka_migration.compare.explain.left import Content, Left, Leftovers, Thin, TooMany
from kafka_migration.compare.explain.log import Chunk, Chunks
from kafka_migration.compare.explain.places import Places, regions
from kafka_migration.compare.explain.result import Drilled
from kafka_migration.compare.explain.stream import digest
from kafka_migration.compare.explain.visibility import Visibility
from kafka_migration.compare.records.compacted import BEHIND, NOT_MIRRORED, Missing, Seen, is_explained
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.errors import MigrationError
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import CorruptBatch

#: A record that is on the target only is looked for among so many records of the source.
_MOST_SEARCHED = 50_000_000


class Log(Protocol):
    """One side's logs (:class:`kafka_migration.compare.explain.log.LogReader`)."""

    def chunks(self, tp: TopicPartition, start: int, end: int) -> Chunks:
        """What stands at these offsets."""
        ...

    def ends(self, tp: TopicPartition) -> tuple[int, int]:
        """Log start and end now."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """A pinned range, its unequal segments (source offsets from, and up to without), and those that cannot be read."""

    range: PartitionRange
    spans: tuple[tuple[int, int], ...]
    unread: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What was found in each partition; ``explained`` are places whose record compaction took from one side."""

    drilled: tuple[Drilled, ...]
    explained: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)


class _Late(Exception):
    """The deadline has passed."""


class _Enough(Exception):
    """As much was read as shall be."""


class Drill:
    """Drills into unequal segments. ``pinned`` are all ranges of the validation: where to look for a record.

    ``mirrored`` says up to which source offset the target has had a partition's records by now; ``until`` is a
    monotonic time.
    """

    def __init__(
        self,
        source: Log,
        target: Log,
        pinned: Iterable[PartitionRange],
        *,
        examples: int,
        private: bool = False,
        mirrored: Callable[[TopicPartition], int] = lambda _: 0,
        until: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._logs = {SOURCE: source, TARGET: target}
        self._examples, self._private, self._until = examples, private, until
        self._clock, self._now_ms, self._mirrored = clock, now_ms, mirrored
        self._ranges: defaultdict[str, list[PartitionRange]] = defaultdict(list)
        for it in pinned:
            self._ranges[it.topic].append(it)

    def topic(self, scopes: Sequence[Scope]) -> Found:
        """Drill into the partitions of one topic. Never raises for what cannot be read: a note says so."""
        left, notes = Leftovers(), dict[TopicPartition, list[str]]()
        places = {scope.range.tp: Places(scope.range) for scope in scopes}
        visible = {tp: Visibility(it, self._examples) for tp, it in places.items()}
        for scope in scopes:
            said = [_not_looked_at(scope), self._follow(scope, places[scope.range.tp], left, visible[scope.range.tp])]
            notes[scope.range.tp] = [note for note in said if note]
        keyed = frozenset(scope.range.tp for scope in scopes if scope.range.by_key)
        explained: dict[TopicPartition, frozenset[int]] = {}
        for scope in scopes:
            if scope.range.by_key:
                explained[scope.range.tp] = self._explain(scope.range, left, notes[scope.range.tp])
        drilled = {
            it.tp: it
            for it in classify(
                left, places, self._search, examples=self._examples, private=self._private, by_place=keyed
            )
        }
        for tp in places:
            mine = visible[tp].added_to(drilled.get(tp) or Drilled(topic=tp.topic, partition=tp.partition))
            if not mine.counts and not notes[tp] and not explained.get(tp):
                notes[tp].append("read again, no record differs: the first reader and this one disagree")
            for note in notes[tp]:
                mine = with_note(mine, note)
            drilled[tp] = mine
        return Found(drilled=tuple(drilled[tp] for tp in sorted(drilled)), explained=explained)

    # -- following ------------------------------------------------------------------------------------------------

    def _follow(self, scope: Scope, places: Places, left: Leftovers, visible: Visibility) -> str:
        """Follow all regions; why it ended early, if so."""
        it, at = scope.range, scope.range.source_start
        aligner = Aligner(places, left, self._watch)
        try:
            for start, end in regions(scope.spans):
                at = start
                low, high = places.window(start, end)
                source = partial(self._source, it, end=end)
                target = partial(self._target, it, visible, end=high)
                if it.by_key:
                    aligner.by_place(source, start, target, low)
                else:
                    ends = any(it == start for _, it in scope.unread), any(it == end for it, _ in scope.unread)
                    aligner.by_content(source, start, target, low, are_open=ends)
        except TooMany:
            return f"too many records differ from source offset {at} on: not all were looked at"
        except Apart:
            return (
                f"from source offset {at} on both sides go on differently, for more records than are followed:"
                " what follows was not looked at"
            )
        except _Late:
            return f"no time was left to look at all from source offset {at} on"
        except (MigrationError, CorruptBatch) as error:
            return f"source offsets from {at} on could not be read again: {error}"
        return ""

    def _source(self, it: PartitionRange, start: int, end: int) -> Chunks:
        """What stands on the source, around what was given up: that is not even read, since it may be damaged."""
        at = start
        for low, high in it.left_out:
            if at < min(low, end):
                yield from self._logs[SOURCE].chunks(it.tp, at, min(low, end))
            at = max(at, high)
        if at < end:
            yield from self._logs[SOURCE].chunks(it.tp, at, end)

    def _target(self, it: PartitionRange, visible: Visibility, start: int, end: int) -> Chunks:
        return visible.watched(self._logs[TARGET].chunks(it.tp, start, end))

    def _watch(self) -> None:
        if self._clock() > self._until:
            raise _Late

    # -- compaction -----------------------------------------------------------------------------------------------

    def _explain(self, it: PartitionRange, left: Leftovers, notes: list[str]) -> frozenset[int]:
        """Take out of ``left`` what compaction explains; the places that are empty on a side for it."""
        asked = [
            (one, side)
            for one, side in [*((one, TARGET) for one in left.source), *((one, SOURCE) for one in left.target)]
            if one.tp == it.tp
            and one.twin is None
            and one.in_run
            and (it.compacted if side == SOURCE else it.target_compacted)
        ]
        if not asked:
            return frozenset()
        try:
            seen = self._seen(it, {one.record.key for one, _ in asked})
        except _Late:
            notes.append("no time was left to find out what compaction took")
            return frozenset()
        except (MigrationError, CorruptBatch) as error:
            notes.append(f"what compaction took could not be found out: {error}")
            return frozenset()
        gone, places = set(), set()
        for one, missing_on in asked:
            record = one.record
            missing = Missing(
                place=one.place, key=record.key, is_tombstone=record.value is None, timestamp=record.timestamp
            )
            kept = it.source_tombstones_ms if missing_on == SOURCE else it.target_tombstones_ms
            mine = seen.get(record.key) or Seen()
            if is_explained(missing, mine, missing_on=missing_on, now_ms=self._now_ms(), tombstones_ms=kept):
                gone.add(id(one))
                # By now it is there: no place that is empty, but one to be read again.
                if one.place not in mine.places[missing_on]:
                    places.add(one.place)
        left.source = [one for one in left.source if id(one) not in gone]
        left.target = [one for one in left.target if id(one) not in gone]
        if gone:
            notes.append(f"{len(gone)} records were compacted away while they were read")
        return frozenset(places)

    def _seen(self, it: PartitionRange, keys: Collection[bytes | None]) -> dict[bytes | None, Seen]:
        """What both logs hold of ``keys`` by now, up to their ends."""
        places, found = Places(it), {key: Seen() for key in keys}
        # Asked first: whatever lay before it then is not newer than what is read now.
        mirrored = max(it.source_end, self._mirrored(it.tp))
        for side, log in self._logs.items():
            pinned_end = it.source_end if side == SOURCE else it.target_end
            for record in self._records(log.chunks(it.tp, *log.ends(it.tp))):
                seen = found.get(record.key)
                if seen is None:
                    continue
                place = record.offset if side == SOURCE else places.source_of(record.offset)
                if record.offset >= pinned_end:
                    place = NOT_MIRRORED if side == SOURCE and record.offset >= mirrored else BEHIND
                if place is not None:
                    seen.places[side].add(place)
        return found

    def _records(self, chunks: Chunks) -> Iterator[Record]:
        for chunk in chunks:
            self._watch()
            yield from chunk.records()

    # -- searching ------------------------------------------------------------------------------------------------

    def _search(self, wanted: Collection[Left], thin: Mapping[TopicPartition, Thin]) -> Originals:
        """Where the source has the records that are on the target only, and which of ``thin`` it has."""
        by_content: defaultdict[Content, list[Left]] = defaultdict(list)
        for it in wanted:
            by_content[it.record.content].append(it)
        oldest = min([stamp for stamp, _ in by_content] + [it.oldest for it in thin.values()])
        found: dict[int, tuple[TopicPartition, int]] = {}
        open_homes = {id(it) for it in wanted}
        open_digests = {one for it in thin.values() for one in it.digests}
        digests: set[int] = set()
        homes = {it.tp for it in wanted} | thin.keys()
        count, note = 0, ""
        (topic,) = {tp.topic for tp in homes}
        try:
            for pinned in sorted(self._ranges[topic], key=lambda one: one.tp not in homes):
                for chunk in self._source(pinned, pinned.source_start, pinned.source_end):
                    self._watch()
                    if isinstance(chunk, Chunk):
                        count += chunk.header.records
                        if chunk.newest is not None and chunk.newest < oldest:
                            # None of its records is as new as any that is looked for.
                            continue
                    for record in chunk.records():
                        for one in by_content.get(record.content, ()):
                            if id(one) in open_homes and (id(one) not in found or one.tp == pinned.tp):
                                found[id(one)] = (pinned.tp, record.offset)
                                open_homes -= {id(one)} if one.tp == pinned.tp else set()
                        if open_digests and (mine := digest(record)) in open_digests:
                            open_digests.discard(mine)
                            digests.add(mine)
                    if count > _MOST_SEARCHED:
                        raise _Enough
                open_homes -= found.keys()
                if not open_homes and not open_digests:
                    break
        except _Enough:
            note = f"only {count:,} records of the source were looked through for its original"
        except _Late:
            note = "no time was left to look for its original on all of the source"
        except (MigrationError, CorruptBatch) as error:
            note = f"the source could not be looked through for its original: {error}"
        return Originals(places=found, digests=digests, note=note)


def _not_looked_at(scope: Scope) -> str:
    if not scope.unread:
        return ""
    rows = ", ".join(f"{start}..{end}" for start, end in regions(scope.unread))
    return f"source offsets {rows} could not be read: what stands there, and at their borders, is not looked at"
