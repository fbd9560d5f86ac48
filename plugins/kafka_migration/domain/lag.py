"""Replication lag: how far the mirror's position is behind the source's end, in source offsets.

Never source end minus target end: the two logs differ by fences, gaps and where they begin. A partition without a
position counts in full, from its log start: a missing partition is lag, not silence. The source's end is where a
consumer of committed records would stop: what an open transaction holds back is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_migration.domain.types import PartitionEnds, TopicPartition

_FOLLOWS_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LagSample:
    """Replication lag at one moment. ``at`` is seconds on a monotonic clock; lag is in source offsets.

    ``undecided``: partitions with an open transaction, and how many offsets lie behind it. They are no lag: nobody may
    read them before their producer commits or aborts.
    """

    at: float
    lag: Mapping[TopicPartition, int]
    source_ends: Mapping[TopicPartition, int]
    undecided: Mapping[TopicPartition, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.lag.values())

    @property
    def worst(self) -> tuple[TopicPartition, int] | None:
        return max(self.lag.items(), key=lambda item: (item[1], item[0]), default=None)


def sample(
    at: float, ends: Mapping[TopicPartition, PartitionEnds], positions: Mapping[TopicPartition, int]
) -> LagSample:
    """Lag per partition: ``end - position``, at least 0; without a position ``end - start``, the whole log.

    A position below the log's start counts as it stands: what retention removed before it was copied is lag for ever,
    and must not shrink to nothing together with the log.
    """
    lag = {tp: max(0, log.end - positions.get(tp, log.start)) for tp, log in ends.items()}
    undecided = {tp: log.undecided for tp, log in ends.items() if log.undecided}
    return LagSample(at=at, lag=lag, source_ends={tp: log.end for tp, log in ends.items()}, undecided=undecided)


@dataclass(frozen=True, slots=True, kw_only=True)
class LagTrend:
    """How lag moves. Rates are source offsets a second; ``eta_seconds`` is None for "never" (diverging lag)."""

    copied_per_second: float
    produced_per_second: float
    eta_seconds: float | None


def trend(samples: Sequence[LagSample]) -> LagTrend:
    """Rates between the first and the last of ``samples`` (their window is the caller's choice)."""
    if not samples:
        raise ValueError("a trend needs at least one sample")
    first, last = samples[0], samples[-1]
    seconds = last.at - first.at
    if seconds <= 0:
        return LagTrend(copied_per_second=0.0, produced_per_second=0.0, eta_seconds=0.0 if last.total == 0 else None)
    produced = (sum(last.source_ends.values()) - sum(first.source_ends.get(tp, 0) for tp in last.source_ends)) / seconds
    closing = (first.total - last.total) / seconds
    copied = max(0.0, produced + closing)
    eta: float | None
    if last.total == 0:
        eta = 0.0
    elif closing > 0:
        eta = last.total / closing
    else:
        # What follows a live producer by less than a second has caught up as far as one can, and closes nothing.
        eta = last.total / copied if last.total <= copied * _FOLLOWS_SECONDS else None
    if eta is not None and not math.isfinite(eta):
        eta = None
    return LagTrend(copied_per_second=copied, produced_per_second=produced, eta_seconds=eta)


class LagGate:
    """Passes after ``samples`` consecutive lag samples at or under ``threshold`` (source offsets in total)."""

    __slots__ = ("threshold", "needed", "streak")

    def __init__(self, *, threshold: int, samples: int) -> None:
        if threshold < 0 or samples < 1:
            raise ValueError(
                f"a lag gate needs a threshold of 0 or more and a sample or more, not {threshold}/{samples}"
            )
        self.threshold, self.needed, self.streak = threshold, samples, 0

    def observe(self, lag: LagSample) -> bool:
        """Take one sample; True once enough in a row were at or under the threshold."""
        self.streak = self.streak + 1 if lag.total <= self.threshold else 0
        return self.streak >= self.needed
