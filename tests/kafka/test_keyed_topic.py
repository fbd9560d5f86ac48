"""Which value of a key counts, of a topic that others write to: by offset within a partition, never by time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import KafkaError

from kafka_migration.domain.errors import Refused
from kafka_migration.kafka.keyed_topic import KeyedTopic, partition_of

PARTITIONS = 3
KEY = b'["mm2",{"cluster":"old","partition":0,"topic":"orders"}]'
HOME = partition_of(KEY, PARTITIONS)
ELSEWHERE = [partition for partition in range(PARTITIONS) if partition != HOME]


class Record(NamedTuple):
    """As librdkafka hands it out."""

    place: int
    at: int
    written_ms: int
    body: bytes | None
    problem: Any = None

    def key(self) -> bytes:
        return KEY

    def value(self) -> bytes | None:
        return self.body

    def partition(self) -> int:
        return self.place

    def offset(self) -> int:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return 1, self.written_ms

    def error(self) -> Any:
        return self.problem


def latest(*records: Record) -> dict[bytes, bytes]:
    """What a topic of these records, each partition in order, holds."""
    end = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF)
    ends = [Record(partition, 0, 0, None, end) for partition in range(PARTITIONS)]
    batches = [[*records, *ends]]
    consumer = SimpleNamespace(
        assign=lambda _: None, consume=lambda _most, timeout: batches.pop() if batches and timeout else []
    )
    topic = KeyedTopic.__new__(KeyedTopic)
    topic.topic, topic.partitions = "offsets", PARTITIONS
    topic.cluster = SimpleNamespace(role="source")  # type: ignore[assignment]
    return topic._latest(consumer)


@pytest.mark.parametrize("place", [HOME, ELSEWHERE[0]], ids=["where it belongs", "elsewhere"])
def test_later_offset_counts_though_its_producer_gave_it_an_earlier_time(place: int) -> None:
    old = Record(place, 10, 1000, b"old")
    assert latest(old, Record(place, 11, 900, b"new")) == {KEY: b"new"}
    assert latest(old, Record(place, 11, 900, None)) == {}, "deleted"


@pytest.mark.parametrize("value", [b"new", None], ids=["written", "deleted"])
def test_of_two_partitions_the_one_counts_to_which_its_key_belongs_now(value: bytes | None) -> None:
    future = Record(ELSEWHERE[0], 10, 4_000_000_000_000, b"old")
    expected = {} if value is None else {KEY: value}
    assert latest(future, Record(HOME, 0, 900, value)) == latest(Record(HOME, 0, 900, value), future) == expected


def test_key_in_two_partitions_to_which_it_does_not_belong_is_refused_unless_both_have_the_same() -> None:
    one, other = (Record(place, 0, 1000, b"old") for place in ELSEWHERE)
    assert latest(one, other) == {KEY: b"old"}
    with pytest.raises(Refused, match=rf"mm2.* of offsets stands in partitions 0.*\n.*to partition {HOME}, "):
        latest(one, other._replace(body=b"new", written_ms=2000))


@pytest.mark.parametrize(("key", "hashed"), [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107)])
def test_place_of_a_key_is_that_of_javas_clients(key: bytes, hashed: int) -> None:
    """The numbers are those of Kafka's own test (UtilsTest.testMurmur2)."""
    assert partition_of(key, 7) == (hashed & 0x7FFFFFFF) % 7
