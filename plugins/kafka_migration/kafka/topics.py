"""Topics and their configs: what is there, and the calls that change it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from kafka_migration.domain.codes import INVALID_CONFIG, INVALID_REQUEST, UNKNOWN_TOPIC_OR_PARTITION
from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.clients import Calls
from kafka_migration.kafka.errors import BrokerRefused, UnknownTopic, retried
from kafka_migration.kafka.types import ConfigValue, TopicDescription

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


class TopicCalls(Calls):
    """Topics and their configs."""

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicDescription]:
        """Those of ``names`` that exist; without names, all that the principal may see, internal ones included."""
        wanted = self.topic_names() if names is None else list(names)
        if not wanted:
            return {}
        found = self._clients.call_each(
            self._clients.asked("Describe", "topic"),
            lambda admin, seconds: admin.describe_topics(
                TopicCollection(wanted), include_authorized_operations=True, request_timeout=seconds
            ),
            on_error=lambda name, error: error.code() == UNKNOWN_TOPIC_OR_PARTITION,
        )
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
