"""What is to be compared: pinned offset ranges of both clusters, and the runs that align them.

A request is a value: given to another process as JSON, kept, and run again it reads the same offsets, however much the
topics have grown meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from kafka_migration.compare.runs import Runs
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.handlers import Handler
from kafka_migration.domain.levels import Level
from kafka_migration.domain.names import TopicNames
from kafka_migration.domain.offset_map import OffsetMap
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import PartitionEnds, TopicPartition

FORMAT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRange:
    """Offsets of one partition to compare: from a start up to, and without, an end, on either side.

    ``runs`` align them: in order, inside the source range. Every
    record that the source holds in its range should stand on the target where a run has it, and nothing else in the
    target's range. ``compacted``: the source may have lost records to compaction since. ``left_out`` are source offsets
    (from, and up to without) that a person gave up: what the source holds there is not compared. ``target_left_out``
    are those of the target where it is known to hold what no run covers.

    Of compacted logs (``target_compacted``: the target, too): ``source_tail`` and ``target_tail`` are log ends at or
    behind the pinned ones, up to which newer records of a key are looked for; those of the source up to
    ``source_mirrored`` the target has had, too; ``source_tombstones_ms`` and ``target_tombstones_ms`` how long the
    sides keep tombstones (``delete.retention.ms``). Of a side that is ``tiered`` (``target_tiered``) some may lie in
    remote storage.

    ``handler`` is what the mirror has made of the source's records: they are compared as it makes them, and so record
    by record.
    """

    topic: str
    partition: int
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    runs: Runs
    compacted: bool = False
    left_out: tuple[tuple[int, int], ...] = ()
    target_left_out: tuple[tuple[int, int], ...] = ()
    target_compacted: bool = False
    tiered: bool = False
    target_tiered: bool = False
    source_tail: int = 0
    target_tail: int = 0
    source_mirrored: int = 0
    source_tombstones_ms: int = 0
    target_tombstones_ms: int = 0
    handler: Handler | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.source_start <= self.source_end and 0 <= self.target_start <= self.target_end):
            raise ValueError(f"{self.tp}: not two ranges of offsets: {self.source} and {self.target}")
        wrong = self.runs.first_misfit(self.source_start)
        if wrong is not None:
            raise ValueError(f"{self.tp}: {self.runs[wrong]} is out of order, or outside of {self.source}")
        if self.runs.source_end > self.source_end:
            raise ValueError(f"{self.tp}: the runs reach {self.runs.source_end}, beyond {self.source}")
        for start, end in self.left_out:
            if not self.source_start <= start < end <= self.source_end:
                raise ValueError(f"{self.tp}: {start}..{end} cannot be left out of {self.source}")

    @classmethod
    def pinned(
        cls,
        tp: TopicPartition,
        offset_map: OffsetMap,
        *,
        source: PartitionEnds,
        target: PartitionEnds,
        skips: Iterable[Skip] = (),
        extras: Iterable[tuple[int, int]] = (),
        compacted: bool = False,
        whole: bool = False,
    ) -> PartitionRange:
        """The range up to the pinned end ``source.end``, which the map must reach (NotMirroredYet otherwise).

        Where the source begins no later than the map, the target is read from its log start: nothing may stand before
        the first mirrored record. Where the source has expired since, what it lost is left out on both sides. Offsets
        that the target does not have (``target``) are not asked for, and so are missed. ``skips`` were given up,
        ``extras`` are known to be on the target only. ``whole``: the mirror has written nothing behind the pinned end,
        so the target is read to its own.
        """
        whole_map = Runs.of_map(offset_map)
        begins = whole_map[0].source if len(whole_map) else offset_map.source_end
        target_end = target.end if whole else min(offset_map.to_target(source.end), target.end)
        wanted = target.start if source.start <= begins else offset_map.to_target(source.start)
        target_start = min(max(wanted, target.start), target_end)
        return cls(
            topic=tp.topic,
            partition=tp.partition,
            source_start=source.start,
            source_end=source.end,
            target_start=target_start,
            target_end=target_end,
            runs=whole_map.clip(source.start, source.end),
            compacted=compacted,
            left_out=tuple(_left_out(skips, whole_map, source)),
            target_left_out=clipped(extras, target_start, target_end),
        )

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def by_key(self) -> bool:
        """Whether a side is compacted: then places may be empty, and keys show whether they may. Only record level
        compares it: of compacted logs, no two batches are the same."""
        return self.compacted or self.target_compacted

    @property
    def source_may_lack(self) -> bool:
        """Whether what the source's brokers do not send is not there: it is compacted, and all of it lies with them."""
        return self.compacted and not self.tiered

    @property
    def target_may_lack(self) -> bool:
        """The same of the target."""
        return self.target_compacted and not self.target_tiered

    @property
    def source(self) -> str:
        """The source's range, for messages."""
        return f"{self.source_start}..{self.source_end}"

    @property
    def target(self) -> str:
        """The target's range, for messages."""
        return f"{self.target_start}..{self.target_end}"

    @property
    def records(self) -> int:
        """How many records the runs hold."""
        return self.runs.records

    def as_dict(self, *, with_runs: bool = True) -> dict[str, Any]:
        """JSON types only."""
        value = {member.name: getattr(self, member.name) for member in fields(self) if member.name != "runs"}
        value["handler"] = None if self.handler is None else asdict(self.handler)
        return {**value, "runs": self.runs.as_dict()} if with_runs else value

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> PartitionRange:
        spans = {
            name: tuple((start, end) for start, end in value.get(name, ())) for name in ("left_out", "target_left_out")
        }
        handler = None if value["handler"] is None else Handler(**value["handler"])
        return cls(**{**value, "runs": Runs.from_dict(value["runs"]), "handler": handler, **spans})


