"""Which library a cluster's clients are of: confluent-kafka, but kafka-python for Kerberos, under the same calls.

confluent-kafka's wheels know no GSSAPI (docs/adr/0019-kerberos.md). All functions take librdkafka's properties.

Calls, messages and errors are confluent-kafka's own, so that whoever reads or writes sees no difference. With Kerberos,
consumers have no group: partitions are assigned, and nothing is committed.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

import confluent_kafka
import kafka.errors as kafka_errors
from confluent_kafka import OFFSET_BEGINNING, KafkaError, KafkaException
from confluent_kafka import TopicPartition as RdTopicPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kafka_migration.kafka import admin_client as of_confluent
from kafka_migration.kafka.connections import KERBEROS, ClusterConnection
from kafka_migration.kafka.properties import is_property

_SECONDS = 30.0


def is_kerberos(properties: Mapping[str, Any]) -> bool:
    """Whether these are properties of a cluster that is reached by Kerberos."""
    return properties.get("sasl.mechanism") == KERBEROS


def admin_client(properties: Mapping[str, Any], *, role: str, timeout_seconds: float) -> Any:
    """An admin client. With Kerberos, raises our errors where no broker answers."""
    if not is_kerberos(properties):
        return of_confluent.AdminClient(dict(properties))
    from kafka_migration.kafka.kerberos.admin import AdminClient
    from kafka_migration.kafka.raw import RawClient

    connection = ClusterConnection("(Kerberos)", {name: properties[name] for name in properties if is_property(name)})
    raw = RawClient(role, connection, timeout_seconds=timeout_seconds, connect_timeout_seconds=timeout_seconds)
    admin = AdminClient(raw)
    # As confluent-kafka's: whoever lets go of it closes its connections.
    weakref.finalize(admin, raw.close)
    return admin


def consumer(properties: Mapping[str, Any]) -> Any:
    """A consumer."""
    if not is_kerberos(properties):
        return confluent_kafka.Consumer(dict(properties))
    return KerberosConsumer(properties)


def producer(properties: Mapping[str, Any]) -> Any:
    """A producer."""
    if not is_kerberos(properties):
        return confluent_kafka.Producer(dict(properties))
    return KerberosProducer(properties)


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


class KerberosConsumer:
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


class KerberosProducer:
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
