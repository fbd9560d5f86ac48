"""What a drill-down finds: the first records that differ, each with its class, its place on both sides, and bytes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kafka_migration.domain.types import TopicPartition


class Fault(enum.StrEnum):
    """What is wrong with one record. A truncated tail is loss.

    A record that changed places is REORDER if it did so among its fellows, MISROUTE if it stands in another partition,
    and MISPLACED if nothing is wrong with it or its neighbours, but the offset map has it elsewhere: a group
    would be moved to an offset beside it. VISIBILITY is of a record that may be equal, in a batch of the target whose
    attributes the mirror never writes: consumers of committed records may not see it, or it may be deleted early.
    """

    LOSS = "loss"
    DUPLICATE = "duplicate"
    REORDER = "reorder"
    MUTATION = "mutation"
    MISROUTE = "misroute"
    FOREIGN = "foreign"
    MISPLACED = "misplaced"
    VISIBILITY = "visibility"


class Part(enum.StrEnum):
    """What of a record was altered."""

    KEY = "key"
    VALUE = "value"
    HEADER_NAME = "header name"
    HEADER_VALUE = "header value"
    HEADER_ORDER = "header order"
    HEADERS = "headers"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True, kw_only=True)
class Altered:
    """One part of a record that differs. ``source`` and ``target`` are its bytes from the first that does (``at``) on,
    in hexadecimal; "null" for null, and None if payloads are private. ``which`` counts headers, from 0."""

    part: Part
    which: int | None = None
    at: int = 0
    source: str | None = None
    target: str | None = None
    source_bytes: int | None = None
    target_bytes: int | None = None

    @property
    def is_null_against_empty(self) -> bool:
        """Whether one side has no bytes, and the other none at all: null, which is not empty. Sizes of null are
        None."""
        return {self.source_bytes, self.target_bytes} == {None, 0} and self.part is not Part.TIMESTAMP

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {**asdict(self), "part": str(self.part), "null_against_empty": self.is_null_against_empty}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Altered:
        given = {name: item for name, item in value.items() if name != "null_against_empty"}
        return cls(**{**given, "part": Part(given["part"])})

    @property
    def text(self) -> str:
        name = str(self.part) if self.which is None else f"{self.part} {self.which}"
        if self.is_null_against_empty:
            return f"{name}: null against empty"
        if self.source is None or self.target is None:
            return f"{name} from byte {self.at}"
        if self.part is Part.TIMESTAMP:
            return f"{name}: {self.source} against {self.target}"
        return f"{name} from byte {self.at}: {self.source or 'nothing'} against {self.target or 'nothing'}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One wrong record. Offsets and timestamps (ms) are None on the side where there is none.

    ``target_offset`` is where it stands, in ``found_in`` if that is another partition; ``expected_target`` where the
    offset map has it. ``key`` is in hexadecimal, its first bytes; None if it is null or private.
    ``content`` is the same of what stands there: the value.
    """

    fault: Fault
    topic: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    expected_target: int | None = None
    found_in: int | None = None
    source_timestamp: int | None = None
    target_timestamp: int | None = None
    key: str | None = None
    content: str | None = None
    altered: tuple[Altered, ...] = ()
    detail: str = ""

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "class": str(self.fault),
            "topic": self.topic,
            "partition": self.partition,
            "source_offset": self.source_offset,
            "target_offset": self.target_offset,
            "expected_target_offset": self.expected_target,
            "found_in_partition": self.found_in,
            "source_timestamp": self.source_timestamp,
            "target_timestamp": self.target_timestamp,
            "key": self.key,
            "content": self.content,
            "altered": [part.as_dict() for part in self.altered],
            "detail": self.detail,
            "text": self.text,
        }

    @property
    def text(self) -> str:
        places = []
        if self.source_offset is not None:
            places.append(f"source offset {self.source_offset}")
        if self.target_offset is not None:
            there = f"partition {self.found_in} " if self.found_in is not None else ""
            places.append(f"target {there}offset {self.target_offset}")
        if self.expected_target is not None and self.expected_target != self.target_offset:
            places.append(f"expected at {self.expected_target}")
        more = "; ".join(filter(None, (*(part.text for part in self.altered), self.detail)))
        return ": ".join(filter(None, (str(self.fault), ", ".join(places), more)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Drilled:
    """What was found in the unequal segments of one partition: how many records of each class, and the first of them.

    ``notes`` name what was not looked through, and why, or what compaction explains. A reader that failed leaves a
    note, never an exception: the verdict stands without it.
    """

    topic: str
    partition: int
    counts: Mapping[Fault, int] = field(default_factory=dict)
    examples: tuple[Example, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def first(self) -> Example | None:
        return self.examples[0] if self.examples else None

    @property
    def text(self) -> str:
        counts = ", ".join(f"{count} {fault}" for fault, count in self.counts.items())
        return "; ".join(filter(None, (counts, *self.notes)))

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            "counts": {str(fault): count for fault, count in self.counts.items()},
            "examples": [example.as_dict() for example in self.examples],
            "notes": list(self.notes),
        }


def masked(drilled: Mapping[str, Any]) -> dict[str, Any]:
    """What :meth:`Drilled.as_dict` gave, as it would be if payloads had been private: without bytes of them."""
    return {**drilled, "examples": [_masked(example) for example in drilled["examples"]]}


def _masked(example: Mapping[str, Any]) -> dict[str, Any]:
    parts = [Altered.from_dict(part) for part in example["altered"]]
    return Example(
        fault=Fault(example["class"]),
        topic=example["topic"],
        partition=example["partition"],
        source_offset=example["source_offset"],
        target_offset=example["target_offset"],
        expected_target=example["expected_target_offset"],
        found_in=example["found_in_partition"],
        source_timestamp=example["source_timestamp"],
        target_timestamp=example["target_timestamp"],
        # A time is no payload.
        altered=tuple(
            part if part.part is Part.TIMESTAMP else replace(part, source=None, target=None) for part in parts
        ),
        detail=example["detail"],
    ).as_dict()
