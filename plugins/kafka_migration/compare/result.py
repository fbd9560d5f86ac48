"""The answer: by partition whether source and target are equal, and if not, which segments differ and how."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any

from kafka_migration.compare.digests import Digest, sum_of
from kafka_migration.compare.explain.result import Drilled
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition

#: So many topics of which the least was compared are kept in the journal.
_LEAST_TOPICS = 20
#: The detail of a segment, or of a partition, where there is no more to say of it.
NOTHING_BUT_EQUAL = "equal"


class Equality(enum.StrEnum):
    """Worst first: the verdict of many is that of the worst. Only EQUAL ever opens a gate."""

    DIFFERENT = "DIFFERENT"
    INCONCLUSIVE = "INCONCLUSIVE"
    EXPIRED = "EXPIRED"
    EQUAL = "EQUAL"

    @property
    def exit_code(self) -> int:
        """0 equal; 1 different; 3 could not be found out."""
        return {Equality.EQUAL: 0, Equality.DIFFERENT: 1}.get(self, 3)


def worst(verdicts: Iterable[Equality]) -> Equality:
    """The worst of ``verdicts``; EQUAL if there are none."""
    found = set(verdicts)
    return next((verdict for verdict in Equality if verdict in found), Equality.EQUAL)


class Difference(enum.StrEnum):
    """What differs in a segment. Sums differ whenever counts do; the order-dependent one whenever anything does.

    COUNT alone is of lost or additional records, SUM without COUNT of altered ones, ORDER alone of records that are all
    there, but changed places, or do not stand where the offset map has them.
    """

    COUNT = "count"
    SUM = "sum"
    ORDER = "order"
    BYTES = "bytes"
    """Batches that were not decoded since they looked equal are not: their headers, bytes or places differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentResult:
    """One segment of a partition: source offsets ``start`` to ``end`` (not included), and both sides' digests.

    ``expected`` is how many records the offset map has there, ``target_start`` and ``target_end`` where it has them.
    ``level`` is how it was read: "batch" or "record". ``failure`` is why it could not be, if not empty. ``kept``:
    nothing of it was read this time, since an earlier validation found it equal, and it stands as it stood then.
    ``read_at`` is when the oldest part of it was read (ISO-8601, UTC), if that was not this time.
    """

    segment: int
    start: int
    end: int
    expected: int
    source: Digest
    target: Digest
    verdict: Equality
    target_start: int = 0
    target_end: int = 0
    level: str = ""
    failure: str = ""
    kept: bool = False
    read_at: str = ""

    @property
    def differences(self) -> tuple[Difference, ...]:
        return tuple(
            what
            for what, equal in (
                (Difference.COUNT, self.source.rows == self.target.rows),
                (Difference.SUM, self.source.total == self.target.total),
                (Difference.ORDER, self.source.ordered == self.target.ordered),
                (Difference.BYTES, (self.source.proved, self.source.proof) == (self.target.proved, self.target.proof)),
            )
            if not equal
        )

    @property
    def missing(self) -> int:
        """How many records fewer the target has, at least 0."""
        return max(0, self.source.rows - self.target.rows)

    @property
    def extra(self) -> int:
        """How many records more the target has, at least 0."""
        return max(0, self.target.rows - self.source.rows)

    @property
    def detail(self) -> str:
        if self.failure:
            return f"not read: {self.failure}"
        source, target, differ = self.source, self.target, self.differences
        parts = {
            f"{self.missing} missing on the target": self.missing > 0,
            f"{self.extra} more on the target": self.extra > 0,
            f"{target.misplaced} where the offset map has none": target.misplaced > 0,
            f"the target's batches have attributes that the mirror never writes ({target.attribute_names};"
            " only their headers show them)": target.attributes > 0,
            f"the source holds {source.rows} of {self.expected} that were mirrored": source.rows != self.expected,
            "the same records in other places": differ == (Difference.ORDER,),
            "as many records, but not the same": Difference.SUM in differ and Difference.COUNT not in differ,
        }
        return ", ".join(part for part, is_so in parts.items() if is_so) or NOTHING_BUT_EQUAL

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "segment": self.segment,
            "start": self.start,
            "end": self.end,
            "verdict": str(self.verdict),
            "expected_records": self.expected,
            "source_records": self.source.rows,
            "target_records": self.target.rows,
            "source_digest": self.source.text,
            "target_digest": self.target.text,
            "differences": [str(difference) for difference in self.differences],
            "missing": self.missing,
            "extra": self.extra,
            "misplaced": self.target.misplaced,
            "detail": self.detail,
            "target_start": self.target_start,
            "target_end": self.target_end,
            "level": self.level,
            "kept": self.kept,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionResult:
    """One partition. Offsets are what was pinned; target offsets None where they are not known.

    ``source`` and ``target`` are None if not all of it could be read. ``expired`` is how many source offsets left the
    source while it was being validated: they are not compared. ``segments`` are those that were pinned. ``drilled`` are
    the first records that differ, if any do. ``lag`` is how many source offsets the mirror was short of the pinned end
    when all had been waited for; ``unstable`` how many target offsets consumers of committed records cannot read, since
    a transaction is open before them. ``never_compared`` are those of ``expired`` that no earlier validation compared.
    """

    topic: str
    partition: int
    source_start: int
    source_end: int
    verdict: Equality
    detail: str
    target_start: int | None = None
    target_end: int | None = None
    expected: int = 0
    segments: tuple[SegmentResult, ...] = ()
    is_read: bool = False
    expired: int = 0
    drilled: Drilled | None = None
    lag: int = 0
    unstable: int = 0
    never_compared: int = 0

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def source(self) -> Digest | None:
        """The source's digest, over all segments."""
        return sum_of(segment.source for segment in self.segments) if self.is_read else None

    @property
    def target(self) -> Digest | None:
        """The target's digest, over all segments."""
        return sum_of(segment.target for segment in self.segments) if self.is_read else None

    @property
    def covered(self) -> int:
        """How many source offsets the segments that were read cover."""
        return sum(segment.end - segment.start for segment in self.segments) if self.is_read else 0

    def with_detail(self, more: str) -> PartitionResult:
        """The same, with ``more`` in its detail, which stands alone where there was nothing but equality."""
        return replace(self, detail=more if self.detail == NOTHING_BUT_EQUAL else f"{self.detail}; {more}")

    def as_dict(self, *, with_segments: bool = True) -> dict[str, Any]:
        """JSON types only. ``with_segments`` False leaves the segments out that are equal."""
        shown = [segment for segment in self.segments if with_segments or segment.verdict is not Equality.EQUAL]
        return {
            "topic": self.topic,
            "partition": self.partition,
            "verdict": str(self.verdict),
            "equal": self.verdict is Equality.EQUAL,
            "detail": self.detail,
            "source_start": self.source_start,
            "source_end": self.source_end,
            "target_start": self.target_start,
            "target_end": self.target_end,
            "expired": self.expired,
            "lag": self.lag,
            "unstable": self.unstable,
            "never_compared": self.never_compared,
            "expected_records": self.expected,
            **_read(self.source, self.target),
            "segment_count": len(self.segments),
            "kept_segments": sum(segment.kept for segment in self.segments),
            "segments": [segment.as_dict() for segment in shown],
            "drilled": None if self.drilled is None else self.drilled.as_dict(),
        }


