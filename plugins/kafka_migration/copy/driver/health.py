"""The health of a copy round: what its tasks cannot see or help, and the driver can. One watcher for each danger.

A watcher looks at the round beside its tasks, several times a second, and what it finds ends the round before its time.
What is done about it is decided between two rounds, when all positions are certain again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.driver.pace import Slots, Standstill
from kafka_migration.copy.driver.partitions import Partitions
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.copy.task.partition import Stand
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.types import Desired, Position, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.selector import Selector

Progress = Mapping[TopicPartition, tuple[Position, dict[str, Any]]]

_ENDS_EVERY_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundView:
    """A round at one look: what its tasks were ordered, and what they reported.

    ``positions`` are where it began. ``tasks`` are those that have begun (True: ended), as far as that was asked before
    ``progress`` was read. ``ends`` are the source offsets up to which there is something to copy; they are known at the
    rarer looks only, as is how many tasks have ``begun``.
    """

    orders: Sequence[TaskOrders]
    positions: Mapping[TopicPartition, Position]
    progress: Progress
    desired: Desired = Desired.RUN
    controls: Controls = field(default_factory=Controls)
    tasks: Mapping[int, bool] = field(default_factory=dict)
    ends: Mapping[TopicPartition, int] = field(default_factory=dict)
    begun: int = 0


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a round is to end now; ``text`` is shown to people, if there is any."""

    text: str = ""


class Watcher(Protocol):
    """Looks for one thing."""

    def look(self, view: RoundView) -> Finding | None:
        """What is found, if anything. Raises CouldNotFindOut and NotAuthorized where a cluster does not show it."""


class Commands:
    """The link is to stop or to be drained, or the run was interrupted."""

    def __init__(self, link: Link, interrupted: Callable[[], bool]) -> None:
        self._link, self._interrupted = link, interrupted

    def look(self, view: RoundView) -> Finding | None:
        """True once anything else is wanted than when the round began."""
        is_changed = self._interrupted() or self._link.wanted()[0] is not view.desired
        return Finding() if is_changed else None


class StuckPartitions:
    """A task cannot go on with a partition: the driver has to fence it, or to note its halt."""

    def look(self, view: RoundView) -> Finding | None:
        """By what was reported since the fence with which the round began."""
        ours = ((at.fence, *view.progress[tp]) for tp, at in view.positions.items() if tp in view.progress)
        is_stuck = any(report["x"] != Stand.RUN and at.fence == fence for fence, at, report in ours)
        return Finding() if is_stuck else None


class DeadTasks:
    """A task ended although it had something left to do."""

    def look(self, view: RoundView) -> Finding | None:
        """The first of them."""
        for share in sorted(at for at, is_over in view.tasks.items() if is_over):
            assignments = view.orders[share].assignments
            left = [a.partition for a in assignments if not _is_done(a.until, view.progress.get(a.partition))]
            if left:
                return Finding(f"a task ended before its time, with {len(left)} partitions, first {min(left)}")
        return None


def _is_done(until: int | None, progress: tuple[Position, Mapping[str, Any]] | None) -> bool:
    if progress is None:
        return False
    position, report = progress
    return report["x"] != Stand.RUN or (until is not None and position.source >= until)


class LostTopics:
    """A pinned topic is gone, or another one, or its configs on the target are wrong."""

    def __init__(self, pinned: PinnedTopics, partitions: Partitions) -> None:
        self._pinned, self._partitions = pinned, partitions

    def look(self, view: RoundView) -> Finding | None:
        """Of the topics that are copied, and of those that wait."""
        mine = view.positions.keys() | self._partitions.waiting.keys()
        return Finding() if self._pinned.lost(mine) else None


