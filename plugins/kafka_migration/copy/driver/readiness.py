"""Which partitions can take a fence now, and which must wait for their brokers.

A fence is one transaction over its partitions, and brokers do not give up a marker that they cannot write: a partition
that cannot take it would hold up the fence of all the others, and every later one of the link. So whoever has no leader
that answers, on either side, or too few replicas in sync on the target, or whose topic the principal may not read or
write any more, or is another one now, stays out of it, and waits alone. It is looked at again every few seconds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import kafka.errors as kafka_errors

from kafka_migration.copy.driver.active import Active
from kafka_migration.copy.driver.survey import recreated, undescribed
from kafka_migration.domain.codes import UNAUTHORIZED
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import (
    EARLIEST,
    LATEST,
    READ,
    WRITE,
    WireCluster,
    not_authorized,
)
from kafka_migration.wire.configs import described
from kafka_migration.wire.selector import Selector

log = logging.getLogger(__name__)

_PATIENCE_SECONDS, _BESIDE_SECONDS, _EVERY_SECONDS = 5.0, 1.0, 2.0
"""Between two leaders there is always a moment without one; less is borne where others stand still meanwhile. Whoever
is known to wait is asked for once each time."""
_REFUSED_SECONDS = 10.0
"""A broker that refused is believed for so long, whatever others report of the permission."""
_OPERATIONS = {READ: "Read", WRITE: "Write"}
_MIN_IN_SYNC = "min.insync.replicas"


class Readiness:
    """Looks at both clusters, and keeps the partitions that wait: ``waiting``, each as it stood when it was last
    certain, if ever."""

    def __init__(
        self,
        source: WireCluster,
        target: WireCluster,
        net: Selector,
        log: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._target, self._net, self._log, self._clock = source, target, net, log, clock
        self._looked_at = float("-inf")
        self._why: dict[TopicPartition, str] = {}
        self._refused: dict[str | TopicPartition, tuple[str, float]] = {}
        self._lacking: dict[str, NotAuthorized] = {}
        self.waiting: dict[TopicPartition, Active | None] = {}

    def look(
        self, partitions: Collection[TopicPartition], *, is_beginning: bool = False, within: float = float("inf")
    ) -> dict[TopicPartition, int]:
        """Those of ``partitions`` that can be fenced now, with where their source's log begins. ``is_beginning``:
        nothing is copied yet that would stand still meanwhile. None of them, if it takes more than ``within`` seconds.

        Raises CouldNotFindOut where a cluster does not answer at all.
        """
        patience = _PATIENCE_SECONDS if is_beginning else _BESIDE_SECONDS
        if self.waiting.keys() >= set(partitions):
            patience = 0.0
        found: dict[TopicPartition, int] = self._net.run(self._soon, set(partitions), patience, within)
        return found

    async def _soon(self, wanted: set[TopicPartition], patience: float, within: float) -> dict[TopicPartition, int]:
        looking, until = self._net.call_soon_with_future(self._look, wanted, patience), self._clock() + within
        while not looking.is_done and self._clock() < until:
            await self._net.sleep(0.01)
        if not looking.is_done:
            self._why |= dict.fromkeys(wanted, f"their brokers have not answered within {within:g} s")
            return {}
        if looking.exception is not None:
            raise looking.exception
        return looking.value  # type: ignore[no-any-return]

    def refuse(self, error: NotAuthorized) -> None:
        """A broker does not permit what the copy of a topic needs: for a while nothing of it can be fenced."""
        self._lacking[error.topic] = error
        self.bar(error.topic, not_authorized(error.cluster, error.operation, error.resource.removeprefix("topic ")))

    def bar(self, what: str | TopicPartition, why: str, seconds: float = _REFUSED_SECONDS) -> None:
        """For so long neither a whole topic, nor a partition, can be fenced, for a reason that somebody else saw."""
        self._refused[what] = (why, self._clock() + seconds)

    def lacking(self) -> NotAuthorized | None:
        """The permission without which the first of ``waiting`` waits, if all of them wait for one."""
        topics = sorted({tp.topic for tp in self.waiting})
        return self._lacking[topics[0]] if topics and self._lacking.keys() >= set(topics) else None

    def set_aside(self, partitions: Mapping[TopicPartition, Active | None], why: str = "") -> None:
        """``partitions`` wait from now on, beside those that do already, because of ``why``, or of what the newest look
        at them found, which is shown."""
        if why:
            self._why |= dict.fromkeys(partitions, why)
        elif partitions:
            # So they need no look of their own at once.
            self._looked_at = self._clock()
        new = partitions.keys() - self.waiting.keys()
        self.waiting |= partitions
        if new:
            self._log(f"{self.describe()}; the others go on")

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """``partitions`` do not wait any more, if they did."""
        for tp in partitions:
            self.waiting.pop(tp, None)

    def is_due(self) -> bool:
        """True if somebody waits, and was not looked at for some seconds."""
        if not self.waiting or self._clock() - self._looked_at < _EVERY_SECONDS:
            return False
        self._looked_at = self._clock()
        return True

    def describe(self) -> str:
        """Who waits for what; empty if nobody does."""
        if not self.waiting:
            return ""
        by_reason: dict[str, list[TopicPartition]] = {}
        for tp in self.waiting:
            by_reason.setdefault(self._why.get(tp, ""), []).append(tp)
        return "; ".join(f"{len(tps)} partitions wait, first {min(tps)}: {why}" for why, tps in by_reason.items())

    async def _look(self, wanted: set[TopicPartition], patience: float) -> dict[TopicPartition, int]:
        wanted = wanted - await self._barred(wanted)
        # The leader's, as everything that the fence reads.
        there = (await self._target.offsets_in_reach(wanted, LATEST, seconds=patience)).keys()
        starts = await self._source.offsets_in_reach(there, EARLIEST, seconds=patience)
        unsafe = await self._unsafe(starts)
        for tp in wanted:
            self._why[tp] = "the target has no leader that answers"
            if tp in there:
                self._why[tp] = "the source has no leader that answers"
            if tp in unsafe:
                self._why[tp] = f"the target has fewer replicas in sync than its {_MIN_IN_SYNC}"
        return {tp: start for tp, start in starts.items() if tp not in unsafe}

    async def _barred(self, wanted: set[TopicPartition]) -> set[TopicPartition]:
        """Those of ``wanted`` that cannot be fenced whatever their leaders answer; notes why."""
        self._refused = {what: refusal for what, refusal in self._refused.items() if refusal[1] > self._clock()}
        barred = await self._barred_topics({tp.topic for tp in wanted})
        barred |= {what: why for what, (why, _) in self._refused.items()}
        why = {tp: text for tp in wanted if (text := barred.get(tp) or barred.get(tp.topic))}
        self._why |= why
        return set(why)

    async def _barred_topics(self, topics: set[str]) -> dict[str | TopicPartition, str]:
        """Those of ``topics`` that may not be copied just now, or are not the pinned ones, with why."""
        barred: dict[str | TopicPartition, str] = {}
        self._lacking = {
            topic: error for topic, error in self._lacking.items() if topic not in topics or topic in self._refused
        }
        for cluster, needed in ((self._target, (READ, WRITE)), (self._source, (READ,))):
            problems = await cluster.refresh(topics, operations=True)
            for topic in topics:
                why = self._bar_to(cluster, topic, problems.get(topic, 0), needed)
                if why:
                    barred[topic] = why
        return barred

    def _bar_to(self, cluster: WireCluster, topic: str, code: int, needed: tuple[int, ...]) -> str:
        """Why ``topic``, of which metadata reported ``code``, may not be copied; empty if it may."""
        lacking = [operation for operation in needed if not cluster.permits(topic, operation)]
        if code in UNAUTHORIZED or (not code and lacking):
            operation = _OPERATIONS[lacking[0]] if lacking else "Describe"
            here = cluster.name_here(topic)
            self._lacking[topic] = NotAuthorized(cluster.role, operation, f"topic {here}", topic=topic)
            return not_authorized(cluster.role, operation, here)
        if code:
            return undescribed(cluster, topic, code)
        another = recreated(cluster, topic)
        return "" if another is None else another[1]

    async def _unsafe(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those of ``partitions`` whose target has too few replicas in sync to take a marker."""
        replicas = self._target.replicas
        short = {tp for tp in partitions if replicas[tp].in_sync < replicas[tp].count}
        needed = await self._wanted_in_sync({tp.topic for tp in short}) if short else {}
        return {tp for tp in short if replicas[tp].lack(needed.get(tp.topic, 1))}

    async def _wanted_in_sync(self, topics: set[str]) -> dict[str, int]:
        try:
            found, _ = await described(self._target, topics, (_MIN_IN_SYNC,))
        except (CouldNotFindOut, kafka_errors.KafkaError) as error:
            log.info("%s of %d target topics: %s", _MIN_IN_SYNC, len(topics), error)
            return {}
        return {topic: int(configs.get(_MIN_IN_SYNC) or 1) for topic, configs in found.items()}
