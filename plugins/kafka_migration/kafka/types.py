"""What a cluster reports of itself. Offsets are next-to-read; sizes bytes; timestamps milliseconds since 1970 (UTC).

Names of states, operations and permissions are Kafka's own, as its command-line tools print them.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """A topic as the cluster holds it. ``leaders[p]`` is partition p's broker id, None while it has no leader.

    ``topic_id`` (a UUID in its usual form) distinguishes a recreated topic from its predecessor; "" before Kafka 2.8.
    ``operations`` are what this connection's principal may do with it.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    leaders: tuple[int | None, ...]
    is_internal: bool = False
    operations: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        if self.partitions != len(self.leaders) or self.partitions < 1:
            raise ValueError(f"{self.name}: {self.partitions} partitions, but {len(self.leaders)} leader entries")

    @property
    def topic_partitions(self) -> tuple[TopicPartition, ...]:
        return tuple(TopicPartition(self.name, partition) for partition in range(self.partitions))


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigValue:
    """One config. ``is_explicit`` means set on the topic (or broker) itself, not inherited from a default.

    ``value`` is None where the cluster does not show it (sensitive ones). ``default`` is what would hold without the
    explicit value, None where the cluster does not report it.
    """

    value: str | None
    is_explicit: bool
    is_sensitive: bool = False
    default: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as listed: see :class:`GroupState` for ``protocol`` and ``state``."""

    group: str
    protocol: str
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """An active member. ``partitions`` are assigned to it now; ``topics`` is what it subscribes to.

    ``topics`` is None where the cluster does not show it (members of protocols other than classic and consumer).
    """

    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...] = ()
    topics: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group now.

    ``protocol`` is the group's type (classic, consumer, share, streams); for a classic group that is not a consumers'
    group it is that protocol's type instead (connect, sr). ``state`` is Kafka's name (Empty, Stable, Dead,
    PreparingRebalance, CompletingRebalance, Assigning, Reconciling); a group that does not exist is Dead.
    """

    group: str
    state: str
    protocol: str
    members: tuple[GroupMember, ...] = ()

    @property
    def exists(self) -> bool:
        return self.state != "Dead"

    @property
    def is_empty(self) -> bool:
        """No members: the group may have stopped, or may never have started. It may have members again at any time."""
        return self.state in ("Empty", "Dead") and not self.members


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A group's next offset to read, with the metadata string that its consumer left beside it."""

    offset: int
    metadata: str = ""

    def __post_init__(self) -> None:
        if self.offset < 0:
            raise ValueError(f"a committed offset cannot be negative: {self.offset}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeSpan:
    """Timestamps of the first record and of the newest one; None where there is no record, or it is not known."""

    earliest: int | None
    latest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDir:
    """One disk of one broker. Sizes are None before Kafka 3.3 (KIP-827)."""

    broker: int
    path: str
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskUse:
    """Log directories, and how many bytes each partition's largest replica takes."""

    log_dirs: tuple[LogDir, ...]
    partition_bytes: dict[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveProducer:
    """A producer id that a partition's leader remembers (for ``producer.id.expiration.ms`` after its last batch)."""

    producer_id: int
    epoch: int
    last_timestamp: int
    is_transactional: bool
    in_transaction: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One ACL."""

    resource_type: str
    resource: str
    pattern: str
    principal: str
    host: str
    operation: str
    permission: str

    def is_on(self, kind: str, name: str) -> bool:
        """Whether it is about the resource ``name`` of this type, for whomever and whatever it is."""
        if self.resource_type != kind:
            return False
        return name.startswith(self.resource) if self.pattern == "PREFIXED" else self.resource in (name, "*")

    def is_on_any(self, names: Mapping[str, Set[str]]) -> bool:
        """The same of any of many names, by resource type."""
        if (mine := names.get(self.resource_type)) is None:
            return False
        if self.pattern == "PREFIXED":
            return any(name.startswith(self.resource) for name in mine)
        return self.resource == "*" or self.resource in mine


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limits of one entity. ``entity`` holds (type, name) pairs; the name None stands for that type's default."""

    entity: tuple[tuple[str, str | None], ...]
    limits: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramUser:
    """A SCRAM user and (mechanism, iterations) of its credentials. Their secrets cannot be read."""

    user: str
    credentials: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochEnd:
    """A leader epoch of a partition, and the offset at which it ends: the log's end for the current one."""

    epoch: int
    end: int
