"""How a topic is declared on the target while it is mirrored: the source's own configs, but nothing that deletes or
refuses records.

Old records arrive in a mirror topic with their old timestamps, so the source's retention would delete them soon after
they land, compaction would remove some, and bounds on timestamps would refuse them. Until completion, which restores
the source's values from the journal, none of that may happen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kafka_migration.domain.held_open import KEEPS_RECORDS
from kafka_migration.domain.types import TopicSpec
from kafka_migration.kafka.types import ConfigValue, TopicDescription

LONG_MAX = str(2**63 - 1)
BOUNDS = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
OLD_BOUND = "message.timestamp.difference.max.ms"

HELD_OPEN: Mapping[str, str] = {
    **KEEPS_RECORDS,
    # Batches keep the codec that their producer chose.
    "compression.type": "producer",
    **dict.fromkeys(BOUNDS, LONG_MAX),
}

#: They name brokers of the source.
_OF_THE_SOURCE = {
    "leader.replication.throttled.replicas": "it names the source's replicas",
    "follower.replication.throttled.replicas": "it names the source's replicas",
}
#: Kafka 4.0 removed them, and records do not depend on them.
_OBSOLETE = {
    "message.format.version": "records keep the format that they have; the target knows only the current one",
    "message.downconversion.enable": "the target converts nothing for old consumers",
    OLD_BOUND: f"its successors {BOUNDS[0]} and {BOUNDS[1]} are open while mirroring",
}

#: A target without tiered storage takes none of them, and records do not depend on them.
_TIERED = dict.fromkeys(
    (
        "remote.storage.enable",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "local.retention.ms",
        "local.retention.bytes",
    ),
    "the target has no tiered storage: what the source's holds is copied to the target's disks",
)

_LIMIT, _IN_SYNC, _FORMAT = "max.message.bytes", "min.insync.replicas", "message.format.version"
#: The part of its largest batch that a topic gets as room for re-encoded batches.
_ROOM = 8
_FORMAT_2 = (0, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A target topic as it shall be. ``configs_source`` are the source's explicit configs, for completion;
    ``left_out`` those that are not carried over, with the reason; ``refused`` those that the target does not take;
    ``before`` the explicit configs that a topic had on the target before it was adopted."""

    spec: TopicSpec
    source_topic_id: str
    configs_source: Mapping[str, str]
    left_out: Mapping[str, str] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    before: Mapping[str, str] = field(default_factory=dict)

    @property
    def replaced(self) -> dict[str, str]:
        """Of ``before``, what the declaration overwrites."""
        return {name: v for name, v in sorted(self.before.items()) if self.spec.configs.get(name, v) != v}

    def as_dict(self) -> dict[str, Any]:
        """For the journal."""
        return {
            "source_topic_id": self.source_topic_id,
            "configs_source": dict(self.configs_source),
            "left_out": dict(self.left_out),
            "spec": spec_as_dict(self.spec),
        } | ({"before": dict(self.before)} if self.before else {})

    @classmethod
    def from_dict(cls, name: str, value: Mapping[str, Any]) -> Declared:
        """The inverse of :meth:`as_dict`."""
        return cls(
            spec=spec_from(name, value["spec"]),
            source_topic_id=value["source_topic_id"],
            configs_source=value["configs_source"],
            left_out=value["left_out"],
            before=value.get("before", {}),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetDefaults:
    """What topics of the target have where nothing is set on them; None where it is unknown, or brokers have no such
    config."""

    max_message_bytes: int | None = None
    min_insync_replicas: int | None = None
    old_bound: str | None = None

    @classmethod
    def of(cls, brokers: Mapping[str, ConfigValue]) -> TargetDefaults:
        """By the configs of the target's brokers."""
        most, in_sync = _value(brokers, "message.max.bytes"), _value(brokers, _IN_SYNC)
        return cls(
            max_message_bytes=int(most) if most else None,
            min_insync_replicas=int(in_sync) if in_sync else None,
            old_bound=_value(brokers, f"log.{OLD_BOUND}") or None,
        )


def spec_as_dict(spec: TopicSpec) -> dict[str, Any]:
    """A spec as JSON types."""
    return {
        "partitions": spec.partitions,
        "replication_factor": spec.replication_factor,
        "configs": dict(spec.configs),
    }


def spec_from(name: str, value: Mapping[str, Any]) -> TopicSpec:
    """The inverse of :func:`spec_as_dict`."""
    return TopicSpec(
        name=name,
        partitions=value["partitions"],
        replication_factor=value["replication_factor"],
        configs=dict(value["configs"]),
    )


def explicit(configs: Mapping[str, ConfigValue]) -> dict[str, str]:
    """Configs that are set on the topic itself, as far as they are shown."""
    return {name: c.value for name, c in sorted(configs.items()) if c.is_explicit and c.value is not None}


def _value(configs: Mapping[str, ConfigValue], name: str) -> str:
    """What holds for a topic; "" where it is unknown."""
    config = configs.get(name)
    return "" if config is None or config.value is None else config.value


def _is_reencoded(configs: Mapping[str, ConfigValue]) -> bool:
    """True if a topic with such configs has batches that the mirror cannot copy byte for byte, but re-encodes:
    compacted, with timestamps of the broker, or in a message format before v2."""
    return (
        "compact" in _value(configs, "cleanup.policy")
        or _value(configs, "message.timestamp.type") == "LogAppendTime"
        or is_old_format(_value(configs, "message.format.version"))
    )


def is_old_format(version: str) -> bool:
    """True if a ``message.format.version`` such as ``0.10.2-IV0`` means format v0 or v1; not for an empty one."""
    numbers = tuple(int(part) for part in version.split("-")[0].split(".")[:2] if part.isdigit())
    return bool(numbers) and numbers < _FORMAT_2


def restorable(explicit: Mapping[str, str], left_out: Mapping[str, str], *, is_old: bool = False) -> dict[str, str]:
    """What of a source topic's explicit configs its target gets in the end; ``left_out`` were refused there, or are
    no use, when the topic was created. ``is_old``: the target's brokers are from before Kafka 3.6.

    The one bound on timestamps that Kafka had before 3.6 becomes the two that came after it (KIP-937).
    """
    never = {*_OF_THE_SOURCE, *_OBSOLETE, *left_out, *(BOUNDS if is_old else ())}
    wanted = {name: value for name, value in explicit.items() if name not in never}
    if OLD_BOUND in explicit and is_old:
        wanted[OLD_BOUND] = explicit[OLD_BOUND]
    elif OLD_BOUND in explicit and not set(BOUNDS) & set(explicit) and not set(BOUNDS) & set(left_out):
        wanted |= dict.fromkeys(BOUNDS, explicit[OLD_BOUND])
    return wanted


def declare(
    source: TopicDescription,
    configs: Mapping[str, ConfigValue],
    *,
    replication_factor: int | None,
    defaults: TargetDefaults,
) -> Declared:
    """The target topic for a source topic, before the target was asked what it takes of it.

    ``replication_factor`` None keeps the source's. A largest message that is not known of the target makes the source's
    limit explicit, which is right whatever the default.
    """
    configs_source, factor = explicit(configs), replication_factor or source.replication_factor
    left_out = {name: why for name, why in _OF_THE_SOURCE.items() if name in configs_source}
    if is_old_format(configs_source.get(_FORMAT, "")):
        # Where a target knows it, such a topic takes no batches of transactions, and so no mirror.
        left_out[_FORMAT] = _OBSOLETE[_FORMAT]
    wanted = {name: value for name, value in configs_source.items() if name not in left_out} | dict(HELD_OPEN)
    largest, is_reencoded = int(_value(configs, _LIMIT) or 0), _is_reencoded(configs)
    if is_reencoded:
        # What compresses a little worse than the producer did must still fit.
        largest += largest // _ROOM
    if OLD_BOUND in wanted or defaults.old_bound not in (None, LONG_MAX):
        # From 3.6 to 3.9 brokers go by this one where the newer ones are open.
        wanted[OLD_BOUND] = LONG_MAX
    if _IN_SYNC not in wanted and (defaults.min_insync_replicas or 0) > factor:
        # Brokers before 3.7 take no record of a topic that has fewer replicas than they want in sync.
        wanted[_IN_SYNC] = str(factor)
    if largest > (defaults.max_message_bytes or 0) or (is_reencoded and _LIMIT in wanted):
        wanted[_LIMIT] = str(largest)
    return Declared(
        spec=TopicSpec(
            name=source.name,
            partitions=source.partitions,
            replication_factor=factor,
            configs=dict(sorted(wanted.items())),
        ),
        source_topic_id=source.topic_id,
        configs_source=configs_source,
        left_out=left_out,
    )


def fitted(
    declared: Declared,
    configs: Mapping[str, ConfigValue],
    refused_by: Callable[[TopicSpec], Mapping[str, str]],
) -> Declared:
    """``declared`` without what the target does not know and nobody misses; what is missed stands in ``refused``.

    Dropped are: our own newer bounds on timestamps (in favour of their predecessor), configs that changed nothing on
    the source (explicit, but equal to the default), and those that Kafka 4.0 removed without effect on records.
    """
    refused = dict(refused_by(declared.spec))
    if not refused:
        return declared
    wanted, left_out = dict(declared.spec.configs), dict(declared.left_out)
    if OLD_BOUND in refused and OLD_BOUND not in declared.configs_source:
        refused.pop(OLD_BOUND)
        wanted.pop(OLD_BOUND)
    if not refused.keys().isdisjoint(BOUNDS):
        # Before Kafka 3.6 (KIP-937): one bound for both directions.
        for name in BOUNDS:
            wanted.pop(name)
            refused.pop(name, None)
            if name in declared.configs_source:
                left_out[name] = f"the target knows only {OLD_BOUND}"
        wanted[OLD_BOUND] = LONG_MAX
    for name in refused.keys() & declared.configs_source.keys():
        known = _OBSOLETE.get(name) or _TIERED.get(name)
        if known or _is_default(configs.get(name)):
            why = refused.pop(name)
            left_out[name] = known or f"the target refuses it ({why}), and it equals the default"
            wanted.pop(name)
    spec = replace(declared.spec, configs=wanted)
    if not refused:
        refused = dict(refused_by(spec))
    return replace(declared, spec=spec, left_out=left_out, refused=refused)


def _is_default(config: ConfigValue | None) -> bool:
    return config is not None and config.default is not None and config.value == config.default
