"""The driver's loop: fence, hand out epochs, fold receipts, fence again where an answer is missing.

Every exit leaves state from which the same call goes on: openings and progress are durable before they matter, and a
run begins by fencing whatever came before it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from kafka.net.selector import NetworkSelector

from kafka_migration.domain.errors import CouldNotFindOut, HaltedPartition, MigrationError, TakenOver
from kafka_migration.domain.offset_map import RunOpening
from kafka_migration.domain.types import Desired, Halt, Identity, Position, Receipt, TopicPartition
from kafka_migration.mirror.orders import Assignment, Limits, TaskOrders
from kafka_migration.mirror.partition import Stand
from kafka_migration.mirror.takeover import Known, Stopped, take_over
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster

_POLL_SECONDS = 0.25
_OUTAGE_PAUSE_SECONDS = 2.0
_LOST_IN_A_ROW = 5


class EpochUnderWay(Protocol):
    """An epoch that runs somewhere."""

    def is_done(self) -> bool:
        """True once it has ended, well or not."""

    def receipts(self) -> list[Receipt]:
        """What its tasks did. Raises if any task died: then nothing is known of the whole epoch."""


class Runner(Protocol):
    """Where epochs run: one task per element of ``orders``."""

    def start(self, orders: list[TaskOrders]) -> EpochUnderWay:
        """Begin an epoch."""


class PinnedTopic(Protocol):
    """A topic as the link pinned it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def source_id(self) -> uuid.UUID: ...
    @property
    def target_id(self) -> uuid.UUID: ...


