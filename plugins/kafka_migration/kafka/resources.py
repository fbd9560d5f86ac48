"""What a cluster holds beside topics and groups: disks, producers, access rules, quotas, users. All read-only."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
from kafka.protocol.admin import (
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeUserScramCredentialsRequest,
)
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import FindCoordinatorRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.types import Acl, ActiveProducer, DiskUse, LogDir, Quota, ScramUser

_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


def disk_use(clients: Clients, tps: Iterable[TopicPartition]) -> DiskUse:
    """Every broker's log directories, and the bytes of ``tps`` (largest replica). Needs Describe on the cluster."""
    raw, asked = clients.raw(), clients.asked("Describe", "cluster (log directories)")
    topics: dict[str, list[int]] = {}
    for tp in tps:
        topics.setdefault(tp.topic, []).append(tp.partition)

    async def ask() -> DiskUse:
        await raw.refresh()
        dirs: list[LogDir] = []
        sizes: dict[TopicPartition, int] = {}
        request = DescribeLogDirsRequest(
            topics=[
                DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=sorted(partitions))
                for name, partitions in sorted(topics.items())
            ]
        )
        for node in raw.brokers():
            answer = await raw.send(request, node)
            raw.require(asked, answer.error_code or 0)
            for it in answer.results:
                raw.require(asked, it.error_code)
                dirs.append(
                    LogDir(
                        broker=node,
                        path=it.log_dir,
                        total_bytes=_size(it.total_bytes),
                        usable_bytes=_size(it.usable_bytes),
                    )
                )
                for topic in it.topics:
                    for partition in topic.partitions:
                        # A replica on its way to another disk is there twice.
                        if not partition.is_future_key:
                            tp = TopicPartition(topic.name, partition.partition_index)
                            sizes[tp] = max(sizes.get(tp, 0), partition.partition_size)
        return DiskUse(log_dirs=tuple(dirs), partition_bytes=sizes)

    return raw.run(asked, ask)


