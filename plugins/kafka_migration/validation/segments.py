"""Segments across validations: which need not be read again, keeping what is found as it comes, and how far it is.

A segment that was found equal is kept with its bounds on both sides, a hash of the map between, counts and digests, the
topics' ids, and the leader epochs that both logs had when their ends were pinned. It is read again if a bound changed,
the offset map says something else of it, either log was truncated beneath it since (its epoch ends before the segment
by now), it is too old, or a person asks for everything. The newest segment is kept as far as it reaches: a later
validation goes on behind it, since digests add up. One that is not equal is always read again.

The level sampled rests on its sample. So what was found equal by its bytes is settled only once a sample of it has been
read, too; of what a run of level batch left, or one that was killed before, or could not read its sample, the next one
draws a sample anew.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kafka_migration.compare.digests import Digest, DigestReport, SegmentOutcome
from kafka_migration.compare.lines import heard
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.compare.segments import cut, places_hash, split_bounds, tiles
from kafka_migration.compare.verdict import Kept, outcomes_of
from kafka_migration.domain.levels import Level, sample_size, stratified
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.kafka.types import EpochEnd
    from kafka_migration.migration.context import Context

_TOLD_SECONDS = 2.0
BATCH = "batch"

Ids = Mapping[str, Sequence[str | None]]
Epochs = Mapping[TopicPartition, "EpochEnd"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """Ranges to read, and what of the segments is kept instead. ``twice`` are segments (topic, partition, number) that
    the sample must hold."""

    ranges: tuple[PartitionRange, ...]
    kept: Mapping[TopicPartition, Mapping[int, Kept]]
    twice: tuple[tuple[str, int, int], ...] = ()

    @property
    def kept_segments(self) -> int:
        """How many segments are not read at all."""
        return sum(it.whole for mine in self.kept.values() for it in mine.values())


class Segments:
    """The segments of one validation at ``level``. ``ids`` are of the topics, ``full`` reads everything again.

    Made before anything is pinned: a topic that is recreated, or a log that is truncated, after that is noticed by the
    next validation.
    """

    def __init__(self, ctx: Context, ids: Ids, *, run: str, full: bool, level: Level) -> None:
        self._ctx, self._ids, self._run, self._full, self._level = ctx, ids, run, full, level
        self._size = ctx.plan.validation.segment_records
        self._share = ctx.plan.validation.sample if level is Level.SAMPLED else 0.0
        self._twice: tuple[tuple[str, int, int], ...] = ()
        self._missed_second = False
        self._epochs: tuple[Epochs, Epochs] = ({}, {})
        self._ranges: dict[TopicPartition, PartitionRange] = {}
        self._kept: dict[TopicPartition, dict[int, Kept]] = {}
        self._values: dict[TopicPartition, dict[int, dict[str, Any]]] = {}
        #: All that earlier validations kept, however old, also of what has expired since.
        self._earlier: dict[TopicPartition, dict[int, dict[str, Any]]] = {}
        self._done: set[tuple[TopicPartition, int, str]] = set()
        self._expected = self._read = self._pairs = 0
        self._began = self._told = 0.0
        #: Told of segments as soon as they certainly differ, and are kept as such.
        self.differs: Callable[[Sequence[SegmentOutcome]], None] = lambda _outcomes: None

    def choose(self, ranges: Sequence[PartitionRange]) -> Chosen:
        """What of ``ranges`` is to be read now, and what is kept: nothing of those that only record level compares."""
        first = not self._values
        tps = [it.tp for it in ranges]
        if first:
            self._epochs = (
                self._ctx.source.log_epochs(dict.fromkeys(tps)),
                self._ctx.target.log_epochs(dict.fromkeys(tps)),
            )
            self._earlier = self._ctx.segments.all()
            if not self._full:
                self._values = self._standing(tps)
                self._twice = self._drawn()
        to_read: list[PartitionRange] = []
        for it in ranges:
            self._ranges[it.tp] = it
            equal = {n: v for n, v in self._values.get(it.tp, {}).items() if v["verdict"] == Equality.EQUAL}
            mine, rest = ({}, [it]) if it.by_key else self._cut(it, equal)
            self._kept[it.tp] = mine
            to_read += rest
        self._expected = sum(1 for it in to_read for _ in tiles(it, self._size))
        self._read, self._pairs, self._began = 0, 0, self._ctx.clock.monotonic()
        kept = {it.tp: self._kept[it.tp] for it in ranges}
        return Chosen(ranges=tuple(to_read), kept=kept, twice=self._twice)

    def compared_before(self, tp: TopicPartition, low: int, high: int) -> int:
        """How many source offsets from ``low`` up to, and without, ``high`` earlier validations found equal."""
        spans = ((_since(it), it["end"]) for it in self._earlier.get(tp, {}).values() if self._is_of_now(tp, it))
        return sum(max(0, min(end, high) - max(start, low)) for start, end in spans)

    def _is_of_now(self, tp: TopicPartition, value: Mapping[str, Any]) -> bool:
        """Whether something was found equal of the topics that stand under these names now."""
        ids = list(value["ids"])
        # Without ids nobody would notice a topic that was made anew.
        return value["verdict"] == Equality.EQUAL and all(ids) and ids == list(self._ids.get(tp.topic, ()))

    # -- what stands ------------------------------------------------------------------------------------------

    def _standing(self, tps: Sequence[TopicPartition]) -> dict[TopicPartition, dict[int, dict[str, Any]]]:
        """Segments that were found equal, recently enough, of topics and logs that are still the same."""
        wanted = set(tps)
        oldest = self._ctx.clock.now() - timedelta(seconds=self._ctx.plan.validation.reread_seconds)
        known = {
            tp: {
                number: value
                for number, value in mine.items()
                if self._is_of_now(tp, value)
                and value["segment_records"] == self._size
                and not (self._level is Level.RECORD and value["level"] == BATCH)
                and datetime.fromisoformat(value["at"]) >= oldest
            }
            for tp, mine in self._earlier.items()
            if tp in wanted
        }
        for side, cluster in enumerate((self._ctx.source, self._ctx.target)):
            # One question a partition, per epoch: by all that was kept under it.
            for epoch in sorted({value["epochs"][side] for mine in known.values() for value in mine.values()}):
                asked = {
                    tp: epoch
                    for tp, mine in known.items()
                    if any(value["epochs"][side] == epoch for value in mine.values())
                }
                ends = cluster.log_epochs(dict(asked)) if epoch >= 0 else {}
                for tp in asked:
                    end = ends.get(tp)
                    for number, value in list(known[tp].items()):
                        bound = value["end"] if side == 0 else value["target_end"]
                        if value["epochs"][side] == epoch and (end is None or end.epoch != epoch or end.end < bound):
                            del known[tp][number]
        return known

    def _drawn(self) -> tuple[tuple[str, int, int], ...]:
        """A sample of what stands, but is not settled; it does not stand any more."""
        loose = sorted(self._loose())
        drawn = stratified(
            random.Random(self._run),
            loose,
            sample_size(len(loose), self._share),
            topic=lambda place: place[0].topic,
            traits=lambda place: self._values[place[0]][place[1]].get("traits", 0),
        )
        for tp, number in drawn:
            del self._values[tp][number]
        return tuple((tp.topic, tp.partition, number) for tp, number in sorted(drawn))

    def _loose(self) -> dict[tuple[TopicPartition, int], dict[str, Any]]:
        """What was found equal, and is not settled."""
        return {
            (tp, number): value
            for tp, mine in self._values.items()
            for number, value in mine.items()
            if value["verdict"] == Equality.EQUAL and not value.get("settled", True)
        }

    def _cut(
        self, it: PartitionRange, values: Mapping[int, Mapping[str, Any]]
    ) -> tuple[dict[int, Kept], list[PartitionRange]]:
        """What of ``it`` is kept, and the stretches between that are to be read."""
        kept: dict[int, Kept] = {}
        rest: list[PartitionRange] = []
        begin: tuple[int, int] | None = None
        at, target = it.source_start, it.target_start
        for number, tile in tiles(it, self._size):
            value = values.get(number)
            end = at
            if value is not None and self._stands(it, tile, value, at, target):
                if begin is not None:
                    rest.append(cut(it, begin[0], at, begin[1], target))
                    begin = None
                end = value["end"]
                kept[number] = Kept(
                    end=end,
                    source=Digest(**value["source"]),
                    target=Digest(**value["target"]),
                    level=value["level"],
                    whole=end == tile.source_end,
                    at=value["at"],
                )
                target = value["target_end"]
            if end < tile.source_end or tile.source_start == tile.source_end:
                begin = begin or (end, target)
                target = max(target, tile.target_end)
            at = tile.source_end
        if begin is not None:
            rest.append(cut(it, begin[0], it.source_end, begin[1], it.target_end))
        elif target < it.target_end:
            # Behind the last record that was kept: nothing may stand there now either.
            rest.append(cut(it, it.source_end, it.source_end, target, it.target_end))
        return kept, rest

    def _stands(self, it: PartitionRange, tile: PartitionRange, value: Mapping[str, Any], at: int, target: int) -> bool:
        """Whether what was kept of a segment begins where it begins now, and is placed as the map says now."""
        end = value["end"]
        if (value["start"], value["target_start"]) != (at, target) or not at < end <= tile.source_end:
            return False
        low, high = split_bounds(it, end)
        # One that was kept before there was a hash is read once more.
        return bool(low <= value["target_end"] <= high and places_hash(it.runs.clip(at, end)) == value.get("places"))

    # -- what is found ----------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        """What the job says: keep it, or tell it."""
        found = heard(text)
        if found is None:
            self._ctx.tell(text)
        else:
            self.found(found)

    def report(self, request: ValidationRequest, report: DigestReport) -> None:
        """Keep what only the report says, since the job was run by somebody who heard nothing meanwhile."""
        self.found(outcomes_of(request, report))
        self._missed_second |= any(it.failure for it in report.second)

    def settle(self) -> None:
        """All was read that was to be read: what is equal needs no sample any more, unless that could not be read."""
        if self._missed_second or self._ctx.dry_run or not self._share:
            return
        settled = {place: {**value, "settled": True} for place, value in self._loose().items()}
        if settled:
            self._ctx.segments.record(settled)

    def found(self, outcomes: Iterable[SegmentOutcome]) -> None:
        """Keep what was found, unless it was kept before, and tell how far it is."""
        new = [it for it in outcomes if (it.tp, it.start, it.level) not in self._done]
        self._done |= {(it.tp, it.start, it.level) for it in new if not it.failure}
        values: dict[tuple[TopicPartition, int], dict[str, Any]] = {}
        differ: list[SegmentOutcome] = []
        for it in new:
            if not it.failure and it.tp in self._ranges:
                # One after the other: the second level of a segment rests on what the first has found.
                value = values[it.tp, it.segment] = self._value(it)
                self._values.setdefault(it.tp, {})[it.segment] = value
                if value["verdict"] == Equality.DIFFERENT and not self._may_be_explained(it):
                    differ.append(it)
        if values and not self._ctx.dry_run:
            self._ctx.segments.record(values)
        if differ:
            self.differs(differ)
        self._tell(new)

    def _may_be_explained(self, it: SegmentOutcome) -> bool:
        """Whether compaction or retention, which take records while they are read, may have made the difference."""
        range_ = self._ranges[it.tp]
        records = range_.runs.clip(it.start, it.end).records
        return range_.by_key or it.source.rows < records == it.target.rows

    def _value(self, it: SegmentOutcome) -> dict[str, Any]:
        range_, kept = self._ranges[it.tp], self._kept.get(it.tp, {}).get(it.segment)
        before = self._values.get(it.tp, {}).get(it.segment)
        records = range_.runs.clip(it.start, it.end).records
        same = it.is_same and it.source.rows == records - it.target.compacted
        start, target_start, source, target, level = it.start, it.target_start, it.source, it.target, it.level
        at = self._ctx.stamp()
        if before is not None and it.level != BATCH and (it.tp, it.start, BATCH) in self._done:
            # The second level, of what the first has read just now: it adds no records.
            same = same and before["verdict"] == Equality.EQUAL
            is_whole = before["start"] == it.start or (kept is not None and kept.level != BATCH)
            start, target_start, records = before["start"], before["target_start"], before["records"]
            source, target = Digest(**before["source"]), Digest(**before["target"])
            level, at = "both" if is_whole else BATCH, before["at"]
        elif kept is not None:
            first = self._values[it.tp][it.segment]
            start, target_start, records = first["start"], first["target_start"], records + first["records"]
            source, target = kept.source + it.source, kept.target + it.target
            # As old as the oldest part of it.
            at = first["at"]
        verdict = Equality.EQUAL if same else Equality.DIFFERENT
        if same and (source.unclear or target.unclear):
            verdict = Equality.INCONCLUSIVE
        traits = it.traits | (before or {}).get("traits", 0)
        epochs = [ends[it.tp].epoch if it.tp in ends else -1 for ends in self._epochs]
        return {
            "ids": list(self._ids.get(it.topic, ())),
            "segment_records": self._size,
            "start": start,
            "since": self._compared_since(it, start),
            "end": it.end,
            "target_start": target_start,
            "target_end": it.target_end,
            "records": records,
            "places": places_hash(range_.runs.clip(start, it.end)),
            "source": asdict(source),
            "target": asdict(target),
            "verdict": str(verdict),
            "level": level,
            "settled": range_.by_key or level != BATCH,
            "epochs": epochs,
            "traits": traits,
            "at": at,
            "run": self._run,
        }

    def _compared_since(self, it: SegmentOutcome, start: int) -> int:
        """From which source offset on a segment was compared, now or before its beginning expired."""
        before = self._earlier.get(it.tp, {}).get(it.segment)
        if before is None or before["segment_records"] != self._size or not self._is_of_now(it.tp, before):
            return start
        return min(start, _since(before)) if start <= before["end"] else start

    # -- how far it is ----------------------------------------------------------------------------------------

    def _tell(self, new: Sequence[SegmentOutcome]) -> None:
        first = [it for it in new if it.level == BATCH or (it.tp, it.start, BATCH) not in self._done]
        self._read += len(first)
        self._pairs += sum(max(it.source.rows, it.target.rows) for it in first)
        now = self._ctx.clock.monotonic()
        if not first or (now - self._told < _TOLD_SECONDS and self._read < self._expected):
            return
        self._told = now
        seconds = max(now - self._began, 1e-6)
        left = max(0, self._expected - self._read) * seconds / self._read
        self._ctx.tell(
            f"{self._read} of {self._expected} segments, {self._pairs:,} record pairs,"
            f" {self._pairs / seconds:,.0f}/s, ETA {left:,.0f} s"
        )


def _since(value: Mapping[str, Any]) -> int:
    # One that was kept before there was coverage says only where it begins.
    return int(value.get("since", value["start"]))
