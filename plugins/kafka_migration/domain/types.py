"""The nouns that every room shares. Offsets are always "next to read"; sizes are bytes; times are milliseconds."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic, on either cluster; the topic by its name on the source."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class Halt(enum.StrEnum):
    """Why the mirror of a partition stopped. Names are shown to people and are part of the state's format."""

    FOREIGN_WRITER = "FOREIGN_WRITER"
    DUPLICATED = "DUPLICATED"
    LOG_REGRESSED = "LOG_REGRESSED"
    ALTERED = "ALTERED"
    CONFIG_DRIFT = "CONFIG_DRIFT"
    CORRUPT = "CORRUPT"
    UNREADABLE = "UNREADABLE"
    DATA_LOSS = "DATA_LOSS"
    TRUNCATED = "TRUNCATED"
    RECREATED = "RECREATED"
    TOPIC_MISSING = "TOPIC_MISSING"
    NO_PARTITION = "NO_PARTITION"
    REFUSED = "REFUSED"
    HANDLER = "HANDLER"


class Desired(enum.StrEnum):
    """What a person wants of a link; every mirror reads it after every connect."""

    RUN = "run"
    DRAIN = "drain"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionEnds:
    """A partition's log at one moment. ``end`` is the next offset that a consumer would read: the high watermark, or
    for one that reads committed records only the last stable offset, before the first open transaction (KIP-98).

    ``undecided``: how many offsets from ``end`` on were held behind an open transaction.
    """

    start: int
    end: int
    undecided: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"log start offset {self.start} and end {self.end} do not describe a log")
        if self.undecided < 0:
            raise ValueError(f"{self.undecided} offsets behind an open transaction")

    @property
    def high_watermark(self) -> int:
        """Where the log ends, whatever becomes of open transactions."""
        return self.end + self.undecided


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes for a link: the producer id of its transactional id, and the epoch of its newest fence."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where the mirror of one partition stands.

    ``source`` is the next source offset to copy, ``target`` the target offset where its record will land,
    ``fence`` (its number) and ``records`` (written since that fence) identify the attempt.
    """

    source: int
    target: int
    fence: int
    records: int

    def __post_init__(self) -> None:
        if min(self.source, self.target, self.records) < 0:
            raise ValueError(f"a position cannot be negative: {self}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What one task copied of one partition, in one stretch: what the driver folds into progress and report.

    ``continues`` is the source offset that would go on with the last run of the offset map without a gap (before
    ``source_end`` where the source has nothing in between); ``source_epoch`` the source's leader epoch of what was
    copied last, -1 if unknown. ``join_bytes`` is up to what size the target takes joined batches, as far as was seen;
    -1 if nobody asked. ``most_bytes`` is the same of all batches, 0 if it has refused none. ``unclear`` is how many
    requests got no clear answer, ``passing`` how many one about the state of a broker or a topic. ``lands_seconds``:
    for so long after the task's end what was not answered may still be appended.
    """

    topic: str
    partition: int
    fence: int
    source_start: int
    source_end: int
    continues: int
    target_start: int
    target_end: int
    records: int
    bytes: int
    batches: int
    source_epoch: int = -1
    join_bytes: int = -1
    most_bytes: int = 0
    stand: str = "run"
    halt: str = ""
    detail: str = ""
    unclear: int = 0
    passing: int = 0
    lands_seconds: float = 0.0
    executor: str = ""

    def __post_init__(self) -> None:
        if self.source_end < self.source_start or self.target_end < self.target_start:
            raise ValueError(f"a receipt cannot run backwards: {self}")
        if self.continues > self.source_end:
            raise ValueError(f"a run cannot reach beyond the receipt that it is in: {self}")
        if self.target_end - self.target_start != self.records:
            raise ValueError(
                f"{self.records} records do not fill target offsets {self.target_start}..{self.target_end}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """A topic as declared: what ``create`` makes and compares. ``configs`` holds explicit configs only."""

    name: str
    partitions: int
    replication_factor: int
    configs: dict[str, str] = field(default_factory=dict)