def clipped(spans: Iterable[tuple[int, int]], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """What of ``spans`` (from, and up to without) lies between two offsets."""
    parts = ((max(low, start), min(high, end)) for low, high in spans)
    return tuple((low, high) for low, high in parts if low < high)


def _left_out(skips: Iterable[Skip], runs: Runs, source: PartitionEnds) -> Iterator[tuple[int, int]]:
    for skip in skips:
        # The copy may have come further than was known when its halt was lifted.
        copied = runs.clip(0, skip.end + 1)
        ends = [run.source + run.length for run in (copied[at] for at in range(-min(2, len(copied)), 0))]
        start = max(skip.start, source.start, max((end for end in ends if end <= skip.end), default=0))
        if start < min(skip.end, source.end):
            yield start, min(skip.end, source.end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationRequest:
    """Everything that the Spark job gets. Clusters are connection ids: credentials never stand here.

    ``isolation`` is how the source is read: as the mirror does. The target is always read uncommitted, since whatever
    stands there must be explained. ``segment_records``: a segment is the records whose source offset, divided by it,
    gives the same whole number. ``ranges`` may hold several of a partition, in order. ``sample`` is the share of
    segments of which Spark's Kafka source reads a stretch, too (:mod:`kafka_migration.compare.records.confirm`),
    ``seed`` what chooses them. ``target_names``: what the side called target calls topics that it has another name for,
    and ``source_names`` likewise.
    """

    id: str
    migration: str
    source: str
    target: str
    segment_records: int
    ranges: tuple[PartitionRange, ...]
    isolation: str = "read_committed"
    level: Level = Level.RECORD
    sample: float = 0.05
    seed: str = ""
    source_names: Mapping[str, str] = field(default_factory=dict)
    target_names: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.segment_records < 1:
            raise ValueError(f"a segment of {self.segment_records} records")
        if not 0 <= self.sample <= 1:
            raise ValueError(f"a share of {self.sample}")
        ends: dict[TopicPartition, int] = {}
        for range_ in self.ranges:
            if range_.source_start < ends.get(range_.tp, 0):
                raise ValueError(f"{range_.tp}: source offset {range_.source_start} is asked for twice")
            ends[range_.tp] = range_.source_end

    def names(self, side: str) -> TopicNames:
        """How ``side`` calls the topics of this request."""
        return TopicNames(renamed=self._renamed()[f"{side}_names"])

    def _renamed(self) -> dict[str, Mapping[str, str]]:
        return {"source_names": self.source_names, "target_names": self.target_names}

    def read_level(self, range_: PartitionRange) -> Level:
        """At which level ``range_`` is compared."""
        return Level.RECORD if range_.by_key or range_.handler is not None else self.level

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "format": FORMAT,
            "id": self.id,
            "migration": self.migration,
            "source": self.source,
            "target": self.target,
            "segment_records": self.segment_records,
            "isolation": self.isolation,
            "level": str(self.level),
            "sample": self.sample,
            "seed": self.seed,
            **{name: dict(names) for name, names in self._renamed().items() if names},
            "ranges": [range_.as_dict() for range_ in self.ranges],
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> ValidationRequest:
        """The inverse of :meth:`as_dict`. Raises StateConflict for another version's request."""
        if value.get("format") != FORMAT:
            raise StateConflict(
                f"a validation request of format {value.get('format')}, this version knows {FORMAT}",
                remedy="run `validate` and its Spark job from the same version",
            )
        rest = {key: item for key, item in value.items() if key not in ("format", "ranges")}
        ranges = tuple(PartitionRange.from_dict(range_) for range_ in value["ranges"])
        return cls(**{**rest, "level": Level(rest["level"])}, ranges=ranges)
