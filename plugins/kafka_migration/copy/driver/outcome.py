"""How a run of the mirror ends, well or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_migration.copy.driver.book import LinkBook
from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, MigrationError
from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEnd:
    """How a run of the mirror ended: ``reason`` is caught_up, drained or stopped."""

    reason: str
    epochs: int
    fences: int
    records: int
    bytes: int
    batches: int
    executors: tuple[str, ...]
    halted: tuple[TopicPartition, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            **{name: getattr(self, name) for name in ("reason", "epochs", "fences", "records", "bytes", "batches")},
            "executors": list(self.executors),
            "halted": [str(tp) for tp in self.halted],
        }


def nothing_left(link: LinkBook) -> HaltedPartition:
    """Every partition of the link is halted."""
    halted = sorted(link.halted())
    first = halted[0] if halted else TopicPartition("", 0)
    return HaltedPartition(
        topic=first.topic,
        partition=first.partition,
        reason="HALTED",
        detail=f"all {len(halted)} partitions of link {link.name} are halted, nothing is left to copy",
        remedy="`status` shows why each is halted and what can be done",
    )


class EpochsLost(CouldNotFindOut):
    """Epochs die, and nothing is copied any more."""


def epochs_lost(times: int, error: BaseException) -> EpochsLost:
    """So many of them, the last one of ``error``."""
    return EpochsLost(
        f"{times} epochs in a row died without copying anything; the last one of {in_short(error)}",
        remedy="look at the Spark executors' logs; what was copied before is safe, and the mirror can be started again",
    )


def in_short(error: BaseException) -> str:
    """One line of an error: ours says so itself; what Python says stands last, even inside a JVM's account of it."""
    if isinstance(error, MigrationError):
        return error.message
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip() and not line.startswith("\t")]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
