"""Records of one cluster copied to the same partitions of the other, each once: consume, transform nothing, produce.

Each transaction on the target holds records and how far they go, in an internal topic beside them: both are there, or
neither. So the next process goes on where the last transaction that was committed ended. That place is not a group's
commit, as usual: commits expire, a group would be taken for one of the target's applications, and who deletes it at its
end may delete what the next process has committed there meanwhile.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from typing import Any, NamedTuple, NoReturn

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as RdTopicPartition

from kafka_migration.domain import codes, ledger
from kafka_migration.domain.errors import CouldNotFindOut, Refused, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.errors import Asked, UnknownTopic, retried, translated
from kafka_migration.kafka.libraries import is_kerberos
from kafka_migration.kafka.topic_log import TopicLog

_TIMEOUT = 30.0
#: A transaction that a dead process left holds up those who read the target's partitions, at the longest so long.
_TRANSACTION_MS = 60_000
_RECORDS, _BYTES = 1_000, 4 << 20
#: librdkafka's own limits: what it takes at the most, and what it puts into one batch.
_ANY_SIZE, _BATCH_BYTES = 1_000_000_000, 1_000_000
_FENCED = (KafkaError._FENCED, codes.INVALID_PRODUCER_EPOCH, codes.PRODUCER_FENCED)
_STATE = TopicPartition(ledger.STRAGGLERS_TOPIC, 0)


class Record(NamedTuple):
    """A record as it stands on the source. ``timestamp`` in milliseconds, 0 for none."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp: int

    @property
    def size(self) -> int:
        """Bytes of what applications see."""
        return sum(len(part or b"") for part in (self.key, self.value, *(value for _, value in self.headers)))


