"""The offset map of a copy that somebody else has made, found from both logs.

Who copies records as they are and in their order (MirrorMaker 2 does) leaves two logs that differ by gaps alone; so
they are followed by content, and each row of records that are equal on both sides is a run of the map. What was lost,
or written twice by a copier that was killed, has no equal where it should be: it is kept, by offsets and digests, until
the source shows what it is. Memory is bounded by the window of :mod:`.align`, by :data:`_MOST`, and by the runs.
"""

from __future__ import annotations

import enum
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from kafka_migration.compare.explain.align import Apart, Follower
from kafka_migration.compare.explain.left import Row
from kafka_migration.compare.explain.log import Chunk, Chunks, Entry, LogReader
from kafka_migration.compare.explain.stream import Stream
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition

#: Records without an equal, of both sides: of a log that has more, nobody would keep the copy.
_MOST = 1 << 20
#: So many records at the beginning of one log are looked for in all of the other.
_OPENING = 8


class Mismatch(enum.StrEnum):
    """What a record is that only one of both logs has, or has at its place.

    Of the source: MISSING on the target; EXPIRED if it comes before all that the target has, which has deleted its
    first records, or was not to have them.
    Of the target: DOUBLED, as one of the source or an OLDER one; OLDER than all that the source still has; copied
    although its transaction was ABORTED; FOREIGN to the source. Of both: REORDERED.
    """

    MISSING = "missing"
    EXPIRED = "expired"
    DOUBLED = "doubled"
    OLDER = "older"
    ABORTED = "aborted"
    REORDERED = "reordered"
    FOREIGN = "foreign"

    @property
    def is_on_source(self) -> bool:
        """Whether its offsets are of the source."""
        return self in (Mismatch.MISSING, Mismatch.EXPIRED)


class Span(NamedTuple):
    """Offsets from ``start`` up to, and without, ``end``, with so many records."""

    start: int
    end: int
    records: int

    def __str__(self) -> str:
        return str(self.start) if self.end == self.start + 1 else f"{self.start}..{self.end - 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Both logs of a partition, as they were read: ``source`` and ``target``.

    ``runs`` are the map; the copy goes on from source offset ``source_at``. ``differences`` are in order of offsets.
    ``trouble``: why the map cannot be taken.
    """

    tp: TopicPartition
    source: PartitionEnds
    target: PartitionEnds
    runs: Sequence[Run] = ()
    source_at: int = 0
    differences: Mapping[Mismatch, tuple[Span, ...]] = field(default_factory=dict)
    trouble: str = ""

    @property
    def records(self) -> int:
        """How many records both logs have."""
        return sum(run.length for run in self.runs)

    def counts(self) -> dict[Mismatch, int]:
        """How many records differ, by how."""
        return {kind: sum(span.records for span in spans) for kind, spans in self.differences.items()}


class FoundRuns(Sequence[Run]):
    """Runs as they are found, record by record, in three columns."""

    def __init__(self) -> None:
        self._sources, self._targets, self._lengths = array("q"), array("q"), array("q")
        self._next = (-1, -1)

    def add(self, source: int, target: int, records: int = 1) -> None:
        """So many records in a row stand at these offsets."""
        if (source, target) == self._next:
            self._lengths[-1] += records
        else:
            self._sources.append(source)
            self._targets.append(target)
            self._lengths.append(records)
        self._next = source + records, target + records

    @property
    def records(self) -> int:
        """How many records are in runs."""
        return sum(self._lengths)

    def __len__(self) -> int:
        return len(self._sources)

    def __getitem__(self, index: int) -> Run:  # type: ignore[override]
        return Run(self._sources[index], self._targets[index], self._lengths[index])


class _Matcher(Follower):
    """Follows both logs of a partition; ``source_at`` is the source offset behind what was looked at. ``older`` and
    ``expired`` are records at the beginning of one log, from where the other has none yet."""

    def __init__(self, source: Stream, target: Stream, source_at: int) -> None:
        super().__init__(source, target, goes_on=True)
        self.source_at = source_at
        self.runs, self.missing, self.extra = FoundRuns(), Row(), Row()
        self.older = self.expired = 0
        self.source_has_records = source.fill(1)

    def follow(self, *, source_begins_late: bool) -> None:
        """To the target's end. Raises Apart."""
        if source_begins_late and not self.source_has_records:
            self.older = sum(1 for _ in self._target.each())
            return
        try:
            self.by_content()
        except Apart:
            if self.runs or not self._pass_beginning():
                raise
            self.by_content()

    def _pass_beginning(self) -> bool:
        """Retention deletes whole segments, so one log may begin much later than the other: go to where both begin."""
        mine, theirs = self._source, self._target
        if (before := theirs.find(mine.look().first(_OPENING)[0].tolist())) is not None:
            self.older += sum(1 for _ in theirs.each(before))
        elif (before := mine.find(theirs.look().first(_OPENING)[0].tolist())) is not None:
            for entry in mine.each(before):
                self.expired, self.source_at = self.expired + 1, entry.offset + 1
        return before is not None

    def _twins(self, one: Chunk, other: Chunk) -> None:
        self.runs.add(one.first, other.first, one.count)
        self.source_at = one.first + one.count

    def _stood(self, mine: Entry, its: Entry) -> None:
        self.runs.add(mine.offset, its.offset)
        self.source_at = mine.offset + 1

    def _keep(self, ones: Sequence[Entry], others: Sequence[Entry]) -> None:
        self._one_after_the_other(iter(ones), iter(others))

    def _one_after_the_other(self, ones: Iterator[Entry], others: Iterator[Entry]) -> None:
        for row, entries in ((self.missing, ones), (self.extra, others)):
            for entry in entries:
                row.add(entry)
                if row is self.missing:
                    self.source_at = entry.offset + 1
                if len(self.missing.digests) + len(self.extra.digests) > _MOST:
                    raise Apart


