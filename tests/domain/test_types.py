"""The nouns enforce their own invariants."""

import dataclasses

import pytest

from kafka_migration.domain.types import PartitionEnds, Position, Receipt, TopicPartition

RECEIPT = Receipt(
    topic="t", partition=0, fence=1, source_start=10, source_end=20, continues=18, target_start=3, target_end=11,
    records=8, bytes=80, batches=2,
)  # fmt: skip


@pytest.mark.parametrize(
    "changes",
    [
        {"source_end": 9},
        {"target_end": 2, "records": -1},
        {"records": 9},
        {"continues": 21},
    ],
)
def test_receipt_that_contradicts_itself_is_refused(changes):
    with pytest.raises(ValueError, match=r"receipt|records"):
        dataclasses.replace(RECEIPT, **changes)


@pytest.mark.parametrize(("start", "end"), [(-1, 3), (4, 3)])
def test_ends_that_describe_no_log_are_refused(start, end):
    with pytest.raises(ValueError, match="do not describe a log"):
        PartitionEnds(start=start, end=end)


def test_negative_position_is_refused():
    with pytest.raises(ValueError, match="negative"):
        Position(source=0, target=0, fence=0, records=-1)


def test_partition_is_written_as_kafka_writes_it():
    assert str(TopicPartition("a-b", 3)) == "a-b-3"
