"""Whose turn it is, among heavy partitions and small ones."""

from dataclasses import dataclass

from kafka_migration.copy.task.fairness import FairBytes, FetchOrder
from kafka_migration.domain.types import TopicPartition


@dataclass(frozen=True)
class Of:
    partition: TopicPartition


def _partitions(count: int) -> list[Of]:
    return [Of(TopicPartition("t", p)) for p in range(count)]


def test_partitions_that_fill_a_response_go_to_the_end():
    turns, all_of_them = FetchOrder(), _partitions(6)
    asked: list[list[int]] = []
    for _ in range(3):
        order = turns.order(all_of_them)
        asked.append([it.partition.partition for it in order])
        # Two fill a response.
        turns.served([it.partition for it in order[:2]])
    assert asked == [[0, 1, 2, 3, 4, 5], [2, 3, 4, 5, 0, 1], [4, 5, 0, 1, 2, 3]]


def test_partition_without_records_stays_in_front_until_it_has_some():
    turns, all_of_them = FetchOrder(), _partitions(3)
    turns.served([TopicPartition("t", 0), TopicPartition("t", 2)])
    turns.served([TopicPartition("t", 0)])
    assert [it.partition.partition for it in turns.order(all_of_them)] == [1, 2, 0]


def test_every_partition_gets_equal_bytes_though_batches_differ():
    fair, all_of_them, sizes, sent = FairBytes(), _partitions(3), (1_000, 100, 10), [0, 0, 0]
    for _ in range(10_000):
        first = fair.order(all_of_them)[0].partition
        fair.sent(first, sizes[first.partition])
        sent[first.partition] += sizes[first.partition]
    assert max(sent) - min(sent) <= 1_000


def test_partition_that_wakes_up_neither_waits_nor_takes_everything():
    fair = FairBytes()
    heavy, late = _partitions(2)
    for _ in range(1_000):
        fair.sent(heavy.partition, 100)
    sent = {heavy: 0, late: 0}
    for _ in range(10):
        first = fair.order([heavy, late])[0]
        fair.sent(first.partition, 100)
        sent[first] += 100
    assert sent == {heavy: 500, late: 500}
