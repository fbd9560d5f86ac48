"""Topics and their configs: what is there, and the calls that change it; and log ends, timestamps and leader epochs of
partitions: thousands in one call, never a request per partition."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import IsolationLevel, TopicCollection
from confluent_kafka import TopicPartition as RdTopicPartition
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)
from kafka.protocol.consumer import ListOffsetsRequest, OffsetForLeaderEpochRequest
from kafka.protocol.metadata import MetadataRequest

from kafka_migration.domain.codes import (
    INVALID_CONFIG,
    INVALID_REQUEST,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
)
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import PartitionEnds, TopicPartition, TopicSpec
from kafka_migration.kafka.clients import Calls, Clients
from kafka_migration.kafka.errors import BrokerRefused, UnknownTopic, retried
from kafka_migration.kafka.types import ConfigValue, EpochEnd, TimeSpan, TopicDescription

#: The second is the answer of brokers with ZooKeeper to a config's change to a value that it cannot have.
_UNFIT_CONFIG = (INVALID_CONFIG, INVALID_REQUEST)
#: Controllers refuse requests of ten thousand partitions; a hundred topics seldom have so many.
_VALIDATED_AT_ONCE = 100
#: All brokers know of a topic within that, also on a machine that is busy.
_KNOWN_SECONDS = 5.0
#: Set on the resource itself, at run time; everything else is a default of broker or cluster.
_EXPLICIT = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}
_NEWEST_SINCE = 7
_UNTIMED = UNSUPPORTED_FOR_MESSAGE_FORMAT
"""Records of format v0 (before Kafka 0.10) have no timestamps."""
_EPOCHS_SINCE, _METADATA_EPOCHS_SINCE = 2, 7
"""Versions: of the request, from which on brokers compare with the leader's epoch; of metadata, with leader epochs."""
_CONSUMER, _UNKNOWN = -1, -1
_WHEN: Any = OffsetSpec  # its methods carry no types


def described(clients: Clients, names: list[str], *, absent: Collection[int]) -> dict[str, Any]:
    """Topics as confluent-kafka describes them, with what the principal may do; without those whose error is one of
    ``absent``."""
    return clients.call_each(
        clients.asked("Describe", "topic"),
        lambda admin, seconds: admin.describe_topics(
            TopicCollection(names), include_authorized_operations=True, request_timeout=seconds
        ),
        on_error=lambda name, error: error.code() in absent,
    )


