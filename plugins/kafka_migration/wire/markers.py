"""Fence markers without a coordinator: what is left where a transactional id was forgotten, or must be kept alive.

Brokers forget a transactional id that nobody used for ``transactional.id.expiration.ms`` (7 days), and then hand out
another producer id for it, whose markers do not bind the earlier one. Leaders take the earlier one's marker directly
(WriteTxnMarkers, KIP-98), from whoever may do ClusterAction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import kafka.errors as kafka_errors
from kafka.protocol.producer import WriteTxnMarkersRequest

from kafka_migration.domain import codes
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized, reason_of
from kafka_migration.domain.ledger import LINKS_TOPIC
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.wire.cluster import WireCluster, code_name
from kafka_migration.wire.fence import write_markers

_LAST_COORDINATOR_EPOCH = 2**31 - 1
"""Above that of every real coordinator, none of which knows this producer any more."""


async def keep_alive(cluster: WireCluster, transactional_id: str, identity: Identity, *, deadline: float) -> None:
    """An empty transaction of ``identity`` on a topic of the link's own: the id counts as used, its epoch stays.

    Raises TakenOver if a newer fence began, CouldNotFindOut if nobody answers, or (Forgotten) if the id was forgotten.
    """
    await write_markers(cluster, transactional_id, identity, [TopicPartition(LINKS_TOPIC, 0)], deadline=deadline)


async def write_markers_directly(
    cluster: WireCluster, identity: Identity, partitions: list[TopicPartition], *, deadline: float
) -> None:
    """Have the leaders append an abort marker of ``identity``; durable on return. May be repeated.

    Raises NotAuthorized without ClusterAction, CouldNotFindOut at ``deadline`` (monotonic seconds).
    """
    pending, problem = set(partitions), "no leader"
    while pending:
        await cluster.wait_for_leaders(pending, deadline=deadline)
        for node, group in cluster.by_leader(pending).items():
            try:
                response = await cluster.send(_request(cluster, identity, group), node)
            except kafka_errors.KafkaError as error:
                problem = reason_of(error)
                continue
            for tp, code in _answers(cluster, response):
                if code in codes.UNAUTHORIZED:
                    raise NotAuthorized(cluster.role, "ClusterAction", "cluster")
                # A later epoch's marker stands there already: it binds what this one would.
                if code and code != codes.INVALID_PRODUCER_EPOCH:
                    problem = code_name(code)
                else:
                    pending.discard(tp)
        if not pending:
            return
        if time.monotonic() > deadline:
            raise CouldNotFindOut(
                f"{cluster.role}: {len(pending)} partitions take no marker, first {min(pending)}: {problem}",
                remedy="check that these partitions have a leader and enough in-sync replicas, then run this again",
            )
        await cluster.net.sleep(0.1)


def _answers(cluster: WireCluster, response: Any) -> Iterator[tuple[TopicPartition, int]]:
    """Each partition, and the error code of its marker."""
    for marker in response.markers:
        for topic in marker.topics:
            for part in topic.partitions:
                yield TopicPartition(cluster.known_as(topic.name), part.partition_index), part.error_code


def _request(cluster: WireCluster, identity: Identity, group: list[TopicPartition]) -> WriteTxnMarkersRequest:
    topics: dict[str, list[int]] = {}
    for tp in group:
        topics.setdefault(cluster.name_here(tp.topic), []).append(tp.partition)
    marker = WriteTxnMarkersRequest.WritableTxnMarker
    return WriteTxnMarkersRequest(
        markers=[
            marker(
                producer_id=identity.producer_id,
                producer_epoch=identity.producer_epoch,
                transaction_result=False,
                topics=[
                    marker.WritableTxnMarkerTopic(name=name, partition_indexes=parts) for name, parts in topics.items()
                ],
                coordinator_epoch=_LAST_COORDINATOR_EPOCH,
                transaction_version=0,
            )
        ]
    )
