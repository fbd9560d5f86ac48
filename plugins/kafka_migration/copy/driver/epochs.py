"""The driver's loop: fence, hand out epochs, fold receipts, fence again where an answer is missing.

Every exit leaves state from which the same call goes on: openings and progress are durable before they matter, and a
run begins by fencing whatever came before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.book import LinkBook, PinnedTopic
from kafka_migration.copy.driver.dealing import Dealer
from kafka_migration.copy.driver.entry import Entry
from kafka_migration.copy.driver.fencing import Fences, now
from kafka_migration.copy.driver.lookout import Lookout
from kafka_migration.copy.driver.newcomers import Growth, Newcomers, NoGrowth
from kafka_migration.copy.driver.outcome import MirrorEnd, epochs_lost, in_short, nothing_left
from kafka_migration.copy.driver.pace import Slots, Standstill
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.driver.reach import Reach
from kafka_migration.copy.driver.runner import Ended, EpochUnderWay, Runner
from kafka_migration.copy.driver.survey import recreated
from kafka_migration.copy.driver.trespass import Trespass
from kafka_migration.copy.driver.watching import EpochWatch
from kafka_migration.copy.orders import TaskOrders
from kafka_migration.copy.settings import Settings
from kafka_migration.copy.task.partition import Stand
from kafka_migration.copy.valve import Debt
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, NotAuthorized, TakenOver
from kafka_migration.domain.types import Desired, Halt, Receipt, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.selector import Selector

__all__ = ["EpochUnderWay", "Mirror", "MirrorEnd", "Runner", "Settings"]

T = TypeVar("T")

_ASK_SECONDS, _BEGIN_SECONDS, _OUTAGE_PAUSE_SECONDS = 5.0, 120.0, 2.0
_BRIEFLY_SECONDS, _LOOK_SECONDS = 1.5, 0.1
"""For so long, between two epochs, those that are sound wait for all looks at others and fences of theirs; what takes
longer goes on beside them. With less than the second left, nothing is begun any more."""
_LOST_IN_A_ROW = 5
_SHOWN = 3
_BORNE = (CouldNotFindOut, NotAuthorized)
"""What passes: an outage of a cluster, and an authorizer that says no for a moment to what it permitted before."""


class Mirror:
    """One run of a link's mirror."""

    def __init__(
        self,
        *,
        link: LinkBook,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        runner: Runner,
        settings: Settings,
        growth: Growth | None = None,
        tell: Callable[[str], None] = lambda _text: None,
        interrupted: Callable[[], bool] = lambda: False,
        may_rewind: Callable[[], bool] = lambda: False,
    ) -> None:
        """``source`` and ``target`` are kafka-python properties; ``growth`` makes room on the target for what appears
        on the source; ``interrupted`` asks for a clean end. ``may_rewind``: nobody depends on the target's offsets yet,
        so that a log which lost its tail may be copied again from where it ends."""
        self.link, self.runner, self.settings, self.tell = link, runner, settings, tell
        self._interrupted = interrupted
        self._net = Selector()
        self._source = WireCluster(self._net, source, "source")
        self._target = WireCluster(self._net, target, "target")
        self._topics: dict[str, PinnedTopic] = dict(link.topics())
        for topic in self._topics.values():
            self._source.pinned[topic.name], self._target.pinned[topic.name] = topic.source_id, topic.target_id
        self._keys: dict[str, str] = {}
        self._fences = Fences(link, self._target, self._net, tell, topic_keys=self._keys, may_rewind=may_rewind)
        self._lookout = Lookout(self._source, self._target, self._net, tell, held_open=settings.held_open)
        self._newcomers = Newcomers(
            link=link,
            growth=growth or NoGrowth(),
            topics=self._topics,
            source=self._source,
            target=self._target,
            net=self._net,
            tell=tell,
            follow_seconds=settings.follow_seconds,
            lifted=self._lookout.forget,
        )
        self._attempts = Attempts(link, self._target, settings.limits, tell)
        self._slots, self._debt = Slots(settings.streams, runner.slots), Debt()
        self._dealer = Dealer(
            link=link,
            source=source,
            target=target,
            topics=self._topics,
            attempts=self._attempts,
            lookout=self._lookout,
            slots=self._slots,
            limits=settings.limits,
            debt=self._debt,
        )
        self._reach = Reach(self._source, self._target, self._net, tell)
        self._watch = EpochWatch(
            link=link,
            lookout=self._lookout,
            attempts=self._attempts,
            net=self._net,
            standstill=Standstill(settings.still_seconds),
            slots=self._slots,
            epoch_seconds=settings.epoch_seconds,
            throttle=settings.limits.throttle_bytes_per_second,
            tell=tell,
            interrupted=interrupted,
            say_running=self._say_running,
            newcomers=self._join_beside,
            waiting=self._reach.waiting,
            trespass=Trespass(self._target, self._net),
        )
        self._is_quiet, self._takes_newcomers = True, False
        self._waiting = ""
        self._active: dict[TopicPartition, Active] = {}
        self._dealt: set[TopicPartition] = set()
        self._epoch = int(time.time() * 1000)  # grows over runs, so that a recall of an earlier run cannot hit this one
        self._brief_until: float | None = None
        self._epochs = self._records = self._bytes = self._batches = 0
        self._lost, self._lost_since = 0, 0.0
        self._quarantine = Quarantine(patience_seconds=settings.unclear_seconds)
        self._entry = Entry(
            active=self._active,
            fences=self._fences,
            reach=self._reach,
            attempts=self._attempts,
            quarantine=self._quarantine,
            join_bytes=settings.limits.join_bytes,
            halt=self._halt,
        )
        self._executors: set[str] = set()

    def run(self, *, until_caught_up: bool = False) -> MirrorEnd:
        """Copy until the link's desired state says otherwise, or up to the source's present ends.

        Raises TakenOver, CouldNotFindOut after too long an outage, NotAuthorized; HaltedPartition if nothing is left
        that may be copied.
        """
        if self._slots.streams < self.settings.streams:
            self.tell(f"Spark has {self._slots.streams} slots for {self.settings.streams} streams: so many copy")
        try:
            self._source.connect()
            self._target.connect()
            self._attempts.claim()
            self._attempts.check_state()
            self.link.write_progress()
            try:
                self._take_stock()
                self._join()
                self._require_anything()
                reason = self._loop(until_caught_up)
            except MigrationError:
                self._say_quiet()
                raise
            self._say_quiet()
            return self._say_end(reason)
        finally:
            for cluster in (self._source, self._target):
                cluster.close()
            self._net.close()

    def _say_quiet(self) -> None:
        """Let the next run know that nothing of this one can land any more, if that is so."""
        # Whoever waits may have been sent what was never answered, and no fence has told yet.
        if self._is_quiet and not self._reach.waiting:
            with suppress(CouldNotFindOut):
                self._attempts.ended()

    def _say_end(self, reason: str) -> MirrorEnd:
        outcome = MirrorEnd(
            reason=reason,
            epochs=self._epochs,
            fences=self._fences.count,
            records=self._records,
            bytes=self._bytes,
            batches=self._batches,
            executors=tuple(sorted(self._executors)),
            halted=tuple(sorted(self._patiently(self.link.halted))),
        )
        self._patiently(lambda: self.link.record_run({"state": "ended", "at": now(), **outcome.as_dict()}))
        return outcome

    def _loop(self, until_caught_up: bool) -> str:
        ends: dict[TopicPartition, int] = {}
        idle_since: float | None = None
        while True:
            self._patiently(self._attempts.check)
            self._keep_alive()
            desired, wished_ends = self._patiently(self.link.wanted)
            if desired is Desired.STOP or self._interrupted():
                return "stopped"
            self._halt_lost()
            # Who copies up to given ends has none for what appears later, but for what waited when they were given.
            self._takes_newcomers = not (wished_ends if desired is Desired.DRAIN else until_caught_up)
            if self._active:
                self._dealt = set(self._active)
                if self._left > _LOOK_SECONDS:
                    self._patiently(lambda: self._join_beside(self._left))
            elif self._takes_newcomers:
                self._join()
            else:
                self._fence(set(self._reach.waiting))
            if until_caught_up:
                ends |= self._ends(self._active.keys() - ends.keys())
            until = dict(wished_ends) if desired is Desired.DRAIN else ends
            is_done = bool(until) and all(a.position.source >= until.get(tp, 0) for tp, a in self._active.items())
            if not self._reach.waiting:
                if not self._active:
                    raise nothing_left(self.link)
                if is_done:
                    return "drained" if desired is Desired.DRAIN else "caught_up"
            try:
                if self._active and not is_done:
                    idle_since = None
                    self._run_epoch(until, desired)
                else:
                    idle_since = idle_since or time.monotonic()
                    self._wait_for_brokers(idle_since)
            except CouldNotFindOut:
                if self._is_to_stop():
                    return "stopped"
                raise

    def _wait_for_brokers(self, since: float) -> None:
        """All that is left waits for its brokers: so does the run, as in any outage."""
        self._brief_until = None
        bears = self.settings.outage_seconds if self._fences.count else _BEGIN_SECONDS
        if time.monotonic() - since > bears:
            raise CouldNotFindOut(self._reach.describe(), remedy="start these brokers, then run this again")
        self._patiently(self._say_running)
        self._net.run(self._net.sleep, _OUTAGE_PAUSE_SECONDS)

    def _patiently(self, work: Callable[[], T]) -> T:
        """What ``work`` returns; an outage of either cluster is borne for a while, once the run has begun to copy. So
        is an authorizer that says no to what it permitted before."""
        until = time.monotonic() + self.settings.outage_seconds
        while True:
            try:
                return work()
            except _BORNE as error:
                if time.monotonic() > until or not self._fences.count or self._is_to_stop():
                    raise
                self.tell(f"waiting: {error.message}")
                self._net.run(self._net.sleep, _OUTAGE_PAUSE_SECONDS)

    def _is_to_stop(self) -> bool:
        """True if somebody wants the run to end, as far as that can be found out."""
        try:
            return self._interrupted() or self.link.wanted()[0] is Desired.STOP
        except CouldNotFindOut:
            return False

    # -- before the first epoch -------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Find the partitions of all pinned topics. Those of topics that a cluster does not describe, or that are other
        ones now, wait: a topic that nobody knows a partition of any more must not pass for one that is done."""
        self._patiently(lambda: self._lookout.lost([TopicPartition(name, 0) for name in self._topics]))
        halted = self.link.halted()
        known = self._partitions() | set(self.link.openings())
        both = (self._source, self._target)
        others = {name: loss[1] for it in both for name in self._topics if (loss := recreated(it, name)) is not None}
        for name, why in (self._lookout.hidden() | others).items():
            mine = {tp for tp in known if tp.topic == name} or {TopicPartition(name, 0)}
            self._reach.set_aside(dict.fromkeys(mine - halted), why)

    def _require_anything(self) -> None:
        """Raises NotAuthorized if a run that begins may copy nothing: whoever started it is there to read why."""
        if not self._active and self._reach.waiting:
            self._reach.look(self._reach.waiting)
            lacking = self._reach.lacking()
            if lacking is not None:
                raise lacking

    def _join(self) -> None:
        """Take in what nobody copies yet: everything at first, and later what appears or is no longer halted."""
        self._fence(self._patiently(self._found))

    def _found(self) -> set[TopicPartition]:
        """What nobody copies yet, and can be: those that wait are among them."""
        ready, stuck = self._newcomers.take(self._active)
        self._keys.update((name, topic.key) for name, topic in self._topics.items() if name not in self._keys)
        for tp, why in stuck.items():
            self._halt(tp, Halt.NO_PARTITION, f"the target topic has no partition {tp.partition}: {why}")
        return ready

    def _partitions(self) -> set[TopicPartition]:
        return {TopicPartition(name, p) for name, found in self._source.partitions.items() for p in found}

    @property
    def _left(self) -> float:
        """For how many seconds those that are sound may still wait, since the epoch before ended."""
        return _BRIEFLY_SECONDS if self._brief_until is None else max(0.0, self._brief_until - time.monotonic())

    def _join_beside(self, within: float | None = None) -> bool:
        """Take in what nobody copies yet; True if the next epoch has more to copy. While no epoch runs, for no longer
        than ``within`` seconds. Raises what :meth:`Entry.begin` does.
        """
        limit = float("inf") if within is None else within
        if not self._entry.is_under_way:
            known = self._active.keys() | self._reach.waiting.keys()
            if self._takes_newcomers and self._newcomers.are_there(known):
                self._entry.begin(self._found(), limit)
            elif self._reach.is_due():
                self._entry.begin(set(self._reach.waiting), limit)
        self._entry.end_beside(within or 0.0)
        return bool(self._active.keys() - self._dealt)

    def _halt(self, tp: TopicPartition, reason: str, detail: str, *, target: int | None = None) -> None:
        """``target`` is where the trouble was seen; without, where the partition stands."""
        active = self._active.pop(tp, None) or self._reach.waiting.get(tp)
        self._reach.drop([tp])
        self._entry.forget(tp)
        at = active.position if active is not None else self._patiently(self.link.positions).get(tp)
        source, stands = (at.source, at.target) if at is not None else (0, 0)
        # Of the topic that this run copied into: by now another one may be pinned under its name.
        key, seen = self._topics[tp.topic].key, stands if target is None else target
        self._patiently(lambda: self.link.halt(tp, str(reason), detail, source, seen, now(), key))
        self.tell(f"{tp}: {reason}: {detail}")

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The source's last stable offsets; partitions of which nobody tells wait."""
        found: dict[TopicPartition, int] = self._patiently(lambda: self._net.run(self._list, partitions))
        silent = set(partitions) - found.keys()
        self._reach.set_aside({tp: self._active.pop(tp) for tp in silent}, "the source does not report where it ends")
        return found

    def _halt_lost(self) -> None:
        mine = self._active.keys() | self._reach.waiting.keys()
        lost = self._patiently(lambda: self._lookout.lost(mine))
        if lost:
            # What a later run does to its topics, or restoring after the seal, is none of this run's business.
            self._patiently(self._attempts.check)
        for tp, (reason, detail) in lost.items():
            self._halt(tp, reason, detail)

    async def _list(self, tps: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._source.offsets_in_reach(tps, LATEST, seconds=_ASK_SECONDS, committed=True)

    # -- fencing ----------------------------------------------------------------------------------------------

    def _fence(self, partitions: set[TopicPartition]) -> None:
        """Fence ``partitions`` and know again where each stands. If others are active they do not wait for long: what
        is not over by then goes on beside them."""
        if not partitions:
            return
        if not self._active.keys() - partitions:
            self._patiently(lambda: self._entry.fence(partitions))
            return
        if not self._entry.is_under_way and self._left > _LOOK_SECONDS:
            self._patiently(lambda: self._entry.begin(partitions, self._left))
        else:
            self._entry.set_aside(partitions, "their fence is still to come")
        self._entry.end_beside(self._left)

    def _keep_alive(self) -> None:
        if self._entry.is_under_way:
            return
        try:
            self._fences.keep_alive()
        except TakenOver:
            # Who takes over claims the link first. If nobody did, the coordinator gave up on a use that was broken off,
            # and raised the epoch by itself.
            self.tell("the transactional id has another epoch, and nobody else runs the link: fencing again")
            self._fence(set(self._active))

    # -- one epoch --------------------------------------------------------------------------------------------

    def _run_epoch(self, until: Mapping[TopicPartition, int], desired: Desired) -> None:
        self._epoch += 1
        self._epochs += 1
        self._patiently(self._say_running)
        orders = self._patiently(lambda: self._dealer.deal(self._active, until, self._epoch, self._quarantine))
        self._is_quiet = False
        before = {tp: active.position.source for tp, active in self._active.items()}
        self._dealt = set(self._active)
        under_way, began = self.runner.start(orders), time.monotonic()
        self._watch.watch(under_way, orders, desired, self._epochs)
        ended = under_way.ended()
        for error in ended.failed.values():
            # What nobody foresaw is a bare one: it may be the fault of one partition.
            is_foreseen = isinstance(error, MigrationError) and type(error) is not MigrationError
            if is_foreseen and not isinstance(error, _BORNE):
                raise error
        if ended.failed:
            first = min(ended.failed)
            self.tell(f"{len(ended.failed)} of {len(orders)} tasks died: {in_short(ended.failed[first])}")
            self._patiently(lambda: self._attempts.lost(self._epoch))
        self._brief_until = time.monotonic() + _BRIEFLY_SECONDS
        took, receipts = time.monotonic() - began, ended.receipts
        self._slots.copied(sum(each.records for each in receipts), sum(each.bytes for each in receipts), took)
        self._fold(ended.receipts)
        self._after_deaths(orders, ended, before)
        self._is_quiet = True

    def _say_running(self, *, if_changed: bool = False) -> None:
        """Note that the run goes on, and what waits, for whoever looks at the link's state."""
        aside = {tp.topic for tp in self._reach.waiting}
        hidden = [why for topic, why in sorted(self._lookout.hidden().items()) if topic not in aside]
        waiting = "; ".join(filter(None, (self._reach.describe(), *hidden[:_SHOWN])))
        if waiting != self._waiting or not if_changed:
            said = {"state": "running", "at": now(), "epoch": self._epoch, "partitions": len(self._active)}
            self.link.record_run({**said, "waiting": waiting})
            self._waiting = waiting

    def _after_deaths(self, orders: Sequence[TaskOrders], ended: Ended, before: Mapping[TopicPartition, int]) -> None:
        """Go on after tasks died, unless they keep dying: of an outage for a while, of anything else a few times. Who
        kills its task is copied apart from the others, and halted once that is proved."""
        shares = [{a.partition for a in share.assignments} for share in orders]
        sound = [share for at, share in enumerate(shares) if at not in ended.failed]
        self._quarantine.survived({tp for share in sound for tp in share})
        if not ended.failed:
            self._lost = 0
            return
        unmoved = {tp for tp, active in self._active.items() if active.position.source == before.get(tp)}
        deaths = {at: error for at, error in ended.failed.items() if not isinstance(error, _BORNE)}
        narrowed = bool(sound) and self._narrow(unmoved & {tp for at in deaths for tp in shares[at]}, deaths)
        if narrowed or not self._lost or unmoved != self._dealt & self._active.keys():
            self._lost, self._lost_since = 0, time.monotonic()
        self._lost += 1
        error = ended.failed[min(ended.failed)]
        if isinstance(error, _BORNE):
            if time.monotonic() - self._lost_since > self.settings.outage_seconds:
                raise error
            if not sound:
                self._net.run(self._net.sleep, _OUTAGE_PAUSE_SECONDS)
        elif self._lost >= _LOST_IN_A_ROW:
            raise epochs_lost(self._lost, error) from error

    def _narrow(self, unmoved: set[TopicPartition], deaths: Mapping[int, Exception]) -> bool:
        """Find out which of ``unmoved`` kills its task, while other tasks live; True if fewer are suspects now."""
        ends = self._patiently(lambda: self._lookout.ends(unmoved))
        lagging = {tp for tp in unmoved if ends.get(tp, 0) > self._active[tp].position.source}
        if not lagging:
            return False
        suspects = len(self._quarantine.suspects)
        killer = self._quarantine.died(lagging)
        if killer is not None:
            why = in_short(deaths[min(deaths)])
            self._halt(killer, Halt.UNREADABLE, f"each task that copied it died, at last one for it alone: {why}")
        for tp, seconds in self._quarantine.resting().items():
            if tp in self._active:
                why = "a task died that copied it; others of that task are tried first"
                self._reach.bar(tp, why, seconds)
                self._reach.set_aside({tp: self._active.pop(tp)}, why)
        return killer is not None or len(self._quarantine.suspects) < suspects

    def _fold(self, receipts: list[Receipt]) -> None:
        if any(receipt.stand == Stand.TAKEN_OVER for receipt in receipts):
            # A seal fences too, and says so.
            self._patiently(self._attempts.check)
            raise TakenOver(f"link {self.link.name}")
        # A partition without a receipt may have been written to: as if no request of it had been answered.
        unsettled, suspected = self._dealt & self._active.keys(), self._watch.suspected
        troubled = set[TopicPartition]()
        for receipt in receipts:
            tp = TopicPartition(receipt.topic, receipt.partition)
            self._active[tp] = self._active[tp].after(receipt)
            self._records += receipt.records
            self._bytes += receipt.bytes
            self._debt.add(receipt.bytes)
            self._batches += receipt.batches
            if receipt.executor:
                self._executors.add(receipt.executor)
            if receipt.stand == Stand.FORBIDDEN:
                self._reach.bar(tp.topic, receipt.detail)
                continue
            if receipt.stand == Stand.UNSETTLED:
                self.tell(f"{tp}: no clear answer ({receipt.detail}); a fence will show it")
                if receipt.unclear or receipt.passing:
                    troubled.add(tp)
                    passing = not receipt.unclear
                    rest = self._quarantine.unsettled(tp, receipt.source_end, receipt.detail, is_passing=passing)
                    self._reach.bar(tp, f"a request got no clear answer ({receipt.detail})", rest)
                continue
            unsettled.discard(tp)
            if receipt.stand == Stand.HALTED:
                self._halt(tp, receipt.halt, receipt.detail)
        if unsettled:
            self._attempts.closed()
        # Whose request went wrong may hold up its fence: whoever only has runs ahead is not in it.
        self._fence((unsettled | suspected) & self._active.keys() - troubled)
        self._fence(troubled & self._active.keys())
