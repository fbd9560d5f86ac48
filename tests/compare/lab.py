"""Copies of topics made by hand, with librdkafka: right, or wrong in one respect. No code of the mirror, but for a
fence's marker.

Offsets differ on purpose. The source's log starts above 0, and has a transaction's marker in it; the target's has the
marker of a fence, at another place. So the right map has three runs.
"""

import time
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import confluent_kafka
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import SparkSession

from kafka_migration.compare.digests import SOURCE, TARGET, DigestReport
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.domain.controls import Controls
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import Identity, PartitionEnds, Position, TopicPartition
from kafka_migration.validation.job import run
from kafka_migration.wire.markers import write_markers_directly
from tests.kafka_tools import ToSend, create_topics, delete_records
from tests.waiting import wait_until
from tests.wire.made import wired

#: Records that every source partition loses before it is copied: its log starts here.
LEADING = 5
#: Old, so that a broker that looked at them would have deleted them: topics keep them for ever.
FIRST_TIMESTAMP = 1_600_000_000_000
SEGMENT = 10
#: What is said of a new topic by brokers, or to ones, that know more of its leader than the other.
_NEW_LEADER = frozenset(
    {confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION, confluent_kafka.KafkaError.UNKNOWN_LEADER_EPOCH}
)
#: Nobody else writes these markers.
AUTHOR = Identity(987_654, 1)

Partitions = dict[int, list[ToSend]]
Damage = Callable[[Partitions], None]


def records(count: int, partition: int = 0) -> list[ToSend]:
    """Different records, of all sorts: with and without keys, values and headers, null and empty."""
    keys: list[bytes | None] = [b"key", b"", None]
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("one", b"1")],
        [("a", b"x"), ("b", b"y")],
        [("null", None), ("empty", b"")],
        [("a", b"1"), ("a", b"2")],
    ]
    return [
        ToSend(
            value=None if n % 7 == 3 else b"" if n % 7 == 5 else b"value %d of %d" % (n, partition),
            key=keys[n % 3],
            partition=partition,
            timestamp=FIRST_TIMESTAMP + n * 1000 + partition,
            headers=list(headers[n % 5]),
        )
        for n in range(count)
    ]


@dataclass(frozen=True)
class Wanted:
    """A copy to make: so many partitions, of so many records each.

    ``special`` records stand at their places, on both sides. ``damage`` may put its fault into the target's.
    """

    partitions: int = 1
    count: int = 30
    special: Mapping[int, ToSend] = field(default_factory=dict)
    damage: Damage = lambda _: None


@dataclass
class Copy:
    """A topic on both clusters, and what the mirror would know of it."""

    topic: str
    maps: dict[TopicPartition, OffsetMap] = field(default_factory=dict)


class Lab:
    """Two clusters to make copies on."""

    def __init__(self, source: str, target: str) -> None:
        self.servers = {SOURCE: source, TARGET: target}
        self.connections = {side: {"bootstrap.servers": servers} for side, servers in self.servers.items()}
        self.wires = {side: {"bootstrap_servers": servers} for side, servers in self.servers.items()}

    def copy(self, *, partitions: int = 1, count: int = 30) -> Copy:
        """One right copy."""
        return self.copies({"": Wanted(partitions=partitions, count=count)})[""]

    def copies(self, wanted: Mapping[str, Wanted]) -> dict[str, Copy]:
        """A topic on both clusters for each of ``wanted``, all made at once.

        Of the records, the second third stands in a transaction on the source, the first third before the marker of a
        fence on the target.
        """
        made = {name: Copy(f"validation-{uuid.uuid4().hex[:10]}") for name in wanted}
        topics = {made[name].topic: one.partitions for name, one in wanted.items()}
        tps = [TopicPartition(topic, partition) for topic, count in topics.items() for partition in range(count)]
        leading, first, second, rest = [], [], [], []
        there_first, there_rest = [], []
        for name, one in wanted.items():
            topic, third = made[name].topic, one.count // 3
            right = {partition: records(one.count, partition) for partition in range(one.partitions)}
            for at, record in one.special.items():
                right[record.partition][at] = record
            wrong = {partition: list(sent) for partition, sent in right.items()}
            one.damage(wrong)
            for partition, sent in right.items():
                leading += [(topic, record) for record in records(LEADING, partition)]
                first += [(topic, record) for record in sent[:third]]
                second += [(topic, record) for record in sent[third : 2 * third]]
                rest += [(topic, record) for record in sent[2 * third :]]
            for sent in wrong.values():
                there_first += [(topic, record) for record in sent[:third]]
                there_rest += [(topic, record) for record in sent[third:]]
        keep = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
        for servers in self.servers.values():
            create_topics(servers, topics, keep)
        send(self.servers[SOURCE], leading + first)
        send(self.servers[SOURCE], second, in_transaction=True)
        send(self.servers[SOURCE], rest)
        send(self.servers[TARGET], there_first)
        self._mark({TopicPartition(topic, record.partition) for topic, record in there_first})
        send(self.servers[TARGET], there_rest)
        delete_records(self.servers[SOURCE], dict.fromkeys(tps, LEADING))
        ends = self.ends(TARGET, tps)
        for name, one in wanted.items():
            for partition in range(one.partitions):
                tp = TopicPartition(made[name].topic, partition)
                made[name].maps[tp] = _right_map(one.count, ends[tp].end)
        return made

    def _mark(self, tps: Collection[TopicPartition]) -> None:
        """A fence's marker at the end of each log of the target."""
        if not tps:
            return
        before = {tp: one.end for tp, one in self.ends(TARGET, tps).items()}
        with wired(self.servers[TARGET]) as wire:
            deadline = time.monotonic() + 60
            wire.net.run(lambda: write_markers_directly(wire.cluster, AUTHOR, sorted(tps), deadline=deadline))
        wait_until(
            lambda: all(one.end == before[tp] + 1 for tp, one in self.ends(TARGET, tps).items()),
            "markers",
        )

    def ends(self, side: str, tps: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionEnds]:
        """Log starts and ends of one side."""
        admin = AdminClient({**self.connections[side]})
        places = {confluent_kafka.TopicPartition(tp.topic, tp.partition): tp for tp in tps}
        starts = admin.list_offsets(dict.fromkeys(places, OffsetSpec.earliest()))
        ends = admin.list_offsets(dict.fromkeys(places, OffsetSpec.latest()))
        by_place = {(each.topic, each.partition): future.result(30).offset for each, future in ends.items()}
        return {
            TopicPartition(each.topic, each.partition): PartitionEnds(
                start=future.result(30).offset, end=by_place[each.topic, each.partition]
            )
            for each, future in starts.items()
        }

    def request(self, *copies: Copy, maps: Mapping[TopicPartition, OffsetMap] | None = None) -> ValidationRequest:
        """A request for all partitions of ``copies``, pinned now. ``maps`` replace some of theirs."""
        every = {tp: found for copy in copies for tp, found in copy.maps.items()} | dict(maps or {})
        source, target = self.ends(SOURCE, every), self.ends(TARGET, every)
        return request_of(
            PartitionRange.pinned(tp, found, source=source[tp], target=target[tp]) for tp, found in every.items()
        )


