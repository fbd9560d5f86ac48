"""What the Spark job found out: digests by segment, and the partitions that could not be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from kafka_migration.domain.types import TopicPartition

SOURCE, TARGET = "source", "target"
_MASK = 2**64 - 1


def recombine(low: int, high: int) -> int:
    """The sum modulo 2^64 of 64-bit hashes, from the sums of their low halves and of their (signed) high halves."""
    return (low + (high << 32)) & _MASK


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Records digested: how many, and two sums of 64-bit hashes, modulo 2^64.

    ``total`` is the same in any order. ``ordered`` hashes each record together with its source offset, so that it
    tells records apart that changed places, and records that do not stand where the offset map says. Both add up: the
    digest of a partition is the sum of its segments'. ``misplaced`` counts records where the map has none.
    ``compacted`` counts records of the target, in nothing else, that compaction has taken from the source since they
    were copied.
    """

    rows: int = 0
    bytes: int = 0
    total: int = 0
    ordered: int = 0
    misplaced: int = 0
    compacted: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.misplaced <= self.rows or self.bytes < 0 or self.compacted < 0:
            raise ValueError(f"not a digest of records: {self}")
        if not (0 <= self.total <= _MASK and 0 <= self.ordered <= _MASK):
            raise ValueError(f"a sum is not below 2^64: {self}")

    def __add__(self, other: Digest) -> Digest:
        return Digest(
            rows=self.rows + other.rows,
            bytes=self.bytes + other.bytes,
            total=(self.total + other.total) & _MASK,
            ordered=(self.ordered + other.ordered) & _MASK,
            misplaced=self.misplaced + other.misplaced,
            compacted=self.compacted + other.compacted,
        )

    @property
    def text(self) -> str:
        """Both sums, for people: 16 hexadecimal digits each."""
        return f"{self.total:016x}-{self.ordered:016x}"


def sum_of(digests: Iterable[Digest]) -> Digest:
    """The digest of all their records."""
    out = Digest()
    for digest in digests:
        out = out + digest
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDigest:
    """One side's digest of one segment of a partition."""

    side: str
    topic: str
    partition: int
    segment: int
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFailure:
    """A partition whose records could not all be read, on one side or the other, and why."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestReport:
    """The answer to the request with this ``id``. A partition has digests or a failure; without records, neither."""

    id: str
    segments: tuple[SegmentDigest, ...]
    failures: tuple[ReadFailure, ...]
    seconds: float

    def by_partition(self) -> dict[tuple[TopicPartition, str], dict[int, Digest]]:
        """(partition, side) -> segment -> digest, of all."""
        out: dict[tuple[TopicPartition, str], dict[int, Digest]] = {}
        for it in self.segments:
            out.setdefault((TopicPartition(it.topic, it.partition), it.side), {})[it.segment] = it.digest
        return out

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "id": self.id,
            "segments": [asdict(it) for it in self.segments],
            "failures": [asdict(it) for it in self.failures],
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DigestReport:
        """The inverse of :meth:`as_dict`."""
        return cls(
            id=value["id"],
            segments=tuple(SegmentDigest(**{**it, "digest": Digest(**it["digest"])}) for it in value["segments"]),
            failures=tuple(ReadFailure(**it) for it in value["failures"]),
            seconds=value["seconds"],
        )
