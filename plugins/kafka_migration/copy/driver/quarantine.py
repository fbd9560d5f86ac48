"""Partitions that hinder again and again where they stand, and what is tried with each before it is halted.

A request that never gets a clear answer costs a fence each time, and a partition that kills its task costs all that is
copied beside it a new start. Neither may go on for ever, and neither shows by itself whose fault it is:

- a batch without a clear answer is sent alone from the second time on, as the source stored it: what it was sent
  together with may have been too large for whatever stands between. It rests longer each time. If it still gets none
  after five times and for some minutes, its partition halts.
- of the partitions of a task that died, those that had not moved are suspects. They are copied by a task of their own,
  one half at a time, until one is left: if its task dies again, that partition halts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kafka_migration.domain.types import TopicPartition

_TIMES, _DEATHS_ALONE = 5, 2
_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS, _LONGEST_PASSING_SECONDS = 1.0, 30.0, 8.0
_NARROW_SECONDS = 10.0


@dataclass(slots=True)
class _Unclear:
    """How often a partition went without a clear answer at one source offset, and since when."""

    source: int
    since: float
    detail: str
    times: int = 0
    """All times, passing ones among them."""
    unclear: int = 0


@dataclass(slots=True)
class Quarantine:
    """One run's. ``patience_seconds``: for so long at the least a batch without a clear answer is tried.

    ``alone`` are partitions whose batches are sent one to a request, for the rest of the run. ``suspects`` may have
    killed a task; of these ``tried`` are copied now, and the others wait.
    """

    patience_seconds: float
    clock: Callable[[], float] = time.monotonic
    alone: set[TopicPartition] = field(default_factory=set)
    suspects: set[TopicPartition] = field(default_factory=set)
    tried: set[TopicPartition] = field(default_factory=set)
    _unclear: dict[TopicPartition, _Unclear] = field(default_factory=dict)
    _deaths_alone: int = 0

    # -- requests without a clear answer ------------------------------------------------------------------------------

    def unsettled(self, tp: TopicPartition, source: int, detail: str, *, is_passing: bool = False) -> float:
        """A request of ``tp``, which stands at ``source``, got no clear answer: for how many seconds it is to rest.

        ``is_passing``: an answer about a broker or a topic, not about a batch. However often it comes, it is not the
        batch's fault; but each time costs the others a new start, and the link one of its producer epochs.
        """
        found = self._unclear.get(tp)
        if found is None or found.source != source:
            found = self._unclear[tp] = _Unclear(source, self.clock(), detail)
        found.times, found.unclear, found.detail = found.times + 1, found.unclear + (not is_passing), detail
        if found.unclear > 1:
            self.alone.add(tp)
        longest = _LONGEST_PASSING_SECONDS if is_passing else _LONGEST_REST_SECONDS
        return float(min(longest, _FIRST_REST_SECONDS * 2 ** (found.times - 2))) if found.times > 1 else 0.0

    def hopeless(self, tp: TopicPartition, source: int) -> str:
        """Why ``tp``, which was fenced at ``source``, is not to be tried again; empty if it is."""
        found = self._unclear.get(tp)
        if found is None or found.source != source:
            return ""
        seconds = self.clock() - found.since
        if found.unclear < _TIMES or seconds < self.patience_seconds:
            return ""
        # Whoever lifts the halt has it tried anew.
        del self._unclear[tp]
        return (
            f"the batch at source offset {source} got no clear answer {found.unclear} times within {seconds:.0f} s, the"
            f" last {found.unclear - 2} times in a request of its own; the last time: {found.detail}"
        )

    # -- tasks that die -----------------------------------------------------------------------------------------------

    def died(self, unmoved: Collection[TopicPartition]) -> TopicPartition | None:
        """A task died; ``unmoved`` of its partitions had copied nothing. Returns the one that is proved to have killed
        it, if any is."""
        culprits = self.suspects & set(unmoved) or set(unmoved)
        self._deaths_alone = self._deaths_alone + 1 if len(culprits) == 1 and culprits == self.suspects else 0
        self.suspects = culprits
        if self._deaths_alone < _DEATHS_ALONE:
            self._split()
            return None
        (found,) = culprits
        self.clear(culprits)
        return found

    def survived(self, partitions: Collection[TopicPartition]) -> None:
        """The task of ``partitions`` ended in order."""
        if self.tried & set(partitions):
            self.clear(self.tried & set(partitions))

    def clear(self, partitions: Collection[TopicPartition]) -> None:
        """``partitions`` are no suspects any more."""
        self.suspects -= set(partitions)
        if not self.tried & self.suspects:
            self._split()
        if not self.suspects:
            self._deaths_alone = 0

    def resting(self) -> Mapping[TopicPartition, float]:
        """Suspects that are not tried yet, and for how many seconds they wait before the next look at them."""
        return dict.fromkeys(self.suspects - self.tried, _NARROW_SECONDS)

    def _split(self) -> None:
        ordered = sorted(self.suspects)
        self.tried = set(ordered[: (len(ordered) + 1) // 2])