def request_of(ranges: Iterable[PartitionRange], *, segment_records: int = SEGMENT) -> ValidationRequest:
    """A request with an id of its own."""
    return ValidationRequest(
        id=str(uuid.uuid4()),
        migration="lab",
        source="lab_source",
        target="lab_target",
        segment_records=segment_records,
        ranges=tuple(ranges),
    )


def run_at_record_level(spark: SparkSession, request: ValidationRequest, lab: Lab, **options: Any) -> DigestReport:
    """The answer to `request`, whatever its level."""
    return run(spark, replace(request, level=Level.RECORD), lab.connections, lab.wires, **options)


def source_offset(at: int, count: int) -> int:
    """Where the record at place ``at``, of ``count``, stands on the source."""
    return LEADING + at + (1 if at >= 2 * (count // 3) else 0)


def _right_map(count: int, target_end: int) -> OffsetMap:
    third, gap = count // 3, 1 if count else 0
    runs = [
        Run(LEADING, 0, third),
        Run(LEADING + third, third + gap, third),
        Run(LEADING + 2 * third + gap, 2 * third + gap, count - 2 * third),
    ]
    return OffsetMap(runs, source_end=LEADING + count + gap, target_end=max(count + gap, target_end))


def send(servers: str, sent: Sequence[tuple[str, ToSend]], *, in_transaction: bool = False) -> None:
    """Produce records to the topics beside them, and wait until all are there.

    In a transaction, its marker takes an offset in each partition, which no consumer sees.
    """
    if not sent:
        return
    failures: list[object] = []
    settings = {"transactional.id": f"lab-{uuid.uuid4()}"} if in_transaction else {}
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, **settings})
    admin = AdminClient({"bootstrap.servers": servers})
    places = {confluent_kafka.TopicPartition(topic, item.partition): OffsetSpec.latest() for topic, item in sent}

    def end() -> int | None:
        try:
            count: int = sum(future.result(30).offset for future in admin.list_offsets(places).values())
            return count
        except confluent_kafka.KafkaException as error:
            # A new topic's leader may not know yet that it is one.
            if error.args[0].retriable() or error.args[0].code() in _NEW_LEADER:
                return None
            raise

    wait_until(lambda: end() is not None, "a leader for every partition")
    before = end() or 0
    if in_transaction:
        producer.init_transactions(60)
        producer.begin_transaction()
    for topic, item in sent:
        producer.produce(
            topic,
            value=item.value,
            key=item.key,
            partition=item.partition,
            headers=list(item.headers),
            timestamp=item.timestamp or 0,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    if in_transaction:
        producer.commit_transaction(60)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]
    # Markers are written after the answer: what is produced next could stand before them.
    markers = len(places) if in_transaction else 0
    wait_until(lambda: end() == before + len(sent) + markers, "every record and marker")


@dataclass
class Copied:
    """What a mirror that has ended would say of these maps: its link's state."""

    maps: dict[TopicPartition, OffsetMap] = field(default_factory=dict)

    def positions(self) -> dict[TopicPartition, Position]:
        return {
            tp: Position(source=one.source_end, target=one.target_end, fence=1, records=one.records)
            for tp, one in self.maps.items()
        }

    def offset_maps(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetMap]:
        return {tp: self.maps[tp] for tp in tps}

    def controls(self) -> Controls:
        return Controls()

    def extras(self) -> dict[TopicPartition, Any]:
        return {}

    def skips(self) -> dict[TopicPartition, Any]:
        return {}

    def halts(self) -> dict[TopicPartition, Any]:
        return {}

    def run(self) -> dict[str, Any]:
        return {"state": "ended"}

    def seal(self) -> None:
        return None
