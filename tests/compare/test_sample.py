"""Which segments are read a second time: enough of them, and some of every kind."""

import random

import pytest

from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.segments import cut
from kafka_migration.domain.levels import sample_size, stratified
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.validation import job
from kafka_migration.validation.job import sample
from tests.compare.lab import request_of

_PLAIN, _RARE = 1 << 4, 1 << 9


def _segment(
    topic: str, number: int, *, traits: int = _PLAIN, differs: bool = False, failure: str = ""
) -> SegmentOutcome:
    return SegmentOutcome(
        topic=topic,
        partition=0,
        segment=number,
        start=100 * number,
        end=100 * number + 100,
        target_start=100 * number + 7,
        target_end=100 * number + 107,
        level="batch",
        failure=failure,
        source=Digest(rows=100, total=1),
        target=Digest(rows=100, total=2 if differs else 1),
        traits=traits,
    )


@pytest.mark.parametrize(
    ("count", "share", "size"), [(0, 0.05, 0), (7, 0.05, 7), (100, 0.05, 20), (1_000, 0.05, 50), (100, 0.0, 0)]
)
def test_sample_holds_twenty_segments_at_the_least_or_all_if_there_are_fewer(
    count: int, share: float, size: int
) -> None:
    assert sample_size(count, share) == size
    assert len(sample([_segment("t", n) for n in range(count)], seed="1", share=share)) == size


@pytest.mark.parametrize("seed", [str(n) for n in range(20)])
def test_rare_kind_of_batch_is_in_every_sample(seed: str) -> None:
    every = [_segment("t", n, traits=_RARE if n == 77 else _PLAIN) for n in range(400)]
    chosen = sample(every, seed=seed, share=0.05)
    assert len(chosen) == 20
    assert every[77] in chosen
    assert sample(every[::-1], seed=seed, share=0.05) == chosen, "whatever order they came in"


@pytest.mark.parametrize("seed", [str(n) for n in range(20)])
def test_large_topic_does_not_fill_the_sample_alone(seed: str) -> None:
    every = [_segment("large", n) for n in range(390)] + [_segment(f"small-{n}", 0) for n in range(10)]
    assert len({one.topic for one in sample(every, seed=seed, share=0.05)}) == 11


def test_segments_that_differ_are_read_again_besides() -> None:
    every = [_segment("t", n, differs=n == 3) for n in range(100)]
    chosen = sample(every, seed="x", share=0.05)
    assert every[3] in chosen
    assert len(chosen) == 21


def test_kinds_count_for_more_than_the_size_and_nothing_is_drawn_of_none() -> None:
    bits = [1 << n for n in range(8)]
    found = stratified(random.Random(1), bits, 3, topic=lambda _: "t", traits=lambda it: it)
    assert sorted(found) == bits
    assert stratified(random.Random(1), bits, 0, topic=lambda _: "t", traits=lambda it: it) == []


def test_chosen_segments_are_read_within_the_bounds_that_they_were_found_with() -> None:
    request = request_of([_range("t", 2), cut(_range("t", 4), 200, 400, 207, 407), _range("u", 2)], segment_records=100)
    ranges = job._ranges_of(request, [_segment("t", 1), _segment("t", 2), _segment("u", 0)])
    assert [(r.topic, r.source_start, r.source_end, r.target_start, r.target_end) for r in ranges] == [
        ("t", 100, 200, 107, 207),
        ("t", 200, 300, 207, 307),
        ("u", 0, 100, 7, 107),
    ]


def _range(topic: str, segments: int) -> PartitionRange:
    """So many segments of 100 offsets each, which stand seven offsets later on the target."""
    end = 100 * segments
    pinned = PartitionEnds(start=0, end=end), PartitionEnds(start=7, end=end + 7)
    offsets = OffsetMap([Run(0, 7, end)], source_end=end, target_end=end + 7)
    return PartitionRange.pinned(TopicPartition(topic, 0), offsets, source=pinned[0], target=pinned[1])
