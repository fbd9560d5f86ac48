"""ACLs: all that there are, those that are made and removed, and what each broker denies already; and what the
principal may do with topics.

A change of ACLs is done when the controller has it; every broker goes by it a moment later, each in its own time. So
who relies on a denial asks each broker, as the principal that is denied.

What the principal may do, the cluster reports of topics that exist; of others it is tried out. Brokers look at the
permission before they look for the topic. So a fetch from, or a write to, a partition that cannot exist is answered by
"not authorized" or by "no such partition", and nothing is read or written either way.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from confluent_kafka import KafkaError
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from confluent_kafka.admin import (
    ResourceType as RdResourceType,
)
from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
from kafka.errors import KafkaTimeoutError, RequestTimedOutError
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.consumer import FetchRequest, HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest
from kafka.protocol.producer import ProduceRequest

from kafka_migration.domain.codes import (
    GROUP_AUTHORIZATION_FAILED,
    REFUSED,
    TOPIC_ALREADY_EXISTS,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.kafka.clients import Calls, Clients
from kafka_migration.kafka.raw import RawClient
from kafka_migration.kafka.topics import described, operation_names
from kafka_migration.kafka.types import Acl

#: What a broker can be asked about: a topic, and what may be done with it; or a group, and whether it may be read.
Denied = Literal["TOPIC", "GROUP"]

#: So many at once: a controller takes ten thousand records in one request.
_AT_ONCE = 1_000
#: Names of topics, with their operations (KIP-430, Kafka 2.3); later versions know topics by id as well.
_METADATA_FROM, _METADATA_TO = 8, 9
_NOBODY = "kafka-migration-nobody"
_ABSENT = (UNKNOWN_TOPIC_OR_PARTITION, TOPIC_AUTHORIZATION_FAILED)
#: The highest number, which no topic's partition has.
_NO_PARTITION = 2**31 - 1
#: Later versions name topics by ids, and what does not exist has none.
_BY_NAME = 12
_TIMEOUT_MS = 1_000


class AclCalls(Calls):
    """ACLs of a cluster with an authorizer. Without one, every question raises NoAuthorizer."""

    def acls(self) -> tuple[Acl, ...]:
        """All ACLs, sorted, as one broker knows them: a change may take a moment to get there. Needs Describe on the
        cluster. Raises NoAuthorizer on a cluster without one (librdkafka would return no ACLs)."""
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
                _acl(resource.resource_type, resource.resource_name, resource.pattern_type, rule)
                for resource in answer.resources
                for rule in resource.acls
            )
            return tuple(sorted(rules, key=repr))

        return raw.run(asked, ask)

    def create_acls(self, acls: Iterable[Acl]) -> None:
        """Make ``acls``, in their order; one that exists stays as it is. Needs Alter on the cluster.

        If this raises, some of them may have been made: the first ones.
        """
        raw, asked = self._clients.raw(), self._clients.asked("Alter", "cluster (ACLs)")
        for part in in_parts(tuple(acls)):
            request = CreateAclsRequest(
                creations=[
                    CreateAclsRequest.AclCreation(
                        resource_type=ResourceType[acl.resource_type].value,
                        resource_name=acl.resource,
                        resource_pattern_type=ACLResourcePatternType[acl.pattern].value,
                        principal=acl.principal,
                        host=acl.host,
                        operation=ACLOperation[acl.operation].value,
                        permission_type=ACLPermissionType[acl.permission].value,
                    )
                    for acl in part
                ]
            )

            async def ask(request: Any = request) -> None:
                for result in (await raw.send(request, None)).results:
                    raw.require(asked, result.error_code, result.error_message)

            raw.run(asked, ask)

    def delete_acls(self, acls: Iterable[Acl]) -> tuple[Acl, ...]:
        """Remove exactly ``acls``, and return those that were there. Needs Alter on the cluster.

        If this raises, some of them may have been removed.
        """
        raw, asked = self._clients.raw(), self._clients.asked("Alter", "cluster (ACLs)")
        removed: list[Acl] = []
        for part in in_parts(tuple(acls)):
            request = DeleteAclsRequest(
                filters=[
                    DeleteAclsRequest.DeleteAclsFilter(
                        resource_type_filter=ResourceType[acl.resource_type].value,
                        resource_name_filter=acl.resource,
                        pattern_type_filter=ACLResourcePatternType[acl.pattern].value,
                        principal_filter=acl.principal,
                        host_filter=acl.host,
                        operation=ACLOperation[acl.operation].value,
                        permission_type=ACLPermissionType[acl.permission].value,
                    )
                    for acl in part
                ]
            )

            async def ask(request: Any = request) -> list[Acl]:
                found = []
                for result in (await raw.send(request, None)).filter_results:
                    raw.require(asked, result.error_code, result.error_message)
                    for acl in result.matching_acls:
                        raw.require(asked, acl.error_code, acl.error_message)
                        found.append(_acl(acl.resource_type, acl.resource_name, acl.pattern_type, acl))
                return found

            removed += raw.run(asked, ask)
        return tuple(sorted(removed, key=repr))

    def denied_by_broker(
        self, kind: Denied, operation: str, names: Iterable[str], seconds: float
    ) -> dict[int, frozenset[str]]:
        """For each broker that is alive: which of the topics or groups ``names`` it denies ``operation`` on to this
        connection's principal, by the ACLs that it knows now. Nothing is read, written or committed.

        Of topics, brokers list what is authorized (KIP-430, Kafka 2.3), which needs Describe on them: raises
        NotAuthorized without, UnknownTopic for one that a broker does not have. Of groups only READ can be asked: by
        the heartbeat of a member that does not exist. Raises CouldNotFindOut if a broker does not answer within
        ``seconds``: what it denies is not known then.
        """
        if kind == "GROUP" and operation != "READ":
            raise ValueError(f"a broker cannot be asked about {operation} on a group")
        wanted = sorted(set(names))
        raw = self._clients.raw()
        deadline = time.monotonic() + seconds

        async def ask() -> dict[int, frozenset[str]]:
            await raw.refresh()
            found: dict[int, frozenset[str]] = {}
            # A broker may not know of another one yet: each lists those that it knows.
            left = set(raw.brokers())
            while left:
                node = min(left)
                answer = await self._of_broker(raw, node, _metadata(wanted if kind == "TOPIC" else []), deadline)
                if kind == "TOPIC":
                    found[node] = self._denied_topics(raw, operation, answer)
                else:
                    found[node] = await self._denied_groups(raw, node, wanted, deadline)
                left = (left | {broker.node_id for broker in answer.brokers}) - found.keys()
            return found

        return raw.run(
            self._clients.asked("Describe", f"{kind.lower()} (operations, of each broker)"), ask, seconds=seconds
        )

    def _denied_topics(self, raw: RawClient, operation: str, answer: Any) -> frozenset[str]:
        denied = set()
        for topic in answer.topics:
            raw.require(self._clients.asked("Describe", f"topic {topic.name}"), topic.error_code)
            # Numbers of operations. None is no answer, and not the same as none at all.
            if topic.authorized_operations is None:
                raise CouldNotFindOut(
                    f"{self._clients.role}: a broker does not show what may be done with topic {topic.name}",
                    remedy="brokers show it since Kafka 2.3",
                )
            if ACLOperation[operation].value not in topic.authorized_operations:
                denied.add(topic.name)
        return frozenset(denied)

    async def _denied_groups(self, raw: RawClient, node: int, groups: Sequence[str], deadline: float) -> frozenset[str]:
        denied = set()
        for group in groups:
            # Permission is looked at first, on whatever broker; no group has such a member.
            request = HeartbeatRequest(group_id=group, generation_id=-1, member_id=_NOBODY, max_version=3)
            if (await self._of_broker(raw, node, request, deadline)).error_code == GROUP_AUTHORIZATION_FAILED:
                denied.add(group)
        return frozenset(denied)

    async def _of_broker(self, raw: RawClient, node: int, request: Any, deadline: float) -> Any:
        seconds = max(0.001, deadline - time.monotonic())
        try:
            return await raw.send(request, node, seconds=seconds)
        except (KafkaTimeoutError, RequestTimedOutError):
            raise CouldNotFindOut(
                f"{self._clients.role}: broker {node} did not answer within {seconds:.1f} s: what it denies is unknown",
                remedy="see that this broker runs and can be reached, then try again",
            ) from None


def _metadata(topics: Sequence[str]) -> Any:
    return MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in topics],
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=True,
        min_version=_METADATA_FROM,
        max_version=_METADATA_TO,
    )


def in_parts(acls: tuple[Acl, ...]) -> Iterable[tuple[Acl, ...]]:
    """``acls`` in the parts that go into one request each."""
    return (acls[at : at + _AT_ONCE] for at in range(0, len(acls), _AT_ONCE))


def _acl(resource_type: int, resource: str, pattern: int, rule: Any) -> Acl:
    return Acl(
        resource_type=_name(ResourceType, resource_type),
        resource=resource,
        pattern=_name(ACLResourcePatternType, pattern),
        principal=rule.principal,
        host=rule.host,
        operation=_name(ACLOperation, rule.operation),
        permission=_name(ACLPermissionType, rule.permission_type),
    )


def _name(names: type[enum.IntEnum], value: int) -> str:
    """The name of a number of the protocol; one that is newer than this client stays a number."""
    try:
        return names(value).name
    except ValueError:
        return str(value)


class RightsCalls(Calls):
    """What the principal may do with topics."""

    def topic_operations(self, names: Iterable[str], among: Iterable[str]) -> dict[str, frozenset[str]]:
        """What the principal may do with each topic: all operations with one that exists. With one that does not, or
        is hidden from it, those of ``among`` (CREATE, READ, WRITE, DESCRIBE_CONFIGS), which are tried out, and change
        nothing."""
        wanted, tried = sorted(set(names)), sorted(set(among))
        if not wanted:
            return {}
        there = described(self._clients, wanted, absent=_ABSENT)
        found = {name: operation_names(topic.authorized_operations) for name, topic in there.items()}
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
    resources = [ConfigResource(RdResourceType.TOPIC, name) for name in names]
    return _not_denied(
        clients,
        "DescribeConfigs",
        resources,
        lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
    )


def _may_alter_configs(clients: Clients, names: list[str]) -> frozenset[str]:
    """Asked to validate only."""
    entry = ConfigEntry("retention.ms", "-1", incremental_operation=AlterConfigOpType.SET)
    resources = [ConfigResource(RdResourceType.TOPIC, name, incremental_configs=[entry]) for name in names]
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
