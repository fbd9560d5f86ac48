"""Which partitions can take a fence now, and which must wait for their brokers.

A fence is one transaction over its partitions, and brokers do not give up a marker that they cannot write: a partition
that cannot take it would hold up the fence of all the others, and every later one of the link. So whoever has no leader
that answers, on either side, or too few replicas in sync on the target, stays out of it, and waits alone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping

import kafka.errors as kafka_errors

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.mirror.active import Active
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster
from kafka_migration.wire.configs import topic_configs
from kafka_migration.wire.selector import Selector

log = logging.getLogger(__name__)

_PATIENCE_SECONDS, _EVERY_SECONDS = 5.0, 2.0
"""Between two leaders there is always a moment without one; whoever is known to wait is asked for once each time."""
_MIN_IN_SYNC = "min.insync.replicas"


class Reach:
    """Looks at both clusters, and keeps who waits: ``waiting``, each as it stood when it was last certain, if ever."""

    def __init__(
        self,
        source: WireCluster,
        target: WireCluster,
        net: Selector,
        tell: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._target, self._net, self._tell, self._clock = source, target, net, tell, clock
        self._looked_at = float("-inf")
        self._why: dict[TopicPartition, str] = {}
        self.waiting: dict[TopicPartition, Active | None] = {}

    def look(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Those of ``partitions`` that can be fenced now, with where their source's log begins.

        Raises CouldNotFindOut where a cluster does not answer at all, and NotAuthorized.
        """
        patience = 0.0 if self.waiting.keys() >= set(partitions) else _PATIENCE_SECONDS
        found: dict[TopicPartition, int] = self._net.run(self._look, set(partitions), patience)
        return found

    def set_aside(self, partitions: Mapping[TopicPartition, Active | None]) -> None:
        """``partitions`` wait from now on, beside those that do already; says so."""
        new = partitions.keys() - self.waiting.keys()
        self.waiting |= partitions
        if new:
            self._tell(f"{self.describe()}; the others go on")

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """``partitions`` do not wait any more, if they did."""
        for tp in partitions:
            self.waiting.pop(tp, None)

    def are_back(self) -> bool:
        """True if a partition that waits can be fenced by now. Raises as :meth:`look` does."""
        if not self.waiting or self._clock() - self._looked_at < _EVERY_SECONDS:
            return False
        self._looked_at = self._clock()
        return bool(self.look(self.waiting))

    def describe(self) -> str:
        """Who waits for what; empty if nobody does."""
        if not self.waiting:
            return ""
        first = min(self.waiting)
        return f"waiting for the brokers of {len(self.waiting)} partitions, first {first}: {self._why.get(first, '')}"

    async def _look(self, wanted: set[TopicPartition], patience: float) -> dict[TopicPartition, int]:
        # The leader's, as everything that the fence reads.
        there = (await self._target.offsets_in_reach(wanted, LATEST, seconds=patience)).keys()
        starts = await self._source.offsets_in_reach(there, EARLIEST, seconds=patience)
        short = {tp for tp in starts if self._target.replicas[tp].in_sync < self._target.replicas[tp].count}
        wanted_in_sync = {topic: await self._wanted_in_sync(topic) for topic in {tp.topic for tp in short}}
        unsafe = {tp for tp in short if self._target.replicas[tp].lack(wanted_in_sync[tp.topic])}
        for tp in wanted:
            self._why[tp] = "the target has no leader that answers"
            if tp in there:
                self._why[tp] = "the source has no leader that answers"
            if tp in unsafe:
                self._why[tp] = f"the target has fewer replicas in sync than its {_MIN_IN_SYNC}"
        return {tp: start for tp, start in starts.items() if tp not in unsafe}

    async def _wanted_in_sync(self, topic: str) -> int:
        try:
            return int((await topic_configs(self._target, topic, (_MIN_IN_SYNC,))).get(_MIN_IN_SYNC) or 1)
        except (CouldNotFindOut, kafka_errors.KafkaError) as error:
            log.info("%s of target topic %s: %s", _MIN_IN_SYNC, topic, error)
            return 1
