"""The driver's loop: fence, hand out copy rounds, fold receipts, fence again where an answer is missing.

Every exit leaves state from which the same call goes on: openings and progress are durable before they matter, and a
run begins by fencing whatever came before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from kafka_migration.copy.driver.active import Assigner, Dedicated
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.driver.fencing import Fences, now
from kafka_migration.copy.driver.health import (
    Commands,
    DeadTasks,
    ForeignWriters,
    Joining,
    LostTopics,
    RoundWatch,
    StandingPartitions,
    StuckPartitions,
)
from kafka_migration.copy.driver.link import Link, PinnedTopic
from kafka_migration.copy.driver.newcomers import Growth, Newcomers, NoGrowth
from kafka_migration.copy.driver.outages import PASSING, Outages
from kafka_migration.copy.driver.outcome import Heartbeat, MirrorEnd, in_short, nothing_left, rounds_lost
from kafka_migration.copy.driver.pace import Slots, Standstill
from kafka_migration.copy.driver.partitions import Partitions
from kafka_migration.copy.driver.pinned_topics import PinnedTopics
from kafka_migration.copy.driver.quarantine import Quarantine
from kafka_migration.copy.driver.readiness import Readiness
from kafka_migration.copy.driver.runner import Ended, Runner
from kafka_migration.copy.driver.survey import recreated
from kafka_migration.copy.orders import Limits, TaskOrders
from kafka_migration.copy.rate_limit import RateDebt
from kafka_migration.copy.task.partition import Stand
from kafka_migration.domain.direction import HOME, Direction
from kafka_migration.domain.errors import CouldNotFindOut, MigrationError, Refused, TakenOver
from kafka_migration.domain.handlers import HandlerOf, no_handler
from kafka_migration.domain.types import Desired, Halt, Receipt, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.selector import Selector

__all__ = ["Mirror", "MirrorEnd", "Runner", "Settings"]

_ASK_SECONDS, _BEGIN_SECONDS = 5.0, 120.0
_LOST_IN_A_ROW = 5
_STILL_REPORTS = 3
"""In how many reports of its task, at least, a partition must not have moved before it stands."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``streams`` tasks at once, and ``dedicated`` ones for some topics alone; every ``epoch_seconds`` a new copy round
    begins, unless they are caught up; an outage is borne for ``outage_seconds``; new topics are looked for every
    ``follow_seconds``. ``held_open`` are configs that every target topic must keep while it is mirrored: where one is
    different, the topic's partitions halt. A batch that never gets a clear answer is tried for ``unclear_seconds`` at
    the least before its partition halts. ``handler_of`` gives the handler of a topic, if it has one."""

    streams: int = 2
    dedicated: Sequence[Dedicated] = ()
    handler_of: HandlerOf = no_handler
    epoch_seconds: float = 15.0
    outage_seconds: float = 900.0
    follow_seconds: float = 30.0
    unclear_seconds: float = 300.0
    held_open: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def all_streams(self) -> int:
        """Tasks at once, dedicated ones included."""
        return self.streams + sum(each.streams for each in self.dedicated)

    @property
    def still_seconds(self) -> float:
        """For how long a partition that has something to copy may stand before that counts as a standstill."""
        return max(self.epoch_seconds, _STILL_REPORTS * self.limits.progress_seconds)


class Mirror:
    """One run of a link's mirror."""

    def __init__(
        self,
        *,
        link: Link,
        source: Mapping[str, Any],
        target: Mapping[str, Any],
        home: Mapping[str, Any] | None = None,
        direction: Direction = Direction.FORWARD,
        runner: Runner,
        settings: Settings,
        growth: Growth | None = None,
        log: Callable[[str], None] = lambda _text: None,
        interrupted: Callable[[], bool] = lambda: False,
        may_rewind: Callable[[], bool] = lambda: False,
    ) -> None:
        """``source`` and ``target`` are kafka-python properties of the link's origin and destination, ``home`` of the
        cluster with its state, unless that is its destination; ``direction`` has their names. ``growth`` makes room on
        the target for what appears on the source; ``interrupted`` asks for a clean end. ``may_rewind``: nobody depends
        on the target's offsets yet, so that a log which lost its tail may be copied again from where it ends."""
        self.link, self.runner, self.settings, self.log = link, runner, settings, log
        self._interrupted = interrupted
        limits, net = settings.limits, Selector()
        self._net = net
        self._source = WireCluster(net, source, direction.origin)
        self._target = WireCluster(net, target, direction.destination)
        self._home = self._target if home is None else WireCluster(net, home, HOME)
        self._topics: dict[str, PinnedTopic] = dict(link.topics())
        for topic in self._topics.values():
            self._source.pinned[topic.name], self._target.pinned[topic.name] = topic.source_id, topic.target_id
        both = self._source, self._target
        self._clusters = both if home is None else (*both, self._home)
        self._fences = Fences(link, self._target, net, log, topics=self._topics, may_rewind=may_rewind)
        self._outages = Outages(
            link=link,
            net=net,
            fences=self._fences,
            log=log,
            outage_seconds=settings.outage_seconds,
            interrupted=interrupted,
        )
        self._attempts = Attempts(link, self._target, limits, log, home=self._home)
        self._pinned = PinnedTopics(*both, net, log, held_open=settings.held_open)
        self._readiness = Readiness(*both, net, log)
        self._quarantine = Quarantine(patience_seconds=settings.unclear_seconds)
        self._slots, self._debt = Slots(settings.all_streams, runner.slots), RateDebt()
        newcomers = Newcomers(
            link=link,
            growth=growth or NoGrowth(),
            topics=self._topics,
            source=self._source,
            target=self._target,
            net=net,
            log=log,
            follow_seconds=settings.follow_seconds,
            lifted=self._pinned.forget,
        )
        self._partitions = Partitions(
            link=link,
            topics=self._topics,
            fences=self._fences,
            readiness=self._readiness,
            newcomers=newcomers,
            attempts=self._attempts,
            quarantine=self._quarantine,
            outages=self._outages,
            join_bytes=limits.join_bytes,
            log=log,
        )
        self._assigner = Assigner(
            link=link,
            source=source,
            target=target,
            home=home,
            direction=direction,
            topics=self._topics,
            attempts=self._attempts,
            pinned=self._pinned,
            slots=self._slots,
            streams=settings.streams,
            dedicated=settings.dedicated,
            handler_of=settings.handler_of,
            limits=limits,
            debt=self._debt,
        )
        self._heartbeat = Heartbeat(link, self._partitions, self._readiness, self._pinned)
        self._foreign_writers = ForeignWriters(self._target, net)
        standstill, throttle = Standstill(settings.still_seconds), limits.throttle_bytes_per_second
        self._watch = RoundWatch(
            link=link,
            pinned=self._pinned,
            attempts=self._attempts,
            net=net,
            heartbeat=self._heartbeat,
            watchers=[
                Commands(link, interrupted),
                StuckPartitions(),
                DeadTasks(),
                LostTopics(self._pinned, self._partitions),
                Joining(self._partitions),
                self._foreign_writers,
            ],
            standing=StandingPartitions(standstill, self._pinned, self._attempts, self._slots, throttle),
            evens_out=partial(self._assigner.evens_out, quarantine=self._quarantine),
            seconds=settings.epoch_seconds,
            log=log,
        )
        self._is_quiet = True
        self._round_id = int(time.time() * 1000)  # grows over runs: a recall of an earlier run cannot hit this one
        self._rounds = self._records = self._bytes = self._batches = 0
        self._lost, self._lost_since = 0, 0.0
        self._idle_since: float | None = None
        self._executors: set[str] = set()

    def run(self, *, until_caught_up: bool = False) -> MirrorEnd:
        """Copy until the link's desired state ends it, or up to the source's present ends.

        Raises TakenOver, CouldNotFindOut after too long an outage, NotAuthorized; HaltedPartition if nothing is left
        that may be copied.
        """
        slots, streams = self._slots.streams, self.settings.all_streams
        if slots < streams:
            self.log(f"Spark has {slots} slots for {streams} streams: a task for each slot")
        try:
            for cluster in self._clusters:
                cluster.connect()
            self._attempts.claim()
            self._attempts.check_state()
            self.link.write_progress()
            try:
                self._take_stock()
                self._partitions.join()
                self._require_anything()
                reason = self._loop(until_caught_up)
            except MigrationError:
                self._record_quiet()
                raise
            self._record_quiet()
            return self._record_end(reason)
        finally:
            for cluster in self._clusters:
                cluster.close()
            self._net.close()

    def _record_quiet(self) -> None:
        """Let the next run know that nothing of this one can land any more, if that is so."""
        # Whoever waits may have been sent what was never answered, and no fence has shown it yet.
        if self._is_quiet and not self._partitions.waiting:
            with suppress(CouldNotFindOut):
                self._attempts.ended()

    def _record_end(self, reason: str) -> MirrorEnd:
        outcome = MirrorEnd(
            reason=reason,
            rounds=self._rounds,
            fences=self._fences.count,
            records=self._records,
            bytes=self._bytes,
            batches=self._batches,
            executors=tuple(sorted(self._executors)),
            halted=tuple(sorted(self._outages.wait_out(self.link.halted))),
        )
        self._outages.wait_out(lambda: self.link.record_run({"state": "ended", "at": now(), **outcome.as_dict()}))
        return outcome

    def _loop(self, until_caught_up: bool) -> str:
        ends: dict[TopicPartition, int] = {}
        while True:
            desired, wished_ends = self._outages.wait_out(self.link.wanted)
            is_drain = desired is Desired.DRAIN
            if is_drain and self._rounds and not self._partitions.waiting and self._is_done(wished_ends):
                with suppress(Refused):
                    # Sealed by now, if whoever asked for it waits for what is copied alone.
                    self._outages.wait_out(self._attempts.check)
                return "drained"
            self._outages.wait_out(self._attempts.check)
            self._keep_alive()
            if desired is Desired.STOP or self._interrupted():
                return "stopped"
            self._halt_lost()
            # Who copies up to given ends has none for what appears later, but for what waited when they were given.
            self._partitions.takes_newcomers = not (wished_ends if is_drain else until_caught_up)
            self._partitions.take_in()
            if until_caught_up:
                ends |= self._ends(self._partitions.active.keys() - ends.keys())
            until = dict(wished_ends) if is_drain else ends
            is_done = self._is_done(until)
            if is_done and not self._partitions.waiting:
                return "drained" if is_drain else "caught_up"
            try:
                if self._partitions.active and not is_done:
                    self._run_round(until, desired)
                else:
                    self._wait_for_brokers()
            except CouldNotFindOut:
                if self._outages.is_to_stop():
                    return "stopped"
                raise

    def _is_done(self, until: Mapping[TopicPartition, int]) -> bool:
        """True if all that can be copied now stands at its end. Raises HaltedPartition if nothing is left."""
        active = self._partitions.active
        if not active and not self._partitions.waiting:
            raise nothing_left(self.link)
        return bool(until) and all(each.position.source >= until.get(tp, 0) for tp, each in active.items())

    def _wait_for_brokers(self) -> None:
        """All that is left waits for its brokers: so does the run, as in any outage."""
        self._partitions.wait_briefly(is_brief=False)
        self._idle_since = self._idle_since or time.monotonic()
        patience = self.settings.outage_seconds if self._fences.count else _BEGIN_SECONDS
        if time.monotonic() - self._idle_since > patience:
            raise CouldNotFindOut(
                self._readiness.describe(), remedy="start the brokers of these partitions, then run this again"
            )
        self._outages.wait_out(lambda: self._heartbeat.beat(self._round_id))
        self._outages.pause()

    # -- before the first round -------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Find the partitions of all pinned topics. Those of topics that a cluster does not describe, or that are other
        ones now, wait: a topic that nobody knows a partition of any more must not pass for one that is done."""
        self._outages.wait_out(lambda: self._pinned.lost([TopicPartition(name, 0) for name in self._topics]))
        halted = self.link.halted()
        on_source = {TopicPartition(name, p) for name, found in self._source.partitions.items() for p in found}
        known = on_source | set(self.link.openings())
        for name, why in (self._pinned.hidden() | self._recreated()).items():
            mine = {tp for tp in known if tp.topic == name} or {TopicPartition(name, 0)}
            self._readiness.set_aside(dict.fromkeys(mine - halted), why)

    def _recreated(self) -> dict[str, str]:
        """Topics that are other ones now on one of the clusters, with why."""
        losses = ((name, recreated(cluster, name)) for cluster in (self._source, self._target) for name in self._topics)
        return {name: loss[1] for name, loss in losses if loss is not None}

    def _require_anything(self) -> None:
        """Raises NotAuthorized if a run that begins may copy nothing: whoever started it is there to read why."""
        if not self._partitions.active and self._partitions.waiting:
            self._readiness.look(self._partitions.waiting)
            lacking = self._readiness.lacking()
            if lacking is not None:
                raise lacking

    # -- between two rounds -----------------------------------------------------------------------------------

    def _ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """The source's last stable offsets; partitions for which no broker reports one wait."""
        ask = partial(self._source.offsets_in_reach, partitions, LATEST, seconds=_ASK_SECONDS, committed=True)
        found: dict[TopicPartition, int] = self._outages.wait_out(lambda: self._net.run(ask))
        self._partitions.set_aside(set(partitions) - found.keys(), "the source does not report where it ends")
        return found

    def _halt_lost(self) -> None:
        mine = self._partitions.active.keys() | self._partitions.waiting.keys()
        lost = self._outages.wait_out(lambda: self._pinned.lost(mine))
        if lost:
            # What a later run does to its topics, or restoring after the seal, is none of this run's business.
            self._outages.wait_out(self._attempts.check)
        for tp, (reason, detail) in lost.items():
            self._partitions.halt(tp, reason, detail)

    def _keep_alive(self) -> None:
        if self._partitions.is_fencing:
            return
        try:
            self._fences.keep_alive()
        except TakenOver:
            # Who takes over claims the link first. If nobody did, the coordinator gave up on a use that was broken off,
            # and raised the producer epoch by itself.
            self.log("the transactional id has another producer epoch, and nobody else runs the link: fencing again")
            self._partitions.fence(set(self._partitions.active))

    # -- one round --------------------------------------------------------------------------------------------

    def _run_round(self, until: Mapping[TopicPartition, int], desired: Desired) -> None:
        self._idle_since = None
        self._round_id += 1
        self._rounds += 1
        active = self._partitions.active
        self._outages.wait_out(lambda: self._heartbeat.beat(self._round_id))
        orders = self._outages.wait_out(lambda: self._assigner.assign(active, until, self._round_id, self._quarantine))
        self._is_quiet = False
        before = {tp: each.position.source for tp, each in active.items()}
        self._partitions.assigned = set(active)
        self._foreign_writers.suspected = set()
        under_way, began = self.runner.start(orders), time.monotonic()
        self._watch.watch(under_way, orders, desired, self._rounds)
        ended = under_way.ended()
        for error in ended.failed.values():
            # What nobody foresaw is a bare one: it may be the fault of one partition.
            is_foreseen = isinstance(error, MigrationError) and type(error) is not MigrationError
            if is_foreseen and not isinstance(error, PASSING):
                raise error
        if ended.failed:
            first = min(ended.failed)
            self.log(f"{len(ended.failed)} of {len(orders)} tasks died: {in_short(ended.failed[first])}")
            dead = _assigned_to(orders, ended.failed)
            self._outages.wait_out(lambda: self._attempts.lost(self._round_id, dead))
        self._partitions.wait_briefly()
        took, receipts = time.monotonic() - began, ended.receipts
        self._slots.copied(sum(each.records for each in receipts), sum(each.bytes for each in receipts), took)
        self._fold(receipts)
        self._after_deaths(orders, ended, before)
        self._is_quiet = True

    def _after_deaths(self, orders: Sequence[TaskOrders], ended: Ended, before: Mapping[TopicPartition, int]) -> None:
        """Go on after tasks died, unless they keep dying: of an outage for a while, of anything else a few times. Who
        kills its task is copied apart from the others, and halted once that is proved."""
        sound = set(range(len(orders))) - ended.failed.keys()
        self._quarantine.survived(_assigned_to(orders, sound))
        if not ended.failed:
            self._lost = 0
            return
        active = self._partitions.active
        unmoved = {tp for tp, each in active.items() if each.position.source == before.get(tp)}
        deaths = {at: error for at, error in ended.failed.items() if not isinstance(error, PASSING)}
        narrowed = bool(sound) and self._narrow(unmoved & _assigned_to(orders, deaths), deaths)
        if narrowed or not self._lost or unmoved != self._partitions.assigned & active.keys():
            self._lost, self._lost_since = 0, time.monotonic()
        self._lost += 1
        self._bear_loss(ended.failed[min(ended.failed)], is_total=not sound)

    def _bear_loss(self, error: Exception, *, is_total: bool) -> None:
        """Raises ``error``, of which a task died, once that has gone on for too long."""
        if isinstance(error, PASSING):
            if time.monotonic() - self._lost_since > self.settings.outage_seconds:
                raise error
            if is_total:
                self._outages.pause()
        elif self._lost >= _LOST_IN_A_ROW:
            raise rounds_lost(self._lost, error) from error

    def _narrow(self, unmoved: set[TopicPartition], deaths: Mapping[int, Exception]) -> bool:
        """Find out which of ``unmoved`` kills its task, while other tasks live; True if fewer are suspects now."""
        active = self._partitions.active
        ends = self._outages.wait_out(lambda: self._pinned.ends(unmoved))
        lagging = {tp for tp in unmoved if ends.get(tp, 0) > active[tp].position.source}
        if not lagging:
            return False
        suspects = len(self._quarantine.suspects)
        killer = self._quarantine.died(lagging)
        if killer is not None:
            why = in_short(deaths[min(deaths)])
            detail = f"each task that copied it died, at last one for it alone: {why}"
            self._partitions.halt(killer, Halt.UNREADABLE, detail)
        for tp, seconds in self._quarantine.resting().items():
            if tp in active:
                why = "a task died that copied it; others of that task are tried first"
                self._readiness.bar(tp, why, seconds)
                self._partitions.set_aside([tp], why)
        return killer is not None or len(self._quarantine.suspects) < suspects

    def _fold(self, receipts: list[Receipt]) -> None:
        """Take the receipts into the account of the run, and fence where they leave a doubt."""
        if any(receipt.stand == Stand.TAKEN_OVER for receipt in receipts):
            # A seal fences too, and raises its own error.
            self._outages.wait_out(self._attempts.check)
            raise TakenOver(f"link {self.link.name}")
        active = self._partitions.active
        # A partition without a receipt may have been written to: as if no request of it had been answered.
        unsettled, suspected = self._partitions.assigned & active.keys(), self._foreign_writers.suspected
        troubled = set[TopicPartition]()
        for receipt in receipts:
            tp = TopicPartition(receipt.topic, receipt.partition)
            active[tp] = active[tp].after(receipt)
            self._count(receipt)
            if receipt.stand == Stand.FORBIDDEN:
                self._readiness.bar(tp.topic, receipt.detail)
            elif receipt.stand == Stand.UNSETTLED:
                if self._is_troubled(tp, receipt):
                    troubled.add(tp)
            else:
                unsettled.discard(tp)
                if receipt.stand == Stand.HALTED:
                    self._partitions.halt(tp, receipt.halt, receipt.detail)
        self._await_landing(unsettled, receipts)
        # Whose request went wrong may hold up its fence: whoever only has runs ahead is not in it.
        self._partitions.fence((unsettled | suspected) & active.keys() - troubled)
        self._partitions.fence(troubled & active.keys())

    def _await_landing(self, unsettled: Iterable[TopicPartition], receipts: Sequence[Receipt]) -> None:
        """Reckon with what was sent and not answered: of who halted, too, and of whoever has no receipt with all that
        can be under way. Who is unsettled and has nothing under way is not held for longer than before."""
        limits = self.settings.limits
        most = limits.landing_seconds(limits.in_flight_requests)
        lands = {TopicPartition(each.topic, each.partition): each.lands_seconds for each in receipts}
        closed = dict.fromkeys(set(unsettled) - lands.keys(), most)
        closed |= {tp: seconds for tp, seconds in lands.items() if seconds}
        self._attempts.closed(closed)
        self._attempts.answered(lands.keys() - closed.keys())

    def _is_troubled(self, tp: TopicPartition, receipt: Receipt) -> bool:
        """True if a request of ``tp`` got no clear answer: it rests, longer each time."""
        self.log(f"{tp}: no clear answer ({receipt.detail}); a fence will show what was written")
        if not (receipt.unclear or receipt.passing):
            return False
        passing = not receipt.unclear
        rest = self._quarantine.unsettled(tp, receipt.source_end, receipt.detail, is_passing=passing)
        self._readiness.bar(tp, f"a request got no clear answer ({receipt.detail})", rest)
        return True

    def _count(self, receipt: Receipt) -> None:
        self._records += receipt.records
        self._bytes += receipt.bytes
        self._debt.add(receipt.bytes)
        self._batches += receipt.batches
        if receipt.executor:
            self._executors.add(receipt.executor)


def _assigned_to(orders: Sequence[TaskOrders], tasks: Iterable[int]) -> set[TopicPartition]:
    return {a.partition for task in tasks for a in orders[task].assignments}
