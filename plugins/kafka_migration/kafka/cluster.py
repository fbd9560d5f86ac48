"""One of the two clusters, as the phases see it.

Every method blocks, has a deadline, and raises only errors of ours; clients are made when first needed. A Cluster may
be used from several threads (``asyncio.to_thread`` in a trigger), and is never pickled: carry its connection instead.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from confluent_kafka.admin import ResourceType
from kafka.protocol.admin import (
    AlterClientQuotasRequest,
    AlterUserScramCredentialsRequest,
    DescribeClientQuotasRequest,
    DescribeLogDirsRequest,
    DescribeProducersRequest,
    DescribeUserScramCredentialsRequest,
    ListTransactionsRequest,
)
from kafka.protocol.api_key import ApiKey
from kafka.protocol.metadata import FindCoordinatorRequest

from kafka_migration.domain.codes import RESOURCE_NOT_FOUND, TRANSACTIONAL_ID_AUTHORIZATION_FAILED
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.acls import AclCalls, RightsCalls
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.groups import GroupCalls
from kafka_migration.kafka.topics import OffsetCalls, TopicCalls, operation_names
from kafka_migration.kafka.types import ActiveProducer, ConfigValue, DiskUse, LogDir, Quota, ScramUser

Role = Literal["source", "target"]

_SCRAM = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_SALT_BYTES = 32


class ResourceCalls(TopicCalls):
    """Whatever else a cluster holds. All of it is only read, but for client quotas and SCRAM users."""

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

    def transactional_ids(self, producer_ids: Iterable[int]) -> dict[int, str]:
        """The transactional ids that coordinators know of these producer ids (KIP-664, Kafka 3.0). Those that expired,
        that the principal may not Describe, or that the cluster is too old for, are left out."""
        wanted = sorted(set(producer_ids))
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "transactional id")

        async def ask() -> dict[int, str]:
            found: dict[int, str] = {}
            if not wanted or not raw.supports(ListTransactionsRequest):
                return found
            await raw.refresh()
            request = ListTransactionsRequest(state_filters=[], producer_id_filters=wanted, max_version=0)
            for node in raw.brokers():
                answer = await raw.send(request, node)
                raw.require(asked, answer.error_code)
                found |= {known.producer_id: known.transactional_id for known in answer.transaction_states}
            return dict(sorted(found.items()))

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

    def alter_quotas(self, changes: Mapping[tuple[tuple[str, str | None], ...], Mapping[str, float | None]]) -> None:
        """Set limits by entity and key, None removes one; other limits of the same entity stay. Needs AlterConfigs on
        the cluster. If this raises, some of them may have been set."""
        raw, asked = self._clients.raw(), self._clients.asked("AlterConfigs", "cluster (quotas)")
        kind = AlterClientQuotasRequest.EntryData
        entries = [
            kind(
                entity=[kind.EntityData(entity_type=of, entity_name=name) for of, name in entity],
                ops=[
                    kind.OpData(key=key, value=value or 0.0, remove=value is None)
                    for key, value in sorted(limits.items())
                ],
            )
            for entity, limits in changes.items()
        ]

        async def ask() -> None:
            answer = await raw.send(AlterClientQuotasRequest(entries=entries, validate_only=False), None)
            for entry in answer.entries:
                raw.require(asked, entry.error_code, entry.error_message)

        raw.run(asked, ask)

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

    def alter_scram_users(self, made: Mapping[ScramUser, str], removed: Iterable[ScramUser] = ()) -> None:
        """Give each user of ``made`` these credentials, of a new password; and take these from those ``removed``, who
        need not have them. Passwords stay here: brokers get them salted. Needs Alter on the cluster. If this raises,
        some of them may have been changed."""
        raw, asked = self._clients.raw(), self._clients.asked("Alter", "cluster (SCRAM users)")
        kind, going = AlterUserScramCredentialsRequest.ScramCredentialDeletion, list(removed)
        # Brokers alter a user once in a request, so each mechanism has its own.
        requests = [
            _AlterScramUsers(
                upsertions=[
                    _salted(user.user, number, iterations, password)
                    for user, password in made.items()
                    for mechanism, iterations in user.credentials
                    if mechanism == name
                ],
                deletions=[kind(name=user.user, mechanism=number) for user in going if name in dict(user.credentials)],
            )
            for number, name in _SCRAM.items()
        ]

        async def ask() -> None:
            for request in requests:
                for user in (await raw.send(request, await raw.controller())).results:
                    if user.error_code != RESOURCE_NOT_FOUND:
                        raw.require(asked, user.error_code, user.error_message)

        raw.run(asked, ask)

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


class _Unlogged(bytes):
    def __repr__(self) -> str:
        return "<hidden>"


# Without init, or kafka-python would look for a schema of this name.
class _AlterScramUsers(AlterUserScramCredentialsRequest, init=False):  # type: ignore[call-arg, misc]
    """The client logs requests, and what it sends of them, at DEBUG; who reads a salted password can log in by it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    def encode(self, *args: Any, **kwargs: Any) -> bytes:
        return _Unlogged(super().encode(*args, **kwargs))


