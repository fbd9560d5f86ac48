"""A compacted internal topic as a log of keyed values: append durably, read everything, follow what is new.

Not thread-safe: every process and thread opens its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple, cast

from confluent_kafka import OFFSET_END, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.cimpl import NewTopic

from kafka_migration.domain import codes, ledger
from kafka_migration.domain.errors import (
    ClusterUnreachable,
    CouldNotFindOut,
    MigrationError,
    NotAuthorized,
    StateConflict,
)
from kafka_migration.domain.waiting import tries
from kafka_migration.kafka import libraries
from kafka_migration.kafka.errors import retried

_TIMEOUT, _TRY_TIMEOUT = 30.0, 5.0
_MAX_REPLICAS, _SYNCED = 3, 2
_UNAUTHORIZED = (codes.TOPIC_AUTHORIZATION_FAILED, codes.CLUSTER_AUTHORIZATION_FAILED)
_BROKER_GONE = -137
"""librdkafka's _DESTROY_BROKER: the broker that was asked left the cluster meanwhile."""
_UNKNOWN = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC}
_NOT_YET = codes.NOT_THERE_YET | codes.STALE_LEADER | _UNKNOWN | {_BROKER_GONE}
_NO_ANSWER = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


class Entry(NamedTuple):
    """One record of the log. ``value`` is None for a deleted key; ``offset`` orders entries within a partition."""

    partition: int
    offset: int
    key: bytes
    value: bytes | None


