"""Fetching record batches, as they are stored, from the leader of many partitions at once: once, or in a session."""

from __future__ import annotations

from collections.abc import Iterable

import kafka.errors as kafka_errors

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.fetch_request import (
    Fetched,
    FetchFrom,
    FetchOptions,
    LeanFetchRequest,
    LeanFetchResponse,
)
from kafka_migration.wire.lean import TopicIds

_OVER, _LAST_NUMBER = -1, 2**31 - 1
"""Numbers of requests in a session: the one that ends it, and the one after which they begin with 1 again."""
_Asked = tuple[FetchFrom, int]
"""With the epoch of its leader."""


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
