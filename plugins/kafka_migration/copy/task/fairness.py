"""How partitions of one task share what can be fetched and sent, heavy and small ones alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol, TypeVar

from kafka_migration.domain.types import TopicPartition


class OfPartition(Protocol):
    """Whatever belongs to a partition."""

    @property
    def partition(self) -> TopicPartition: ...


T = TypeVar("T", bound=OfPartition)


class FetchOrder:
    """The order in which to ask for partitions. Brokers fill a response in the order asked, up to its size.

    Who got something goes to the end, as in Kafka's own consumer (KIP-41), so that as many heavy partitions as fill a
    response cannot keep the others out of it. Who had nothing stays in front, where it costs nothing.
    """

    def __init__(self) -> None:
        self._served: dict[TopicPartition, int] = {}
        self._count = 0

    def order(self, wanted: Iterable[T]) -> list[T]:
        """``wanted``, those that got something longest ago first."""
        return sorted(wanted, key=lambda each: self._served.get(each.partition, 0))

    def served(self, partitions: Sequence[TopicPartition]) -> None:
        """These got something, in this order."""
        for tp in partitions:
            self._count += 1
            self._served[tp] = self._count


class FairBytes:
    """Equal bytes for every partition that has something to send (start-time fair queueing, Goyal et al., 1996).

    A partition that was silent is neither owed the time of its silence, nor kept waiting for it.
    """

    def __init__(self) -> None:
        self._now = 0
        self._free: dict[TopicPartition, int] = {}

    def order(self, ready: list[T]) -> list[T]:
        """``ready``, those that were given least lately first."""
        return sorted(ready, key=lambda each: self._start(each.partition)) if len(ready) > 1 else ready

    def sent(self, partition: TopicPartition, size: int) -> None:
        """``size`` bytes of this partition were its turn."""
        self._now = start = self._start(partition)
        self._free[partition] = start + size

    def _start(self, partition: TopicPartition) -> int:
        free = self._free.get(partition, 0)
        return free if free > self._now else self._now