class TopicLog:
    """One internal topic on the target, or the cluster ``role``, reached with librdkafka's ``properties``."""

    def __init__(self, properties: Mapping[str, str], topic: str, *, role: str = "target") -> None:
        self._role = role
        self.topic, self.partitions = topic, (ledger.PARTITIONS | ledger.SELDOM_PARTITIONS)[topic]
        self._properties = dict(properties)
        self._servers = str(properties.get("bootstrap.servers", ""))
        self._consumer: Any = None
        self._producer: Any = None
        self._next = dict.fromkeys(range(self.partitions), 0)

    def __enter__(self) -> TopicLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End connections. What was appended is durable already."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None
        self._producer = None

    def exists(self, *, is_written: bool = True) -> bool:
        """True if the topic is there: a migration that never began has none. Whether it keeps what is written to it is
        looked at, too, unless it is only read.

        Raises NotAuthorized if the principal may not describe it, there or not: what is hidden is not absent.
        """
        admin = self._admin()
        try:
            found = self._described(admin)
        except KafkaException as error:
            if _code(error) == codes.UNKNOWN_TOPIC_OR_PARTITION:
                return False
            raise self._translated("Read", error) from error
        if is_written:
            self._compare(admin, found.partitions)
        return True

    def _described(self, admin: Any) -> Any:
        return _answer(admin.describe_topics(TopicCollection([self.topic]), request_timeout=_TIMEOUT)[self.topic])

    def _compare(self, admin: Any, found_partitions: Collection[Any]) -> None:
        """Refuse a topic that does not keep what is written to it: somebody else may have made it."""
        partitions = len(found_partitions)
        replicas = min((len(partition.replicas) for partition in found_partitions), default=0)
        if partitions != self.partitions:
            # Keys would be looked for in other partitions than they stand in, and older values come to light again.
            raise StateConflict(
                f"target: {self.topic} has {partitions} partitions, this version needs {self.partitions}",
                remedy="use the version of this tool that created it, and never change its partitions",
            )
        found = self._configs(admin)
        wanted = {"cleanup.policy": ledger.configs_of(self.topic)["cleanup.policy"]}
        if replicas > _SYNCED and int(found["min.insync.replicas"]) < _SYNCED:
            wanted["min.insync.replicas"] = str(_SYNCED)
        wrong = {name: value for name, value in wanted.items() if found[name] != value}
        if wrong:
            raise StateConflict(
                f"target: {self.topic} was not created by this tool, or was changed: "
                + ", ".join(f"{name} is {found[name]}, not {value}" for name, value in wrong.items())
                + "; the state of migrations would be lost",
                remedy=f"if no migration has begun, delete {self.topic}, and keep consumers from creating it"
                " (allow.auto.create.topics=false); otherwise alter its configs: "
                + ", ".join(f"{name}={value}" for name, value in wrong.items()),
            )

    def _configs(self, admin: Any) -> dict[str, str]:
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            found = _once_known(lambda: _answer(admin.describe_configs([resource], request_timeout=_TIMEOUT)[resource]))
        except KafkaException as error:
            raise self._translated("DescribeConfigs", error) from error
        return {name: str(entry.value) for name, entry in found.items()}

    def ensure(self) -> None:
        """Create the topic, compacted, on as many replicas as the cluster has brokers (three at most), also if one of
        them is down just now."""
        admin = self._admin()
        try:
            metadata = admin.list_topics(timeout=_TIMEOUT)
            if self.topic in metadata.topics:
                partitions = metadata.topics[self.topic].partitions.values()
            elif self._create_on_most(admin, metadata):
                return
            else:
                # Somebody else was faster, or the broker that was asked had not heard of it yet.
                partitions = _once_known(lambda: self._described(admin)).partitions
            self._compare(admin, partitions)
            self._catch_up(admin)
        except KafkaException as error:
            raise self._translated("Create", error) from error

    def _create_on_most(self, admin: Any, metadata: Any) -> bool:
        """False if the topic is there already."""
        # A broker that restarts is not listed, but its replicas are. Two replicas that must both be in sync would hold
        # up the mirror whenever one of their brokers is gone.
        brokers = {r for t in metadata.topics.values() for p in t.partitions.values() for r in p.replicas}
        known, there = len(brokers | metadata.brokers.keys()), len(metadata.brokers)
        try:
            try:
                self._create(admin, min(_MAX_REPLICAS, known))
            except KafkaException as error:
                # Clusters with ZooKeeper place replicas on brokers only that are up.
                if _code(error) != codes.INVALID_REPLICATION_FACTOR or there == known:
                    raise
                self._create(admin, min(_MAX_REPLICAS, there))
        except KafkaException as error:
            if _code(error) != codes.TOPIC_ALREADY_EXISTS:
                raise
            return False
        return True

    def _catch_up(self, admin: Any) -> None:
        """Give a topic that an earlier version made the configs that this one gives it. What somebody set stays; and
        without the permission it only takes longer to read."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        unclean = "unclean.leader.election.enable"
        wanted = {unclean: ledger.CONFIGS[unclean], **ledger.OWN_CONFIGS.get(self.topic, {})}
        with suppress(KafkaException):
            found = _answer(admin.describe_configs([resource])[resource])
            on_topic = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
            lacking = {k: v for k, v in wanted.items() if k in found and found[k].source != on_topic}
            if lacking:
                entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in lacking.items()]
                changed = ConfigResource(ConfigResource.Type.TOPIC, self.topic, incremental_configs=entries)
                _answer(admin.incremental_alter_configs([changed])[changed])

    def _create(self, admin: Any, replicas: int) -> None:
        topic = NewTopic(
            self.topic,
            num_partitions=self.partitions,
            replication_factor=replicas,
            config={
                **ledger.configs_of(self.topic),
                # What was acknowledged must outlive a broker, whatever the cluster's default is.
                "min.insync.replicas": str(min(_SYNCED, replicas)),
            },
        )
        _answer(admin.create_topics([topic], operation_timeout=_TIMEOUT)[self.topic])

    def append(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write entries, in order per key; all are durable (acks=all) on return. Raises CouldNotFindOut otherwise."""
        producer = self._writer()
        failures: list[KafkaError] = []

        def delivered(error: KafkaError | None, _message: object) -> None:
            if error is not None:
                failures.append(error)

        for key, value in entries:
            partition = ledger.place_of(self.topic, key, self.partitions)
            while True:
                try:
                    producer.produce(self.topic, value, key, partition=partition, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(0.1)
        left = producer.flush(2 * _TIMEOUT)
        if failures or left:
            self._producer = None
            if failures and failures[0].code() in _UNAUTHORIZED:
                raise NotAuthorized("target", "Write", f"topic {self.topic}")
            why = failures[0].str() if failures else f"{left} records unanswered"
            raise CouldNotFindOut(
                f"target: topic {self.topic} cannot be written: {why}",
                remedy=f"check that the partitions of {self.topic} have a leader and enough in-sync replicas, then run"
                " this again",
            )

    def warm(self) -> None:
        """Begin to get a producer ready: the first append of one takes half a second, until it has its id."""
        self._writer()

    def _writer(self) -> Any:
        if self._producer is None:
            self._producer = libraries.producer(
                self._client({"enable.idempotence": "true", "acks": "all", "linger.ms": "2"})
            )
        return self._producer

    def new_entries(self, partitions: Collection[int] | None = None) -> Iterator[Entry]:
        """Everything that this reader has not yielded yet, up to the end as it is now; of ``partitions`` or of all."""
        of = range(self.partitions) if partitions is None else partitions
        wanted = {p: end for p, end in self._ends(of).items() if end > self._next[p]}
        if not wanted:
            return
        consumer = self._reader()
        consumer.assign([TopicPartition(self.topic, p, self._next[p]) for p in wanted])
        until = time.monotonic() + _TIMEOUT
        while wanted:
            # consume() waits for as many as asked, or the whole time: compaction leaves fewer than offsets tell.
            left = sum(end - self._next[p] for p, end in wanted.items())
            for message in consumer.consume(min(left, 5_000), timeout=0.02):
                error = message.error()
                if error is not None and not self._is_end(error):
                    continue
                partition, offset = cast(int, message.partition()), cast(int, message.offset())
                until = time.monotonic() + _TIMEOUT
                if error is not None:
                    self._next[partition] = max(self._next[partition], offset)
                else:
                    # Read only once it was taken: an entry that its reader refused comes again, and is refused again.
                    yield Entry(partition, offset, cast(bytes, message.key()), message.value())
                    self._next[partition] = offset + 1
                if self._next[partition] >= wanted.get(partition, offset + 2):
                    del wanted[partition]
            if wanted and time.monotonic() > until:
                raise CouldNotFindOut(
                    f"target: {self.topic} could not be read to its end (partitions {sorted(wanted)})",
                    remedy="check that the topic's partitions have leaders, then run this again",
                )
        consumer.unassign()

    def _is_end(self, error: KafkaError) -> bool:
        """Whether ``error`` marks the end of a partition; False if it means nothing. Raises what it means otherwise."""
        # librdkafka looks for a coordinator of the group that it insists on; nothing here needs one.
        if error.code() not in (KafkaError._PARTITION_EOF, codes.GROUP_AUTHORIZATION_FAILED):
            raise self._translated("Read", KafkaException(error))
        return bool(error.code() == KafkaError._PARTITION_EOF)

    def start_at(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from there on, whatever was read before."""
        self._next.update(offsets)

    def read_up_to(self) -> dict[int, int]:
        """By partition, the offset up to which this reader has read."""
        return dict(self._next)

    def end(self, partition: int = 0) -> int:
        """The next offset that will be written."""
        return self._ends([partition])[partition]

    def _ends(self, partitions: Collection[int]) -> dict[int, int]:
        """As :meth:`end`, of several partitions: a request for each leader, not for each partition."""
        if not partitions:
            return {}
        asked = time.monotonic()
        for _ in tries(time, seconds=_TIMEOUT, pause=0.1):
            try:
                # This asks for offsets by time; the latest one is a time of its own in the protocol.
                wanted = [TopicPartition(self.topic, p, OFFSET_END) for p in partitions]
                found = self._reader().offsets_for_times(wanted, timeout=_TRY_TIMEOUT)
                for each in found:
                    if each.error is not None:
                        raise KafkaException(each.error)
                return {each.partition: each.offset for each in found}
            except KafkaException as error:
                last = error
                # A topic just created, or one whose leader moves or is gone: known in a moment.
                if _code(error) not in _NOT_YET | _NO_ANSWER:
                    break
                if time.monotonic() - asked >= _TRY_TIMEOUT:
                    # librdkafka goes on to ask the former leader for minutes; a new client asks who leads now.
                    self._consumer, asked = None, time.monotonic()
        raise self._translated("Read", last) from last

    def _reader(self) -> Any:
        if self._consumer is None:
            self._consumer = libraries.consumer(
                self._client(
                    {
                        # Never used for commits; librdkafka insists on a group.
                        "group.id": "kafka-migration.internal",
                        "enable.auto.commit": "false",
                        "auto.offset.reset": "earliest",
                        "enable.partition.eof": "true",
                        # A long poll holds up the next question for the end, on the same connection.
                        "fetch.wait.max.ms": "1",
                        "isolation.level": "read_committed",
                    }
                )
            )
        return self._consumer

    def _admin(self) -> Any:
        return libraries.admin_client(self._client({}), role=self._role, timeout_seconds=_TIMEOUT)

    def _client(self, extra: dict[str, str]) -> dict[str, Any]:
        return {**self._properties, **extra, "log_level": 2}

    def _translated(self, operation: str, error: KafkaException) -> MigrationError:
        if _code(error) in _UNAUTHORIZED:
            return NotAuthorized(self._role, operation, f"topic {self.topic}")
        return ClusterUnreachable(self._role, self._servers, str(error.args[0]))


def _once_known(ask: Callable[[], Any]) -> Any:
    """The broker that is asked may not know yet of a topic that was just created."""
    return retried(
        ask,
        time.monotonic() + _TIMEOUT,
        lambda error: isinstance(error, KafkaException) and _code(error) in _NOT_YET,
    )


def _answer(asked: Future[Any]) -> Any:
    """What a broker answers; one that does not is an error as any other of it, with the broker's name and a remedy."""
    try:
        return asked.result(2 * _TIMEOUT)
    except TimeoutError as error:
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT)) from error


def _code(error: KafkaException) -> int:
    return int(error.args[0].code())
