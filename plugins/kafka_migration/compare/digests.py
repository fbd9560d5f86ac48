"""What the Spark job found out of each segment: both sides' digests, or why it could not be read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.types import TopicPartition

SOURCE, TARGET = "source", "target"
_MARK = "@segments "
_MASK, _PROOF_MASK = 2**64 - 1, 2**128 - 1
#: Of a batch (protocol guide, "Record Batch"), without those of its codec.
_ATTRIBUTES = {0x08: "LogAppendTime", 0x10: "transactional", 0x20: "control", 0x40: "delete horizon"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """Records digested: how many, and sums over them, modulo a power of two.

    ``total`` is the same in any order. ``ordered`` hashes each record together with its source offset, so that it
    differs where records changed places, or do not stand where the offset map has them. Both add up: the digest of a
    partition is the sum of its segments'. ``misplaced`` counts records where the map has none.
    ``compacted`` counts records, in nothing else, that compaction has taken from the other side since they were copied.

    ``proved`` of the ``rows`` were not decoded: the bytes of their batches are the same on both sides, at each other's
    places. ``proof`` is the sum, modulo 2^128, of hashes over each of these batches as this side has it: what its
    header holds of its records, their bytes, and their place. They are in neither ``total`` nor ``ordered``, and in
    ``bytes``, else those of keys and values, with their bytes as they are stored.

    ``attributes``, of the target only, are those that the mirror never writes, as bits, of any of its batches. Records
    in such batches may be invisible to consumers of committed records (transactional), or vanish (delete horizon),
    although they are equal.

    ``dropped`` and ``changed``, of the source only, count records by what the topic's handler did to them; all sums are
    of what it left.

    ``unclear`` counts records whose headers' names the Java client could not decode (they are not UTF-8): Spark's Kafka
    source gives the same name for any of them.
    """

    rows: int = 0
    bytes: int = 0
    total: int = 0
    ordered: int = 0
    misplaced: int = 0
    compacted: int = 0
    proved: int = 0
    proof: int = 0
    attributes: int = 0
    unclear: int = 0
    dropped: int = 0
    changed: int = 0

    @property
    def attribute_names(self) -> str:
        """What :attr:`attributes` are, for people."""
        named = [name for bit, name in _ATTRIBUTES.items() if self.attributes & bit]
        unknown = [str(bit) for bit in range(3, 16) if self.attributes & 1 << bit and 1 << bit not in _ATTRIBUTES]
        return ", ".join([*named, *(f"unknown bit {bit}" for bit in unknown)])

    def __post_init__(self) -> None:
        if not 0 <= self.proved <= self.rows or not 0 <= self.proof <= _PROOF_MASK:
            raise ValueError(f"not a digest of batches: {self}")
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
            proved=self.proved + other.proved,
            proof=(self.proof + other.proof) & _PROOF_MASK,
            attributes=self.attributes | other.attributes,
            unclear=self.unclear + other.unclear,
            dropped=self.dropped + other.dropped,
            changed=self.changed + other.changed,
        )

    @property
    def sum_text(self) -> str:
        """The order-independent sum, and what was proved by bytes, for people."""
        return f"{self.total:016x}" + (f"-{self.proof:032x}" if self.proved else "")

    @property
    def text(self) -> str:
        """The sums, for people: 16 hexadecimal digits each, and 32 of what was proved by bytes."""
        return f"{self.total:016x}-{self.ordered:016x}" + (f"-{self.proof:032x}" if self.proved else "")


def is_same(source: Digest, target: Digest) -> bool:
    """Whether both sides hold the same records, each where the offset map has it, and as visible as the mirror wrote
    them."""
    return (
        not target.misplaced
        and not target.attributes
        and (source.rows, source.total, source.ordered, source.proved, source.proof)
        == (target.rows, target.total, target.ordered, target.proved, target.proof)
    )


def sum_of(digests: Iterable[Digest]) -> Digest:
    """The digest of all their records."""
    out = Digest()
    for digest in digests:
        out = out + digest
    return out


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentOutcome:
    """Both sides' digests of one segment, or of the part of it that was asked for: these source and target offsets.

    ``failure`` is why it could not be read, if not empty; the digests mean nothing then. ``level`` is "batch" or
    "record". ``traits`` are what was seen of the source's batches, as bits: each codec, old formats,
    transactions, LogAppendTime. A sample must hold each.
    """

    topic: str
    partition: int
    segment: int
    start: int
    end: int
    target_start: int
    target_end: int
    level: str
    source: Digest = Digest()
    target: Digest = Digest()
    failure: str = ""
    traits: int = 0

    @classmethod
    def of(
        cls,
        segment: int,
        range_: PartitionRange,
        level: str,
        *,
        source: Digest | None = None,
        target: Digest | None = None,
        failure: str = "",
        traits: int = 0,
    ) -> SegmentOutcome:
        """Of a segment by its number and its bounds; without digests nothing was found there."""
        return cls(
            topic=range_.topic,
            partition=range_.partition,
            segment=segment,
            start=range_.source_start,
            end=range_.source_end,
            target_start=range_.target_start,
            target_end=range_.target_end,
            level=level,
            source=source or Digest(),
            target=target or Digest(),
            failure=failure,
            traits=traits,
        )

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def place(self) -> tuple[str, int, int]:
        """By which outcomes are sorted: topic, partition, first source offset."""
        return self.topic, self.partition, self.start

    @property
    def is_same(self) -> bool:
        """Whether it was read, and both sides are the same."""
        return not self.failure and is_same(self.source, self.target)

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> SegmentOutcome:
        return cls(**{**value, "source": Digest(**value["source"]), "target": Digest(**value["target"])})


#: Is given segments as soon as they were read.
OnRead = Callable[[list[SegmentOutcome]], None]


def to_line(outcomes: Sequence[SegmentOutcome]) -> str:
    """``outcomes`` as a line of the Spark job's standard output, between lines for people."""
    return _MARK + json.dumps([outcome.as_dict() for outcome in outcomes], separators=(",", ":"))


def from_line(line: str) -> list[SegmentOutcome] | None:
    """The inverse of :func:`to_line`; None for a line for people."""
    if not line.startswith(_MARK):
        return None
    return [SegmentOutcome.from_dict(outcome) for outcome in json.loads(line.removeprefix(_MARK))]


@dataclass(frozen=True, slots=True, kw_only=True)
class DigestReport:
    """The answer to the request with this ``id``."""

    id: str
    outcomes: tuple[SegmentOutcome, ...]
    seconds: float

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return asdict(self)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DigestReport:
        outcomes = tuple(SegmentOutcome.from_dict(one) for one in value["outcomes"])
        return cls(id=value["id"], outcomes=outcomes, seconds=value["seconds"])
