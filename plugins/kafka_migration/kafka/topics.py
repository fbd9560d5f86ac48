"""Topics and their settings: what is there, and the three calls that change it."""

from __future__ import annotations

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

from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.clients import Clients
from kafka_migration.kafka.errors import UNKNOWN_TOPIC, BrokerRefused
from kafka_migration.kafka.types import ConfigValue, TopicDescription

_INVALID_CONFIG = 40
#: What brokers that keep their metadata in ZooKeeper say to a change of a setting to a value that it cannot have.
_INVALID_REQUEST = 42
#: Controllers refuse requests of ten thousand partitions; a hundred topics seldom have so many.
_VALIDATED_AT_ONCE = 100
#: Set on the resource itself, at run time; everything else is a default of broker or cluster.
_EXPLICIT = {
    ResourceType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG,
    ResourceType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG,
}


def list_names(clients: Clients) -> list[str]:
    """Names of all topics that the principal may see, internal ones included."""
    asked = clients.asked("Describe", "topics")
    metadata = clients.blocking(asked, lambda admin, seconds: admin.list_topics(timeout=seconds))
    return sorted(metadata.topics)


def describe(clients: Clients, names: Iterable[str]) -> dict[str, TopicDescription]:
    """Descriptions of those of ``names`` that exist."""
    wanted = list(names)
    if not wanted:
        return {}
    found = clients.call_each(
        clients.asked("Describe", "topic"),
        lambda admin, seconds: admin.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=seconds
        ),
        on_error=lambda name, error: error.code() == UNKNOWN_TOPIC,
    )
    return {name: _description(name, it) for name, it in found.items()}


def _description(name: str, it: Any) -> TopicDescription:
    partitions = sorted(it.partitions, key=lambda p: int(p.id))
    return TopicDescription(
        name=name,
        topic_id=_uuid(it.topic_id),
        partitions=len(partitions),
        replication_factor=max((len(p.replicas) for p in partitions), default=0),
        leaders=tuple(None if p.leader is None or p.leader.id < 0 else p.leader.id for p in partitions),
        is_internal=bool(it.is_internal),
        # We ask for them, so none at all means that there are none.
        operations=frozenset(operation.name for operation in it.authorized_operations or ()),
    )


def _uuid(it: Any) -> str:
    if it is None:
        return ""
    mask = 2**64 - 1
    # Java's two signed halves.
    number = (it.get_most_significant_bits() & mask) << 64 | (it.get_least_significant_bits() & mask)
    return str(uuid.UUID(int=number)) if number else ""


