"""Replication lag: how far the mirror's position is behind the source's end, in source offsets.

Never source end minus target end: the two logs differ by fences, gaps and where they begin. A partition without a
position counts in full, from its log start: a missing partition is lag, not silence. The source's end is where a
consumer of committed records would stop: what an open transaction holds back is reported beside it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kafka_migration.domain.amounts import duration
from kafka_migration.domain.types import PartitionEnds, TopicPartition

_KEEPS_UP_SECONDS = 5.0


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
    """How lag moves, over ``window_seconds``: 0 for a single sample, which shows no rate.

    Rates are source offsets a second; ``eta_seconds`` is None for "never" (diverging lag). ``keeps_up``: what is copied
    was written a few seconds ago.
    """

    copied_per_second: float
    produced_per_second: float
    eta_seconds: float | None
    keeps_up: bool = False
    window_seconds: float = 0.0

    def __str__(self) -> str:
        """When the rest is copied, for a person."""
        if self.eta_seconds is None:
            return "ETA never, at these rates" if self.window_seconds else "ETA not known yet"
        if self.keeps_up:
            return f"keeps up, {self.eta_seconds:.1f} s behind"
        return f"ETA {duration(self.eta_seconds)}" if self.eta_seconds else "caught up"


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
    # What follows a live producer this closely has caught up as far as one can: its lag goes up and down, and so would
    # a time by which it is gone.
    slower = min(copied, produced)
    keeps_up = 0 < last.total <= _KEEPS_UP_SECONDS * slower
    eta: float | None = None
    if last.total == 0:
        eta = 0.0
    elif keeps_up:
        eta = last.total / slower
    elif closing > 0:
        eta = last.total / closing
    if eta is not None and not math.isfinite(eta):
        eta = None
    return LagTrend(
        copied_per_second=copied,
        produced_per_second=produced,
        eta_seconds=eta,
        keeps_up=keeps_up,
        window_seconds=seconds,
    )


def followed(points: Sequence[Sequence[float]], point: Sequence[float], most: int) -> list[list[float]]:
    """``points`` (time, value) and then ``point``: at most so many, over the whole time, and the newest always."""
    kept = [list(one) for one in points]
    if len(kept) > 2 and kept[-1][0] - kept[-2][0] < (kept[-1][0] - kept[0][0]) / most:
        # It was kept as the newest.
        kept.pop()
    kept.append(list(point))
    return kept if len(kept) <= most else [*kept[:-1:2], kept[-1]]


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
