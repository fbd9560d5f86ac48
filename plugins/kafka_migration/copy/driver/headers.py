"""The headers of all batches in a stretch of each log, as leaders have them: who wrote what stands there."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import kafka.errors as kafka_errors

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import BatchHeader, CorruptBatch, batches
from kafka_migration.wire.cluster import EARLIEST, WireCluster, code_name
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import Fetched, FetchFrom
from kafka_migration.wire.selector import Selector

#: For those who may not know how batches are laid out.
Header = BatchHeader

_BYTES = 4 << 20
_WAIT_MS, _PAUSE_SECONDS = 50, 0.05
_SECONDS = 60.0


def read(
    properties: Mapping[str, Any],
    role: str,
    since: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    *,
    seconds: float = _SECONDS,
) -> dict[TopicPartition, list[BatchHeader]]:
    """Headers from offset ``since`` up to ``ends`` of each partition, in order; of what has expired there is none.

    ``properties`` are kafka-python's. Raises ClusterUnreachable, NotAuthorized, and CouldNotFindOut where a log could
    not be read to its end within ``seconds``.
    """
    net = Selector()
    cluster = WireCluster(net, properties, role)
    try:
        cluster.connect()
        search = _Search(cluster, since, ends)
        net.run(lambda: search.read_all(time.monotonic() + seconds))
        return search.found
    finally:
        cluster.close()
        net.close()


class _Search:
    def __init__(
        self, cluster: WireCluster, since: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
    ) -> None:
        self._cluster, self._ends = cluster, ends
        self._offsets = dict(since)
        self._problem = "nothing comes"
        self.found: dict[TopicPartition, list[BatchHeader]] = {tp: [] for tp in since}

    async def read_all(self, deadline: float) -> None:
        starts = await self._cluster.list_offsets(self._offsets, EARLIEST, deadline=deadline)
        self._offsets = {tp: max(at, starts[tp]) for tp, at in self._offsets.items()}
        while self._leave_out_read():
            if await self._read_once():
                continue
            if time.monotonic() > deadline:
                raise CouldNotFindOut(
                    f"{self._cluster.role}: {len(self._offsets)} partitions could not be read to their ends, first"
                    f" {min(self._offsets)}: {self._problem}",
                    remedy="check that their brokers answer, then run this again",
                )
            await self._cluster.net.sleep(_PAUSE_SECONDS)

    def _leave_out_read(self) -> bool:
        self._offsets = {tp: at for tp, at in self._offsets.items() if at < self._ends[tp]}
        return bool(self._offsets)

    async def _read_once(self) -> bool:
        await self._cluster.refresh({tp.topic for tp in self._offsets})
        progressed = False
        for node, led in self._cluster.by_leader(self._offsets).items():
            wanted = [FetchFrom(tp, self._offsets[tp], _BYTES) for tp in led]
            try:
                answers = await fetch(self._cluster, node, wanted, max_wait_ms=_WAIT_MS, max_bytes=4 * _BYTES)
            except kafka_errors.KafkaError as error:
                self._problem = repr(error)
                continue
            for answer in answers:
                progressed |= self._take(answer)
        return progressed

    def _take(self, answer: Fetched) -> bool:
        tp = answer.partition
        self._cluster.require_authorized("Read", tp.topic, answer.error)
        if answer.error:
            self._problem = code_name(answer.error)
        before = self._offsets[tp]
        try:
            for header, _ in batches(answer.records):
                if header.next_offset > self._offsets[tp] and header.base_offset < self._ends[tp]:
                    self.found[tp].append(header)
                    self._offsets[tp] = header.next_offset
        except CorruptBatch as error:
            self._problem = str(error)
        return self._offsets[tp] > before