def configs(clients: Clients, names: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
    """Every setting of the topics, explicit and inherited. Raises UnknownTopic for one that does not exist."""
    return _configs(clients, ResourceType.TOPIC, names, "topic")


def broker_configs(clients: Clients, broker: int) -> dict[str, ConfigValue]:
    """Every setting of one broker."""
    return _configs(clients, ResourceType.BROKER, [str(broker)], "broker")[str(broker)]


def _configs(
    clients: Clients, kind: ResourceType, names: Iterable[str], word: str
) -> dict[str, dict[str, ConfigValue]]:
    resources = [ConfigResource(kind, name) for name in names]
    if not resources:
        return {}
    found = clients.call_each(
        clients.asked("DescribeConfigs", word),
        lambda admin, seconds: admin.describe_configs(resources, request_timeout=seconds),
        name=lambda resource: resource.name,
    )
    return {
        resource.name: {name: _value(entry, kind) for name, entry in sorted(entries.items())}
        for resource, entries in found.items()
    }


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


def create(clients: Clients, specs: Iterable[TopicSpec], *, dry_run: bool) -> None:
    """Create topics, or with ``dry_run`` only have the cluster check the request (nothing is changed then).

    Returns when the cluster has acknowledged all. Raises TopicExists, BrokerRefused (which says why) or
    NotAuthorized for the first one that fails; the others may have been created.
    """
    new = [_new(spec) for spec in specs]
    if new:
        clients.call_each(
            clients.asked("Create", "topic"),
            lambda admin, seconds: admin.create_topics(
                new, request_timeout=seconds, operation_timeout=seconds, validate_only=dry_run
            ),
        )


def create_partitions(clients: Clients, topic: str, partitions: int) -> None:
    """Give a topic so many partitions in all (KIP-195). Returns when acknowledged; raises BrokerRefused for fewer."""
    clients.call_each(
        clients.asked("Alter", "topic"),
        lambda admin, seconds: admin.create_partitions(
            [NewPartitions(topic, partitions)], request_timeout=seconds, operation_timeout=seconds
        ),
    )


def delete(clients: Clients, names: Iterable[str]) -> None:
    """Delete topics. Returns when acknowledged; one that does not exist (any more) is passed over."""
    wanted = list(names)
    if wanted:
        clients.call_each(
            clients.asked("Delete", "topic"),
            lambda admin, seconds: admin.delete_topics(wanted, request_timeout=seconds, operation_timeout=seconds),
            on_error=lambda _name, error: error.code() == UNKNOWN_TOPIC,
        )


def creatable(clients: Clients, specs: Iterable[TopicSpec]) -> frozenset[str]:
    """Names of those that the cluster would create exactly as they are. Changes nothing.

    The others it refuses, or could not judge just now: ask for each of them what is wrong.
    """
    wanted, fine = list(specs), set[str]()
    for at in range(0, len(wanted), _VALIDATED_AT_ONCE):
        new = [_new(spec) for spec in wanted[at : at + _VALIDATED_AT_ONCE]]
        fine |= clients.call_each(
            clients.asked("Create", "topic"),
            lambda admin, seconds, new=new: admin.create_topics(  # type: ignore[misc]
                new, request_timeout=seconds, operation_timeout=seconds, validate_only=True
            ),
            on_error=lambda name, error: True,
        ).keys()
    return frozenset(fine)


def refused_configs(clients: Clients, spec: TopicSpec) -> dict[str, str]:
    """Settings of ``spec`` that this cluster does not take, with its reasons. Changes nothing.

    The topic must not exist (TopicExists otherwise).
    """

    def create_with(settings: Mapping[str, str]) -> None:
        create(clients, [replace(spec, configs=dict(settings))], dry_run=True)

    return _refused(spec.configs, create_with)


def refused_changes(clients: Clients, spec: TopicSpec) -> dict[str, str]:
    """As :func:`refused_configs`, of a topic that exists and would get the settings. Needs AlterConfigs on it."""

    def change_to(settings: Mapping[str, str]) -> None:
        alter_configs(clients, spec.name, set_=settings, dry_run=True)

    return _refused(spec.configs, change_to)


def _refused(settings: Mapping[str, str], ask: Callable[[Mapping[str, str]], None]) -> dict[str, str]:
    """The protocol has no list of known settings, so the cluster is asked to validate: all at once, and one by one
    only if it says no."""

    def reason(some: Mapping[str, str]) -> str | None:
        try:
            ask(some)
        except BrokerRefused as refusal:
            if refusal.code not in (_INVALID_CONFIG, _INVALID_REQUEST):
                raise
            return refusal.reason
        return None

    if reason(settings) is None:
        return {}
    alone = {name: reason({name: value}) for name, value in settings.items()}
    return {name: why for name, why in alone.items() if why is not None}


def alter_configs(
    clients: Clients, topic: str, *, set_: Mapping[str, str], delete: Iterable[str] = (), dry_run: bool = False
) -> None:
    """Change single settings of a topic (KIP-339: what is not named stays), or with ``dry_run`` only have the cluster
    check the request. Returns when acknowledged."""
    entries = [
        *(ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in set_.items()),
        *(ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in delete),
    ]
    if not entries:
        return
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    clients.call_each(
        clients.asked("AlterConfigs", "topic"),
        lambda admin, seconds: admin.incremental_alter_configs(
            [resource], request_timeout=seconds, validate_only=dry_run
        ),
        name=lambda resource: resource.name,
    )
