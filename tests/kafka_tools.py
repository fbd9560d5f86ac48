"""What tests do to clusters and read from them, through librdkafka alone: no code of the mirror."""

import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import confluent_kafka
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    OffsetSpec,
    TopicDescription,
)
from confluent_kafka.cimpl import NewTopic

from kafka_migration.domain import codes
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.errors import retried
from tests.waiting import wait_until

Headers = tuple[tuple[str, bytes | None], ...]


_COORDINATOR_TO_COME = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
)


@dataclass(frozen=True)
class Row:
    """A record as a consumer sees it."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: Headers = ()

    def without_offset(self) -> tuple[object, ...]:
        return self.key, self.value, self.timestamp, self.headers


@dataclass(frozen=True)
class ToSend:
    """A record to produce; a timestamp of None is now."""

    value: bytes | None
    key: bytes | None = None
    partition: int = 0
    timestamp: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


def create_topics(
    servers: str,
    topics: Mapping[str, int],
    config: Mapping[str, str] | None = None,
    *,
    brokers: list[int] | None = None,
    replicas: int = 1,
) -> None:
    """Create `topics` (name to partition count), and wait until the broker asked knows them; with `brokers`, each
    partition has replicas on exactly these."""
    wanted = []
    for name, count in topics.items():
        place: dict[str, Any] = (
            {"replication_factor": replicas} if brokers is None else {"replica_assignment": [brokers] * count}
        )
        wanted.append(NewTopic(name, num_partitions=count, config=dict(config or {}), **place))
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.create_topics(wanted).values():
        future.result(30)
    for name in topics:
        _described(admin, name)


def _described(admin: AdminClient, name: str) -> TopicDescription:
    # One that was just created is not known to every broker yet.
    found: list[TopicDescription] = []

    def is_there() -> bool:
        try:
            found.append(admin.describe_topics(TopicCollection([name]))[name].result(30))
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise
        return bool(found)

    wait_until(is_there, f"topic {name} is there")
    return found[0]


def topic_ids(servers: str, names: Iterable[str]) -> dict[str, uuid.UUID]:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    out = {}
    mask = 2**64 - 1
    for name in names:
        it: Any = _described(admin, name).topic_id
        out[name] = uuid.UUID(
            int=(it.get_most_significant_bits() & mask) << 64 | (it.get_least_significant_bits() & mask)
        )
    return out


def produce(servers: str, topic: str, records: Iterable[ToSend], **config: object) -> None:
    """Produce `records` and wait until all are acknowledged."""
    produce_with({"bootstrap.servers": servers}, topic, records, **config)


def produce_with(client: Mapping[str, str], topic: str, records: Iterable[ToSend], **config: object) -> None:
    """As `produce`, with librdkafka's properties of a client."""
    failures: list[object] = []
    # Batches are as large as they may be, however slow this process is: the flush waits for no linger. It begins when
    # the topic is known, as librdkafka then has handed all records to their partition: one by one, and a flush in
    # between sends what is there.
    producer = confluent_kafka.Producer(
        {**client, "queue.buffering.max.messages": 2_000_000, "linger.ms": 60_000, **config}
    )
    for count, record in enumerate(records):
        extra: dict[str, Any] = {} if record.timestamp is None else {"timestamp": record.timestamp}
        producer.produce(
            topic,
            value=record.value,
            key=record.key,
            partition=record.partition,
            headers=list(record.headers),
            on_delivery=lambda error, _: failures.append(error) if error else None,
            **extra,
        )
        if count % 10_000 == 0:
            producer.poll(0)
    producer.list_topics(topic, timeout=120)
    assert producer.flush(120) == 0
    assert not failures, failures[:3]


def read_all(servers: str, topics: Mapping[str, int]) -> dict[TopicPartition, list[Row]]:
    """Every committed record of `topics` (name to partition count), in offset order."""
    return read_all_with({"bootstrap.servers": servers}, topics)


def read_all_with(client: Mapping[str, str], topics: Mapping[str, int]) -> dict[TopicPartition, list[Row]]:
    """As `read_all`, with librdkafka's properties of a client."""
    tps = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    consumer = confluent_kafka.Consumer(
        {
            **client,
            "group.id": f"reader-{uuid.uuid4()}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "check.crcs": True,
        }
    )
    rows: dict[TopicPartition, list[Row]] = {tp: [] for tp in tps}
    ends = {
        tp: consumer.get_watermark_offsets(confluent_kafka.TopicPartition(tp.topic, tp.partition), timeout=30)[1]
        for tp in tps
    }
    unread = set(tps)
    beginning = confluent_kafka.OFFSET_BEGINNING
    consumer.assign([confluent_kafka.TopicPartition(tp.topic, tp.partition, beginning) for tp in tps])
    message: Any  # which of its parts are None is known here
    try:
        while unread:
            for message in consumer.consume(10_000, timeout=0.2):
                tp = TopicPartition(message.topic(), message.partition())
                if message.error() is not None:
                    assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF, message.error()
                    if message.offset() >= ends[tp]:
                        unread.discard(tp)
                else:
                    rows[tp].append(
                        Row(
                            message.offset(),
                            message.key(),
                            message.value(),
                            message.timestamp()[1],
                            tuple(message.headers() or ()),
                        )
                    )
    finally:
        consumer.close()
    return rows


