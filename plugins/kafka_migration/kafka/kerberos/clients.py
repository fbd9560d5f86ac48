"""confluent-kafka's consumer and producer, as far as this room uses them, as kafka-python's.

Calls, messages and errors are confluent-kafka's own, so that whoever reads or writes sees no difference. Consumers have
no group: partitions are assigned, and nothing is committed.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import kafka.errors as kafka_errors
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.kafka.properties import is_property

_SECONDS = 30.0


class Message:
    """A record; or, with an error, what happened at ``offset`` of a partition, or to the consumer."""

    def __init__(
        self,
        partition: int = -1,
        offset: int = -1,
        *,
        key: bytes | None = None,
        value: bytes | None = None,
        error: KafkaError | None = None,
    ) -> None:
        self._partition, self._offset, self._key, self._value, self._error = partition, offset, key, value, error

    def error(self) -> KafkaError | None:
        return self._error

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value


class Consumer:
    """Reads the partitions that are assigned, each from its offset, and reports each end once that it comes to."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._client = _made(
            KafkaConsumer,
            config,
            isolation_level=config.get("isolation.level", "read_committed"),
            fetch_max_wait_ms=int(config.get("fetch.wait.max.ms", 500)),
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        # As librdkafka's: whoever lets go of it closes its connections.
        self.close = weakref.finalize(self, self._client.close, autocommit=False)
        self._ended: dict[TopicPartition, int] = {}

    def assign(self, partitions: Iterable[RdTopicPartition]) -> None:
        wanted = {TopicPartition(tp.topic, tp.partition): tp.offset for tp in partitions}
        self._client.assign(list(wanted))
        self._ended = {}
        for tp, offset in wanted.items():
            if offset == OFFSET_BEGINNING:
                self._client.seek_to_beginning(tp)
            else:
                self._client.seek(tp, offset)

    def unassign(self) -> None:
        self._client.assign([])

    def consume(self, count: int, *, timeout: float) -> list[Message]:
        """Up to ``count`` records that come within ``timeout`` seconds, and the ends of partitions."""
        try:
            polled = self._client.poll(timeout_ms=int(timeout * 1000), max_records=count)
            found = [
                Message(tp.partition, record.offset, key=record.key, value=record.value)
                for tp, records in polled.items()
                for record in records
            ]
            return found + self._ends(self._client.assignment() - polled.keys())
        except kafka_errors.KafkaError as error:
            return [Message(error=_as_confluents(error))]

    def _ends(self, idle: Iterable[TopicPartition]) -> list[Message]:
        at = {tp: self._client.position(tp, timeout_ms=_milliseconds(_SECONDS)) for tp in idle}
        waiting = [tp for tp, offset in at.items() if self._ended.get(tp) != offset]
        if not waiting:
            return []
        ends = self._client.end_offsets(waiting, timeout_ms=_milliseconds(_SECONDS))
        reached = [tp for tp in waiting if at[tp] >= ends[tp]]
        self._ended |= {tp: at[tp] for tp in reached}
        end = KafkaError(KafkaError._PARTITION_EOF)
        return [Message(tp.partition, at[tp], error=end) for tp in reached]

    def offsets_for_times(self, partitions: Iterable[RdTopicPartition], *, timeout: float) -> list[RdTopicPartition]:
        """The ends of ``partitions``: the only time that is asked for here."""
        wanted = [TopicPartition(tp.topic, tp.partition) for tp in partitions]
        try:
            found = self._client.end_offsets(wanted, timeout_ms=_milliseconds(timeout))
        except kafka_errors.KafkaError as error:
            raise KafkaException(_as_confluents(error)) from error
        return [RdTopicPartition(tp.topic, tp.partition, offset) for tp, offset in found.items()]


class Producer:
    """Idempotent. Reports each record's fate to its ``on_delivery``, from :meth:`flush`."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._client = _made(
            KafkaProducer, config, acks="all", enable_idempotence=True, linger_ms=int(config.get("linger.ms", 5))
        )
        weakref.finalize(self, self._client.close, timeout=0)
        self._sent: list[tuple[Any, Callable[[KafkaError | None, Any], None]]] = []

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        partition: int | None = None,
        *,
        on_delivery: Callable[[KafkaError | None, Any], None],
    ) -> None:
        try:
            self._sent.append((self._client.send(topic, value, key, partition=partition), on_delivery))
        except kafka_errors.KafkaError as error:
            on_delivery(_as_confluents(error), None)

    def poll(self, _seconds: float) -> int:
        """Nothing to do: sending waits for room by itself."""
        return 0

    def flush(self, timeout: float) -> int:
        """Wait for all records; how many were not answered within ``timeout`` seconds."""
        deadline = time.monotonic() + timeout
        with suppress(kafka_errors.KafkaTimeoutError):
            self._client.flush(timeout=timeout)
        left = []
        for future, on_delivery in self._sent:
            try:
                on_delivery(None, future.get(timeout=max(0.0, deadline - time.monotonic())))
            except kafka_errors.KafkaError as error:
                if future.is_done:
                    on_delivery(_as_confluents(error), None)
                else:
                    left.append((future, on_delivery))
        self._sent = left
        return len(left)


def _made(kind: Any, config: Mapping[str, Any], **own: Any) -> Any:
    """A client of kafka-python's for librdkafka's properties. Raises KafkaException."""
    connection = ClusterConnection("(Kerberos)", {name: config[name] for name in config if is_property(name)})
    # Consumers and producers know some properties less than the connections below them.
    known = {name: value for name, value in connection.kafka_python().items() if name in kind.DEFAULT_CONFIG}
    try:
        return kind(**known, **own, allow_auto_create_topics=False)
    except kafka_errors.KafkaError as error:
        raise KafkaException(_as_confluents(error)) from error


def _as_confluents(error: kafka_errors.KafkaError) -> KafkaError:
    if isinstance(error, kafka_errors.SaslAuthenticationFailedError):
        code = KafkaError._AUTHENTICATION
    elif isinstance(error, kafka_errors.BrokerResponseError):
        code = error.errno
    elif isinstance(error, kafka_errors.KafkaTimeoutError):
        code = KafkaError._TIMED_OUT
    else:
        code = KafkaError._TRANSPORT
    return KafkaError(code, str(error))


def _milliseconds(seconds: float) -> int:
    return int(seconds * 1000)
