"""confluent-kafka's admin client, as far as this room asks it, on kafka-python's connections.

Calls and answers are its own, so that whoever asks sees no difference: futures by key, KafkaException for what a broker
refuses. They are done when they are returned; connection trouble is raised at once, as our errors.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, TypeVar

from confluent_kafka import KafkaError, KafkaException, Node, TopicPartitionInfo, Uuid
from confluent_kafka.admin import (
    ConfigEntry,
    ConfigResource,
    DescribeClusterResult,
    ResourceType,
    TopicDescription,
)
from kafka.protocol.admin import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DescribeConfigsRequest,
    IncrementalAlterConfigsRequest,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain.codes import LEADER_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION
from kafka_migration.kafka.errors import Asked
from kafka_migration.kafka.raw import RawClient

K = TypeVar("K", bound=Hashable)
T = TypeVar("T")

_SECONDS = 30.0
_CONSUMER, _NO_EPOCH, _NO_GENERATION = -1, -1, -1
#: Versions: the last with what may be done with the cluster; the last that call topics by names.
_OPERATIONS_TO, _TOPICS_BY_NAME_TO, _DELETE_BY_NAME_TO, _OFFSETS_BY_NAME_TO = 10, 12, 5, 9
#: The last that fetches offsets of one group.
_ONE_GROUP_TO = 7


class AdminClient:
    """One cluster's, on connections of ``raw``."""

    def __init__(self, raw: RawClient) -> None:
        self._raw = raw

    def poll(self, _seconds: float) -> int:
        """Nothing to do: calls are done when they return."""
        return 0

    def describe_cluster(
        self, *, include_authorized_operations: bool = False, request_timeout: float = _SECONDS
    ) -> Future[DescribeClusterResult]:
        """As confluent-kafka's."""
        found = self._metadata(
            [], request_timeout, cluster_operations=include_authorized_operations, max_version=_OPERATIONS_TO
        )
        brokers = {broker.node_id: _node(broker) for broker in found.brokers}
        controller: Any = brokers.get(found.controller_id)
        operations = _operations(found.authorized_operations)
        return _done(DescribeClusterResult(controller, list(brokers.values()), found.cluster_id, operations))

    def list_topics(self, *, timeout: float = _SECONDS) -> Any:
        """As confluent-kafka's: ``topics`` and ``brokers`` by name and id."""
        found = self._metadata(None, timeout)
        return SimpleNamespace(
            brokers={broker.node_id: broker for broker in found.brokers},
            topics={
                topic.name: SimpleNamespace(
                    partitions={
                        one.partition_index: SimpleNamespace(replicas=list(one.replica_nodes))
                        for one in topic.partitions
                    }
                )
                for topic in found.topics
            },
        )

    def describe_topics(
        self, topics: Any, *, include_authorized_operations: bool = False, request_timeout: float = _SECONDS
    ) -> dict[str, Future[TopicDescription]]:
        """As confluent-kafka's."""
        found = self._metadata(topics.topic_names, request_timeout, topic_operations=include_authorized_operations)
        nodes = {broker.node_id: _node(broker) for broker in found.brokers}
        return {topic.name: _answer(topic, lambda topic: _description(topic, nodes)) for topic in found.topics}

    def describe_configs(
        self, resources: Iterable[ConfigResource], *, request_timeout: float = _SECONDS
    ) -> dict[ConfigResource, Future[dict[str, ConfigEntry]]]:
        """As confluent-kafka's."""
        asked = {(one.restype_int, one.name): one for one in resources}
        kind = DescribeConfigsRequest.DescribeConfigsResource
        found: dict[ConfigResource, Future[dict[str, ConfigEntry]]] = {}
        for node, some in _by_node(asked.values()).items():
            request = DescribeConfigsRequest(
                resources=[
                    kind(resource_type=one.restype_int, resource_name=one.name, configuration_keys=None) for one in some
                ],
                include_synonyms=True,
                include_documentation=False,
            )
            for result in self._ask(request, request_timeout, node=node).results:
                found[asked[result.resource_type, result.resource_name]] = _answer(result, _entries)
        return found

    def incremental_alter_configs(
        self, resources: Iterable[ConfigResource], *, validate_only: bool = False, request_timeout: float = _SECONDS
    ) -> dict[ConfigResource, Future[None]]:
        """As confluent-kafka's, of topics."""
        asked = {(one.restype_int, one.name): one for one in resources}
        kind = IncrementalAlterConfigsRequest.AlterConfigsResource
        request = IncrementalAlterConfigsRequest(
            resources=[
                kind(
                    resource_type=one.restype_int,
                    resource_name=one.name,
                    configs=[
                        kind.AlterableConfig(
                            name=entry.name, config_operation=entry.incremental_operation.value, value=entry.value
                        )
                        for entry in one.incremental_configs
                        if entry.incremental_operation is not None
                    ],
                )
                for one in asked.values()
            ],
            validate_only=validate_only,
        )
        responses = self._ask(request, request_timeout, of_controller=True).responses
        return {asked[one.resource_type, one.resource_name]: _answer(one) for one in responses}

    def create_topics(
        self,
        topics: Iterable[Any],
        *,
        validate_only: bool = False,
        request_timeout: float = _SECONDS,
        operation_timeout: float = _SECONDS,
    ) -> dict[str, Future[None]]:
        """As confluent-kafka's."""
        kind = CreateTopicsRequest.CreatableTopic
        request = CreateTopicsRequest(
            topics=[
                kind(
                    name=topic.topic,
                    num_partitions=topic.num_partitions,
                    replication_factor=topic.replication_factor,
                    assignments=[],
                    configs=[
                        kind.CreatableTopicConfig(name=name, value=value)
                        for name, value in (topic.config or {}).items()
                    ],
                )
                for topic in topics
            ],
            timeout_ms=_milliseconds(operation_timeout),
            validate_only=validate_only,
        )
        return {one.name: _answer(one) for one in self._ask(request, request_timeout, of_controller=True).topics}

    def create_partitions(
        self, topics: Iterable[Any], *, request_timeout: float = _SECONDS, operation_timeout: float = _SECONDS
    ) -> dict[str, Future[None]]:
        """As confluent-kafka's."""
        request = CreatePartitionsRequest(
            topics=[
                CreatePartitionsRequest.CreatePartitionsTopic(
                    name=topic.topic, count=topic.new_total_count, assignments=None
                )
                for topic in topics
            ],
            timeout_ms=_milliseconds(operation_timeout),
            validate_only=False,
        )
        return {one.name: _answer(one) for one in self._ask(request, request_timeout, of_controller=True).results}

    def delete_topics(
        self, topics: Iterable[str], *, request_timeout: float = _SECONDS, operation_timeout: float = _SECONDS
    ) -> dict[str, Future[None]]:
        """As confluent-kafka's."""
        request = DeleteTopicsRequest(
            topic_names=list(topics), timeout_ms=_milliseconds(operation_timeout), max_version=_DELETE_BY_NAME_TO
        )
        return {one.name: _answer(one) for one in self._ask(request, request_timeout, of_controller=True).responses}

    def list_offsets(
        self, wanted: Mapping[Any, Any], *, isolation_level: Any, request_timeout: float = _SECONDS
    ) -> dict[Any, Future[Any]]:
        """As confluent-kafka's: one request to each leader."""
        keys = {(tp.topic, tp.partition): tp for tp in wanted}
        metadata = self._metadata(sorted({topic for topic, _ in keys}), request_timeout)
        found: dict[Any, Future[Any]] = {}
        leaders: dict[int, dict[str, list[Any]]] = {}
        kind = ListOffsetsRequest.ListOffsetsTopic
        for topic in metadata.topics:
            led = {one.partition_index: one.leader_id for one in topic.partitions}
            for (name, partition), tp in keys.items():
                if name != topic.name:
                    continue
                if topic.error_code or partition not in led or led[partition] < 0:
                    code = UNKNOWN_TOPIC_OR_PARTITION if partition not in led else LEADER_NOT_AVAILABLE
                    found[tp] = _refused(topic.error_code or code, "")
                    continue
                leaders.setdefault(led[partition], {}).setdefault(name, []).append(
                    kind.ListOffsetsPartition(
                        partition_index=partition, current_leader_epoch=_NO_EPOCH, timestamp=wanted[tp]._value
                    )
                )
        for node, topics in leaders.items():
            request = ListOffsetsRequest(
                replica_id=_CONSUMER,
                isolation_level=isolation_level.value,
                topics=[kind(name=name, partitions=partitions) for name, partitions in topics.items()],
            )
            for topic in self._ask(request, request_timeout, node=node).topics:
                for one in topic.partitions:
                    found[keys[topic.name, one.partition_index]] = _answer(one, lambda one: one)
        return found

    def list_consumer_group_offsets(
        self, groups: Iterable[Any], *, require_stable: bool, request_timeout: float = _SECONDS
    ) -> dict[str, Future[Any]]:
        """As confluent-kafka's, of one group and all its partitions."""
        (group,) = (one.group_id for one in groups)
        request = OffsetFetchRequest(
            group_id=group, topics=None, require_stable=require_stable, max_version=_ONE_GROUP_TO
        )
        found = self._of_coordinator(group, request, request_timeout)
        return {group: _answer(found, _partitions)}

    def alter_consumer_group_offsets(
        self, groups: Iterable[Any], *, request_timeout: float = _SECONDS
    ) -> dict[str, Future[Any]]:
        """As confluent-kafka's, of one group."""
        (given,) = groups
        kind, topics = OffsetCommitRequest.OffsetCommitRequestTopic, dict[str, list[Any]]()
        for tp in given.topic_partitions:
            topics.setdefault(tp.topic, []).append(
                kind.OffsetCommitRequestPartition(
                    partition_index=tp.partition,
                    committed_offset=tp.offset,
                    committed_leader_epoch=_NO_EPOCH,
                    committed_metadata=tp.metadata or "",
                )
            )
        request = OffsetCommitRequest(
            group_id=given.group_id,
            # Of nobody: taken only while the group has no members.
            generation_id_or_member_epoch=_NO_GENERATION,
            member_id="",
            group_instance_id=None,
            retention_time_ms=-1,
            topics=[kind(name=name, partitions=partitions) for name, partitions in topics.items()],
            max_version=_OFFSETS_BY_NAME_TO,
        )
        found = self._of_coordinator(given.group_id, request, request_timeout)
        return {given.group_id: _done(_partitions(found))}

    def _of_coordinator(self, group: str, request: Any, seconds: float) -> Any:
        asked = self._asked("Describe", "group")

        async def ask() -> Any:
            (node,) = await self._raw.coordinators(asked, [group])
            return await self._raw.send(request, node, seconds=seconds)

        return self._run(ask, seconds)

    def _metadata(
        self,
        topics: Iterable[str] | None,
        seconds: float,
        *,
        cluster_operations: bool = False,
        topic_operations: bool = False,
        max_version: int = _TOPICS_BY_NAME_TO,
    ) -> Any:
        kind = MetadataRequest.MetadataRequestTopic
        request = MetadataRequest(
            topics=None if topics is None else [kind(name=name) for name in topics],
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=cluster_operations,
            include_topic_authorized_operations=topic_operations,
            max_version=max_version,
        )
        return self._ask(request, seconds)

    def _ask(self, request: Any, seconds: float, *, node: int | None = None, of_controller: bool = False) -> Any:
        async def ask() -> Any:
            to = await self._raw.controller() if of_controller else node
            return await self._raw.send(request, to, seconds=seconds)

        return self._run(ask, seconds)

    def _run(self, ask: Callable[[], Awaitable[T]], seconds: float) -> T:
        return self._raw.run(self._asked("Describe", "cluster"), ask, seconds=seconds)

    def _asked(self, operation: str, resource: str) -> Asked:
        raw = self._raw
        return Asked(role=raw.role, servers=raw.connection.servers, operation=operation, resource=resource)