def commit(servers: str, group: str, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]) -> None:
    """Commits of a group whose consumers were here, and have left."""
    commit_with({"bootstrap.servers": servers}, group, offsets)


def commit_with(
    client: Mapping[str, str], group: str, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
) -> None:
    """The same, for a client with more settings than an address."""
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False})
    places = [confluent_kafka.TopicPartition(*tp, at) for tp, at in offsets.items()]

    def done() -> bool:
        try:
            answer = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException as error:
            # The first group of a new cluster: its coordinator is only just elected.
            if not error.args[0].retriable() and error.args[0].code() not in _COORDINATOR_TO_COME:
                raise
            return False
        assert answer is not None
        assert [place.error for place in answer] == [None] * len(places)
        return True

    try:
        wait_until(done, f"{group} has committed")
    finally:
        consumer.close()


def committed(servers: str, group: str) -> dict[TopicPartition, int]:
    """Where a group stands."""
    return committed_with({"bootstrap.servers": servers}, group)


def committed_with(client: Mapping[str, str], group: str) -> dict[TopicPartition, int]:
    """The same, for a client with more settings than an address."""
    # Held until it has answered: a client that is gone answers nothing.
    admin = AdminClient(dict(client))
    future = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group]
    places = future.result(30).topic_partitions or ()
    return {TopicPartition(place.topic, place.partition): place.offset for place in places}


def delete_records(servers: str, before: Mapping[TopicPartition, int]) -> None:
    """Raise log start offsets, as DeleteRecords does."""
    offsets = [confluent_kafka.TopicPartition(tp.topic, tp.partition, offset) for tp, offset in before.items()]
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.delete_records(offsets).values():
        future.result(30)


def set_topic_config(servers: str, topic: str, config: Mapping[str, str]) -> None:
    """Set explicit configs of a topic, and wait until its broker shows them: the controller answers before that."""
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)

    def shown() -> dict[str, str | None]:
        (described,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, topic)]).values()
        return {name: entry.value for name, entry in described.result(30).items() if name in config}

    wait_until(lambda: shown() == dict(config), lambda: f"{topic} has {config}, but shows {shown()}")


def delete_topic(servers: str, topic: str) -> None:
    """Delete a topic and wait until it is gone."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    wait_until(lambda: topic not in admin.list_topics(timeout=10).topics, f"{topic} deleted")


def produce_transaction(servers: str, topic: str, values: Iterable[bytes], *, commit: bool = True) -> None:
    """Produce `values` in one transaction, which is committed, or else aborted."""
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": f"tests-{uuid.uuid4()}"})
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value)
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


@lru_cache(maxsize=4)
def _kept_admin(servers: str) -> AdminClient:
    # Polled many times a second: to connect anew each time takes longer than to ask.
    return AdminClient({"bootstrap.servers": servers, "log_level": 0})


def forget_clients() -> None:
    """Ask with new clients from now on: those that have been asked do not learn of partitions that are added."""
    _kept_admin.cache_clear()


def stable_ends(servers: str, topics: Mapping[str, int]) -> dict[TopicPartition, int]:
    """The last stable offsets of `topics`: where a consumer of committed records stops."""
    admin = _kept_admin(servers)
    tps = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    wanted = {confluent_kafka.TopicPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in tps}
    found = admin.list_offsets(wanted, isolation_level=IsolationLevel.READ_COMMITTED)
    return {TopicPartition(tp.topic, tp.partition): future.result(30).offset for tp, future in found.items()}


def log_ends(servers: str, topics: Mapping[str, int]) -> int:
    """The sum of all high watermarks of `topics`, from their leaders: also of those that were elected just now."""
    admin = _kept_admin(servers)
    tps = [TopicPartition(name, p) for name, count in topics.items() for p in range(count)]
    wanted = {confluent_kafka.TopicPartition(tp.topic, tp.partition): OffsetSpec.latest() for tp in tps}
    ends: int = retried(
        lambda: sum(future.result(30).offset for future in admin.list_offsets(wanted).values()),
        time.monotonic() + 30,
        lambda error: isinstance(error, KafkaException) and error.args[0].code() in codes.STALE_LEADER,
    )
    return ends
