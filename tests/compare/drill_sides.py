"""Two clusters' logs without clusters: made-up batches that a drill-down reads as it would read fetched ones."""

import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kafka_migration.compare.explain.drill import Scope
from kafka_migration.compare.explain.log import Chunks, LogReader
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from tests.compare.made_sides import MadeClient
from tests.compare.made_sides import log_of as answers_of
from tests.mutation.logs import Content, Log, log_of
from tests.wire.made import made_batch

TOPIC = "drilled"
NOW = 1_700_000_000_000
#: Old enough for every tombstone.
LATER = NOW + 10**9


class Side(LogReader):
    """One side's logs; what was read of each."""

    def __init__(self, logs: Mapping[int, Log], *, ends: Mapping[int, int] | None = None) -> None:
        self._logs, self._ends = logs, ends or {}
        self.asked: list[tuple[int, int, int]] = []

    def chunks(self, tp: TopicPartition, start: int, end: int, **options: Any) -> Chunks:
        self.asked.append((tp.partition, start, end))
        # Behind them, so that nobody waits for more.
        answers = answers_of([*self._batches(tp, start, end), made_batch([b"behind"], base_offset=end)], end=2**62)
        return LogReader(MadeClient(answers), committed=False).chunks(tp, start, end, **options)  # type: ignore[arg-type]

    def _batches(self, tp: TopicPartition, start: int, end: int) -> Iterator[bytes]:
        log = self._logs[tp.partition]
        at = 0
        for section, gap in zip(log.sections, log.gaps, strict=True):
            at += gap
            for one in section:
                if start < at + one.count and at < end:
                    batch = bytearray(one.to_append())
                    struct.pack_into(">q", batch, 0, at)
                    yield bytes(batch)
                at += one.count

    def ends(self, tp: TopicPartition) -> PartitionEnds:
        return PartitionEnds(start=0, end=self._ends.get(tp.partition, end_of(self._logs[tp.partition])))


class Sparse(LogReader):
    """One partition of a compacted log: records by offset, each a batch of its own."""

    def __init__(self, records: Mapping[int, Content], end: int) -> None:
        self.records, self.end = dict(records), end

    def chunks(self, tp: TopicPartition, start: int, end: int, **options: Any) -> Chunks:
        for at in sorted(self.records):
            if start <= at < end:
                yield from Side({tp.partition: _alone(self.records[at], at)}).chunks(tp, at, at + 1, **options)

    def ends(self, _tp: TopicPartition) -> PartitionEnds:
        return PartitionEnds(start=0, end=self.end)


def _alone(content: Content, at: int) -> Log:
    return log_of([content], [1], gaps=at)


def end_of(log: Log) -> int:
    """The offset behind the last record."""
    return sum(log.gaps) + len(log)


def contents(count: int, seed: int) -> list[Content]:
    """Different records of all sorts."""
    chance = random.Random(seed)
    return [
        Content(
            chance.choice((None, b"", b"key-%d" % chance.randrange(30))),
            chance.choice((None, b"", b"%d:" % n + chance.randbytes(chance.randrange(30)))),
            chance.choice(((), ((b"a", b"x"), (b"b", b"y")), ((b"h", None), (b"", b""), (b"h", b"v")))),
            NOW + n,
        )
        for n in range(count)
    ]


def pinned(source: Log, target_before: Log, target: Log, partition: int, **more: object) -> PartitionRange:
    """The range of a partition: the map is that of the copy before a fault was put into it."""
    runs, source_at = list[Run](), list(source.offsets())
    for n, at in enumerate(target_before.offsets()):
        last = runs[-1] if runs else None
        if last is not None and (at - last.target, source_at[n] - last.source) == (last.length, last.length):
            runs[-1] = Run(last.source, last.target, last.length + 1)
        else:
            runs.append(Run(source_at[n], at, 1))
    return PartitionRange(
        topic=TOPIC,
        partition=partition,
        source_start=0,
        source_end=end_of(source),
        target_start=0,
        target_end=end_of(target),
        runs=Runs(runs),
        **more,  # type: ignore[arg-type]
    )


def scopes(ranges: Sequence[PartitionRange], unequal: Mapping[int, Sequence[tuple[int, int]]]) -> Iterator[Scope]:
    """Those ranges that have unequal segments."""
    for range_ in ranges:
        if range_.partition in unequal:
            yield Scope(range=range_, spans=tuple(unequal[range_.partition]))


def unequal_segments(source: Log, target: Log, it: PartitionRange, size: int) -> list[tuple[int, int]]:
    """Segments of `size` whose records are not the same, in the same places: what a first reader would find."""
    mine = dict(zip(source.offsets(), _raw(source), strict=True))
    theirs: dict[int, list[tuple[int, bytes, int]]] = {}
    places = {run.target + n: run.source + n for run in it.runs for n in range(run.length)}
    outside = set()
    for at, raw in zip(target.offsets(), _raw(target), strict=True):
        if at in places:
            theirs.setdefault(places[at], []).append(raw)
        else:
            outside.add(min((place for there, place in places.items() if there > at), default=it.source_end - 1))
    found = []
    for start in range(0, it.source_end, size):
        span = range(start, min(start + size, it.source_end))
        if any(theirs.get(at) != ([mine[at]] if at in mine else None) or at in outside for at in span):
            found.append((span.start, span.stop))
    return found


def _raw(log: Log) -> Iterator[tuple[int, bytes, int]]:
    for section in log.sections:
        for batch in section:
            for stamp, rest in batch.copy().open():
                yield stamp + batch.later, rest, batch.attributes
