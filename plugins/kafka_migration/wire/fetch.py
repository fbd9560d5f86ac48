"""Fetching record batches, as they are stored, from the leader of many partitions at once."""

from __future__ import annotations

from collections.abc import Iterable

from kafka_migration.wire.cluster import WireCluster
from kafka_migration.wire.fetch_request import (
    Fetched,
    FetchFrom,
    FetchOptions,
    LeanFetchRequest,
    LeanFetchResponse,
)

OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID = 1, 3, 100, 103
FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER = 74, 75, 6


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

    Topic ids are used where both sides have them (see :meth:`WireCluster.topic_id`): a recreated topic is then told
    apart (error 100), while by name it would be read on as if it were the same.
    """
    # A topic stands there once for each row of its partitions, as in Kafka's own consumer: all of a topic's partitions
    # at the place of its first would put the last of them before those of other topics whose turn it is.
    topics: list[tuple[str, list[tuple[FetchFrom, int]]]] = []
    for want in wanted:
        leader = cluster.leaders.get(want.partition)
        if not topics or topics[-1][0] != want.partition.topic:
            topics.append((want.partition.topic, []))
        topics[-1][1].append((want, leader.epoch if leader else -1))
    request = LeanFetchRequest(
        topics,
        {name: cluster.topic_id(name) for name, _ in topics},
        FetchOptions(max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes, committed=committed),
    )
    response: LeanFetchResponse = await cluster.send(request, node, timeout_ms=cluster.request_timeout_ms + max_wait_ms)
    return response.answers
