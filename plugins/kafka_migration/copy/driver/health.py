"""The health of a copy round: what its tasks cannot see or help, and the driver can. One watcher for each danger.

A watcher looks at the round beside its tasks, several times a second. What it finds has the tasks recalled before their
time, which ends the round in order: every task settles what it sent, and the driver goes on from certain positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.driver.outages import PASSING
from kafka_migration.copy.driver.outcome import Heartbeat
from kafka_migration.copy.driver.pace import LARGE_BYTES, Pace, Slots, Standstill
from kafka_migration.copy.driver.partitions import Partitions
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.runner import CopyRound
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.task.partition import Stand
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.types import Desired, Position, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.selector import Selector

Progress = Mapping[TopicPartition, tuple[Position, dict[str, Any]]]

_POLL_SECONDS, _DONE_SECONDS, _SHOWN_SECONDS, _TASKS_SECONDS = 0.25, 0.01, 5.0, 1.0
_ENDS_EVERY_SECONDS = 5.0


class Round:
    """A copy round under way, and what was seen of it at the newest look. ``number`` is the round's for people.

    ``positions`` are where it began, ``until`` where each partition's copy ends, if it does; ``tasks`` those that have
    begun (True: ended), where that was asked just before ``progress`` was read. ``ends`` are the source offsets up to
    which there is something to copy; they are known at the rarer looks only, every ``seconds``, as is how many tasks
    have ``begun``.
    """

    def __init__(
        self, under_way: CopyRound, orders: Sequence[TaskOrders], desired: Desired, number: int, seconds: float
    ) -> None:
        self.under_way, self.orders, self.desired, self.number = under_way, orders, desired, number
        self.positions = {a.partition: a.position for share in orders for a in share.assignments}
        self.until = {a.partition: a.until for share in orders for a in share.assignments}
        self.controls = Controls()
        self.tasks: Mapping[int, bool] = {}
        self.progress: Progress = {}
        self.ends: Mapping[TopicPartition, int] = {}
        self.begun = 0
        self.pace, self.is_long_enough = Pace(self.positions, seconds), False
        self.shown, self.shown_at = 0, time.monotonic()
        self.rare_look_at, self.tasks_at = self.shown_at + seconds, self.shown_at + _TASKS_SECONDS
        self.ends_at = self.shown_at + orders[0].seconds

    def see(self, link: Link) -> None:
        self.tasks = {}
        if self.tasks_at < time.monotonic() < self.ends_at:
            # Before the progress is read: whoever ended in order has reported the last of it by then.
            self.tasks, self.tasks_at = self.under_way.tasks(), time.monotonic() + _TASKS_SECONDS
        self.progress = link.progress()
        self.pace.see(self.reported)

    @property
    def reported(self) -> dict[TopicPartition, Position]:
        """The newest position of each partition that any task has ever reported."""
        return {tp: position for tp, (position, _) in self.progress.items()}

    @property
    def backlog(self) -> dict[TopicPartition, int]:
        """Source offsets that are still to copy, as far as ``ends`` are known."""
        at = self.reported
        return {
            tp: max(0, self.ends.get(tp, 0) - max(before.source, at.get(tp, before).source))
            for tp, before in self.positions.items()
        }

    def copied(self) -> int:
        """Source offsets that were copied so far."""
        both = ((self.progress[tp][0], before) for tp, before in self.positions.items() if tp in self.progress)
        return sum(max(0, position.source - before.source) for position, before in both)


@dataclass(frozen=True, slots=True)
class Finding:
    """Why a round is to end now; ``text`` is shown to people, if there is any."""

    text: str = ""


class Watcher(Protocol):
    """Looks for one thing."""

    def look(self, copy_round: Round) -> Finding | None:
        """What is found, if anything. Raises CouldNotFindOut and NotAuthorized where a cluster does not show it."""


class Commands:
    """Something else is wanted of the link than when the round began, or the run was interrupted.

    A drain up to given ends does not end a round: its tasks copy up to them, and end by themselves.
    """

    def __init__(self, link: Link, interrupted: Callable[[], bool]) -> None:
        self._link, self._interrupted = link, interrupted

    def look(self, copy_round: Round) -> Finding | None:
        desired, ends = self._link.wanted()
        if desired is Desired.DRAIN and ends:
            copy_round.desired, copy_round.until = desired, {tp: ends.get(tp, 0) for tp in copy_round.positions}
        return Finding() if self._interrupted() or desired is not copy_round.desired else None


class StuckPartitions:
    """A task, by what it reported since the fence, cannot go on with a partition: the driver must fence or halt it."""

    def look(self, copy_round: Round) -> Finding | None:
        ours = (
            (at.fence, *copy_round.progress[tp]) for tp, at in copy_round.positions.items() if tp in copy_round.progress
        )
        is_stuck = any(report["x"] != Stand.RUN and at.fence == fence for fence, at, report in ours)
        return Finding() if is_stuck else None


class DeadTasks:
    """A task ended although it had something left to do."""

    def look(self, copy_round: Round) -> Finding | None:
        for share in sorted(at for at, is_over in copy_round.tasks.items() if is_over):
            assigned = [a.partition for a in copy_round.orders[share].assignments]
            left = [tp for tp in assigned if not _is_done(copy_round.until[tp], copy_round.progress.get(tp))]
            if left:
                return Finding(f"a task ended before its time, with {len(left)} partitions, first {min(left)}")
        return None


def _is_done(until: int | None, progress: tuple[Position, Mapping[str, Any]] | None) -> bool:
    if progress is None:
        return False
    position, report = progress
    return report["x"] != Stand.RUN or (until is not None and position.source >= until)


class LostTopics:
    """A pinned topic that is copied, or waits, is gone, or another one, or its configs on the target are wrong."""

    def __init__(self, pinned: PinnedTopics, partitions: Partitions) -> None:
        self._pinned, self._partitions = pinned, partitions

    def look(self, copy_round: Round) -> Finding | None:
        mine = copy_round.positions.keys() | self._partitions.waiting.keys()
        return Finding() if self._pinned.lost(mine) else None


class Joining:
    """A partition was taken in beside the round, so that the next one has more to copy."""

    def __init__(self, partitions: Partitions) -> None:
        self._partitions = partitions

    def look(self, copy_round: Round) -> Finding | None:
        if copy_round.desired is Desired.DRAIN:
            # It has no end for what appears now, which would be sealed without a record of it.
            self._partitions.takes_newcomers = False
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

    def look(self, copy_round: Round) -> Finding | None:
        self.suspected = self.beyond(
            {
                tp: copy_round.progress[tp][0]
                if tp in copy_round.progress and copy_round.progress[tp][0].fence == at.fence
                else at
                for tp, at in copy_round.positions.items()
            }
        )
        if not self.suspected:
            return None
        first, count = min(self.suspected), len(self.suspected)
        return Finding(
            f"target: {count} partitions hold more than the mirror wrote, first {first}:"
            " a fence will show what was written"
        )

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
    """A partition that has something to copy does not move, and nothing holds it back. Where tasks have no slot, the
    next round gets as many shares as tasks have begun. ``throttle`` is in force where none was commanded (bytes/s)."""

    def __init__(
        self, standstill: Standstill, pinned: PinnedTopics, attempts: Attempts, slots: Slots, throttle: int | None
    ) -> None:
        self._standstill, self._pinned, self._attempts = standstill, pinned, attempts
        self._slots, self._throttle = slots, throttle

    def look(self, copy_round: Round) -> Finding | None:
        if copy_round.controls.pause is not None:
            self._standstill.forget()
            return None
        lagging = self._lagging(copy_round)
        standing = self._standstill.look(lagging, at_least=self._slowest(copy_round, lagging))
        if not standing:
            return None
        first, shares = min(standing), len(copy_round.orders)
        what = (
            f"{len(standing)} partitions do not move, first {first} at source offset {lagging[first]} of"
            f" {copy_round.ends[first]}"
        )
        if not 0 < copy_round.begun < shares:
            return Finding(f"{what}: partitions are assigned to tasks again")
        self._slots.only(copy_round.begun)
        return Finding(
            f"{what}: only {copy_round.begun} of {shares} tasks run, as Spark has fewer slots than the plan has"
            f" streams; shared out to {copy_round.begun} from now on"
        )

    def _slowest(self, copy_round: Round, lagging: Collection[TopicPartition]) -> float:
        """For how many seconds a partition may stand with the throttle in force: as long as a large batch of each that
        its task has to copy takes."""
        rate = copy_round.controls.rate(self._throttle)
        if not rate:
            return 0.0
        batches = (
            sum(1 for each in share.assignments if each.partition in lagging) / share.part
            for share in copy_round.orders
        )
        return max(batches, default=0.0) * LARGE_BYTES / rate

    def _lagging(self, copy_round: Round) -> dict[TopicPartition, int]:
        """Source positions of partitions that have something to copy, and could."""
        now_ms, lagging = time.time() * 1000, {}
        for tp, before in copy_round.positions.items():
            position, report = copy_round.progress.get(tp, (before, {}))
            source = max(before.source, position.source)
            is_throttled = report.get("q", 0) > now_ms
            if copy_round.ends.get(tp, 0) > source and not is_throttled and self._can_move(tp):
                lagging[tp] = source
        return lagging

    def _can_move(self, tp: TopicPartition) -> bool:
        return self._pinned.leads(tp) and not self._attempts.hold_seconds(tp)


class _Hanging:
    """Tasks that were recalled, and have not ended: for how long, as far as they have begun. One that waits for its
    slot hangs nowhere; it sees the recall once it begins."""

    def __init__(self, under_way: CopyRound, limits: Limits) -> None:
        self.under_way = under_way
        #: By then whatever they do in order is over.
        self.patience = limits.overdue_seconds + limits.flush_seconds + limits.settle_seconds
        self.were_hurried = False
        self._since: float | None = None

    def are_due(self) -> bool:
        """Whether patience is over."""
        if all(self.under_way.tasks().values()):
            self._since = None
            return False
        self._since = self._since or time.monotonic()
        return time.monotonic() > self._since + self.patience

    def hurry(self) -> None:
        """They were recalled urgently: wait once more as long."""
        self.were_hurried, self._since = True, None


@dataclass(slots=True, kw_only=True, eq=False)
class RoundWatch:
    """Watches one round after the other: with ``watchers`` at each look, of which the first that finds something
    counts, and with ``standing`` every ``seconds``, when a round may end as well whose backlog a new one
    ``evens_out``."""

    link: Link
    pinned: PinnedTopics
    attempts: Attempts
    net: Selector
    heartbeat: Heartbeat
    watchers: Sequence[Watcher]
    standing: Watcher
    evens_out: Callable[[Sequence[TaskOrders], Mapping[TopicPartition, int]], bool]
    seconds: float
    log: Callable[[str], None]

    def watch(self, under_way: CopyRound, orders: Sequence[TaskOrders], desired: Desired, number: int) -> None:
        """Until the round is over. Raises what ends the run, once the tasks have ended; a claim they see themselves."""
        copy_round = Round(under_way, orders, desired, number, self.seconds)
        is_recalled, wrong = False, list[MigrationError]()
        hangs = _Hanging(under_way, orders[0].limits)
        while not under_way.is_done():
            self._rest_beside(under_way, _POLL_SECONDS)
            if is_recalled:
                self._give_up(hangs, orders[0].round_id)
                continue
            try:
                is_recalled = self._recalls(copy_round)
            except PASSING as error:
                # The tasks notice an outage themselves, and end with their round at the latest; a permission on the
                # link's state that is gone for a moment is one, too.
                self.log(f"waiting: {error.message}")
            except MigrationError as error:
                # Not raised before the tasks have ended: what they wrote meanwhile must be over when this run is.
                self.log(f"ending: {error.message}")
                wrong, is_recalled = [error], True
                with suppress(CouldNotFindOut):
                    self.link.recall(orders[0].round_id)
            else:
                if time.monotonic() - copy_round.shown_at > _SHOWN_SECONDS:
                    copied, copy_round.shown_at = copy_round.copied(), time.monotonic()
                    if copied != copy_round.shown:
                        self.log(f"round {number}: {copied:,} source offsets copied")
                    copy_round.shown = copied
        if wrong:
            raise wrong[0]

    def _give_up(self, hangs: _Hanging, round_id: int) -> None:
        """Wait no longer for tasks that do not end, since all partitions wait for them: should one wake, its lease is
        over. Before that they are recalled once more: a quota is borne by tasks that are in no hurry."""
        if not hangs.are_due():
            return
        if not hangs.were_hurried:
            hangs.hurry()
            with suppress(*PASSING):
                self.link.recall(round_id, is_urgent=True)
            return
        why = CouldNotFindOut(f"it did not end within {2 * hangs.patience:g} s of being recalled")
        self.log(f"tasks hang, and are given up: {why.message}")
        hangs.under_way.abandon(why)

    def _recalls(self, copy_round: Round) -> bool:
        """Look once; True if the round's tasks were recalled."""
        before, copy_round.controls = copy_round.controls.describe(), self.link.controls()
        held = copy_round.controls.describe()
        if held != before:
            self.log(held or "nothing holds the mirror back any more")
        copy_round.see(self.link)
        finding = self._first(self.watchers, copy_round)
        round_id = copy_round.orders[0].round_id
        self.heartbeat.beat(round_id, if_changed=True)
        if time.monotonic() > copy_round.rare_look_at:
            copy_round.rare_look_at = time.monotonic() + self.seconds
            self.attempts.check_state()
            self.heartbeat.beat(round_id)
            copy_round.ends, copy_round.begun = self._ends(copy_round), len(copy_round.under_way.tasks())
            finding = self._first([self.standing], copy_round) or finding
            copy_round.is_long_enough = copy_round.pace.is_to_end(
                copy_round.ends, copy_round.reported
            ) and self.evens_out(copy_round.orders, copy_round.backlog)
        if finding is None and not copy_round.is_long_enough:
            return False
        self.link.recall(round_id, is_urgent=finding is not None)
        return True

    def _first(self, watchers: Sequence[Watcher], copy_round: Round) -> Finding | None:
        finding = next(filter(None, (watcher.look(copy_round) for watcher in watchers)), None)
        if finding is not None and finding.text:
            self.log(finding.text)
        return finding

    def _ends(self, copy_round: Round) -> dict[TopicPartition, int]:
        """How far the tasks are to copy, as far as anybody knows."""
        found = self.pinned.ends(copy_round.positions)
        return {tp: end if (last := copy_round.until[tp]) is None else min(end, last) for tp, end in found.items()}

    def _rest_beside(self, under_way: CopyRound, seconds: float) -> None:
        """Rest, but no longer than the round: until the next one begins nothing is copied."""
        for _ in range(round(seconds / _DONE_SECONDS)):
            if not under_way.is_done():
                self.net.run(self.net.sleep, _DONE_SECONDS)