def _done(result: T) -> Future[T]:
    future: Future[T] = Future()
    future.set_result(result)
    return future


def _refused(code: int, text: str) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_exception(KafkaException(KafkaError(code, text) if text else KafkaError(code)))
    return future


def _answer(one: Any, read: Callable[[Any], Any] = lambda _: None) -> Future[Any]:
    """What a response has for one key: what ``read`` makes of it, or its error."""
    if one.error_code:
        return _refused(one.error_code, getattr(one, "error_message", None) or "")
    return _done(read(one))


def _by_node(resources: Iterable[ConfigResource]) -> dict[int | None, list[ConfigResource]]:
    """Whom to ask for their configs: a broker for its own, any for all others."""
    found: dict[int | None, list[ConfigResource]] = {}
    for one in resources:
        found.setdefault(int(one.name) if one.restype is ResourceType.BROKER else None, []).append(one)
    return found


def _entries(result: Any) -> dict[str, ConfigEntry]:
    return {entry.name: _entry(entry) for entry in result.configs}


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        entry.name,
        entry.value,
        source=entry.config_source,
        is_sensitive=entry.is_sensitive,
        # In the order of their strength, which is the broker's.
        synonyms={
            f"{at} {one.name}": ConfigEntry(one.name, one.value, source=one.source, is_synonym=True)
            for at, one in enumerate(entry.synonyms)
        },
    )