class Joining:
    """A partition was taken in beside the round, so that the next one has more to copy."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def look(self, _view: RoundView) -> Finding | None:
        """Fences them as well."""
        return Finding() if self._partitions.join_beside() else None


class ForeignWriters:
    """Records on the target that the link did not write, in partitions where the mirror itself writes nothing.

    Where it writes, the next answer shows them (docs/mirror.md, rule 3). Where nothing moves nobody would notice until
    the next fence. What is seen here is a suspicion only, since an answer may be late: a fence of the partitions that
    are ``suspected`` at the newest look then reads what stands there, and judges.
    """

    def __init__(self, target: WireCluster, net: Selector, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._net, self._clock = target, net, clock
        self._looked_at = float("-inf")
        self._beyond: dict[TopicPartition, Position] = {}
        self.suspected: set[TopicPartition] = set()

    def look(self, view: RoundView) -> Finding | None:
        """A target log ends beyond what the link wrote although nothing moves there."""
        self.suspected = self.beyond(
            {
                tp: view.progress[tp][0] if tp in view.progress and view.progress[tp][0].fence == at.fence else at
                for tp, at in view.positions.items()
            }
        )
        if not self.suspected:
            return None
        first, count = min(self.suspected), len(self.suspected)
        return Finding(f"target: {count} logs end beyond what was written, first {first}: a fence will show it")

    def beyond(self, positions: Mapping[TopicPartition, Position]) -> set[TopicPartition]:
        """Partitions whose log ended beyond the one of ``positions``, at two looks between which it stood still; asked
        for every few seconds.

        Raises CouldNotFindOut if the target does not answer.
        """
        if self._clock() - self._looked_at < _ENDS_EVERY_SECONDS:
            return set()
        self._looked_at = self._clock()
        led = [tp for tp in positions if tp in self._target.leaders]
        ends: dict[TopicPartition, int] = self._net.run(lambda: self._target.offsets_in_reach(led, LATEST, seconds=0))
        beyond = {tp: positions[tp] for tp, end in ends.items() if end > positions[tp].target}
        found = {tp for tp, position in beyond.items() if self._beyond.get(tp) == position}
        self._beyond = beyond
        return found


class StandingPartitions:
    """A partition that has something to copy does not move, and nothing holds it back. ``throttle`` is in force where
    none was commanded (bytes/s)."""

    def __init__(
        self, standstill: Standstill, pinned: PinnedTopics, attempts: Attempts, slots: Slots, throttle: int | None
    ) -> None:
        self._standstill, self._pinned, self._attempts = standstill, pinned, attempts
        self._slots, self._throttle = slots, throttle

    def look(self, view: RoundView) -> Finding | None:
        """Needs ``ends``. Where tasks have no slot, the next round gets as many shares as tasks have begun."""
        if view.controls.pause is not None:
            self._standstill.forget()
            return None
        lagging = self._lagging(view)
        standing = self._standstill.look(lagging, bytes_per_second=view.controls.rate(self._throttle))
        if not standing:
            return None
        first, shares = min(standing), len(view.orders)
        what = (
            f"{len(standing)} partitions do not move, first {first} at source offset {lagging[first]} of"
            f" {view.ends[first]}"
        )
        if not 0 < view.begun < shares:
            return Finding(f"{what}: partitions are shared out anew")
        self._slots.only(view.begun)
        return Finding(
            f"{what}: only {view.begun} of {shares} tasks run, as Spark has fewer slots than mirror.num_streams;"
            f" shared out to {view.begun} from now on"
        )

    def _lagging(self, view: RoundView) -> dict[TopicPartition, int]:
        """Source positions of partitions that have something to copy, and could."""
        now_ms, lagging = time.time() * 1000, {}
        for tp, before in view.positions.items():
            position, report = view.progress.get(tp, (before, {}))
            source = max(before.source, position.source)
            is_throttled = report.get("q", 0) > now_ms
            if view.ends.get(tp, 0) > source and not is_throttled and self._can_move(tp):
                lagging[tp] = source
        return lagging

    def _can_move(self, tp: TopicPartition) -> bool:
        return self._pinned.leads(tp) and not self._attempts.hold_seconds(tp)
