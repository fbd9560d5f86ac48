"""The driver beside an epoch: when its tasks are recalled before their time.

A recall ends the epoch in order: every task settles what it sent, and the driver goes on from certain positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.book import LinkBook
from kafka_migration.copy.driver.lookout import Lookout
from kafka_migration.copy.driver.pace import Pace, Slots, Standstill
from kafka_migration.copy.driver.runner import EpochUnderWay
from kafka_migration.copy.driver.trespass import Trespass
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.copy.task.partition import Stand
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized
from kafka_migration.domain.types import Desired, Position, TopicPartition
from kafka_migration.wire.selector import Selector

_POLL_SECONDS, _DONE_SECONDS, _TOLD_SECONDS, _OVER_SECONDS = 0.25, 0.01, 5.0, 1.0

Progress = Mapping[TopicPartition, tuple[Position, dict[str, Any]]]


@dataclass(slots=True, kw_only=True)
class EpochWatch:
    """Watches one epoch after the other. ``throttle`` is in force where nobody has said anything else (bytes/s);
    ``newcomers`` is true if there is a partition that the next epoch should take in; ``waiting`` are those that wait
    for their brokers. ``suspected`` are the partitions of the newest epoch in which somebody else may have written."""

    link: LinkBook
    lookout: Lookout
    attempts: Attempts
    net: Selector
    standstill: Standstill
    slots: Slots
    epoch_seconds: float
    throttle: int | None
    tell: Callable[[str], None]
    interrupted: Callable[[], bool]
    say_running: Callable[..., None]
    newcomers: Callable[[], bool]
    waiting: Mapping[TopicPartition, object]
    trespass: Trespass
    suspected: set[TopicPartition] = field(default_factory=set)
    _orders: Sequence[TaskOrders] = ()
    _positions: Mapping[TopicPartition, Position] = field(default_factory=dict)

    def watch(self, under_way: EpochUnderWay, orders: Sequence[TaskOrders], desired: Desired, number: int) -> None:
        """Until the epoch is over. Raises what ends the run, after its tasks have ended; a claim they see themselves.

        ``number`` is the epoch's for people.
        """
        self._orders, self.suspected = orders, set()
        self._positions = {a.partition: a.position for share in orders for a in share.assignments}
        recalled, is_enough = False, False
        began, said, wrong = time.monotonic(), "", list[MigrationError]()
        told_at, look_at, over_at = began, began + self.epoch_seconds, began + _OVER_SECONDS
        ends_at = began + orders[0].seconds
        pace = Pace(self._positions, self.epoch_seconds)
        while not under_way.is_done():
            self._rest_beside(under_way, _POLL_SECONDS)
            if recalled:
                continue
            try:
                controls = self.link.controls()
                held = controls.describe()
                if held != said:
                    self.tell(held or "nothing holds the mirror back any more")
                    said = held
                tasks: Mapping[int, bool] = {}
                if over_at < time.monotonic() < ends_at:
                    # Before the progress is read: whoever ended in order has told the last of it by then.
                    tasks, over_at = under_way.tasks(), time.monotonic() + _OVER_SECONDS
                progress = self.link.progress()
                told = {tp: position for tp, (position, _) in progress.items()}
                pace.see(told)
                waits = self.interrupted() or self.link.wanted()[0] is not desired
                waits = waits or self._needs_driver(progress) or self._died(tasks, progress)
                mine = self._positions.keys() | self.waiting.keys()
                waits = waits or bool(self.lookout.lost(mine)) or self.newcomers()
                waits = waits or self._is_suspicious(progress)
                self.say_running(if_changed=True)
                if time.monotonic() > look_at:
                    look_at = time.monotonic() + self.epoch_seconds
                    self.attempts.check_state()
                    self.say_running()
                    ends = self._ends()
                    begun = len(under_way.tasks())
                    waits = self._stands(ends, progress, controls, begun) or waits
                    is_enough = pace.is_to_end(ends, told)
                if waits or is_enough:
                    self.link.recall(orders[0].epoch, is_urgent=waits)
                    recalled = True
            except (CouldNotFindOut, NotAuthorized) as error:
                # The tasks notice an outage themselves, and end with their epoch at the latest; a permission on the
                # link's state that is gone for a moment is one, too.
                self.tell(f"waiting: {error.message}")
                continue
            except MigrationError as error:
                # Not raised before the tasks have ended: what they wrote meanwhile must be over when this run is.
                self.tell(f"ending: {error.message}")
                wrong, recalled = [error], True
                with suppress(CouldNotFindOut):
                    self.link.recall(orders[0].epoch)
                continue
            if time.monotonic() - told_at > _TOLD_SECONDS:
                told_at = time.monotonic()
                both = ((progress[tp][0], before) for tp, before in self._positions.items() if tp in progress)
                copied = sum(max(0, told.source - before.source) for told, before in both)
                self.tell(f"epoch {number}: {copied:,} source offsets copied")
        if wrong:
            raise wrong[0]

    def _ends(self) -> dict[TopicPartition, int]:
        """How far the tasks are to copy, as far as anybody knows."""
        until = {a.partition: a.until for share in self._orders for a in share.assignments}
        found = self.lookout.ends(self._positions)
        return {tp: end if (last := until[tp]) is None else min(end, last) for tp, end in found.items()}

    def _needs_driver(self, progress: Progress) -> bool:
        """True if there is a partition that only the driver can help, by a fence, or whose halt it must note."""
        ours = ((at.fence, *progress[tp]) for tp, at in self._positions.items() if tp in progress)
        return any(told["x"] != Stand.RUN and at.fence == fence for fence, at, told in ours)

    def _is_suspicious(self, progress: Progress) -> bool:
        """True if a target log ends beyond what the link wrote although nothing moves there; says so."""
        told = {
            tp: progress[tp][0] if tp in progress and progress[tp][0].fence == at.fence else at
            for tp, at in self._positions.items()
        }
        self.suspected = self.trespass.look(told)
        if self.suspected:
            first, count = min(self.suspected), len(self.suspected)
            self.tell(f"target: {count} logs end beyond what was written, first {first}: a fence will show it")
        return bool(self.suspected)

    def _died(self, tasks: Mapping[int, bool], progress: Progress) -> bool:
        """True if a task ended although it had something left to do; says so."""
        for share in sorted(at for at, is_over in tasks.items() if is_over):
            mine = self._orders[share].assignments
            left = [a.partition for a in mine if not _is_done(a.until, progress.get(a.partition))]
            if left:
                self.tell(f"a task ended before its time, with {len(left)} partitions, first {min(left)}")
                return True
        return False

    def _stands(
        self,
        ends: Mapping[TopicPartition, int],
        progress: Progress,
        controls: Controls,
        begun: int,
    ) -> bool:
        """True if a partition that has something to copy does not move, and no quota holds it back; says so."""
        if controls.pause is not None:
            self.standstill.forget()
            return False
        told = {tp: position for tp, (position, _) in progress.items()}
        at = {tp: max(before.source, told.get(tp, before).source) for tp, before in self._positions.items()}
        now = time.time() * 1000
        held = {tp for tp, (_, rest) in progress.items() if rest.get("q", 0) > now}
        lagging = {
            tp: source
            for tp, source in at.items()
            if ends.get(tp, 0) > source
            and tp not in held
            and self.lookout.leads(tp)
            and not self.attempts.hold_seconds(tp)
        }
        standing = self.standstill.look(lagging, bytes_per_second=controls.rate(self.throttle))
        if not standing:
            return False
        first, shares = min(standing), len(self._orders)
        what = f"{len(standing)} partitions do not move, first {first} at source offset {at[first]} of {ends[first]}"
        if 0 < begun < shares:
            self.slots.only(begun)
            self.tell(
                f"{what}: only {begun} of {shares} tasks run, as Spark has fewer slots than mirror.num_streams;"
                f" shared out to {begun} from now on"
            )
        else:
            self.tell(f"{what}: partitions are shared out anew")
        return True

    def _rest_beside(self, under_way: EpochUnderWay, seconds: float) -> None:
        """Rest, but no longer than the epoch: until the next one begins nothing is copied."""
        for _ in range(round(seconds / _DONE_SECONDS)):
            if not under_way.is_done():
                self.net.run(self._rest, _DONE_SECONDS)

    async def _rest(self, seconds: float) -> None:
        await self.net.sleep(seconds)


def _is_done(until: int | None, progress: tuple[Position, Mapping[str, Any]] | None) -> bool:
    if progress is None:
        return False
    position, told = progress
    return told["x"] != Stand.RUN or (until is not None and position.source >= until)
