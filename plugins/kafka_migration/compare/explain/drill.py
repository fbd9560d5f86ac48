"""Drill-down: which records make a segment unequal, and how (docs/validation.md).

Only unequal segments are read again, by bytes, in the driver: neighbours together, since a lost record shifts all that
follow over their borders. What is left on either side of a topic is then classified together, so that a record that
went to another partition is one finding and not two. A record that is on the target only is looked for on the source,
where alone the topic is read beyond its unequal segments.

Memory is bounded by a window of digests, and by how many differing records are kept; time by a deadline. Where any of
these ends it, a note names what was not looked through: never silence.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafka_migration.compare.digests import SOURCE, TARGET, Digest
from kafka_migration.compare.explain.align import Aligner, Apart
from kafka_migration.compare.explain.classes import classify
from kafka_migration.compare.explain.left import Left, Leftovers, Row, TooMany
from kafka_migration.compare.explain.log import Chunks, LogReader
from kafka_migration.compare.explain.originals import Enough, Originals, OriginalSearch
from kafka_migration.compare.explain.places import Places, regions
from kafka_migration.compare.explain.result import Drilled, Example, Fault
from kafka_migration.compare.explain.stream import Stream
from kafka_migration.compare.placing import usual_attributes
from kafka_migration.compare.record_digest import key_hash
from kafka_migration.compare.records.compacted import BEHIND, NOT_MIRRORED, Missing, Seen, is_explained
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.types import PartitionEnds, TopicPartition


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


def _unknown_ends(side: str, tp: TopicPartition) -> PartitionEnds:
    raise CouldNotFindOut(f"{tp}: where the {side}'s log ends is not known here")


class _Partition:
    """One partition of a drill-down: its scope, what its batches look like to consumers, and notes on how far it was
    looked at."""

    def __init__(self, scope: Scope, examples: int) -> None:
        self._examples = examples
        self.scope, self.range, self.tp = scope, scope.range, scope.range.tp
        self.places = Places(scope.range)
        self.notes: list[str] = []
        # Batches of the target whose attributes the mirror never writes: how many records stand in them, and of the
        # first where they begin, and these attributes. Counted once, however often one is read.
        self._odd_records, self._odd_batches = 0, list[tuple[int, int]]()
        self._highest = -1
        if scope.unread:
            rows = ", ".join(f"{start}..{end}" for start, end in regions(scope.unread))
            self.notes.append(
                f"source offsets {rows} could not be read: what stands there, and at their borders, is not looked at"
            )

    def may_explain(self, left: Left) -> bool:
        """Whether compaction may have taken a record from the other side: it stands alone, and was to be there."""
        is_compacted = self.range.compacted if left.missing_on == SOURCE else self.range.target_compacted
        return is_compacted and left.tp == self.tp and left.twin is None and left.in_run

    def watched(self, chunks: Chunks) -> Chunks:
        """``chunks`` of the target, whose attributes are looked at as they pass."""
        usual = usual_attributes(self.range)
        for chunk in chunks:
            if chunk.first > self._highest:
                self._highest = chunk.first
                odd = chunk.attributes & ~usual & 0xFFFF
                if odd:
                    self._odd_records += chunk.count
                    if len(self._odd_batches) < self._examples:
                        self._odd_batches.append((chunk.first, odd))
            yield chunk

    def result(self, classified: Drilled | None, *, is_explained: bool) -> Drilled:
        """What was classified, with attributes and notes. A batch is one example, at its first record.
        ``is_explained``: compaction took something."""
        drilled = classified or Drilled(topic=self.tp.topic, partition=self.tp.partition)
        if self._odd_records:
            odd = [self._odd_example(first, attributes) for first, attributes in self._odd_batches]
            drilled = replace(
                drilled,
                counts={**drilled.counts, Fault.VISIBILITY: self._odd_records},
                examples=(*drilled.examples, *odd)[: self._examples],
            )
        if not drilled.counts and not self.notes and not is_explained:
            self.notes.append("read again, no record differs: the first reader and this one disagree")
        return replace(drilled, notes=(*drilled.notes, *self.notes))

    def _odd_example(self, first: int, attributes: int) -> Example:
        return Example(
            fault=Fault.VISIBILITY,
            topic=self.tp.topic,
            partition=self.tp.partition,
            source_offset=self.places.source_of(first),
            target_offset=first,
            detail=f"the batch that begins here has attributes that the mirror never writes:"
            f" {Digest(attributes=attributes).attribute_names}",
        )


class Drill:
    """Drills into unequal segments. ``pinned`` are all ranges of the validation: where to look for a record.

    ``mirrored`` gives the source offset up to which the target has had a partition's records by now, and ``ends`` by
    now where a side's log of it begins and ends. ``until`` is a monotonic time.
    """

    def __init__(
        self,
        source: LogReader,
        target: LogReader,
        pinned: Iterable[PartitionRange],
        *,
        examples: int,
        private: bool = False,
        mirrored: Callable[[TopicPartition], int] = lambda _: 0,
        ends: Callable[[str, TopicPartition], PartitionEnds] = _unknown_ends,
        until: float = float("inf"),
        clock: Callable[[], float] = time.monotonic,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._ranges: defaultdict[str, list[PartitionRange]] = defaultdict(list)
        for pinned_range in pinned:
            self._ranges[pinned_range.topic].append(pinned_range)
        self._source_log, self._target_log, self._ends = source, target, ends
        self._examples, self._private, self._until = examples, private, until
        self._clock, self._now_ms, self._mirrored = clock, now_ms, mirrored

    def topic(self, scopes: Sequence[Scope]) -> Found:
        """Drill into the partitions of one topic. Never raises for what cannot be read: that becomes a note."""
        left, parts = Leftovers(), [_Partition(scope, self._examples) for scope in scopes]
        for part in parts:
            part.notes += filter(None, [self._follow(part, left)])
        explained = {part.tp: self._explain(part, left) for part in parts if part.range.by_key}
        classified = classify(
            left,
            {part.tp: part.places for part in parts},
            self._search,
            examples=self._examples,
            private=self._private,
            by_place=explained.keys(),
        )
        by_tp = {drilled.tp: drilled for drilled in classified}
        parts.sort(key=lambda part: part.tp)
        drilled = [part.result(by_tp.get(part.tp), is_explained=bool(explained.get(part.tp))) for part in parts]
        return Found(drilled=tuple(drilled), explained=explained)

    def _follow(self, part: _Partition, left: Leftovers) -> str:
        """Follow all regions; why it ended early, if so."""
        at = part.range.source_start
        try:
            for start, end in regions(part.scope.spans):
                at = start
                self._follow_region(part, left, start, end)
        except TooMany:
            return f"too many records differ from source offset {at} on: not all were looked at"
        except Apart:
            return (
                f"from source offset {at} on both sides go on differently, for more records than are followed:"
                " what follows was not looked at"
            )
        except _Late:
            return f"no time was left to look at all from source offset {at} on"
        except MigrationError as error:
            return f"source offsets from {at} on could not be read again: {error}"
        return ""

    def _follow_region(self, part: _Partition, left: Leftovers, start: int, end: int) -> None:
        low, high = part.places.window(start, end)
        source = Stream(partial(self._source, part.range, end=end), start, self._watch)
        target = Stream(partial(self._target, part, end=high), low, self._watch)
        aligner = Aligner(part.places, left, source, target)
        if part.range.by_key:
            aligner.by_place()
            return
        unread = part.scope.unread
        aligner.by_content(
            opens_unread=any(behind == start for _, behind in unread),
            ends_unread=any(begin == end for begin, _ in unread),
        )

    def _source(self, pinned: PartitionRange, start: int, end: int) -> Chunks:
        """What stands on the source, around what was given up: that is not even read, since it may be damaged."""
        return self._source_log.chunks(
            pinned.tp, start, end, left_out=pinned.left_out, may_lack=pinned.source_may_lack, handler=pinned.handler
        )

    def _target(self, part: _Partition, start: int, end: int) -> Chunks:
        pinned = part.range
        chunks = self._target_log.chunks(
            pinned.tp, start, end, left_out=pinned.target_left_out, may_lack=pinned.target_may_lack
        )
        return part.watched(chunks)

    def _watch(self) -> None:
        if self._clock() > self._until:
            raise _Late

    def _explain(self, part: _Partition, left: Leftovers) -> frozenset[int]:
        """Take out of ``left`` what compaction explains; the places that are empty on a side for it."""
        asked = [one for one in (*left.of(SOURCE), *left.of(TARGET)) if part.may_explain(one)]
        if not asked:
            return frozenset()
        try:
            seen = self._seen(part, {one.record.key for one in asked})
        except _Late:
            part.notes.append("no time was left to find out what compaction took")
            return frozenset()
        except MigrationError as error:
            part.notes.append(f"what compaction took could not be found out: {error}")
            return frozenset()
        gone = {one for one in asked if self._is_explained(one, part.range, seen[one.record.key])}
        left.drop(gone)
        if gone:
            part.notes.append(f"{len(gone)} records were compacted away while they were read")
        # Of which one is there by now: no place that is empty, but one to be read again.
        return frozenset(one.place for one in gone if one.place not in seen[one.record.key].places[one.missing_on])

    def _is_explained(self, one: Left, pinned: PartitionRange, seen: Seen) -> bool:
        record = one.record
        missing = Missing(
            place=one.place, key=record.key, is_tombstone=record.value is None, timestamp=record.timestamp
        )
        kept_ms = pinned.source_tombstones_ms if one.missing_on == SOURCE else pinned.target_tombstones_ms
        return is_explained(missing, seen, missing_on=one.missing_on, now_ms=self._now_ms(), tombstones_ms=kept_ms)

    def _seen(self, part: _Partition, keys: Collection[bytes | None]) -> dict[bytes | None, Seen]:
        """What both logs hold of ``keys`` by now, up to their ends."""
        pinned, places = part.range, Places(part.range)
        found = {key_hash(key): Seen() for key in keys}
        # Asked first: whatever lay before it then is not newer than what is read now.
        mirrored = max(pinned.source_end, self._mirrored(part.tp))

        def source_place(offset: int) -> int:
            if offset < pinned.source_end:
                return offset
            return NOT_MIRRORED if offset >= mirrored else BEHIND

        def target_place(offset: int) -> int | None:
            return places.source_of(offset) if offset < pinned.target_end else BEHIND

        place_of: dict[str, Callable[[int], int | None]] = {SOURCE: source_place, TARGET: target_place}
        for side in (SOURCE, TARGET):
            for chunk in self._all(side, pinned):
                self._watch()
                columns = chunk.columns()
                for nth, key in enumerate(columns.keys.tolist()):
                    place = place_of[side](int(columns.offsets[nth])) if key in found else None
                    if place is not None:
                        found[key].places[side].add(place)
        return {key: found[key_hash(key)] for key in keys}

    def _all(self, side: str, pinned: PartitionRange) -> Chunks:
        """All that a side's log holds by now."""
        ends = self._ends(side, pinned.tp)
        if side == TARGET:
            return self._target_log.chunks(pinned.tp, ends.start, ends.end, may_lack=pinned.target_may_lack)
        return self._source_log.chunks(
            pinned.tp, ends.start, ends.end, may_lack=pinned.source_may_lack, handler=pinned.handler
        )

    def _search(self, wanted: Collection[Left], rows: Mapping[TopicPartition, Row]) -> Originals:
        """Where the source has the records that are on the target only, and which of ``rows`` it has."""
        search, note = OriginalSearch(wanted, rows), ""
        (topic,) = {tp.topic for tp in search.homes}
        try:
            for pinned in sorted(self._ranges[topic], key=lambda one: one.tp not in search.homes):
                for chunk in self._source(pinned, pinned.source_start, pinned.source_end):
                    self._watch()
                    search.look_at(pinned.tp, chunk)
                if search.is_over():
                    break
        except Enough as error:
            note = str(error)
        except _Late:
            note = "no time was left to look for its original on all of the source"
        except MigrationError as error:
            note = f"the source could not be looked through for its original: {error}"
        return search.found(note)