def _salted(user: str, mechanism: int, iterations: int, password: str) -> object:
    """RFC 5802's SaltedPassword. Of the password's own bytes, as Kafka's clients have it: they do not normalize."""
    salt, name = secrets.token_bytes(_SALT_BYTES), _SCRAM[mechanism].removeprefix("SCRAM-").replace("-", "")
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=user,
        mechanism=mechanism,
        iterations=iterations,
        salt=salt,
        salted_password=hashlib.pbkdf2_hmac(name, password.encode(), salt, iterations),
    )


def _size(value: int | None) -> int | None:
    return value if value is not None and value >= 0 else None


class Cluster(OffsetCalls, GroupCalls, AclCalls, ResourceCalls, RightsCalls):
    """Read a cluster; and through ``create_topics``, ``create_partitions``, ``delete_topics``, ``alter_configs``,
    ``create_acls``, ``delete_acls``, ``alter_quotas``, ``alter_scram_users`` and ``commit``, and nothing else, change
    it. What can be asked about topics, partitions and groups stands in the classes that this one is made of."""

    def __init__(
        self,
        role: Role,
        connection: ClusterConnection,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
    ) -> None:
        self.role, self.connection = role, connection
        super().__init__(
            Clients(role, connection, timeout_seconds=timeout_seconds, connect_timeout_seconds=connect_timeout_seconds)
        )

    def __repr__(self) -> str:
        return f"Cluster({self.role!r}, {self.connection!r})"

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all connections. The next call would open them again."""
        self._clients.close()

    def topic_here(self, topic: str) -> str:
        """How ``topic`` is called on this cluster: for what names it beside this class, such as ACLs and clients."""
        return topic

    def wire(self) -> dict[str, object]:
        """kafka-python's properties, of which the mirror's and validation's connections are made. Holds secrets."""
        return self.connection.kafka_python()

    def cluster_id(self) -> str:
        """The id that the cluster was formatted with: two connections with the same id are the same cluster."""
        return str(self._describe().cluster_id)

    def broker_count(self) -> int:
        """How many brokers are alive."""
        return len(self._describe().nodes)

    def brokers(self) -> tuple[int, ...]:
        """Ids of the brokers that are alive."""
        return tuple(sorted(node.id for node in self._describe().nodes))

    def cluster_operations(self) -> frozenset[str]:
        """What the principal may do with the cluster as a whole: CREATE, DESCRIBE, …"""
        return operation_names(self._describe().authorized_operations)

    def broker_configs(self) -> dict[str, ConfigValue]:
        """Configs of one broker: the defaults for topics, and limits. Needs DescribeConfigs on the cluster."""
        broker = str(self.brokers()[0])
        return self._configs(ResourceType.BROKER, [broker], "broker")[broker]

    def _describe(self) -> Any:
        clients = self._clients
        return clients.call(
            clients.asked("Describe", "cluster"),
            lambda admin, seconds: admin.describe_cluster(include_authorized_operations=True, request_timeout=seconds),
        )