def match(
    tp: TopicPartition,
    source: LogReader,
    target: LogReader,
    *,
    with_aborted: LogReader,
    ends: tuple[PartitionEnds, PartitionEnds],
    begins_late: bool = False,
    watch: Callable[[int], None] = lambda _offset: None,
) -> Match:
    """Follow both logs of ``tp`` between their ``ends``, on source and target. ``with_aborted`` is the source with what
    was aborted. ``begins_late``: the copy was not to begin at the source's beginning. ``watch`` gets target offsets
    that were reached.

    Raises what reading raises.
    """
    here, there = ends
    in_transactions = 0

    def watched(at: int) -> Chunks:
        nonlocal in_transactions
        for chunk in target.chunks(tp, at, there.end):
            in_transactions += chunk.is_transactional
            watch(chunk.first)
            yield chunk

    mine = Stream(lambda at: source.chunks(tp, at, here.end), here.start, lambda: None)
    theirs = Stream(watched, there.start, lambda: None)
    matcher = _Matcher(mine, theirs, here.start)
    found = partial(Match, tp=tp, source=here, target=there, runs=matcher.runs)
    try:
        matcher.follow(source_begins_late=here.start > 0)
    except Apart:
        at = f"source offset {matcher.source_at}" if matcher.runs else "their beginnings"
        return found(trouble=f"from {at} on both logs differ for more records than are followed")
    if in_transactions:
        return found(trouble=f"{in_transactions} of its batches on the target were written in transactions")
    differences = _classified(tp, matcher, source, with_aborted, ends, begins_late)
    result = found(source_at=matcher.source_at, differences=differences)
    return replace(result, trouble=_trouble(result, matcher, theirs.read, begins_late))


def _trouble(found: Match, matcher: _Matcher, read: int, begins_late: bool) -> str:
    """Why a map that was found cannot be taken; ``read`` is how many records the target has."""
    if matcher.source_has_records and not matcher.runs:
        # Where nothing is shared, only a target that shows all it ever had, of a copy of all, shows that none was.
        if found.target.start > 0:
            return "the target has deleted all of its copy, so nobody knows how far it went"
        if begins_late:
            return "the plan begins later than the source (mirror.start), and nothing on the target shows where"
    named = matcher.runs.records + sum(count for kind, count in found.counts().items() if not kind.is_on_source)
    return "" if named == read else f"of {read:,} records on the target {named:,} are accounted for"


