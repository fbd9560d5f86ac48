"""What a run of the mirror reports: that it goes on, and how it ended, well or not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kafka_migration.copy.driver.fencing import now
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.driver.partitions import Partitions
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.readiness import Readiness
from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, MigrationError
from kafka_migration.domain.types import TopicPartition

_SHOWN = 3


class Heartbeat:
    """Records that the run goes on, and what waits, for whoever looks at the link's state."""

    def __init__(self, link: Link, partitions: Partitions, readiness: Readiness, pinned: PinnedTopics) -> None:
        self._link, self._partitions, self._readiness, self._pinned = link, partitions, readiness, pinned
        self._waiting = ""

    def beat(self, round_id: int, *, if_changed: bool = False) -> None:
        """``if_changed``: only if something else waits than at the beat before."""
        aside = {tp.topic for tp in self._readiness.waiting}
        hidden = [why for topic, why in sorted(self._pinned.hidden().items()) if topic not in aside]
        waiting = "; ".join(filter(None, (self._readiness.describe(), *hidden[:_SHOWN])))
        if waiting != self._waiting or not if_changed:
            count = len(self._partitions.active)
            self._link.record_run(
                {"state": "running", "at": now(), "epoch": round_id, "partitions": count, "waiting": waiting}
            )
            self._waiting = waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorEnd:
    """How a run of the mirror ended: ``reason`` is caught_up, drained or stopped."""

    reason: str
    rounds: int
    fences: int
    records: int
    bytes: int
    batches: int
    executors: tuple[str, ...]
    halted: tuple[TopicPartition, ...]

    def as_dict(self) -> dict[str, Any]:
        return {
            "reason": self.reason,
            "epochs": self.rounds,  # the name under which it is stored and printed
            "fences": self.fences,
            "records": self.records,
            "bytes": self.bytes,
            "batches": self.batches,
            "executors": list(self.executors),
            "halted": [str(tp) for tp in self.halted],
        }


def nothing_left(link: Link) -> HaltedPartition:
    """Every partition of the link is halted."""
    halted = sorted(link.halted())
    first = halted[0] if halted else TopicPartition("", 0)
    return HaltedPartition(
        topic=first.topic,
        partition=first.partition,
        reason="HALTED",
        detail=f"all {len(halted)} partitions of link {link.name} are halted, nothing is left to copy",
        remedy="run `status`: it shows why each partition is halted and what can be done",
    )


class EpochsLost(CouldNotFindOut):
    """Copy rounds die, and nothing is copied any more. ``--json`` shows this name as the kind of the error."""


def rounds_lost(times: int, error: BaseException) -> EpochsLost:
    """So many of them, the last one of ``error``."""
    return EpochsLost(
        f"the tasks of {times} copy rounds in a row died and copied nothing; the last error: {in_short(error)}",
        remedy="look at the Spark executors' logs; what was copied before is safe, and the mirror can be started again",
    )


def in_short(error: BaseException) -> str:
    """One line of an error: the message of one of ours; of any other the last line, which is Python's own even inside
    a JVM's stack trace."""
    if isinstance(error, MigrationError):
        return error.message
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip() and not line.startswith("\t")]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]
