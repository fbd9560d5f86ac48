"""Segments across validations: which need not be read again, keeping what is found as it comes, and how far it is.

A segment that was found equal is kept with its bounds on both sides, a hash of the map between, counts and digests, the
topics' ids, and the leader epochs that both logs had when their ends were pinned. It is read again if a bound changed,
the offset map has something else for it, the topic has another handler, either log was truncated beneath it since (its
epoch ends before the segment by now), it is too old, or a person asks for everything. The newest segment is kept as far
as it reaches: a later validation goes on behind it, since digests add up. One that is not equal is always read again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.digests import Digest, SegmentOutcome, from_line
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.result import Equality
from kafka_migration.compare.segments import cut, places_hash, split_bounds, tiles
from kafka_migration.compare.verdict import Kept
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.kafka.cluster import Cluster
    from kafka_migration.kafka.types import EpochEnd
    from kafka_migration.migration.context import Context

_PROGRESS_SECONDS = 2.0

Ids = Mapping[str, Sequence[str | None]]
Epochs = Mapping[TopicPartition, "EpochEnd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A segment as it is kept for the next validation, found ``at`` (ISO-8601, UTC) by ``run``.

    From ``start`` on it was compared as ``source`` and ``target`` have it, and from ``since`` on before its beginning
    expired. ``places`` is a hash of the offset map between its bounds; ``ids`` and ``epochs`` are the topic's ids and
    the logs' leader epochs, on source and target.
    """

    ids: list[str | None]
    segment_records: int
    start: int
    since: int
    end: int
    target_start: int
    target_end: int
    records: int
    places: str
    source: Digest
    target: Digest
    verdict: str
    level: str
    epochs: list[int]
    at: str
    run: str

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Stored:
        """What was kept, by this version or an older one, which had no coverage, or read a sample at both levels; one
        without a hash of its places is read once more."""
        older = {"since": value["start"], "places": "", "run": ""}
        names = {member.name for member in fields(cls)}
        known = {name: item for name, item in {**older, **value}.items() if name in names}
        known["level"] = Level.RECORD if value["level"] == "both" else value["level"]
        return cls(**{**known, "source": Digest(**value["source"]), "target": Digest(**value["target"])})

    @property
    def is_equal(self) -> bool:
        return self.verdict == Equality.EQUAL

    def is_of(self, ids: Sequence[str | None]) -> bool:
        """Whether it was found equal of the topics with these ids. Without ids nobody would notice a topic that was
        recreated."""
        return self.is_equal and all(self.ids) and self.ids == list(ids)

    def ends_within(self, end: EpochEnd | None, side: int) -> bool:
        """Whether its leader epoch on source (0) or target (1) ends behind it; ``end`` is where that ends by now."""
        bound = (self.end, self.target_end)[side]
        return end is not None and end.epoch == self.epochs[side] and bound <= end.end

    def kept(self, tile: PartitionRange) -> Kept:
        """As part of the verdict on a range of which ``tile`` is this segment."""
        return Kept(
            end=self.end,
            source=self.source,
            target=self.target,
            level=self.level,
            whole=self.end == tile.source_end,
            at=self.at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Ranges to read, and what of the segments is kept instead."""

    ranges: tuple[PartitionRange, ...]
    kept: Mapping[TopicPartition, Mapping[int, Kept]]

    @property
    def kept_segments(self) -> int:
        return sum(segment.whole for mine in self.kept.values() for segment in mine.values())


class Segments:
    """The segments of one validation at ``level``. ``ids`` are of the topics, ``full`` reads everything again.

    Made before anything is pinned: a topic that is recreated, or a log that is truncated, after that is noticed by the
    next validation.
    """

    def __init__(self, ctx: Context, ids: Ids, *, run: str, full: bool, level: Level) -> None:
        self._ctx, self._ids, self._run, self._full, self._level = ctx, ids, run, full, level
        self._size = ctx.plan.validation.segment_records
        #: On source and target, of each log its leader epoch, and the one before.
        self._epochs: tuple[tuple[Epochs, Epochs], ...] = ()
        self._ranges: dict[TopicPartition, PartitionRange] = {}
        self._kept: dict[TopicPartition, dict[int, Kept]] = {}
        #: What stands, and what this validation found.
        self._values: dict[TopicPartition, dict[int, Stored]] = {}
        #: All that earlier validations kept of these topics, however old, also of what has expired since.
        self._earlier: dict[TopicPartition, dict[int, Stored]] = {}
        self._done: set[tuple[TopicPartition, int]] = set()
        self._expected = self._read = self._pairs = 0
        self._began = self._shown = 0.0
        #: Is given segments as soon as they certainly differ, and are kept as such.
        self.differs: Callable[[Sequence[SegmentOutcome]], None] = lambda _outcomes: None

    def choose(self, ranges: Sequence[PartitionRange]) -> Chosen:
        """What of ``ranges`` is to be read now, and what is kept: nothing of those that only record level compares."""
        if not self._values:
            self._look_back([range_.tp for range_ in ranges])
        to_read: list[PartitionRange] = []
        for range_ in ranges:
            self._ranges[range_.tp] = range_
            self._kept[range_.tp], rest = ({}, [range_]) if range_.by_key else self._cut(range_)
            to_read += rest
        # Of this pass: what the one before found, or could not read, may be read again.
        self._done = set()
        self._expected = sum(1 for range_ in to_read for _ in tiles(range_, self._size))
        self._read, self._pairs, self._began = 0, 0, self._ctx.clock.monotonic()
        kept = {range_.tp: self._kept[range_.tp] for range_ in ranges}
        return Chosen(ranges=tuple(to_read), kept=kept)

    def compared_before(self, tp: TopicPartition, low: int, high: int) -> int:
        """How many source offsets from ``low`` up to, and without, ``high`` earlier validations found equal."""
        equal = [stored for stored in self._earlier.get(tp, {}).values() if self._is_of_now(tp, stored)]
        count, reached = 0, low
        # They overlap where the size of segments was changed since.
        for since, end in sorted((stored.since, min(stored.end, high)) for stored in equal):
            count += max(0, end - max(since, reached))
            reached = max(reached, end)
        return count

    def _is_of_now(self, tp: TopicPartition, stored: Stored) -> bool:
        return stored.is_of(self._ids.get(tp.topic, ()))

    # -- what stands ------------------------------------------------------------------------------------------

    def _look_back(self, tps: Sequence[TopicPartition]) -> None:
        ctx, wanted = self._ctx, dict.fromkeys(tps)
        self._epochs = tuple(_epochs(cluster, wanted) for cluster in (ctx.origin, ctx.destination))
        self._earlier = {
            tp: {number: Stored.from_dict(value) for number, value in mine.items()}
            for tp, mine in self._ctx.segments.all().items()
            if tp.topic in self._ids
        }
        if not self._full:
            self._values = self._standing(tps)

    def _standing(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, dict[int, Stored]]:
        """Segments that were found equal, recently enough, of topics and logs that are still the same."""
        wanted = set(tps)
        known = {
            tp: {number: stored for number, stored in mine.items() if self._is_usable(tp, stored)}
            for tp, mine in self._earlier.items()
            if tp in wanted
        }
        self._drop_truncated(known, 0)
        self._drop_truncated(known, 1)
        return known

    def _is_usable(self, tp: TopicPartition, stored: Stored) -> bool:
        oldest = self._ctx.clock.now() - timedelta(seconds=self._ctx.plan.validation.reread_seconds)
        return (
            self._is_of_now(tp, stored)
            and stored.segment_records == self._size
            and not (self._level is Level.RECORD and stored.level == Level.BATCH)
            and datetime.fromisoformat(stored.at) >= oldest
        )

    def _drop_truncated(self, known: dict[TopicPartition, dict[int, Stored]], side: int) -> None:
        """Take out of ``known`` what stood under a leader epoch that ends before it by now, on source (0) or target
        (1)."""
        cluster = (self._ctx.origin, self._ctx.destination)[side]
        # One question a partition, per epoch: by all that was kept under it.
        under: defaultdict[int, defaultdict[TopicPartition, list[int]]] = defaultdict(lambda: defaultdict(list))
        for tp, mine in known.items():
            for number, stored in mine.items():
                under[stored.epochs[side]][tp].append(number)
        for epoch, numbers in sorted(under.items()):
            ends = cluster.log_epochs(dict.fromkeys(numbers, epoch)) if epoch >= 0 else {}
            for tp, number in [(tp, number) for tp, mine in numbers.items() for number in mine]:
                if not known[tp][number].ends_within(ends.get(tp), side):
                    del known[tp][number]

    def _cut(self, range_: PartitionRange) -> tuple[dict[int, Kept], list[PartitionRange]]:
        """What of a range is kept, and the stretches between that are to be read."""
        known = self._values.get(range_.tp, {})
        kept: dict[int, Kept] = {}
        rest: list[PartitionRange] = []
        begin: tuple[int, int] | None = None
        at, target = range_.source_start, range_.target_start
        for number, tile in tiles(range_, self._size):
            stored = known.get(number)
            end = at
            if stored is not None and _stands(range_, tile, stored, at, target):
                if begin is not None:
                    rest.append(cut(range_, begin[0], at, begin[1], target))
                    begin = None
                kept[number] = stored.kept(tile)
                end, target = stored.end, stored.target_end
            if end < tile.source_end or tile.source_start == tile.source_end:
                begin = begin or (end, target)
                target = max(target, tile.target_end)
            at = tile.source_end
        if begin is not None:
            rest.append(cut(range_, begin[0], range_.source_end, begin[1], range_.target_end))
        elif target < range_.target_end:
            # Behind the last record that was kept: nothing may stand there now either.
            rest.append(cut(range_, range_.source_end, range_.source_end, target, range_.target_end))
        return kept, rest

    # -- what is found ----------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """A line of the job's output: keep what it found, show what is for people."""
        found = from_line(text)
        if found is None:
            self._ctx.log(text)
        else:
            self.found(found)

    def found(self, outcomes: Iterable[SegmentOutcome]) -> None:
        """Keep what was found, unless it was kept before, and show how far it is. What cannot be read after all, though
        it was kept, is not equal."""
        outcomes = list(outcomes)
        self._doubt([one for one in outcomes if one.failure and (one.tp, one.start) in self._done])
        new = [outcome for outcome in outcomes if (outcome.tp, outcome.start) not in self._done]
        self._keep_all([outcome for outcome in new if not outcome.failure])
        self._show_progress(new)

    def _keep_all(self, read: Sequence[SegmentOutcome]) -> None:
        self._done |= {(outcome.tp, outcome.start) for outcome in read}
        stored = [(outcome, self._keep(outcome)) for outcome in read if outcome.tp in self._ranges]
        if stored and not self._ctx.dry_run:
            self._ctx.segments.record({(outcome.tp, outcome.segment): asdict(value) for outcome, value in stored})
        if differ := [outcome for outcome, value in stored if self._certainly_differs(outcome, value)]:
            self.differs(differ)

    def _doubt(self, outcomes: Sequence[SegmentOutcome]) -> None:
        """These were kept as equal, and readers disagree about them, or they cannot be read any more."""
        for one in outcomes:
            known = self._values[one.tp]
            known[one.segment] = replace(known[one.segment], verdict=str(Equality.INCONCLUSIVE))
        if outcomes and not self._ctx.dry_run:
            places = [(one.tp, one.segment) for one in outcomes]
            self._ctx.segments.record({(tp, number): asdict(self._values[tp][number]) for tp, number in places})

    def _certainly_differs(self, outcome: SegmentOutcome, stored: Stored) -> bool:
        """Whether it differs, and not by what compaction or retention take while records are read."""
        range_ = self._ranges[outcome.tp]
        records = range_.runs.clip(outcome.start, outcome.end).records
        may_be_explained = range_.by_key or outcome.source.rows < records == outcome.target.rows
        return stored.verdict == Equality.DIFFERENT and not may_be_explained

    def _keep(self, outcome: SegmentOutcome) -> Stored:
        """What is known of a segment by now."""
        tp, range_ = outcome.tp, self._ranges[outcome.tp]
        known = self._values.setdefault(tp, {})
        before, kept = known.get(outcome.segment), self._kept.get(tp, {}).get(outcome.segment)
        stored = self._alone(outcome)
        if before is not None and kept is not None:
            stored = _behind(stored, before, kept)
        known[outcome.segment] = replace(
            stored,
            since=self._compared_since(outcome, stored.start),
            places=places_hash(range_.runs.clip(stored.start, outcome.end)),
        )
        return known[outcome.segment]

    def _alone(self, outcome: SegmentOutcome) -> Stored:
        """What was just read, as if nothing were known of its segment before."""
        records = self._ranges[outcome.tp].runs.clip(outcome.start, outcome.end).records
        is_same = outcome.is_same and outcome.source.rows == records - outcome.target.compacted
        return Stored(
            ids=list(self._ids.get(outcome.topic, ())),
            segment_records=self._size,
            start=outcome.start,
            since=outcome.start,
            end=outcome.end,
            target_start=outcome.target_start,
            target_end=outcome.target_end,
            records=records,
            places="",
            source=outcome.source,
            target=outcome.target,
            verdict=str(Equality.EQUAL if is_same else Equality.DIFFERENT),
            level=outcome.level,
            epochs=[
                _epoch_of(outcome.tp, bound, epochs)
                for bound, epochs in zip((outcome.end, outcome.target_end), self._epochs, strict=True)
            ],
            at=self._ctx.stamp(),
            run=self._run,
        )

    def _compared_since(self, outcome: SegmentOutcome, start: int) -> int:
        """From which source offset on a segment was compared, now or before its beginning expired."""
        before = self._earlier.get(outcome.tp, {}).get(outcome.segment)
        if before is None or before.segment_records != self._size or not self._is_of_now(outcome.tp, before):
            return start
        return min(start, before.since) if start <= before.end else start

    # -- how far it is ----------------------------------------------------------------------------------------

    def _show_progress(self, new: Sequence[SegmentOutcome]) -> None:
        self._read += len(new)
        self._pairs += sum(max(outcome.source.rows, outcome.target.rows) for outcome in new)
        now = self._ctx.clock.monotonic()
        if not new or (now - self._shown < _PROGRESS_SECONDS and self._read < self._expected):
            return
        self._shown = now
        seconds = max(now - self._began, 1e-6)
        left = max(0, self._expected - self._read) * seconds / self._read
        self._ctx.log(
            f"{self._read} of {self._expected} segments, {self._pairs:,} record pairs,"
            f" {self._pairs / seconds:,.0f}/s, ETA {left:,.0f} s"
        )


def _epochs(cluster: Cluster, tps: Mapping[TopicPartition, None]) -> tuple[Epochs, Epochs]:
    now = cluster.log_epochs(tps)
    return now, cluster.log_epochs({tp: found.epoch - 1 for tp, found in now.items() if found.epoch > 0})


def _epoch_of(tp: TopicPartition, bound: int, epochs: tuple[Epochs, Epochs]) -> int:
    """The leader epoch under which what stands before ``bound`` was written, or a later one; -1 if unknown. Of a leader
    under which nothing was written brokers remember nothing, once there is another one."""
    now, before = (found.get(tp) for found in epochs)
    if before is not None and bound <= before.end:
        return before.epoch
    return -1 if now is None else now.epoch


def _stands(range_: PartitionRange, tile: PartitionRange, stored: Stored, at: int, target: int) -> bool:
    """Whether what was kept of a segment is equal, begins where it begins now, and is placed as the map has it now."""
    end = stored.end
    if not stored.is_equal or (stored.start, stored.target_start) != (at, target) or not at < end <= tile.source_end:
        return False
    low, high = split_bounds(range_, end)
    return low <= stored.target_end <= high and places_hash(range_.runs.clip(at, end)) == stored.places


def _behind(stored: Stored, before: Stored, kept: Kept) -> Stored:
    """Gone on with behind what was ``kept``. As old as the oldest part of it."""
    return replace(
        stored,
        start=before.start,
        target_start=before.target_start,
        records=before.records + stored.records,
        source=kept.source + stored.source,
        target=kept.target + stored.target,
        at=before.at,
    )