class LinkBook(Protocol):
    """What the driver needs of the link's state; :class:`kafka_migration.state.link.LinkState` is one."""

    name: str

    @property
    def transactional_id(self) -> str: ...
    def topics(self) -> Mapping[str, PinnedTopic]: ...
    def fences(self) -> Mapping[int, Identity]: ...
    def openings(self) -> Mapping[TopicPartition, tuple[RunOpening, ...]]: ...
    def progress(self) -> Mapping[TopicPartition, tuple[Position, dict[str, Any]]]: ...
    def record_fence(self, ordinal: int, identity: Identity, *, at: str) -> None: ...
    def record_openings(self, openings: Iterable[tuple[TopicPartition, RunOpening]]) -> None: ...
    def halted(self) -> set[TopicPartition]: ...
    def halt(self, tp: TopicPartition, reason: str, detail: str, source: int, target: int, at: str) -> None: ...
    def wanted(self) -> tuple[Desired, Mapping[TopicPartition, int]]: ...
    def commands_from(self) -> int: ...
    def recall(self, epoch: int) -> None: ...
    def record_run(self, value: dict[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``streams`` tasks at once, each epoch ``epoch_seconds`` long; an outage is borne for ``outage_seconds``."""

    streams: int = 2
    epoch_seconds: float = 15.0
    outage_seconds: float = 900.0
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run of the mirror ended: ``reason`` is caught_up, drained or stopped."""

    reason: str
    epochs: int
    fences: int
    records: int
    bytes: int
    batches: int
    executors: tuple[str, ...]
    halted: tuple[TopicPartition, ...]

    def as_dict(self) -> dict[str, Any]:
        """JSON types only."""
        return {
            **{name: getattr(self, name) for name in ("reason", "epochs", "fences", "records", "bytes", "batches")},
            "executors": list(self.executors),
            "halted": [str(tp) for tp in self.halted],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Active:
    """A partition that is fenced and certain: where it stands and who may write to it."""

    position: Position
    opening: RunOpening
    identity: Identity
    armed: bool


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
        tell: Callable[[str], None] = lambda _text: None,
        interrupted: Callable[[], bool] = lambda: False,
    ) -> None:
        """``source`` and ``target`` are kafka-python properties; ``interrupted`` asks for a clean end."""
        self.link, self.runner, self.settings, self.tell = link, runner, settings, tell
        self._interrupted = interrupted
        self._configs = (dict(source), dict(target))
        self._net = NetworkSelector(slow_task_threshold_secs=0)
        self._source = WireCluster(self._net, source, "source")
        self._target = WireCluster(self._net, target, "target")
        self._topics = dict(link.topics())
        self._active: dict[TopicPartition, _Active] = {}
        self._epoch = int(time.time() * 1000)  # grows over runs, so that a recall of an earlier run cannot hit this one
        self._fences = self._epochs = self._records = self._bytes = self._batches = 0
        self._lost = 0
        self._executors: set[str] = set()
        self._starts: dict[TopicPartition, int] = {}

    def run(self, *, until_caught_up: bool = False) -> Outcome:
        """Copy until the link's desired state says otherwise, or up to the source's present ends.

        Raises TakenOver, CouldNotFindOut after too long an outage, NotAuthorized; HaltedPartition if nothing is left
        that may be copied.
        """
        try:
            self._source.connect()
            self._target.connect()
            self._take_stock()
            self._fence(set(self._starts) - self.link.halted())
            ends = self._ends() if until_caught_up else {}
            reason = self._loop(ends)
        finally:
            for cluster in (self._source, self._target):
                cluster.close()
            self._net.close()
        outcome = Outcome(
            reason=reason,
            epochs=self._epochs,
            fences=self._fences,
            records=self._records,
            bytes=self._bytes,
            batches=self._batches,
            executors=tuple(sorted(self._executors)),
            halted=tuple(sorted(self.link.halted())),
        )
        self.link.record_run({"state": "ended", "at": _now(), **outcome.as_dict()})
        return outcome

    def _loop(self, ends: Mapping[TopicPartition, int]) -> str:
        while True:
            desired, wished_ends = self.link.wanted()
            if desired is Desired.STOP or self._interrupted():
                return "stopped"
            until = dict(wished_ends) if desired is Desired.DRAIN else dict(ends)
            if not self._active:
                raise _nothing_left(self.link)
            if until and all(a.position.source >= until.get(tp, 0) for tp, a in self._active.items()):
                return "drained" if desired is Desired.DRAIN else "caught_up"
            self._run_epoch(until, desired)

    # -- before the first epoch -------------------------------------------------------------------------------

    def _take_stock(self) -> None:
        """Find the partitions of all pinned topics; halt those whose topic is another one now."""
        names = list(self._topics)
        for cluster, side in ((self._source, "source"), (self._target, "target")):
            problems = self._net.run(cluster.refresh, names)
            for name in names:
                pinned = self._topics[name].source_id if side == "source" else self._topics[name].target_id
                if name in problems:
                    self._halt_topic(name, Halt.TOPIC_MISSING, f"the {side} has no topic of this name")
                elif pinned.int and cluster.topic_ids.get(name) != pinned:
                    self._halt_topic(name, Halt.RECREATED, f"the {side} topic was deleted and created again")
        halted = self.link.halted()
        partitions = [tp for tp in self._source.leaders if tp not in halted]
        self._starts = self._net.run(self._list, self._source, partitions, EARLIEST)

    def _halt_topic(self, name: str, reason: Halt, detail: str) -> None:
        halted = self.link.halted()
        for tp in {tp for tp in (*self._source.leaders, *self.link.openings()) if tp.topic == name} - halted:
            self.link.halt(tp, str(reason), detail, 0, 0, _now())

    def _ends(self) -> dict[TopicPartition, int]:
        return self._net.run(self._list, self._source, list(self._active), LATEST)  # type: ignore[no-any-return]

    @staticmethod
    async def _list(cluster: WireCluster, tps: list[TopicPartition], when: int) -> dict[TopicPartition, int]:
        return await cluster.list_offsets(tps, when, deadline=time.monotonic() + 60)

    # -- fencing ----------------------------------------------------------------------------------------------

    def _fence(self, partitions: set[TopicPartition]) -> None:
        """Fence ``partitions`` and know again where each stands. Bears an outage of either cluster for a while."""
        if not partitions:
            return
        until = time.monotonic() + self.settings.outage_seconds
        while True:
            try:
                self._fence_once(partitions)
                return
            except CouldNotFindOut as error:
                if time.monotonic() > until or not self._fences:
                    raise
                self.tell(f"waiting for the target: {error.message}")
                self._net.run(self._rest, _OUTAGE_PAUSE_SECONDS)
                if self.link.wanted()[0] is Desired.STOP or self._interrupted():
                    raise

    async def _rest(self, seconds: float) -> None:
        await self._net.sleep(seconds)

    def _fence_once(self, partitions: set[TopicPartition]) -> None:
        fences = dict(self.link.fences())
        ordinal = max(fences, default=-1) + 1
        known = self._known(partitions, fences)
        identity, outcome = self._net.run(
            lambda: take_over(
                self._target,
                transactional_id=self.link.transactional_id,
                fence=ordinal,
                known=known,
                source_starts=self._starts,
                previous=fences[ordinal - 1] if fences else None,
            )
        )
        self.link.record_fence(ordinal, identity, at=_now())
        resumed = {tp: r for tp, r in outcome.items() if not isinstance(r, Stopped)}
        self.link.record_openings((tp, r.opening) for tp, r in resumed.items())
        for tp, result in outcome.items():
            if isinstance(result, Stopped):
                self._active.pop(tp, None)
                self.link.halt(tp, str(result.reason), result.detail, 0, result.target_offset, _now())
                self.tell(f"{tp}: {result.reason}: {result.detail}")
            else:
                self._active[tp] = _Active(
                    position=result.position, opening=result.opening, identity=identity, armed=False
                )
        self._fences += 1
        self.tell(f"fence {ordinal}: {len(resumed)} partitions")

    def _known(self, partitions: set[TopicPartition], fences: Mapping[int, Identity]) -> dict[TopicPartition, Known]:
        progress, openings = self.link.progress(), self.link.openings()
        known = {}
        for tp in partitions:
            stored = openings.get(tp, ())
            if not stored:
                known[tp] = Known(openings=(), writer=None, verified=0)
                continue
            newest = stored[-1].fence
            mine = tuple(o for o in stored if o.fence == newest)
            verified = mine[0].target
            if tp in progress and progress[tp][0].fence == newest:
                verified = max(verified, progress[tp][0].target)
            if tp in self._active and self._active[tp].position.fence == newest:
                verified = max(verified, self._active[tp].position.target)
            known[tp] = Known(openings=mine, writer=fences.get(newest), verified=verified)
        return known

    # -- one epoch --------------------------------------------------------------------------------------------

    def _run_epoch(self, until: Mapping[TopicPartition, int], desired: Desired) -> None:
        self._epoch += 1
        self._epochs += 1
        self.link.record_run({"state": "running", "at": _now(), "epoch": self._epoch, "partitions": len(self._active)})
        under_way = self.runner.start(self._orders(until))
        self._watch(under_way, desired)
        try:
            receipts = under_way.receipts()
        except TakenOver:
            raise
        except Exception as error:
            if isinstance(error, MigrationError) and not isinstance(error, CouldNotFindOut):
                raise
            self.tell(f"epoch lost: {_last_line(error)}")
            before = {tp: a.position.source for tp, a in self._active.items()}
            self._fence(set(self._active))
            if any(a.position.source > before.get(tp, 0) for tp, a in self._active.items()):
                self._lost = 0
            self._lost += 1
            if self._lost >= _LOST_IN_A_ROW:
                raise _epochs_lost(self._lost, error) from error
            return
        self._lost = 0
        self._fold(receipts)

    def _orders(self, until: Mapping[TopicPartition, int]) -> list[TaskOrders]:
        source, target = self._configs
        commands_from = self.link.commands_from()
        ends = self._ends()
        shares = balance({tp: ends[tp] - a.position.source for tp, a in self._active.items()}, self.settings.streams)
        return [
            TaskOrders(
                link=self.link.name,
                epoch=self._epoch,
                seconds=self.settings.epoch_seconds,
                commands_from=commands_from,
                assignments=tuple(self._assignment(tp, until.get(tp)) for tp in share),
                limits=_share_of(self.settings.limits, len(shares)),
                source=source,
                target=target,
            )
            for share in shares
        ]

    def _assignment(self, tp: TopicPartition, until: int | None) -> Assignment:
        active, topic = self._active[tp], self._topics[tp.topic]
        return Assignment(
            partition=tp,
            position=active.position,
            fence_end=active.opening.target,
            closes=active.opening.closes or 0,
            armed=active.armed,
            topic_key=topic.key,
            producer_id=active.identity.producer_id,
            producer_epoch=active.identity.producer_epoch,
            source_topic_id=topic.source_id,
            target_topic_id=topic.target_id,
            until=until,
        )

    def _watch(self, under_way: EpochUnderWay, desired: Desired) -> None:
        """While tasks run: recall them if the wish changed or a partition waits for a fence."""
        recalled, told_at = False, time.monotonic()
        while not under_way.is_done():
            self._net.run(self._rest, _POLL_SECONDS)
            if recalled:
                continue
            progress = self.link.progress()
            waiting = [tp for tp in self._active if tp in progress and self._waits_for_fence(tp, *progress[tp])]
            if waiting or self._interrupted() or self.link.wanted()[0] is not desired:
                self.link.recall(self._epoch)
                recalled = True
            if time.monotonic() - told_at > 5:
                told_at = time.monotonic()
                copied = sum(
                    max(0, progress[tp][0].source - a.position.source)
                    for tp, a in self._active.items()
                    if tp in progress
                )
                self.tell(f"epoch {self._epochs}: {copied:,} source offsets copied")

    def _waits_for_fence(self, tp: TopicPartition, position: Position, told: Mapping[str, Any]) -> bool:
        return told["x"] == Stand.UNSETTLED and position.fence == self._active[tp].position.fence

    def _fold(self, receipts: list[Receipt]) -> None:
        unsettled: set[TopicPartition] = set()
        for receipt in receipts:
            tp = TopicPartition(receipt.topic, receipt.partition)
            active = self._active[tp]
            self._records += receipt.records
            self._bytes += receipt.bytes
            self._batches += receipt.batches
            if receipt.executor:
                self._executors.add(receipt.executor)
            if receipt.stand == Stand.TAKEN_OVER:
                raise TakenOver(f"link {self.link.name} (seen on {tp})")
            position = Position(
                source=receipt.source_end,
                target=receipt.target_end,
                fence=receipt.fence,
                records=receipt.target_end - active.opening.target,
            )
            self._active[tp] = replace(active, position=position, armed=active.armed or receipt.records > 0)
            if receipt.stand == Stand.HALTED:
                del self._active[tp]
                self.link.halt(tp, receipt.halt, receipt.detail, position.source, position.target, _now())
                self.tell(f"{tp}: {receipt.halt}: {receipt.detail}")
            elif receipt.stand == Stand.UNSETTLED:
                self.tell(f"{tp}: no clear answer ({receipt.detail}); a fence will tell")
                unsettled.add(tp)
        self._fence(unsettled)


def balance(backlog: Mapping[TopicPartition, int], streams: int) -> list[list[TopicPartition]]:
    """Partitions in at most ``streams`` shares of about equal backlog (source offsets), largest first; none empty."""
    shares: list[tuple[int, list[TopicPartition]]] = [(0, []) for _ in range(max(1, streams))]
    for tp in sorted(backlog, key=lambda tp: (-backlog[tp], tp)):
        at = min(range(len(shares)), key=lambda i: (shares[i][0], len(shares[i][1])))
        shares[at][1].append(tp)
        shares[at] = (shares[at][0] + max(0, backlog[tp]), shares[at][1])
    return [share for _, share in shares if share]


def _share_of(limits: Limits, tasks: int) -> Limits:
    """The throttle is meant for the whole mirror: each task gets its part."""
    throttle = limits.throttle_bytes_per_second
    return limits if throttle is None else replace(limits, throttle_bytes_per_second=max(1, throttle // tasks))


def _nothing_left(link: LinkBook) -> MigrationError:
    halted = sorted(link.halted())
    first = halted[0] if halted else TopicPartition("", 0)
    return HaltedPartition(
        topic=first.topic,
        partition=first.partition,
        reason="HALTED",
        detail=f"all {len(halted)} partitions of link {link.name} are halted, nothing is left to copy",
        remedy="`status` shows why each is halted and what can be done",
    )


def _last_line(error: BaseException) -> str:
    """What Python says of an error stands last, even inside a JVM's account of it."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip() and not line.startswith("\t")]
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"[:300]


def _epochs_lost(times: int, error: BaseException) -> CouldNotFindOut:
    return CouldNotFindOut(
        f"{times} epochs in a row died without copying anything; the last one of {_last_line(error)}",
        remedy="look at the Spark executors' logs; what was copied before is safe, and the mirror can be started again",
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