class Forwarder:
    """Copies from ``source`` to ``target`` as the one that holds ``transactional_id``. ``largest``: the smallest
    max.message.bytes of the topics that are written to.

    Raises Refused for a cluster that is reached by Kerberos: kafka-python's producer does not take every record."""

    def __init__(self, source: Cluster, target: Cluster, transactional_id: str, *, largest: int) -> None:
        for cluster in (source, target):
            if is_kerberos(cluster.connection.properties):
                raise Refused(
                    f"{cluster.role}: stragglers cannot be forwarded by Kerberos, which confluent-kafka does not know",
                    remedy=f"for this command, have connection {cluster.connection.conn_id} come by SCRAM or a"
                    " certificate; or move the records by hand: `stragglers` names them",
                )
        self._source, self._target, self._transactional_id = source, target, transactional_id
        self._producer = Producer(
            {
                **target.connection.librdkafka(),
                "log_level": 2,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": _TRANSACTION_MS,
                # Each broker has its own limit, and refuses a record by itself only if it is alone in its batch.
                "message.max.bytes": _ANY_SIZE,
                "batch.size": max(1, min(_BATCH_BYTES, largest)),
                "linger.ms": 5,
                # What was compressed on the source may be too large without.
                "compression.type": "lz4",
            }
        )

    def take_over(self) -> None:
        """End what an earlier process began, and have it write no more; what it committed stays.

        Raises NotAuthorized, ClusterUnreachable.
        """
        try:
            self._producer.init_transactions(_TIMEOUT)
        except KafkaException as error:
            self._raise(error.args[0], "Write", f"transactional id {self._transactional_id}")

    def progress(self) -> dict[bytes, bytes]:
        """What was committed beside the records, by key; read after :meth:`take_over`. The topic is made if need be."""
        with closing(TopicLog(self._target.connection.librdkafka(), ledger.STRAGGLERS_TOPIC)) as log:
            log.ensure()
            # Readers see nothing behind an open transaction. Of this id there is none; another plan's may be.
            ends = retried(
                lambda: self._target.ends([_STATE], committed=True)[_STATE],
                time.monotonic() + _TIMEOUT,
                # The broker that is asked may not know yet of a topic that was just created.
                lambda error: isinstance(error, UnknownTopic),
            )
            if ends.undecided:
                raise CouldNotFindOut(
                    f"target: a transaction is open on topic {ledger.STRAGGLERS_TOPIC}, of another migration",
                    remedy="run this again once that has ended, a minute later at the latest",
                )
            return {entry.key: entry.value for entry in log.new_entries() if entry.value is not None}

    def read(
        self, tp: TopicPartition, start: int, end: int, batches: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[list[Record], int]]:
        """Committed records of ``tp`` at source offsets ``start`` up to ``end`` (not included) that lie within
        ``batches`` (offsets from, to; sorted), some at a time, each time with the offset up to which they go. Last is
        ``end``, also without a record.

        Raises NotAuthorized, CouldNotFindOut.
        """
        consumer = Consumer(
            {
                **self._source.connection.librdkafka(),
                "log_level": 2,
                # Never used for commits; librdkafka insists on a group.
                "group.id": "kafka-migration.internal",
                "enable.auto.commit": "false",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed",
            }
        )
        try:
            yield from self._read(consumer, tp, start, end, batches)
        finally:
            consumer.close()

    def _read(
        self, consumer: Consumer, tp: TopicPartition, at: int, end: int, batches: Sequence[tuple[int, int]]
    ) -> Iterator[tuple[list[Record], int]]:
        consumer.assign([RdTopicPartition(self._source.topic_here(tp.topic), tp.partition, at)])
        firsts = [first for first, _ in batches]
        pending: list[Record] = []
        size = 0
        until = time.monotonic() + _TIMEOUT
        message: Any  # which of its parts are None is known here
        while at < end:
            for message in consumer.consume(_RECORDS, timeout=0.1):
                until = time.monotonic() + _TIMEOUT
                error = message.error()
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    # librdkafka looks for a coordinator of the group that it insists on; nothing here needs one.
                    if error.code() != codes.GROUP_AUTHORIZATION_FAILED:
                        raise self._translated(self._source, error, "Read", f"topic {tp.topic}")
                    continue
                offset = message.offset()
                if error is not None or offset >= end:
                    at = max(at, offset)
                    continue
                place = bisect_right(firsts, offset) - 1
                if place >= 0 and offset < batches[place][1]:
                    pending.append(_record(message))
                    size += pending[-1].size
                at = offset + 1
                if len(pending) >= _RECORDS or size >= _BYTES:
                    yield pending, at
                    pending, size = [], 0
                    until = time.monotonic() + _TIMEOUT
            if at < end and time.monotonic() > until:
                raise CouldNotFindOut(
                    f"source: {tp} could not be read from offset {at} to {end}",
                    remedy="check that the partition has a leader, then run this again",
                )
        yield pending, end

    def commit(
        self, tp: TopicPartition, records: Sequence[Record], key: bytes, value: Callable[[Sequence[int]], bytes]
    ) -> Sequence[int]:
        """Write ``records`` to ``tp`` of the target, in order, and beside them ``key`` with ``value`` (given their
        target offsets), in one transaction. Returns these offsets.

        Raises Refused for a record that the target does not take, TakenOver, NotAuthorized, CouldNotFindOut.
        """
        failures: list[tuple[Record, KafkaError]] = []
        offsets: list[int] = []

        def note(record: Record, error: KafkaError | None, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())
            else:
                failures.append((record, error))

        try:
            self._producer.begin_transaction()
            for record in records:
                self._produce(
                    tp,
                    record.value,
                    record.key,
                    # librdkafka takes 0 for now.
                    **({"timestamp": record.timestamp} if record.timestamp else {}),
                    headers=record.headers,
                    on_delivery=lambda error, message, record=record: note(record, error, message),
                )
            self._producer.flush(2 * _TIMEOUT)
            self._require_taken(tp, failures, len(records) - len(offsets))
            self._produce(_STATE, value(offsets), key)
            self._producer.commit_transaction(2 * _TIMEOUT)
            return offsets
        except KafkaException as error:
            self._abort()
            self._raise(error.args[0], "Write", f"topic {tp.topic}")
        except BaseException:
            self._abort()
            raise

    def _produce(self, tp: TopicPartition, value: bytes | None, key: bytes | None, **fields: Any) -> None:
        while True:
            try:
                self._producer.produce(self._target.topic_here(tp.topic), value, key, tp.partition, **fields)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _require_taken(self, tp: TopicPartition, failures: Sequence[tuple[Record, KafkaError]], left: int) -> None:
        for record, error in failures:
            where, here = f"{tp}, source offset {record.offset}", self._target.topic_here(tp.topic)
            if error.code() in (codes.MESSAGE_TOO_LARGE, codes.RECORD_LIST_TOO_LARGE):
                raise Refused(
                    f"target: topic {here} takes no record as large as the one at {where} ({record.size:,} bytes)",
                    remedy=f"raise max.message.bytes of topic {here} on the target, then run this again",
                )
            if error.code() in (codes.INVALID_TIMESTAMP, codes.INVALID_RECORD):
                raise Refused(
                    f"target: topic {tp.topic} does not take the record at {where} ({error.str()})",
                    remedy="change the configs of the topic on the target that refuse it (cleanup.policy,"
                    " message.timestamp.before.max.ms), then run this again",
                )
        if failures:
            raise KafkaException(failures[0][1])
        if left:
            raise CouldNotFindOut(
                f"target: {tp}: {left} records were not answered",
                remedy="check that the partition has a leader and enough in-sync replicas, then run this again",
            )

    def _abort(self) -> None:
        # Whoever comes next aborts it otherwise, or its coordinator in a minute.
        with suppress(KafkaException):
            self._producer.abort_transaction(_TIMEOUT)

    def _raise(self, error: KafkaError, operation: str, resource: str) -> NoReturn:
        if error.code() in _FENCED:
            raise TakenOver(f"the forwarding of stragglers ({self._transactional_id})") from None
        if error.code() == codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            resource = f"transactional id {self._transactional_id}"
        raise self._translated(self._target, error, operation, resource) from None

    def _translated(self, cluster: Cluster, error: KafkaError, operation: str, resource: str) -> Exception:
        asked = Asked(role=cluster.role, servers=cluster.connection.servers, operation=operation, resource=resource)
        return translated(asked, code=error.code(), name=error.name(), text=error.str())


def _record(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        offset=message.offset(),
        key=message.key(),
        value=message.value(),
        headers=message.headers() or [],
        timestamp=0 if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
    )