class TopicCalls(Calls):
    """Topics and their configs."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Those of ``names`` that exist; without names, all that the principal may see, internal ones included."""
        wanted = self.topic_names() if names is None else list(names)
        if not wanted:
            return {}
        found = described(self._clients, wanted, absent=(UNKNOWN_TOPIC_OR_PARTITION,))
        return {name: _description(name, topic) for name, topic in found.items()}

    def topic_names(self) -> list[str]:
        """Names of all topics that the principal may see, internal ones included: one request."""
        asked = self._clients.asked("Describe", "topics")
        metadata = self._clients.blocking(asked, lambda admin, seconds: admin.list_topics(timeout=seconds))
        return sorted(metadata.topics)

    def topic_configs(self, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """Every config of each topic, explicit and inherited. Raises UnknownTopic for one that does not exist: not by
        the first word of a broker, which may not know yet of a topic that another one has just shown."""
        wanted = list(names)
        return retried(
            lambda: self._configs(ResourceType.TOPIC, wanted, "topic"),
            time.monotonic() + _KNOWN_SECONDS,
            lambda error: isinstance(error, UnknownTopic),
        )

    def _configs(self, kind: ResourceType, names: Iterable[str], word: str) -> dict[str, dict[str, ConfigValue]]:
        resources = [ConfigResource(kind, name) for name in names]
        if not resources:
            return {}
        found = self._clients.call_each(
            self._clients.asked("DescribeConfigs", word),
            lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
            name=lambda resource: resource.name,
        )
        return {
            resource.name: {name: _value(entry, kind) for name, entry in sorted(entries.items())}
            for resource, entries in found.items()
        }

    def refused_configs(self, spec: TopicSpec) -> dict[str, str]:
        """Configs of ``spec`` that this cluster does not take, with its reasons. Changes nothing.

        Raises TopicExists if the topic exists, and BrokerRefused if more than its configs is wrong.
        """

        def create_with(configs: Mapping[str, str]) -> None:
            self.create_topics([replace(spec, configs=dict(configs))], dry_run=True)

        return _refused(spec.configs, create_with)

    def refused_changes(self, spec: TopicSpec) -> dict[str, str]:
        """As :meth:`refused_configs`, of a topic that exists and would get the configs. Needs AlterConfigs on it."""

        def change_to(configs: Mapping[str, str]) -> None:
            self._alter_configs(spec.name, configs, (), dry_run=True)

        return _refused(spec.configs, change_to)

    def creatable(self, specs: Iterable[TopicSpec]) -> frozenset[str]:
        """Names of those that this cluster would create exactly as they are, many in one call. Changes nothing.

        The others it refuses, or could not judge just now: :meth:`refused_configs` finds what is wrong with one.
        """
        wanted, fine = list(specs), set[str]()
        for at in range(0, len(wanted), _VALIDATED_AT_ONCE):
            new = [_new(spec) for spec in wanted[at : at + _VALIDATED_AT_ONCE]]
            fine |= self._clients.call_each(
                self._clients.asked("Create", "topic"),
                lambda admin, seconds, new=new: admin.create_topics(  # type: ignore[misc]
                    new, request_timeout=seconds, operation_timeout=seconds, validate_only=True
                ),
                on_error=lambda name, error: True,
            ).keys()
        return frozenset(fine)

    def create_topics(self, specs: Iterable[TopicSpec], *, dry_run: bool = False) -> None:
        """Create topics; with ``dry_run``, have the cluster check the request and change nothing.

        Returns when the cluster has acknowledged all. Raises TopicExists, BrokerRefused (with its reason) or
        NotAuthorized for the first one that fails; the others may have been created.
        """
        new = [_new(spec) for spec in specs]
        if new:
            self._clients.call_each(
                self._clients.asked("Create", "topic"),
                lambda admin, seconds: admin.create_topics(
                    new, request_timeout=seconds, operation_timeout=seconds, validate_only=dry_run
                ),
            )

    def create_partitions(self, topic: str, partitions: int) -> None:
        """Have a topic grow to so many partitions in all (KIP-195). Raises BrokerRefused if it has as many or more."""
        self._clients.call_each(
            self._clients.asked("Alter", "topic"),
            lambda admin, seconds: admin.create_partitions(
                [NewPartitions(topic, partitions)], request_timeout=seconds, operation_timeout=seconds
            ),
        )

    def delete_topics(self, names: Iterable[str]) -> None:
        """Delete topics; brokers do it in their own time after this returns. One that does not exist is no error."""
        wanted = list(names)
        if wanted:
            self._clients.call_each(
                self._clients.asked("Delete", "topic"),
                lambda admin, seconds: admin.delete_topics(wanted, request_timeout=seconds, operation_timeout=seconds),
                on_error=lambda _name, error: error.code() == UNKNOWN_TOPIC_OR_PARTITION,
            )

    def alter_configs(self, topic: str, *, set: Mapping[str, str], delete: Iterable[str] = ()) -> None:
        """Set and delete single configs of a topic; what is not named stays as it is (KIP-339)."""
        self._alter_configs(topic, set, delete, dry_run=False)

    def _alter_configs(self, topic: str, set_: Mapping[str, str], delete: Iterable[str], *, dry_run: bool) -> None:
        entries = [
            *(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set_.items()),
            *(ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete),
        ]
        if not entries:
            return
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        self._clients.call_each(
            self._clients.asked("AlterConfigs", "topic"),
            lambda admin, seconds: admin.incremental_alter_configs(
                [resource], request_timeout=seconds, validate_only=dry_run
            ),
            name=lambda resource: resource.name,
        )


def _description(name: str, topic: Any) -> TopicDescription:
    partitions = sorted(topic.partitions, key=lambda p: int(p.id))
    return TopicDescription(
        name=name,
        topic_id=_uuid(topic.topic_id),
        partitions=len(partitions),
        replication_factor=max((len(p.replicas) for p in partitions), default=0),
        leaders=tuple(None if p.leader is None or p.leader.id < 0 else p.leader.id for p in partitions),
        is_internal=bool(topic.is_internal),
        # We ask for them, so none at all means that there are none.
        operations=operation_names(topic.authorized_operations),
    )


def operation_names(operations: Any) -> frozenset[str]:
    """READ, WRITE, … of confluent-kafka's operations; None is none."""
    return frozenset(operation.name for operation in operations or ())


def _uuid(halves: Any) -> str:
    """From Java's two signed halves; "" for none, or zero."""
    if halves is None:
        return ""
    mask = 2**64 - 1
    number = (halves.get_most_significant_bits() & mask) << 64 | (halves.get_least_significant_bits() & mask)
    return str(uuid.UUID(int=number)) if number else ""


def _value(entry: ConfigEntry, kind: ResourceType) -> ConfigValue:
    # Sources are plain numbers: thousands of topics have tens of thousands of entries.
    explicit: Any = _EXPLICIT[kind].value
    default = entry.value
    is_explicit = entry.source == explicit
    if is_explicit:
        # Synonyms are what is or would be effective, the strongest first; the first inherited one is the default.
        inherited = (synonym.value for synonym in (entry.synonyms or {}).values() if synonym.source != explicit)
        default = next(inherited, None)
    return ConfigValue(
        value=entry.value, is_explicit=is_explicit, is_sensitive=bool(entry.is_sensitive), default=default
    )


def _new(spec: TopicSpec) -> NewTopic:
    return NewTopic(
        spec.name,
        num_partitions=spec.partitions,
        replication_factor=spec.replication_factor,
        config=dict(spec.configs),
    )


def _refused(configs: Mapping[str, str], ask: Callable[[Mapping[str, str]], None]) -> dict[str, str]:
    """The protocol has no list of known configs, so the cluster is asked to validate them: all at once, and one by one
    only if it refuses."""

    def reason(some: Mapping[str, str]) -> str | None:
        try:
            ask(some)
        except BrokerRefused as refusal:
            if refusal.code not in _UNFIT_CONFIG:
                raise
            return refusal.reason
        return None

    if reason(configs) is None:
        return {}
    alone = {name: reason({name: value}) for name, value in configs.items()}
    return {name: why for name, why in alone.items() if why is not None}


class OffsetCalls(TopicCalls):
    """The ends of partitions' logs, and what stands where in them."""

    def ends(
        self, tps: Iterable[TopicPartition], committed: bool = False, skip_starts_of: Container[TopicPartition] = ()
    ) -> dict[TopicPartition, PartitionEnds]:
        """Log start offset and end of each partition, thousands in one call: the high watermark, or with
        ``committed`` the last stable offset, and what lies behind it. Of partitions in ``skip_starts_of`` the start is
        not asked for, and is 0: a question less where nobody reads the answer. Raises UnknownTopic if one does not
        exist."""
        wanted = list(tps)
        # The start first: it only grows, and never past an end that is read later.
        starts = self._list([tp for tp in wanted if tp not in skip_starts_of], _WHEN.earliest(), committed=False)
        # The high watermark before the last stable offset: what is still below the former then is held by a
        # transaction, and not merely newer.
        marks = self._list(wanted, _WHEN.latest(), committed=False) if committed else {}
        finishes = self._list(wanted, _WHEN.latest(), committed=committed)
        found = {}
        for tp in wanted:
            start, end = starts[tp][0] if tp in starts else 0, finishes[tp][0]
            if start > end:
                raise CouldNotFindOut(
                    f"{self._clients.role}: {tp} ends at {end}, before its start at {start}",
                    remedy="the topic was recreated or truncated just now; look at it, then try again",
                )
            found[tp] = PartitionEnds(start=start, end=end, undecided=max(0, marks[tp][0] - end) if committed else 0)
        return found

    def time_spans(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, TimeSpan]:
        """Timestamps of each partition's first record and of its newest. None where the cluster reports none: the
        newest before Kafka 3.0 (KIP-734), and both of records in a format without times."""
        wanted = list(tps)
        first = self._list(wanted, _WHEN.for_timestamp(0), committed=False, passing=_UNTIMED)
        newest: dict[TopicPartition, tuple[int, int]] = {}
        if self._clients.raw().supports(ListOffsetsRequest, _NEWEST_SINCE):
            # Older brokers would take the question for one about a time before all others, and return the oldest.
            newest = self._list(wanted, _WHEN.max_timestamp(), committed=False, passing=_UNTIMED)
        nothing = (-1, -1)
        return {
            tp: TimeSpan(earliest=_known(first.get(tp, nothing)[1]), latest=_known(newest.get(tp, nothing)[1]))
            for tp in wanted
        }

    def first_since(self, tps: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The offset of each partition's first record that is as young as ``timestamp`` (milliseconds), or younger;
        where there is none, the last stable offset. Partitions of records without times are left out."""
        wanted = list(tps)
        # The ends first: a record that is written in between is younger, and would be passed over.
        finishes = self._list(wanted, _WHEN.latest(), committed=True)
        found = self._list(wanted, _WHEN.for_timestamp(timestamp), committed=True, passing=_UNTIMED)
        return {tp: offset if offset >= 0 else finishes[tp][0] for tp, (offset, _) in found.items()}

    def _list(
        self, tps: list[TopicPartition], spec: Any, *, committed: bool, passing: int = 0
    ) -> dict[TopicPartition, tuple[int, int]]:
        """(offset, timestamp) per partition, asked of the leaders in one request each; partitions that answer with the
        error code ``passing`` are left out."""
        if not tps:
            return {}
        isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        request = {RdTopicPartition(tp.topic, tp.partition): spec for tp in tps}
        try:
            found = self._clients.call_each(
                self._clients.asked("Describe", "partition"),
                lambda admin, seconds: admin.list_offsets(request, isolation_level=isolation, request_timeout=seconds),
                name=lambda tp: f"{tp.topic}-{tp.partition}",
                on_error=lambda _tp, error: bool(passing) and error.code() == passing,
            )
        except UnknownTopic:
            # librdkafka calls a topic unknown that the principal may not describe; the cluster itself knows better.
            self.topics(sorted({tp.topic for tp in tps}))
            raise
        return {TopicPartition(tp.topic, tp.partition): (info.offset, info.timestamp) for tp, info in found.items()}

    def log_epochs(self, asked: Mapping[TopicPartition, int | None]) -> dict[TopicPartition, EpochEnd]:
        """Of each partition, where the leader epoch asked for ends (None: the current one, which ends with the log). By
        it, whoever read a log before recognises whether it still stands (KIP-101, 320).

        Where that epoch is unknown, the newest one before it is returned. Partitions without a leader, and all of
        brokers before Kafka 2.0, are left out. Needs Describe on the topics.
        """
        raw = self._clients.raw()
        if not asked or not (
            raw.supports(OffsetForLeaderEpochRequest, _EPOCHS_SINCE)
            and raw.supports(MetadataRequest, _METADATA_EPOCHS_SINCE)
        ):
            return {}

        async def ask() -> dict[TopicPartition, EpochEnd]:
            found = {}
            for leader, topics in (await self._epochs_by_leader(asked)).items():
                request = OffsetForLeaderEpochRequest(
                    replica_id=_CONSUMER,
                    topics=[
                        OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=name, partitions=partitions)
                        for name, partitions in topics.items()
                    ],
                )
                for topic in (await raw.send(request, leader)).topics:
                    for end in topic.partitions:
                        raw.require(self._clients.asked("Describe", f"topic {topic.topic}"), end.error_code)
                        if end.leader_epoch >= 0:
                            tp = TopicPartition(topic.topic, end.partition)
                            found[tp] = EpochEnd(epoch=end.leader_epoch, end=end.end_offset)
            return found

        return raw.run(self._clients.asked("Describe", "partition (leader epochs)"), ask)

    async def _epochs_by_leader(self, asked: Mapping[TopicPartition, int | None]) -> dict[int, dict[str, list[Any]]]:
        """Whom to ask for which epochs: by leader and topic."""
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted({tp.topic for tp in asked})],
            allow_auto_topic_creation=False,
            max_version=9,
        )
        raw = self._clients.raw()
        by_leader: dict[int, dict[str, list[Any]]] = {}
        for topic in (await raw.send(request, None)).topics:
            raw.require(self._clients.asked("Describe", f"topic {topic.name}"), topic.error_code)
            for partition in topic.partitions:
                tp = TopicPartition(topic.name, partition.partition_index)
                if tp not in asked or partition.leader_id < 0:
                    continue
                epoch = asked[tp]
                wanted = OffsetForLeaderEpochRequest.OffsetForLeaderTopic.OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=_UNKNOWN,
                    leader_epoch=partition.leader_epoch if epoch is None else epoch,
                )
                by_leader.setdefault(partition.leader_id, {}).setdefault(tp.topic, []).append(wanted)
        return by_leader


def _known(timestamp: int) -> int | None:
    return timestamp if timestamp >= 0 else None
