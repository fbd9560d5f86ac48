"""Log ends of a cluster, asked often and cheaply: one request for all partitions."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import EARLIEST, LATEST, WireCluster
from kafka_migration.wire.selector import Selector


class LogEnds:
    """A connection that asks for the offsets of some partitions.

    with LogEnds(servers, partitions) as ends:
        ends.total()
    """

    def __init__(self, servers: str, partitions: Iterable[TopicPartition]) -> None:
        """``servers`` as in bootstrap.servers."""
        self._partitions = list(partitions)
        self._net = Selector()
        self._cluster = WireCluster(self._net, {"bootstrap_servers": servers}, "target")

    def __enter__(self) -> Self:
        self._cluster.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cluster.close()
        self._net.close()

    def total(self) -> int:
        """Sum of the log ends."""
        return sum(self.each(LATEST).values())

    def each(self, when: int = LATEST) -> dict[TopicPartition, int]:
        """The offset of every partition, LATEST or EARLIEST."""

        async def ask() -> dict[TopicPartition, int]:
            return await self._cluster.list_offsets(self._partitions, when, deadline=time.monotonic() + 30)

        found: dict[TopicPartition, int] = self._net.run(ask)
        return found


__all__ = ["EARLIEST", "LATEST", "LogEnds"]
