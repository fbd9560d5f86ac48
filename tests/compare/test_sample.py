"""Which segments are read a second time: enough of them, and some of every kind."""

import random
from dataclasses import replace

import pytest

from kafka_migration.compare.digests import Digest, OnRead, SegmentOutcome
from kafka_migration.compare.records import job as record_job
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.segments import cut
from kafka_migration.domain.levels import sample_size, stratified
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.validation import job
from kafka_migration.validation.job import sample, with_between
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


def test_little_between_two_chosen_segments_is_read_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read of its own takes Spark a second to plan, however small it is."""
    monkeypatch.setattr(job, "_MOST_BETWEEN", 200)
    every = [_segment("t", n) for n in range(20)] + [_segment("u", n) for n in (0, 1)]
    found = with_between(every, [every[n] for n in (2, 5, 9, 19, 20)])
    assert [(one.topic, one.segment) for one in found] == [("t", n) for n in (2, 3, 4, 5, 9, 19)] + [("u", 0)]
    request = request_of([_range("t", 20), _range("u", 2)], segment_records=100)
    ranges = job._ranges_of(request, found)
    assert [(r.topic, r.source_start, r.source_end, r.target_start, r.target_end) for r in ranges] == [
        ("t", 200, 600, 207, 607),
        ("t", 900, 1000, 907, 1007),
        ("t", 1900, 2000, 1907, 2007),
        ("u", 0, 100, 7, 107),
    ]


def test_what_could_not_be_read_or_was_not_asked_for_stays_unread_between_two_segments() -> None:
    broken = [_segment("t", n, failure="a broken batch" if n == 3 else "") for n in range(6)]
    assert [one.segment for one in with_between(broken, [broken[2], broken[4]])] == [2, 4]
    kept = [_segment("t", n) for n in (0, 1, 3, 4)]
    assert [one.segment for one in with_between(kept, [kept[1], kept[2]])] == [1, 3]
    # Two ranges of one partition that were asked for apart stay apart.
    request = request_of([_range("t", 2), cut(_range("t", 4), 200, 400, 207, 407)], segment_records=100)
    beside = [_segment("t", n) for n in (1, 2)]
    assert [r.source_end for r in job._ranges_of(request, beside)] == [200, 300]


def test_much_between_two_segments_is_not_read_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [replace(_segment("t", n), source=Digest(rows=100, total=1, bytes=1_000)) for n in range(6)]
    monkeypatch.setattr(job, "_MOST_BYTES_BETWEEN", 2_000)
    assert [one.segment for one in with_between(every, [every[0], every[3]])] == [0, 1, 2, 3]
    assert [one.segment for one in with_between(every, [every[0], every[4]])] == [0, 4]


def test_segments_that_cannot_be_read_together_are_read_apart_and_what_is_between_says_nothing() -> None:
    every = [_segment("t", n) for n in range(8)]
    request = request_of([_range("t", 8)], segment_records=100)
    reads: list[list[tuple[int, int]]] = []
    told: list[int] = []

    def on_records(*, ranges: list[PartitionRange], on_read: OnRead) -> list[SegmentOutcome]:
        reads.append([(one.source_start // 100, one.source_end // 100) for one in ranges])
        found = []
        for start, end in reads[-1]:
            broken = "a broken batch" if start <= 3 < end else ""
            found += [replace(every[n], level="record", failure=broken) for n in range(start, end)]
        on_read(found)
        return found

    def told_of(found: list[SegmentOutcome]) -> None:
        told.extend(one.segment for one in found)

    second = job._again(request, every, [every[2], every[4], every[7]], on_records, told_of)
    assert reads == [[(2, 8)], [(2, 3), (4, 5), (7, 8)]]
    assert [(one.segment, one.failure) for one in second] == [(2, ""), (4, ""), (7, "")]
    assert told == [2, 4, 7]
    alone = job._again(request, every, [every[3]], on_records, told_of)
    assert [(one.segment, one.failure) for one in alone] == [(3, "a broken batch")]
    assert len(reads) == 3, "what fails by itself is not read again"


def test_a_wave_has_few_reads_of_one_partition() -> None:
    ranges = [cut(_range("t", 40), n, n + 100, n + 7, n + 107) for n in range(0, 4000, 400)]
    found = list(record_job._waves([*ranges, _range("u", 2)], 100))
    assert [len(wave) for wave in found] == [4, 4, 3]
    assert [each for wave in found for each in wave] == [*ranges, _range("u", 2)]


def _range(topic: str, segments: int) -> PartitionRange:
    """So many segments of 100 offsets each, which stand seven offsets later on the target."""
    end = 100 * segments
    pinned = PartitionEnds(start=0, end=end), PartitionEnds(start=7, end=end + 7)
    offsets = OffsetMap([Run(0, 7, end)], source_end=end, target_end=end + 7)
    return PartitionRange.pinned(TopicPartition(topic, 0), offsets, source=pinned[0], target=pinned[1])
