"""Groups of every protocol: which there are, who is in them, and what classic and consumer groups have committed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import Any, TypeVar

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka.admin import ACLOperation
from kafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

from kafka_migration.domain.codes import GROUP_AUTHORIZATION_FAILED, GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.clients import Calls
from kafka_migration.kafka.errors import Asked
from kafka_migration.kafka.raw import ConsumerGroupDescribeRequest, RawClient, ShareGroupDescribeRequest
from kafka_migration.kafka.types import CommittedOffset, GroupListing, GroupMember, GroupState

T = TypeVar("T")

_DEAD = "Dead"
#: librdkafka takes one group a request; so many are under way at once.
_GROUPS_AT_ONCE = 100
_MANY_GROUPS_VERSION, _GROUPS_A_REQUEST = 8, 500
_NOT_THIS_PROTOCOL = frozenset({GROUP_ID_NOT_FOUND, UNSUPPORTED_VERSION})


class GroupCalls(Calls):
    """Consumer groups, and what they have committed."""

    def groups(self) -> dict[str, GroupListing]:
        """All groups that the principal may see, of every protocol, asked of every broker."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "groups")

        async def ask() -> dict[str, GroupListing]:
            await raw.refresh()
            found = {}
            for node in raw.brokers():
                answer = await raw.send(ListGroupsRequest(), node)
                raw.require(asked, answer.error_code)
                for group in answer.groups:
                    found[group.group_id] = GroupListing(
                        group=group.group_id,
                        # Both came later than the call itself: KIP-848 and KIP-518.
                        protocol=_protocol(group.group_type or "classic", group.protocol_type),
                        state=group.group_state or "",
                    )
            return dict(sorted(found.items()))

        return raw.run(asked, ask)

    def group_states(self, names: Iterable[str]) -> dict[str, GroupState]:
        """State, protocol and members of each group; one that does not exist is Dead, without members."""
        wanted = sorted(set(names))
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "group")

        async def ask() -> dict[str, GroupState]:
            found: dict[str, GroupState] = {}
            if not wanted:
                return found
            for node, here in (await raw.coordinators(asked, wanted)).items():
                left = here
                for request, protocol in (
                    (ConsumerGroupDescribeRequest, "consumer"),
                    (ShareGroupDescribeRequest, "share"),
                ):
                    if left and raw.supports(request):
                        answer = await raw.send(request(group_ids=left, include_authorized_operations=False), node)
                        mine = [group for group in answer.groups if _is_known(raw, asked, group)]
                        found |= {group.group_id: _modern(group, protocol) for group in mine}
                        left = [name for name in left if name not in found]
                if left:
                    answer = await raw.send(DescribeGroupsRequest(groups=left), node)
                    for group in answer.groups:
                        known = _is_known(raw, asked, group)
                        found[group.group_id] = _classic(group) if known else _absent(group.group_id)
            return found

        found = raw.run(asked, ask)
        if any(state.state == _DEAD for state in found.values()):
            # Protocols without a description here (streams) still have their state in the listing.
            listed = self.groups()
            for name, state in found.items():
                if state.state == _DEAD and name in listed:
                    found[name] = GroupState(group=name, state=listed[name].state, protocol=listed[name].protocol)
        return dict(sorted(found.items()))

    def group_state(self, group: str) -> GroupState:
        """As :meth:`group_states`, of one group."""
        return self.group_states([group])[group]

    def group_operations(self, names: Iterable[str]) -> dict[str, frozenset[str]]:
        """What the principal may do with each group, existing or not: READ, DESCRIBE, DELETE."""
        wanted = sorted(set(names))
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "group")

        async def ask() -> dict[str, frozenset[str]]:
            found: dict[str, frozenset[str]] = {}
            denied: list[str] = []
            for node, here in (await raw.coordinators(asked, wanted, denied=denied)).items():
                # Up to version 5 a group that does not exist is Dead, with operations; later it is an error, without.
                request = DescribeGroupsRequest(groups=here, include_authorized_operations=True, max_version=5)
                for group in (await raw.send(request, node)).groups:
                    if group.error_code == GROUP_AUTHORIZATION_FAILED:
                        denied.append(group.group_id)
                    elif _is_known(raw, asked, group):
                        bits = group.authorized_operations or ()
                        found[group.group_id] = frozenset(ACLOperation(bit).name for bit in bits)
            return found | dict.fromkeys(denied, frozenset())

        return raw.run(asked, ask)

    def committed(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """As :meth:`committed_of`, of one group."""
        return self.committed_of([group])[group]

    def committed_of(
        self, names: Iterable[str], *, is_stable: bool = True
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """What each group has committed; partitions without a commit are absent. Waits for open transactions to end
        (``require_stable``), so that a commit inside one is not missed; unless ``is_stable`` is False: of a group that
        commits in transactions, one is open much of the time, and of one that has died for long."""
        if self._clients.raw().supports(OffsetFetchRequest, _MANY_GROUPS_VERSION):
            return self._committed_of_many(sorted(set(names)), is_stable=is_stable)
        found: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        for some in _chunks(sorted(set(names)), _GROUPS_AT_ONCE):
            results = self._clients.call_each(
                self._clients.asked("Describe", "group"),
                lambda admin, seconds, some=some: {  # type: ignore[misc]
                    group: future
                    for name in some
                    for group, future in admin.list_consumer_group_offsets(
                        [ConsumerGroupTopicPartitions(name)], require_stable=is_stable, request_timeout=seconds
                    ).items()
                },
                within=_failures,
            )
            found |= {group: dict(_offsets(result.topic_partitions)) for group, result in results.items()}
        return found

    def _committed_of_many(
        self, groups: list[str], *, is_stable: bool
    ) -> dict[str, dict[TopicPartition, CommittedOffset]]:
        """One request for hundreds of groups (KIP-709, Kafka 3.0); librdkafka makes two for each."""
        raw, asked = self._clients.raw(), self._clients.asked("Describe", "group")

        async def ask() -> dict[str, dict[TopicPartition, CommittedOffset]]:
            found = {}
            for node, here in (await raw.coordinators(asked, groups)).items():
                for some in _chunks(here, _GROUPS_A_REQUEST):
                    request = OffsetFetchRequest(
                        groups=[
                            OffsetFetchRequest.OffsetFetchRequestGroup(group_id=name, topics=None) for name in some
                        ],
                        require_stable=is_stable,
                        min_version=_MANY_GROUPS_VERSION,
                        max_version=_MANY_GROUPS_VERSION,
                    )
                    for group in (await raw.send(request, node)).groups:
                        where = replace(asked, resource=f"{asked.resource} {group.group_id}")
                        raw.require(where, group.error_code)
                        found[group.group_id] = dict(_of_group(raw, where, group))
            return {name: found[name] for name in groups}

        return raw.run(asked, ask) if groups else {}

    def commit(self, group: str, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Set the group's committed offsets; partitions not named keep theirs. The leader epoch is not written: another
        cluster's means nothing here.

        Raises GroupBusy while the group has members. What a failure in the middle left is unknown: read back.
        """
        if not offsets:
            return
        request = ConsumerGroupTopicPartitions(
            group,
            [RdTopicPartition(tp.topic, tp.partition, c.offset, c.metadata) for tp, c in sorted(offsets.items())],
        )
        # Asked again after a coordinator has moved: the same offsets written twice are the same offsets.
        self._clients.call_each(
            self._clients.asked("Read", "group"),
            lambda admin, seconds: admin.alter_consumer_group_offsets([request], request_timeout=seconds),
            within=_failures,
        )


def _of_group(raw: RawClient, asked: Asked, group: Any) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    for topic in group.topics:
        for partition in topic.partitions:
            tp = TopicPartition(topic.name, partition.partition_index)
            raw.require(replace(asked, resource=f"{asked.resource}, offset of {tp}"), partition.error_code)
            if partition.committed_offset >= 0:
                # librdkafka writes the NUL that ends an empty C string, and reads up to it: so do we.
                metadata = (partition.metadata or "").partition("\0")[0]
                yield tp, CommittedOffset(offset=partition.committed_offset, metadata=metadata)


def _failures(result: Any) -> Iterator[tuple[str, KafkaError]]:
    for partition in result.topic_partitions:
        if partition.error is not None:
            yield f"offset of {partition.topic}-{partition.partition}", partition.error


def _offsets(partitions: Iterable[RdTopicPartition]) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
    for found in partitions:
        # Negative: asked for, never committed.
        if found.offset >= 0:
            tp = TopicPartition(found.topic, found.partition)
            yield tp, CommittedOffset(offset=found.offset, metadata=found.metadata or "")


def _is_known(raw: RawClient, asked: Asked, described: Any) -> bool:
    if described.error_code in _NOT_THIS_PROTOCOL:
        return False
    where = replace(asked, resource=f"{asked.resource} {described.group_id}")
    raw.require(where, described.error_code, described.error_message)
    return True


def _absent(group: str) -> GroupState:
    return GroupState(group=group, state=_DEAD, protocol="classic")


def _modern(group: Any, protocol: str) -> GroupState:
    members = tuple(
        GroupMember(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=tuple(
                sorted(
                    TopicPartition(topic.topic_name, partition)
                    for topic in member.assignment.topic_partitions
                    for partition in topic.partitions
                )
            ),
            topics=_named(member),
        )
        for member in group.members
    )
    return GroupState(group=group.group_id, state=group.group_state, protocol=protocol, members=members)


def _named(member: Any) -> frozenset[str] | None:
    # A pattern is resolved by the broker, which does not report to what.
    is_pattern = bool(getattr(member, "subscribed_topic_regex", None))
    return None if is_pattern else frozenset(member.subscribed_topic_names)


def _classic(group: Any) -> GroupState:
    is_consumers = group.protocol_type == "consumer"
    members = tuple(
        GroupMember(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.client_host,
            partitions=_assignment(member.member_assignment) if is_consumers else (),
            topics=_subscription(member.member_metadata) if is_consumers else None,
        )
        for member in group.members
    )
    protocol = _protocol("classic", group.protocol_type)
    return GroupState(group=group.group_id, state=group.group_state, protocol=protocol, members=members)


def _assignment(data: bytes) -> tuple[TopicPartition, ...]:
    # Only a Stable group shows it; a consumer of another make may write what Kafka's own cannot read.
    try:
        topics = ConsumerProtocolAssignment.decode(data).assigned_partitions if data else []
    except Exception:
        return ()
    return tuple(sorted(TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions))


def _subscription(data: bytes) -> frozenset[str] | None:
    try:
        return frozenset(ConsumerProtocolSubscription.decode(data).topics) if data else None
    except Exception:
        return None


def _protocol(group_type: str, protocol_type: str) -> str:
    kind = group_type.lower()
    return protocol_type if kind == "classic" and protocol_type not in ("", "consumer") else kind


def _chunks(items: list[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
