"""Leader epochs of partitions: by them, whoever read a log before recognises whether it still stands (KIP-101, 320)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.types import EpochEnd

_EPOCHS_SINCE, _TOLD_SINCE = 2, 7
"""Versions: of the request, from which on brokers say which epoch they speak of; of metadata, with leader epochs."""
_CONSUMER, _UNKNOWN = -1, -1


def log_epochs(clients: Clients, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
    """Of each partition, where the leader epoch asked for ends (None: the one of now, which ends with the log).

    Where that epoch is unknown, the newest one before it is told. Partitions without a leader, and all of brokers that
    cannot tell (before Kafka 2.0), are left out. Needs Describe on the topics.
    """
    raw, where = clients.raw(), clients.asked("Describe", "partition (leader epochs)")
    if not asked or not (
        raw.supports(OffsetForLeaderEpochRequest, _EPOCHS_SINCE) and raw.supports(MetadataRequest, _TOLD_SINCE)
    ):
        return {}
    names = sorted({tp.topic for tp in asked})

    async def ask() -> dict[TopicPartition, EpochEnd]:
        metadata = await raw.send(
            MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
                allow_auto_topic_creation=False,
                max_version=9,
            ),
            None,
        )
        by_leader: dict[int, dict[str, list[Any]]] = {}
        for topic in metadata.topics:
            raw.require(clients.asked("Describe", f"topic {topic.name}"), topic.error_code)
            for it in topic.partitions:
                tp = TopicPartition(topic.name, it.partition_index)
                if tp not in asked or it.leader_id < 0:
                    continue
                epoch = asked[tp] if asked[tp] is not None else it.leader_epoch
                wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=tp.partition, current_leader_epoch=_UNKNOWN, leader_epoch=epoch
                )
                by_leader.setdefault(it.leader_id, {}).setdefault(tp.topic, []).append(wanted)
        found = {}
        for leader, topics in by_leader.items():
            request = OffsetForLeaderEpochRequest(
                replica_id=_CONSUMER,
                topics=[
                    OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=partitions)
                    for name, partitions in topics.items()
                ],
            )
            for topic in (await raw.send(request, leader)).topics:
                for it in topic.partitions:
                    raw.require(clients.asked("Describe", f"topic {topic.topic}"), it.error_code)
                    if it.leader_epoch >= 0:
                        tp = TopicPartition(topic.topic, it.partition)
                        found[tp] = EpochEnd(epoch=it.leader_epoch, end=it.end_offset)
        return found

    return raw.run(where, ask)
