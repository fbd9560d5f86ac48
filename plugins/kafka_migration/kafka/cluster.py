"""One of the two clusters, as the phases see it.

Every method blocks, has a deadline, and raises only errors of ours; clients are made when first needed. A Cluster may
be used from several threads (``asyncio.to_thread`` in a trigger), and is never pickled: carry its connection instead.
"""

from __future__ import annotations

from typing import Any, Literal

from confluent_kafka.admin import ResourceType

from kafka_migration.kafka.acls import AclCalls, RightsCalls
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.groups import GroupCalls
from kafka_migration.kafka.resources import ResourceCalls
from kafka_migration.kafka.topics import OffsetCalls, operation_names
from kafka_migration.kafka.types import ConfigValue

Role = Literal["source", "target"]


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
        """What a :class:`~kafka_migration.wire.cluster.WireCluster` of this cluster is made with. Holds secrets."""
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