def _classified(
    tp: TopicPartition,
    matcher: _Matcher,
    source: LogReader,
    with_aborted: LogReader,
    ends: tuple[PartitionEnds, PartitionEnds],
    begins_late: bool,
) -> dict[Mismatch, tuple[Span, ...]]:
    here, there = ends
    lacks_beginning = begins_late or there.start > 0
    runs, found = matcher.runs, defaultdict[Mismatch, list[int]](list)
    missing, extra = _offsets(matcher.missing), _offsets(matcher.extra)
    for each in missing.keys() & extra.keys():
        while missing[each] and extra[each]:
            missing[each].pop()
            found[Mismatch.REORDERED].append(extra[each].pop())
    first = runs[0] if runs else Run(here.end, there.end, 0)
    for offset in _all(missing.values()):
        is_expired = lacks_beginning and offset < first.source
        found[Mismatch.EXPIRED if is_expired else Mismatch.MISSING].append(offset)
    wanted = {each for each, offsets in extra.items() if offsets}
    if wanted:
        before = _among(source.chunks(tp, here.start, matcher.source_at), wanted, matcher.extra.oldest)
        behind = _among(source.chunks(tp, matcher.source_at, here.end), wanted - before, matcher.extra.oldest)
        found[Mismatch.DOUBLED] += _all(extra[each] for each in before)
        found[Mismatch.REORDERED] += _all(extra[each] for each in behind)
        wanted -= before | behind
        if here.start > 0:
            older = {each for each in wanted if min(extra[each]) < first.target}
            for offset in _all(extra[each] for each in older):
                found[Mismatch.OLDER if offset < first.target else Mismatch.DOUBLED].append(offset)
            wanted -= older
    if wanted:
        aborted = _among(with_aborted.chunks(tp, here.start, here.end), wanted, matcher.extra.oldest)
        found[Mismatch.ABORTED] += _all(extra[each] for each in aborted)
        found[Mismatch.FOREIGN] += _all(extra[each] for each in wanted - aborted)
    spans = {kind: tuple(_spans(sorted(offsets))) for kind, offsets in found.items() if offsets}
    if matcher.older:
        kind = Mismatch.OLDER if here.start > 0 else Mismatch.FOREIGN
        spans[kind] = (Span(there.start, first.target, matcher.older), *spans.get(kind, ()))
    if matcher.expired:
        kind = Mismatch.EXPIRED if lacks_beginning else Mismatch.MISSING
        spans[kind] = (Span(here.start, first.source, matcher.expired), *spans.get(kind, ()))
    return {kind: spans[kind] for kind in Mismatch if kind in spans}


def _offsets(row: Row) -> defaultdict[int, list[int]]:
    """The offsets of a row, by digest."""
    found = defaultdict[int, list[int]](list)
    for each, offset in zip(row.digests, row.offsets, strict=True):
        found[each].append(offset)
    return found


def _all(offsets: Iterable[Iterable[int]]) -> list[int]:
    return [offset for each in offsets for offset in each]


def _among(chunks: Chunks, wanted: set[int], oldest: int) -> set[int]:
    """Those of the digests ``wanted``, of records no older than ``oldest``, that ``chunks`` have."""
    found = set[int]()
    for chunk in chunks:
        if len(found) == len(wanted):
            break
        if chunk.newest is None or chunk.newest >= oldest:
            found |= wanted.intersection(chunk.columns().hashes.tolist())
    return found


def _spans(offsets: Sequence[int]) -> Iterator[Span]:
    start = end = -1
    for offset in offsets:
        if offset != end:
            if end > start:
                yield Span(start, end, end - start)
            start = offset
        end = offset + 1
    if end > start:
        yield Span(start, end, end - start)
