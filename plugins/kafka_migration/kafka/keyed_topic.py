"""A compacted topic of somebody else: the newest value of each key, read and written as its own clients do.

For internal topics of ours see :mod:`kafka_migration.kafka.topic_log`, whose keys stand in places of our own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, KafkaError, TopicPartition
from kafka.partitioner.default import murmur2

from kafka_migration.domain.codes import GROUP_AUTHORIZATION_FAILED
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.listing import listed
from kafka_migration.kafka import libraries
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.errors import Asked, translated

_TIMEOUT = 30.0


def partition_of(key: bytes, partitions: int) -> int:
    """Where Java's producers, and librdkafka's with ``murmur2``, put ``key`` in a topic of so many partitions."""
    return int(murmur2(key) & 0x7FFFFFFF) % partitions


class KeyedTopic:
    """``topic`` of ``cluster``; the caller closes the cluster. Raises BadInput if there is no such topic."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self.cluster, self.topic = cluster, topic
        described = cluster.topics([topic]).get(topic)
        if described is None:
            raise BadInput(
                f"the {cluster.role} has no topic {topic}",
                value=topic,
                remedy="correct its name; or create it first, compacted, as its clients expect it",
            )
        self.partitions = described.partitions

    def require_compacted(self) -> None:
        """Raises Refused if the topic would forget what is written to it."""
        policy = self.cluster.topic_configs([self.topic])[self.topic]["cleanup.policy"].value
        if policy != "compact":
            raise Refused(
                f"{self.cluster.role}: cleanup.policy of {self.topic} is {policy}: positions would be deleted",
                remedy="set cleanup.policy=compact on it, or name another topic",
            )

    def latest(self) -> dict[bytes, bytes]:
        """The newest value of each key, by offset; without keys whose newest value is null. Committed records only,
        as of now.

        A key stands in one partition, unless their number was changed. What stands where Java's producers put it now
        was written since then, and counts; times do not, as each producer gives its own. Raises Refused for a key that
        stands in several others, not there, with different values.
        """
        consumer = libraries.consumer(
            self._client(
                {
                    # Never used for commits; librdkafka insists on a group.
                    "group.id": "kafka-migration.positions",
                    "enable.auto.commit": "false",
                    "enable.partition.eof": "true",
                    "isolation.level": "read_committed",
                }
            )
        )
        try:
            return self._latest(consumer)
        finally:
            consumer.close()

    def _latest(self, consumer: Any) -> dict[bytes, bytes]:
        consumer.assign([TopicPartition(self.topic, p, OFFSET_BEGINNING) for p in range(self.partitions)])
        newest: dict[bytes, dict[int, bytes | None]] = {}
        unread, until = set(range(self.partitions)), time.monotonic() + _TIMEOUT
        message: Any  # which of its parts are None is known here
        while unread:
            for message in consumer.consume(5_000, timeout=0.05):
                until = time.monotonic() + _TIMEOUT
                error = message.error()
                if error is None:
                    # A partition is read in the order of its offsets.
                    if message.key() is not None:
                        newest.setdefault(message.key(), {})[message.partition()] = message.value()
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
                elif error.code() != GROUP_AUTHORIZATION_FAILED:
                    raise self._translated("Read", error)
            if unread and time.monotonic() > until:
                raise CouldNotFindOut(
                    f"{self.cluster.role}: {self.topic} could not be read to its end (partitions {sorted(unread)})",
                    remedy="check that the topic's partitions have leaders, then run this again",
                )
        found = {key: self._counting(key, places) for key, places in newest.items()}
        return {key: value for key, value in found.items() if value is not None}

    def _counting(self, key: bytes, places: Mapping[int, bytes | None]) -> bytes | None:
        """Which of a key's newest values counts, by partition."""
        home = partition_of(key, self.partitions)
        if home not in places and len(set(places.values())) > 1:
            raise Refused(
                f"{self.cluster.role}: key {key!a} of {self.topic} stands in partitions {listed(sorted(places))} with"
                " different values, and nothing shows which one is newer",
                remedy=f"write the right value once more, to partition {home}, where its connector would write it now"
                " (start the connector, and stop it; or produce it yourself), then run this again",
            )
        return places[home] if home in places else next(iter(places.values()))

    def put(self, values: Mapping[bytes, bytes]) -> None:
        """Write ``values``; all are durable on return. Each key goes where Java's producers put it (murmur2), so that
        what they write to it later stands in the same partition, behind it."""
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        producer = libraries.producer(
            self._client({"enable.idempotence": "true", "acks": "all", "partitioner": "murmur2_random"})
        )
        for key, value in values.items():
            while True:
                try:
                    producer.produce(self.topic, value, key, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(2 * _TIMEOUT)
        if failures:
            raise self._translated("Write", failures[0])
        if left:
            raise CouldNotFindOut(
                f"{self.cluster.role}: topic {self.topic}: {left} records were not answered",
                remedy=f"check that the partitions of {self.topic} have leaders, then run this again: what was written"
                " is not written twice",
            )

    def _translated(self, operation: str, error: KafkaError) -> Exception:
        connection = self.cluster.connection
        asked = Asked(
            role=self.cluster.role, servers=connection.servers, operation=operation, resource=f"topic {self.topic}"
        )
        return translated(asked, code=error.code(), name=error.name(), text=error.str())

    def _client(self, extra: dict[str, str]) -> dict[str, Any]:
        return {**self.cluster.connection.librdkafka(), **extra, "log_level": 2}
