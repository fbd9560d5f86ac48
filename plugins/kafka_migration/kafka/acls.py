"""ACLs: all that there are, those that are made and removed, and what each broker denies already.

A change of ACLs is done when the controller has it; every broker goes by it a moment later, each in its own time. So
who relies on a denial asks each broker, as the principal that is denied.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Iterable, Sequence
from typing import Any, Literal

from kafka.admin import ACLOperation, ACLPermissionType, ACLResourcePatternType, ResourceType
from kafka.errors import KafkaTimeoutError, RequestTimedOutError
from kafka.protocol.admin import CreateAclsRequest, DeleteAclsRequest, DescribeAclsRequest
from kafka.protocol.consumer import HeartbeatRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain.codes import GROUP_AUTHORIZATION_FAILED
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.kafka.clients import Calls
from kafka_migration.kafka.raw import RawClient
from kafka_migration.kafka.types import Acl

#: What a broker can be asked about: a topic, and what may be done with it; or a group, and whether it may be read.
Denied = Literal["TOPIC", "GROUP"]

#: So many at once: a controller takes ten thousand records in one request.
_AT_ONCE = 1_000
#: Names of topics, with their operations (KIP-430, Kafka 2.3); later versions know topics by id as well.
_METADATA_FROM, _METADATA_TO = 8, 9
_NOBODY = "kafka-migration-nobody"


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
