"""Fetching record batches, as they are stored, from the leader of many partitions at once: once, or in a session.

And the headers of all batches in a stretch of each log, as leaders have them: who wrote what stands there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

import kafka.errors as kafka_errors

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import BatchHeader, CorruptBatch, batches
from kafka_migration.wire.cluster import EARLIEST, WireCluster, code_name
from kafka_migration.wire.fetch_request import (
    Fetched,
    FetchFrom,
    FetchOptions,
    LeanFetchRequest,
    LeanFetchResponse,
)
from kafka_migration.wire.lean import TopicIds
from kafka_migration.wire.selector import Selector

_OVER, _LAST_NUMBER = -1, 2**31 - 1
"""Numbers of requests in a session: the one that ends it, and the one after which they begin with 1 again."""
_Asked = tuple[FetchFrom, int]
"""With the epoch of its leader."""
_BYTES = 4 << 20
_WAIT_MS, _PAUSE_SECONDS = 50, 0.05
_SECONDS = 60.0


async def fetch(
    cluster: WireCluster,
    node: int,
    wanted: Iterable[FetchFrom],
    *,
    max_wait_ms: int,
    max_bytes: int,
    min_bytes: int = 1,
    committed: bool = False,
) -> list[Fetched]:
    """One fetch request to ``node`` for partitions that it leads. Raises kafka-python's errors on trouble.

    The broker fills its response in the order of ``wanted``, up to ``max_bytes`` (a first batch always fits). With
    ``committed`` it ends before the first open transaction (KIP-98).

    Topic ids are used where both sides have them (see :meth:`WireCluster.topic_id`): a recreated topic is then
    recognised (error 100), while by name it would be read on as if it were the same.
    """
    options = FetchOptions(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed)
    asked = [(want, _leader_epoch(cluster, want.partition)) for want in wanted]
    ids = TopicIds({want.partition.topic: cluster.topic_id(want.partition.topic) for want, _ in asked}, cluster.names)
    request = LeanFetchRequest(_by_topic(asked), ids, options)
    response: LeanFetchResponse = await cluster.send(request, node, timeout_ms=cluster.request_timeout_ms + max_wait_ms)
    return response.answers


class FetchSession:
    """Fetches from one broker, one after the other, in a session of its (KIP-227): a request names the partitions of
    which something changed since the one before, and a response those that have records, or an error.

    The broker fills its responses in turns: who got something goes to the end. It may keep no session for us, having
    too many: then each request names everything.
    """

    def __init__(self, cluster: WireCluster, node: int) -> None:
        self._cluster, self._node = cluster, node
        self._id = self._number = self._moves = 0
        self._asked: dict[TopicPartition, FetchFrom] = {}
        self._ids = TopicIds({})

    @property
    def begins(self) -> bool:
        """True if the next request names everything, in the order of its ``wanted``: the first one, and whenever
        leaders may have got other epochs."""
        return self._number == 0 or self._moves != self._cluster.moves

    async def fetch(
        self, wanted: Iterable[FetchFrom], *, max_wait_ms: int, max_bytes: int, committed: bool
    ) -> list[Fetched]:
        """As :func:`fetch` of this module, but answers with nothing new are left out.

        Where nobody had records, or one had an error or a log that was cut, the next request begins again: its
        response reports of every partition where it stands.
        """
        options = FetchOptions(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=max_bytes, committed=committed)
        asked = {want.partition: want for want in wanted}
        if self.begins:
            self._begin()
        try:
            response = await self._send(asked, options)
            if response.error and self._number:
                # Evicted, for instance.
                self._begin()
                response = await self._send(asked, options)
            if response.error:
                raise kafka_errors.for_code(response.error)()
        except kafka_errors.KafkaError:
            self._begin()
            raise
        self._id, self._asked = response.session, asked
        self._number = self._number % _LAST_NUMBER + 1 if response.session else 0
        if not any(answer.records for answer in response.answers) or any(
            answer.error or answer.diverging_end is not None for answer in response.answers
        ):
            self._begin()
        return response.answers

    def close(self) -> None:
        """Give the session back, without waiting for an answer. Those of all its clients share a broker's memory."""
        if self._id:
            over = FetchOptions(max_wait_ms=0, min_bytes=0, max_bytes=0, committed=True, session=(self._id, _OVER))
            self._cluster.begin(LeanFetchRequest([], TopicIds({}), over), self._node)
            self._id = self._number = 0

    def _begin(self) -> None:
        # With its id: the broker drops the one before.
        self._number, self._asked, self._moves = 0, {}, self._cluster.moves

    async def _send(self, asked: dict[TopicPartition, FetchFrom], options: FetchOptions) -> LeanFetchResponse:
        before = self._asked
        changed = [(want, _leader_epoch(self._cluster, tp)) for tp, want in asked.items() if before.get(tp) != want]
        forgotten = sorted(before.keys() - asked.keys())
        if not self._number or any(want.partition.topic not in self._ids.by_name for want, _ in changed):
            topics = {tp.topic for tp in (*before, *asked)}
            self._ids = TopicIds({topic: self._cluster.topic_id(topic) for topic in topics}, self._cluster.names)
        options = options._replace(session=(self._id, self._number))
        request = LeanFetchRequest(_by_topic(changed), self._ids, options, forgotten)
        timeout_ms = self._cluster.request_timeout_ms + options.max_wait_ms
        response: LeanFetchResponse = await self._cluster.send(request, self._node, timeout_ms=timeout_ms)
        return response


def _leader_epoch(cluster: WireCluster, tp: TopicPartition) -> int:
    leader = cluster.leaders.get(tp)
    return leader.epoch if leader else -1


def _by_topic(asked: Iterable[_Asked]) -> list[tuple[str, list[_Asked]]]:
    """A topic stands there once for each row of its partitions, as in Kafka's own consumer: all of a topic's partitions
    at the place of its first would put the last of them before those of other topics whose turn it is."""
    topics: list[tuple[str, list[_Asked]]] = []
    for want, leader_epoch in asked:
        if not topics or topics[-1][0] != want.partition.topic:
            topics.append((want.partition.topic, []))
        topics[-1][1].append((want, leader_epoch))
    return topics


def read_headers(
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
