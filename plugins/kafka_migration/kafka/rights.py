"""What the principal may do with topics: the cluster reports it of those that exist; of others it is tried out.

Brokers look at the permission before they look for the topic. So a fetch from, or a write to, a partition that cannot
exist is answered by "not authorized" or by "no such partition", and nothing is read or written either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)
from kafka.protocol.consumer import FetchRequest
from kafka.protocol.producer import ProduceRequest

from kafka_migration.domain.codes import (
    REFUSED,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_migration.kafka.clients import Calls, Clients
from kafka_migration.kafka.topics import operation_names

_ABSENT = (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)
#: The highest number, which no topic's partition has.
_NO_PARTITION = 2**31 - 1
#: Later versions name topics by ids, and what does not exist has none.
_BY_NAME = 12
_TIMEOUT_MS = 1_000


class RightsCalls(Calls):
    """What the principal may do with topics."""

    def topic_operations(self, names: Iterable[str], among: Iterable[str]) -> dict[str, frozenset[str]]:
        """What the principal may do with each topic: all operations with one that exists. With one that does not, or
        is hidden from it, those of ``among`` (CREATE, READ, WRITE, DESCRIBE_CONFIGS), which are tried out, and change
        nothing."""
        wanted, tried = sorted(set(names)), sorted(set(among))
        if not wanted:
            return {}
        described = self._clients.call_each(
            self._clients.asked("Describe", "topic"),
            lambda admin, seconds: admin.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=seconds
            ),
            on_error=lambda name, error: error.code() in _ABSENT,
        )
        found = {name: operation_names(topic.authorized_operations) for name, topic in described.items()}
        absent = [name for name in wanted if name not in found]
        allowed = {operation: TRIED[operation](self._clients, absent) for operation in tried}
        return found | {
            name: frozenset(operation for operation, those in allowed.items() if name in those) for name in absent
        }


def _may_create(clients: Clients, names: list[str]) -> frozenset[str]:
    """Asked to validate only; a refusal for another reason comes after the permission was seen."""
    denied: list[str] = []

    def note(name: str, error: KafkaError) -> bool:
        if error.code() == TOPIC_AUTHORIZATION_FAILED:
            denied.append(name)
        return error.code() in {TOPIC_AUTHORIZATION_FAILED, TOPIC_ALREADY_EXISTS} | REFUSED

    new = [NewTopic(name, num_partitions=1, replication_factor=1) for name in names]
    if new:
        clients.call_each(
            clients.asked("Create", "topic"),
            lambda admin, seconds: admin.create_topics(new, request_timeout=seconds, validate_only=True),
            on_error=note,
        )
    return frozenset(names) - frozenset(denied)


def _may_describe_configs(clients: Clients, names: list[str]) -> frozenset[str]:
    resources = [ConfigResource(ResourceType.TOPIC, name) for name in names]
    return _not_denied(
        clients,
        "DescribeConfigs",
        resources,
        lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
    )


def _may_alter_configs(clients: Clients, names: list[str]) -> frozenset[str]:
    """Asked to validate only."""
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry]) for name in names]
    return _not_denied(
        clients,
        "AlterConfigs",
        resources,
        lambda admin, seconds: admin.incremental_alter_configs(resources, request_timeout=seconds, validate_only=True),
    )


def _not_denied(
    clients: Clients, operation: str, resources: list[ConfigResource], ask: Callable[[Any, float], Any]
) -> frozenset[str]:
    """The topics among ``resources`` of which ``ask`` is not answered by a refusal of the authorizer."""
    denied: list[str] = []

    def note(resource: ConfigResource, error: KafkaError) -> bool:
        if error.code() == TOPIC_AUTHORIZATION_FAILED:
            denied.append(resource.name)
        return error.code() in _ABSENT

    if resources:
        clients.call_each(clients.asked(operation, "topic"), ask, on_error=note, name=lambda resource: resource.name)
    return frozenset(resource.name for resource in resources) - frozenset(denied)


def _may_read(clients: Clients, names: list[str]) -> frozenset[str]:
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=_NO_PARTITION,
        current_leader_epoch=-1,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=1,
    )
    request = FetchRequest(
        max_version=_BY_NAME,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=name, partitions=[partition]) for name in names],
        forgotten_topics_data=[],
        rack_id="",
    )
    return _tried(clients, "Read", names, request, lambda answer: ((t.topic, t.partitions) for t in answer.responses))


def _may_write(clients: Clients, names: list[str]) -> frozenset[str]:
    nothing = ProduceRequest.TopicProduceData.PartitionProduceData(index=_NO_PARTITION, records=None)
    request = ProduceRequest(
        max_version=_BY_NAME,
        transactional_id=None,
        acks=-1,
        timeout_ms=_TIMEOUT_MS,
        topic_data=[ProduceRequest.TopicProduceData(name=name, partition_data=[nothing]) for name in names],
    )
    return _tried(
        clients, "Write", names, request, lambda answer: ((t.name, t.partition_responses) for t in answer.responses)
    )


def _tried(clients: Clients, operation: str, names: list[str], request: Any, topics_of: Any) -> frozenset[str]:
    if not names:
        return frozenset()
    raw, asked = clients.raw(), clients.asked(operation, "topic")

    async def ask() -> frozenset[str]:
        answer = await raw.send(request, None)
        return frozenset(
            name
            for name, partitions in topics_of(answer)
            if all(partition.error_code != TOPIC_AUTHORIZATION_FAILED for partition in partitions)
        )

    return raw.run(asked, ask)


#: What can be tried on a topic that does not exist, or is hidden.
TRIED: Mapping[str, Callable[[Clients, list[str]], frozenset[str]]] = {
    "ALTER_CONFIGS": _may_alter_configs,
    "CREATE": _may_create,
    "DESCRIBE_CONFIGS": _may_describe_configs,
    "READ": _may_read,
    "WRITE": _may_write,
}