def _read(source: Digest | None, target: Digest | None) -> dict[str, Any]:
    return {
        "source_records": source.rows if source else None,
        "target_records": target.rows if target else None,
        "source_digest": source.text if source else None,
        "target_digest": target.text if target else None,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """Sums over all partitions that were read."""

    partitions: int
    source_records: int
    target_records: int
    source_bytes: int
    target_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Of one topic: mirrored source offsets that were compared, now or by an earlier validation before they expired,
    and those that expired and ``never`` were."""

    topic: str
    compared: int
    never: int

    @property
    def share(self) -> float:
        return self.compared / (self.compared + self.never) if self.compared or self.never else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """All partitions, compared at ``level``. ``at`` is when they were pinned (ISO-8601, UTC), ``seconds`` how long
    reading took."""

    id: str
    migration: str
    at: str
    level: Level
    segment_records: int
    partitions: tuple[PartitionResult, ...]
    seconds: float
    hints: tuple[str, ...] = ()

    @property
    def verdict(self) -> Equality:
        """The worst of all partitions; of none it is INCONCLUSIVE."""
        return worst(partition.verdict for partition in self.partitions) if self.partitions else Equality.INCONCLUSIVE

    @property
    def coverage(self) -> tuple[Coverage, ...]:
        """How much of each topic was ever compared, the least first; those of which nothing was mirrored left out."""
        found: dict[str, Coverage] = {}
        for partition in self.partitions:
            before = found.get(partition.topic, Coverage(topic=partition.topic, compared=0, never=0))
            compared = partition.source_end - partition.source_start + partition.expired - partition.never_compared
            found[partition.topic] = replace(
                before, compared=before.compared + compared, never=before.never + partition.never_compared
            )
        return tuple(
            sorted((topic for topic in found.values() if topic.compared or topic.never), key=lambda topic: topic.share)
        )

    @property
    def exit_code(self) -> int:
        """0 equal; 1 different; 3 could not be found out."""
        return self.verdict.exit_code

    @property
    def handled(self) -> dict[str, dict[str, int]]:
        """By topic, how many of the source's records its handler dropped and changed; without topics where it did
        neither, and those that are compared by keys."""
        found: dict[str, Digest] = {}
        for partition in self.partitions:
            if partition.source is not None and (partition.source.dropped or partition.source.changed):
                found[partition.topic] = found.get(partition.topic, Digest()) + partition.source
        return {name: {"dropped": of.dropped, "changed": of.changed} for name, of in sorted(found.items())}

    @property
    def totals(self) -> Totals:
        """Records and bytes (of keys and values) that were read."""
        source = sum_of(partition.source for partition in self.partitions if partition.source)
        target = sum_of(partition.target for partition in self.partitions if partition.target)
        return Totals(
            partitions=len(self.partitions),
            source_records=source.rows,
            target_records=target.rows,
            source_bytes=source.bytes,
            target_bytes=target.bytes,
        )

    def summary(self) -> str:
        """One line for a person."""
        counts = Counter(partition.verdict for partition in self.partitions)
        verdicts = ", ".join(f"{counts[verdict]} {verdict}" for verdict in Equality if counts[verdict])
        totals, segments = self.totals, self._segments
        read = [segment for segment in segments if not segment.kept]
        records = sum(segment.source.rows + segment.target.rows for segment in read)
        kept = len(segments) - len(read)
        stand = f", {kept} of {len(segments)} segments equal as before and not read again" if kept else ""
        return (
            f"{self.verdict}: {totals.source_records:,} records of the source and {totals.target_records:,} of the"
            f" target, {totals.partitions} partitions ({verdicts or 'none'}){stand},"
            f" {self.seconds:,.0f} s, {records / (self.seconds or math.inf):,.0f} records/s"
        )

    @property
    def _segments(self) -> list[SegmentResult]:
        return [segment for partition in self.partitions for segment in partition.segments]

    def as_dict(self, *, with_segments: bool = True) -> dict[str, Any]:
        """JSON types only."""
        return {
            "id": self.id,
            "migration": self.migration,
            "at": self.at,
            "level": str(self.level),
            "verdict": str(self.verdict),
            "passed": self.verdict is Equality.EQUAL,
            "segment_records": self.segment_records,
            "seconds": self.seconds,
            "totals": asdict(self.totals),
            "coverage": {
                "compared": sum(topic.compared for topic in self.coverage),
                "never": sum(topic.never for topic in self.coverage),
                "least": [asdict(topic) for topic in self.coverage[:_LEAST_TOPICS]],
            },
            "hints": list(self.hints),
            "handled": self.handled,
            "partitions": [partition.as_dict(with_segments=with_segments) for partition in self.partitions],
        }