def _description(topic: Any, nodes: Mapping[int, Node]) -> TopicDescription:
    number = topic.topic_id.int if topic.topic_id is not None else 0
    partitions = [
        TopicPartitionInfo(
            one.partition_index,
            nodes.get(one.leader_id) or Node(-1, "", -1),
            [nodes.get(node) or Node(node, "", -1) for node in one.replica_nodes],
            [],
        )
        for one in topic.partitions
    ]
    return TopicDescription(
        topic.name,
        Uuid(_signed(number >> 64), _signed(number & (2**64 - 1))),
        bool(topic.is_internal),
        partitions,
        _operations(topic.authorized_operations),
    )


def _signed(half: int) -> int:
    return half - 2**64 if half >= 2**63 else half


def _operations(numbers: Iterable[int] | None) -> Any:
    return [int(number) for number in numbers or ()]


def _node(broker: Any) -> Node:
    return Node(broker.node_id, broker.host, broker.port)


def _partitions(found: Any) -> Any:
    """Offsets of a group's partitions; those of a commit have none."""
    return SimpleNamespace(
        topic_partitions=[
            SimpleNamespace(
                topic=topic.name,
                partition=one.partition_index,
                offset=getattr(one, "committed_offset", -1),
                metadata=getattr(one, "metadata", ""),
                error=KafkaError(one.error_code) if one.error_code else None,
            )
            for topic in found.topics
            for one in topic.partitions
        ]
    )


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
