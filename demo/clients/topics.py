"""The demo's topics: every codec, keys and headers or none, explicit configs, logs that start above offset 0."""

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

Codec = Literal["none", "gzip", "snappy", "lz4", "zstd"]
KeyUse = Literal["always", "sometimes", "never"]

K = TypeVar("K")
V = TypeVar("V")

ADMIN_TIMEOUT_SECONDS = 60.0
DAY_MS = 24 * 60 * 60 * 1000
MIB = 1024 * 1024

HEALTH = "demo-health"
"""On both clusters, and no part of the migration: a producer that moves is at work once it has written here."""

# Nothing of these topics is clean-able before a week is over: a record that the cleaner took away could not be told
# from one that the migration lost.
COMPACTED = {
    "cleanup.policy": "compact",
    "min.compaction.lag.ms": str(7 * DAY_MS),
    "min.cleanable.dirty.ratio": "0.99",
    "segment.bytes": str(512 * MIB),
    "segment.ms": str(7 * DAY_MS),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSpec:
    """One topic and what is written to it.

    Attributes:
        share: its part of the live records, in records of 1,500.
        burst: records that a producer sends to one partition before it takes the next: the size of live batches.
        tombstones: whether some records have no value.
        large_records: how many records of the preload exceed the default `max.message.bytes`.
    """

    name: str
    partitions: int
    codec: Codec
    keys: KeyUse
    headers: bool
    share: int
    burst: int
    configs: Mapping[str, str] = field(default_factory=dict)
    big: bool = False
    tombstones: bool = False
    large_records: int = 0

    def __post_init__(self) -> None:
        if self.tombstones and not self.headers:
            raise ValueError(f"{self.name}: a tombstone has no value to hold its id; it needs headers.")
        if self.compacted and self.keys != "always":
            raise ValueError(f"{self.name}: brokers refuse records without a key in a compacted topic.")

    @property
    def compacted(self) -> bool:
        return self.configs.get("cleanup.policy") == "compact"

    def log_start(self, partition: int) -> int:
        """The offset that DeleteRecords makes the first one: small, and another one for each partition.

        In odd partitions it lies inside a batch: see `batch_boundary`.
        """
        return self.batch_boundary(partition) + (7 if partition % 2 else 0)

    def batch_boundary(self, partition: int) -> int:
        """The offset at which the preload begins a new batch of at least eight records."""
        return 40 + 29 * partition + len(self.name)


TOPICS = (
    TopicSpec(
        name="demo.clicks", partitions=4, codec="lz4", keys="never", headers=False, share=300, burst=60, big=True,
        configs={"retention.ms": str(7 * DAY_MS), "segment.bytes": str(64 * MIB)},
    ),
    TopicSpec(
        name="demo.orders", partitions=3, codec="zstd", keys="always", headers=True, share=200, burst=20,
        configs={"retention.ms": str(3 * DAY_MS), "min.insync.replicas": "1"},
    ),
    TopicSpec(
        name="demo.payments", partitions=6, codec="gzip", keys="always", headers=False, share=200, burst=10,
        configs={"retention.ms": "-1", "min.insync.replicas": "1", "max.message.bytes": str(2 * MIB)},
    ),
    TopicSpec(
        name="demo.sensors", partitions=8, codec="snappy", keys="sometimes", headers=False, share=250, burst=5,
        configs={"retention.ms": str(DAY_MS), "retention.bytes": str(1024 * MIB)},
    ),
    TopicSpec(
        name="demo.profiles", partitions=2, codec="snappy", keys="always", headers=True, share=100, burst=5,
        configs=COMPACTED, tombstones=True,
    ),
    TopicSpec(
        name="demo.inventory", partitions=5, codec="lz4", keys="always", headers=False, share=150, burst=10,
        configs=COMPACTED,
    ),
    TopicSpec(
        name="demo.audit", partitions=1, codec="none", keys="never", headers=True, share=100, burst=1,
        configs={"retention.ms": str(30 * DAY_MS), "max.message.bytes": str(4 * MIB)}, large_records=3,
    ),
    TopicSpec(
        name="demo.sessions", partitions=2, codec="zstd", keys="sometimes", headers=True, share=100, burst=10,
        configs={"retention.ms": str(2 * DAY_MS), "compression.type": "zstd"},
    ),
    TopicSpec(
        name="demo.invoices", partitions=1, codec="none", keys="always", headers=False, share=100, burst=1,
        configs={"retention.ms": str(14 * DAY_MS), "delete.retention.ms": str(2 * DAY_MS)},
    ),
)  # fmt: skip


def create(admin: AdminClient, topics: Iterable[TopicSpec]) -> None:
    """Create all topics, one replica each, not compacted yet: see `make_compacted`.

    Raises:
        KafkaException: a topic exists already, or the cluster refuses.
    """
    new = [
        NewTopic(spec.name, spec.partitions, 1, config={**spec.configs, "cleanup.policy": "delete"})
        if spec.compacted
        else NewTopic(spec.name, spec.partitions, 1, config=dict(spec.configs))
        for spec in topics
    ]
    _results(admin.create_topics(new, operation_timeout=ADMIN_TIMEOUT_SECONDS))


def create_health(admin: AdminClient) -> None:
    """Create the topic that producers which move try themselves out on."""
    _results(admin.create_topics([NewTopic(HEALTH, 1, 1)], operation_timeout=ADMIN_TIMEOUT_SECONDS))


def delete_beginnings(admin: AdminClient, topics: Iterable[TopicSpec]) -> dict[str, list[int]]:
    """Delete the beginning of every partition's log, so that offsets of source and target differ.

    Returns:
        The log start offsets by topic, in order of partition, as the broker reports them afterwards.
    """
    starts = [
        TopicPartition(spec.name, partition, spec.log_start(partition))
        for spec in topics
        for partition in range(spec.partitions)
    ]
    _results(admin.delete_records(starts, operation_timeout=ADMIN_TIMEOUT_SECONDS))
    earliest = _results(
        admin.list_offsets(
            {
                TopicPartition(start.topic, start.partition): OffsetSpec.earliest()  # type: ignore[no-untyped-call]
                for start in starts
            },
            request_timeout=ADMIN_TIMEOUT_SECONDS,
        )
    )
    offsets = {(place.topic, place.partition): result.offset for place, result in earliest.items()}
    return {spec.name: [offsets[spec.name, partition] for partition in range(spec.partitions)] for spec in topics}


def make_compacted(admin: AdminClient, topics: Iterable[TopicSpec]) -> None:
    """Set the compacted topics' own cleanup.policy: brokers refuse DeleteRecords on a topic that has it."""
    compact = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    changes = [
        ConfigResource(ResourceType.TOPIC, spec.name, incremental_configs=[compact])
        for spec in topics
        if spec.compacted
    ]
    if changes:
        _results(admin.incremental_alter_configs(changes, request_timeout=ADMIN_TIMEOUT_SECONDS))


def _results(futures: Mapping[K, Future[V]]) -> dict[K, V]:
    return {key: future.result(ADMIN_TIMEOUT_SECONDS) for key, future in futures.items()}
