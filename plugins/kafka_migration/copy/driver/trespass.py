"""Records on the target that the link did not write, in partitions where the mirror itself writes nothing.

Where it writes, the next answer tells (docs/mirror.md, rule 3). Where nothing moves nobody would notice until the next
fence; so the driver looks at the target's ends beside its tasks. What it sees is a suspicion only, since an answer may
be late: a fence then reads what stands there, and judges.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from kafka_migration.domain.types import Position, TopicPartition
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.selector import Selector

_EVERY_SECONDS = 5.0


class Trespass:
    """Looks at the target's ends every few seconds."""

    def __init__(self, target: WireCluster, net: Selector, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._target, self._net, self._clock = target, net, clock
        self._looked_at = float("-inf")
        self._beyond: dict[TopicPartition, Position] = {}

    def look(self, told: Mapping[TopicPartition, Position]) -> set[TopicPartition]:
        """Partitions whose log ended beyond the position that was ``told``, at two looks between which it stood still.

        Raises CouldNotFindOut if the target does not answer.
        """
        if self._clock() - self._looked_at < _EVERY_SECONDS:
            return set()
        self._looked_at = self._clock()
        led = [tp for tp in told if tp in self._target.leaders]
        ends: dict[TopicPartition, int] = self._net.run(lambda: self._target.offsets_in_reach(led, LATEST, seconds=0))
        beyond = {tp: told[tp] for tp, end in ends.items() if end > told[tp].target}
        found = {tp for tp, position in beyond.items() if self._beyond.get(tp) == position}
        self._beyond = beyond
        return found
