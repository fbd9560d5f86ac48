"""The driver beside a copy round: when its tasks are recalled before their time.

A recall ends the round in order: every task settles what it sent, and the driver goes on from certain positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.health import Finding, Progress, RoundView, Watcher
from kafka_migration.copy.driver.link import Link
from kafka_migration.copy.driver.outages import PASSING
from kafka_migration.copy.driver.outcome import Heartbeat
from kafka_migration.copy.driver.pace import Pace
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.runner import CopyRound
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError
from kafka_migration.domain.types import Desired, Position, TopicPartition
from kafka_migration.wire.selector import Selector

_POLL_SECONDS, _DONE_SECONDS, _SHOWN_SECONDS, _OVER_SECONDS = 0.25, 0.01, 5.0, 1.0


class _Watched:
    """One round under way, and what was seen of it. ``number`` is the round's for people."""

    def __init__(
        self, under_way: CopyRound, orders: Sequence[TaskOrders], desired: Desired, number: int, seconds: float
    ) -> None:
        self.under_way, self.orders, self.desired, self.number = under_way, orders, desired, number
        self.round_id = orders[0].round_id
        self.positions = {a.partition: a.position for share in orders for a in share.assignments}
        self.progress: Progress = {}
        self.pace, self.is_long_enough = Pace(self.positions, seconds), False
        self.controls = ""
        self.shown_at = time.monotonic()
        self.rare_look_at, self.over_at = self.shown_at + seconds, self.shown_at + _OVER_SECONDS
        self.ends_at = self.shown_at + orders[0].seconds

    def tasks(self) -> Mapping[int, bool]:
        """The tasks that have begun (True: ended), once a second."""
        if not self.over_at < time.monotonic() < self.ends_at:
            return {}
        tasks = self.under_way.tasks()
        self.over_at = time.monotonic() + _OVER_SECONDS
        return tasks

    def ends(self, found: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far the tasks are to copy, where the source ends at ``found``."""
        until = {a.partition: a.until for share in self.orders for a in share.assignments}
        return {tp: end if (last := until[tp]) is None else min(end, last) for tp, end in found.items()}

    def reported(self) -> dict[TopicPartition, Position]:
        """The newest position of each partition that a task has ever reported."""
        return {tp: position for tp, (position, _) in self.progress.items()}

    def copied(self) -> int:
        """Source offsets that were copied so far."""
        both = ((self.progress[tp][0], before) for tp, before in self.positions.items() if tp in self.progress)
        return sum(max(0, position.source - before.source) for position, before in both)


class RoundWatch:
    """Watches one round after the other: ``watchers`` at each look, the first that finds something counts; and
    ``standing`` every ``seconds``, when a round that has a backlog may end as well."""

    def __init__(
        self,
        *,
        link: Link,
        pinned: PinnedTopics,
        attempts: Attempts,
        net: Selector,
        heartbeat: Heartbeat,
        watchers: Sequence[Watcher],
        standing: Watcher,
        seconds: float,
        tell: Callable[[str], None],
    ) -> None:
        self._link, self._pinned, self._attempts, self._net = link, pinned, attempts, net
        self._heartbeat, self._watchers, self._standing = heartbeat, watchers, standing
        self._seconds, self._tell = seconds, tell

    def watch(self, under_way: CopyRound, orders: Sequence[TaskOrders], desired: Desired, number: int) -> None:
        """Until the round is over. Raises what ends the run, once the tasks have ended; a claim they see themselves."""
        watched = _Watched(under_way, orders, desired, number, self._seconds)
        is_recalled, wrong = False, list[MigrationError]()
        while not under_way.is_done():
            self._rest_beside(under_way, _POLL_SECONDS)
            if is_recalled:
                continue
            try:
                is_recalled = self._recalls(watched)
            except PASSING as error:
                # The tasks notice an outage themselves, and end with their round at the latest; a permission on the
                # link's state that is gone for a moment is one, too.
                self._tell(f"waiting: {error.message}")
            except MigrationError as error:
                # Not raised before the tasks have ended: what they wrote meanwhile must be over when this run is.
                self._tell(f"ending: {error.message}")
                wrong, is_recalled = [error], True
                with suppress(CouldNotFindOut):
                    self._link.recall(watched.round_id)
            else:
                self._show_progress(watched)
        if wrong:
            raise wrong[0]

    def _recalls(self, watched: _Watched) -> bool:
        """Look once; True if the round's tasks were recalled."""
        controls = self._link.controls()
        held = controls.describe()
        if held != watched.controls:
            self._tell(held or "nothing holds the mirror back any more")
            watched.controls = held
        # Before the progress is read: whoever ended in order has reported the last of it by then.
        tasks = watched.tasks()
        watched.progress = self._link.progress()
        watched.pace.see(watched.reported())
        view = RoundView(
            orders=watched.orders,
            positions=watched.positions,
            progress=watched.progress,
            desired=watched.desired,
            controls=controls,
            tasks=tasks,
        )
        finding = self._first(self._watchers, view)
        self._heartbeat.beat(watched.round_id, if_changed=True)
        if time.monotonic() > watched.rare_look_at:
            finding = self._rare_look(watched, view) or finding
        if finding is None and not watched.is_long_enough:
            return False
        self._link.recall(watched.round_id, is_urgent=finding is not None)
        return True

    def _rare_look(self, watched: _Watched, view: RoundView) -> Finding | None:
        """What costs more: whether partitions stand, and whether the round has run long enough."""
        watched.rare_look_at = time.monotonic() + self._seconds
        self._attempts.check_state()
        self._heartbeat.beat(watched.round_id)
        ends = watched.ends(self._pinned.ends(watched.positions))
        begun = len(watched.under_way.tasks())
        finding = self._first([self._standing], replace(view, ends=ends, begun=begun))
        watched.is_long_enough = watched.pace.is_to_end(ends, watched.reported())
        return finding

    def _first(self, watchers: Sequence[Watcher], view: RoundView) -> Finding | None:
        for watcher in watchers:
            finding = watcher.look(view)
            if finding is not None:
                if finding.text:
                    self._tell(finding.text)
                return finding
        return None

    def _show_progress(self, watched: _Watched) -> None:
        if time.monotonic() - watched.shown_at > _SHOWN_SECONDS:
            watched.shown_at = time.monotonic()
            self._tell(f"round {watched.number}: {watched.copied():,} source offsets copied")

    def _rest_beside(self, under_way: CopyRound, seconds: float) -> None:
        """Rest, but no longer than the round: until the next one begins nothing is copied."""
        for _ in range(round(seconds / _DONE_SECONDS)):
            if not under_way.is_done():
                self._net.run(self._net.sleep, _DONE_SECONDS)