def _size(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def producers(
    clients: Clients, leaders: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
    """Producer ids that each partition's leader remembers (KIP-664, Kafka 2.8). Needs Read on the topics.

    ``leaders`` says which broker leads; a partition whose leader moved since is asked for again by the caller.
    """
    raw, asked = clients.raw(), clients.asked("Read", "topic (its producers)")
    by_leader: dict[int, dict[str, list[int]]] = {}
    for tp, leader in leaders.items():
        by_leader.setdefault(leader, {}).setdefault(tp.topic, []).append(tp.partition)

    async def ask() -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        found = {}
        for leader, topics in by_leader.items():
            request = DescribeProducersRequest(
                topics=[
                    DescribeProducersRequest.TopicRequest(name=name, partition_indexes=sorted(partitions))
                    for name, partitions in topics.items()
                ]
            )
            for topic in (await raw.send(request, leader)).topics:
                for partition in topic.partitions:
                    where = clients.asked("Read", f"topic {topic.name} (its producers)")
                    raw.require(where, partition.error_code, partition.error_message)
                    found[TopicPartition(topic.name, partition.partition_index)] = tuple(
                        ActiveProducer(
                            producer_id=it.producer_id,
                            epoch=it.producer_epoch,
                            last_timestamp=it.last_timestamp,
                            # A coordinator has written a marker with it, or a transaction is open now.
                            is_transactional=it.coordinator_epoch >= 0 or it.current_txn_start_offset >= 0,
                            in_transaction=it.current_txn_start_offset >= 0,
                        )
                        for it in partition.active_producers
                    )
        return found

    return raw.run(asked, ask)


def acls(clients: Clients) -> tuple[Acl, ...]:
    """All access rules. Raises NoAuthorizer on a cluster without one (librdkafka would say: no rules)."""
    raw, asked = clients.raw(), clients.asked("Describe", "cluster (access rules)")

    async def ask() -> tuple[Acl, ...]:
        request = DescribeAclsRequest(
            resource_type_filter=ResourceType.ANY.value,
            resource_name_filter=None,
            pattern_type_filter=ACLResourcePatternType.ANY.value,
            principal_filter=None,
            host_filter=None,
            operation=ACLOperation.ANY.value,
            permission_type=ACLPermissionType.ANY.value,
        )
        answer = await raw.send(request, None)
        raw.require(asked, answer.error_code, answer.error_message)
        rules = (
            Acl(
                resource_type=_name(ResourceType, it.resource_type),
                resource=it.resource_name,
                pattern=_name(ACLResourcePatternType, it.pattern_type),
                principal=rule.principal,
                host=rule.host,
                operation=_name(ACLOperation, rule.operation),
                permission=_name(ACLPermissionType, rule.permission_type),
            )
            for it in answer.resources
            for rule in it.acls
        )
        return tuple(sorted(rules, key=repr))

    return raw.run(asked, ask)


def _name(names: type[enum.IntEnum], value: int) -> str:
    """The name of a number of the protocol; one that is newer than this client stays a number."""
    try:
        return names(value).name
    except ValueError:
        return str(value)


def quotas(clients: Clients) -> tuple[Quota, ...]:
    """All client quotas (KIP-546, Kafka 2.6). Needs DescribeConfigs on the cluster."""
    raw, asked = clients.raw(), clients.asked("DescribeConfigs", "cluster (quotas)")

    async def ask() -> tuple[Quota, ...]:
        answer = await raw.send(DescribeClientQuotasRequest(components=[], strict=False), None)
        raw.require(asked, answer.error_code, answer.error_message)
        found = (
            Quota(
                entity=tuple(sorted((it.entity_type, it.entity_name) for it in entry.entity)),
                limits=tuple(sorted((it.key, it.value) for it in entry.values)),
            )
            for entry in answer.entries or ()
        )
        return tuple(sorted(found, key=repr))

    return raw.run(asked, ask)


def scram_users(clients: Clients) -> tuple[ScramUser, ...]:
    """All SCRAM users (KIP-554, Kafka 2.7). Needs Describe on the cluster."""
    raw, asked = clients.raw(), clients.asked("Describe", "cluster (SCRAM users)")

    async def ask() -> tuple[ScramUser, ...]:
        # Empty means all, as null does; but brokers that deny a null list fail over it and never answer.
        answer = await raw.send(DescribeUserScramCredentialsRequest(users=[]), None)
        raw.require(asked, answer.error_code, answer.error_message)
        found = []
        for it in answer.results:
            raw.require(asked, it.error_code, it.error_message)
            pairs = sorted((_SCRAM.get(c.mechanism, str(c.mechanism)), c.iterations) for c in it.credential_infos)
            found.append(ScramUser(user=it.user, credentials=tuple(pairs)))
        return tuple(sorted(found, key=lambda user: user.user))

    return raw.run(asked, ask)


def may_describe_transactional_id(clients: Clients, transactional_id: str) -> bool:
    """Whether the principal may describe a transactional id, existing or not. Changes nothing."""
    raw, asked = clients.raw(), clients.asked("Describe", f"transactional id {transactional_id}")

    async def ask() -> bool:
        answer = await raw.send(FindCoordinatorRequest(key=transactional_id, key_type=1, max_version=3), None)
        if answer.error_code == _TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return False
        raw.require(asked, answer.error_code, answer.error_message)
        return True

    return raw.run(asked, ask)


def api_versions(clients: Clients) -> dict[str, tuple[int, int]]:
    """API name (``Produce``) -> (lowest, highest version) that every broker takes."""
    raw = clients.raw()
    found = raw.run(clients.asked("Describe", "cluster (API versions)"), raw.api_versions)
    names = {key.value: key.name for key in ApiKey}
    return {names.get(key, str(key)): versions for key, versions in sorted(found.items())}
