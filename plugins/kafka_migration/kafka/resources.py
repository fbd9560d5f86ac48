"""What a cluster holds beside topics and groups: disks, producers, ACLs, quotas, users. All read-only."""

from __future__ import annotations

import enum
from collections.abc import Iterable

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

from kafka_migration.domain.codes import TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.topics import TopicCalls
from kafka_migration.kafka.types import Acl, ActiveProducer, DiskUse, LogDir, Quota, ScramUser

_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}


class ResourceCalls(TopicCalls):
    """Whatever else a cluster holds. All of it is only read."""

    def api_versions(self) -> dict[str, tuple[int, int]]:
        """API name (``Produce``) -> (lowest, highest version) that every broker takes."""
        raw = self._clients.raw()
        found = raw.run(self._clients.asked("Describe", "cluster (API versions)"), raw.api_versions)
        names = {key.value: key.name for key in ApiKey}
        return {names.get(key, str(key)): versions for key, versions in sorted(found.items())}

    def disk_use(self, tps: Iterable[TopicPartition] = ()) -> DiskUse:
        """Log directories of all brokers, and the bytes of ``tps`` (largest replica). Needs Describe on the cluster."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "cluster (log directories)")
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
                for disk in answer.results:
                    raw.require(asked, disk.error_code)
                    dirs.append(
                        LogDir(
                            broker=node,
                            path=disk.log_dir,
                            total_bytes=_size(disk.total_bytes),
                            usable_bytes=_size(disk.usable_bytes),
                        )
                    )
                    for topic in disk.topics:
                        for partition in topic.partitions:
                            # A replica on its way to another disk is there twice.
                            if not partition.is_future_key:
                                tp = TopicPartition(topic.name, partition.partition_index)
                                sizes[tp] = max(sizes.get(tp, 0), partition.partition_size)
            return DiskUse(log_dirs=tuple(dirs), partition_bytes=sizes)

        return raw.run(asked, ask)

    def producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Producer ids that the leaders remember (KIP-664, Kafka 2.8); partitions without a leader are left out. Needs
        Read on the topics."""
        wanted = list(tps)
        described = self.topics(sorted({tp.topic for tp in wanted}))
        raw, asked = self._clients.raw(), self._clients.asked("Read", "topic (its producers)")
        by_leader: dict[int, dict[str, list[int]]] = {}
        for tp in wanted:
            leaders = described[tp.topic].leaders if tp.topic in described else ()
            leader = leaders[tp.partition] if tp.partition < len(leaders) else None
            if leader is not None:
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
                        where = self._clients.asked("Read", f"topic {topic.name} (its producers)")
                        raw.require(where, partition.error_code, partition.error_message)
                        found[TopicPartition(topic.name, partition.partition_index)] = tuple(
                            ActiveProducer(
                                producer_id=producer.producer_id,
                                epoch=producer.producer_epoch,
                                last_timestamp=producer.last_timestamp,
                                # A coordinator has written a marker with it, or a transaction is open now.
                                is_transactional=producer.coordinator_epoch >= 0
                                or producer.current_txn_start_offset >= 0,
                                in_transaction=producer.current_txn_start_offset >= 0,
                            )
                            for producer in partition.active_producers
                        )
            return found

        return raw.run(asked, ask)

    def acls(self) -> tuple[Acl, ...]:
        """All ACLs. Raises NoAuthorizer on a cluster without one (librdkafka would return no ACLs)."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "cluster (ACLs)")

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
                    resource_type=_name(ResourceType, resource.resource_type),
                    resource=resource.resource_name,
                    pattern=_name(ACLResourcePatternType, resource.pattern_type),
                    principal=rule.principal,
                    host=rule.host,
                    operation=_name(ACLOperation, rule.operation),
                    permission=_name(ACLPermissionType, rule.permission_type),
                )
                for resource in answer.resources
                for rule in resource.acls
            )
            return tuple(sorted(rules, key=repr))

        return raw.run(asked, ask)

    def quotas(self) -> tuple[Quota, ...]:
        """All client quotas (KIP-546, Kafka 2.6). Needs DescribeConfigs on the cluster."""
        raw, asked = self._clients.raw(), self._clients.asked("DescribeConfigs", "cluster (quotas)")

        async def ask() -> tuple[Quota, ...]:
            answer = await raw.send(DescribeClientQuotasRequest(components=[], strict=False), None)
            raw.require(asked, answer.error_code, answer.error_message)
            found = (
                Quota(
                    entity=tuple(sorted((part.entity_type, part.entity_name) for part in entry.entity)),
                    limits=tuple(sorted((limit.key, limit.value) for limit in entry.values)),
                )
                for entry in answer.entries or ()
            )
            return tuple(sorted(found, key=repr))

        return raw.run(asked, ask)

    def scram_users(self) -> tuple[ScramUser, ...]:
        """All SCRAM users (KIP-554, Kafka 2.7), without their secrets, which cannot be read. Needs Describe on the
        cluster."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "cluster (SCRAM users)")

        async def ask() -> tuple[ScramUser, ...]:
            # Empty means all, as null does; but brokers that deny a null list fail over it and never answer.
            answer = await raw.send(DescribeUserScramCredentialsRequest(users=[]), None)
            raw.require(asked, answer.error_code, answer.error_message)
            found = []
            for user in answer.results:
                raw.require(asked, user.error_code, user.error_message)
                pairs = sorted((_SCRAM.get(c.mechanism, str(c.mechanism)), c.iterations) for c in user.credential_infos)
                found.append(ScramUser(user=user.user, credentials=tuple(pairs)))
            return tuple(sorted(found, key=lambda user: user.user))

        return raw.run(asked, ask)

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        """Whether the principal may at least describe it, existing or not. That implies nothing of Write; without it
        there is none. Changes nothing."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", f"transactional id {transactional_id}")

        async def ask() -> bool:
            answer = await raw.send(FindCoordinatorRequest(key=transactional_id, key_type=1, max_version=3), None)
            if answer.error_code == TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
                return False
            raw.require(asked, answer.error_code, answer.error_message)
            return True

        return raw.run(asked, ask)


def _size(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


def _name(names: type[enum.IntEnum], value: int) -> str:
    """The name of a number of the protocol; one that is newer than this client stays a number."""
    try:
        return names(value).name
    except ValueError:
        return str(value)
