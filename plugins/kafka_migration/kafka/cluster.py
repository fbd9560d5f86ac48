"""One of the two clusters, as the phases see it.

Every method blocks, has a deadline, and raises only errors of ours; clients are made when first needed. A Cluster may
be used from several threads (``asyncio.to_thread`` in a trigger), and is never pickled: carry its connection instead.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import Any, Literal

from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka import epochs, groups, offsets, resources, rights, topics
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.types import (
    Acl,
    ActiveProducer,
    CommittedOffset,
    ConfigValue,
    DiskUse,
    EpochEnd,
    GroupListing,
    GroupState,
    Quota,
    ScramUser,
    TimeSpan,
    TopicDescription,
)

Role = Literal["source", "target"]


class Cluster:
    """Read a cluster; and through ``create_topics``, ``create_partitions``, ``delete_topics``, ``alter_configs`` and
    ``commit``, and nothing else, change it."""

    def __init__(
        self,
        role: Role,
        connection: ClusterConnection,
        *,
        timeout_seconds: float = 30.0,
        connect_timeout_seconds: float = 10.0,
    ) -> None:
        self.role, self.connection = role, connection
        self._clients = Clients(
            role, connection, timeout_seconds=timeout_seconds, connect_timeout_seconds=connect_timeout_seconds
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

    # --- the cluster itself ------------------------------------------------------------------------------------------

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
        return frozenset(operation.name for operation in self._describe().authorized_operations or ())

    def api_versions(self) -> dict[str, tuple[int, int]]:
        """API name (``Produce``) -> (lowest, highest version) that every broker takes."""
        return resources.api_versions(self._clients)

    def broker_configs(self) -> dict[str, ConfigValue]:
        """Settings of one broker: the defaults for topics, and limits. Needs DescribeConfigs on the cluster."""
        return topics.broker_configs(self._clients, self.brokers()[0])

    # --- topics ------------------------------------------------------------------------------------------------------

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Those of ``names`` that exist; without names, all that the principal may see, internal ones included."""
        return topics.describe(self._clients, topics.list_names(self._clients) if names is None else names)

    def topic_names(self) -> list[str]:
        """Names of all topics that the principal may see, internal ones included: one request."""
        return topics.list_names(self._clients)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """Every setting of each topic, explicit and inherited. Raises UnknownTopic for one that does not exist."""
        return topics.configs(self._clients, names)

    def topic_operations(self, names: Iterable[str], among: Iterable[str]) -> dict[str, frozenset[str]]:
        """What the principal may do with each topic: all operations with one that exists. With one that does not, or
        is hidden from it, those of ``among`` (CREATE, READ, WRITE, DESCRIBE_CONFIGS), which are tried out, and change
        nothing."""
        return rights.topic_operations(self._clients, names, among)

    def refused_configs(self, spec: TopicSpec) -> dict[str, str]:
        """Settings of ``spec`` that this cluster does not take, with its reasons. Changes nothing.

        Raises TopicExists if the topic exists, and BrokerRefused if more than settings is wrong with it.
        """
        return topics.refused_configs(self._clients, spec)

    def refused_changes(self, spec: TopicSpec) -> dict[str, str]:
        """As :meth:`refused_configs`, of a topic that exists and would get these settings."""
        return topics.refused_changes(self._clients, spec)

    def creatable(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        """Names of those that this cluster would create exactly as they are, many in one call. Changes nothing.

        Says nothing of the others: ``refused_configs`` tells what is wrong with one.
        """
        return topics.creatable(self._clients, specs)

    def create_topics(self, specs: Iterable[TopicSpec], *, dry_run: bool = False) -> None:
        """Create topics; with ``dry_run``, have the cluster check the request and change nothing.

        Raises TopicExists, BrokerRefused or NotAuthorized for the first that fails; others may have been created.
        """
        topics.create(self._clients, specs, dry_run=dry_run)

    def create_partitions(self, topic: str, partitions: int) -> None:
        """Have a topic grow to so many partitions in all. Raises BrokerRefused if it has as many or more."""
        topics.create_partitions(self._clients, topic, partitions)

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; brokers do it in their own time after this returns. One that does not exist is no error."""
        topics.delete(self._clients, names)

    def alter_configs(self, topic: str, *, set: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        """Set and delete single settings of a topic; what is not named stays as it is."""
        topics.alter_configs(self._clients, topic, set_=set, delete=delete)

    # --- partitions --------------------------------------------------------------------------------------------------

    def ends(
        self, tps: Iterable[TopicPartition], committed: bool = False, skip_starts_of: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, PartitionEnds]:
        """Log start offset and end of each partition, thousands in one call: the high watermark, or with
        ``committed`` the last stable offset, and what lies behind it. Of partitions in ``skip_starts_of`` the start is
        not asked for, and is 0: a question less where nobody reads the answer. Raises UnknownTopic if one does not
        exist."""
        return offsets.ends(self._clients, tps, committed=committed, skip_starts_of=skip_starts_of)

    def log_epochs(self, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
        """Where the leader epoch asked for ends, of each partition; None asks for the one of now. What is not known is
        left out."""
        return epochs.log_epochs(self._clients, asked)

    def time_spans(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
        """Timestamps of each partition's first record and of its newest. None where the cluster does not tell: the
        newest before Kafka 3.0, and both of records in a format without times."""
        return offsets.time_spans(self._clients, tps)

    def first_since(self, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The offset of each partition's first record that is as young as ``timestamp`` (milliseconds), or younger;
        where there is none, the last stable offset. Partitions of records without times are left out."""
        return offsets.first_since(self._clients, tps, timestamp)

    def disk_use(self, tps: Iterable[TopicPartition] = ()) -> DiskUse:
        """Log directories of all brokers and the bytes of ``tps``. Needs Describe on the cluster."""
        return resources.disk_use(self._clients, tps)

    def producers(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[ActiveProducer, ...]]:
        """Producer ids that the leaders remember; partitions without a leader are left out. Needs Read on topics."""
        wanted = list(tps)
        described = self.topics(sorted({tp.topic for tp in wanted}))
        leaders = {
            tp: leader
            for tp in wanted
            if tp.topic in described
            and tp.partition < described[tp.topic].partitions
            and (leader := described[tp.topic].leaders[tp.partition]) is not None
        }
        return resources.producers(self._clients, leaders)

    # --- groups ------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, GroupListing]:
        """All groups that the principal may see, of every protocol."""
        return groups.listing(self._clients)

    def group_states(self, names: Iterable[str]) -> dict[str, GroupState]:
        """State, protocol and members of each group; one that does not exist is Dead, without members."""
        return groups.describe(self._clients, names)

    def group_state(self, group: str) -> GroupState:
        """As :meth:`group_states`, of one group."""
        return self.group_states([group])[group]

    def group_operations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """What the principal may do with each group, existing or not: READ, DESCRIBE, DELETE."""
        return groups.operations(self._clients, names)

    def may_use_transactional_id(self, transactional_id: str) -> bool:
        """Whether the principal may at least describe it. That implies nothing of Write; without it there is none."""
        return resources.may_describe_transactional_id(self._clients, transactional_id)

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed; partitions without a commit are absent. Waits until open transactions are
        decided (require_stable)."""
        return self.committed_of([group])[group]

    def committed_of(self, names: Iterable[str]) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """As :meth:`committed`, of many groups at once."""
        return groups.committed(self._clients, names)

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set the group's committed offsets; partitions not named keep theirs. Raises GroupBusy while it has members.

        What a failure in the middle left is unknown: read back.
        """
        groups.commit(self._clients, group, offsets)

    # --- access ------------------------------------------------------------------------------------------------------

    def acls(self) -> tuple[Acl, ...]:
        """All access rules. Raises NoAuthorizer on a cluster without one."""
        return resources.acls(self._clients)

    def quotas(self) -> tuple[Quota, ...]:
        """All client quotas."""
        return resources.quotas(self._clients)

    def scram_users(self) -> tuple[ScramUser, ...]:
        """All SCRAM users, without their secrets, which cannot be read."""
        return resources.scram_users(self._clients)

    def _describe(self) -> Any:
        clients = self._clients
        return clients.call(
            clients.asked("Describe", "cluster"),
            lambda admin, seconds: admin.describe_cluster(include_authorized_operations=True, request_timeout=seconds),
        )
