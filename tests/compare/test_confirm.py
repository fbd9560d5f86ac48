"""Which stretches a third reader reads again, and what follows where it disagrees."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.compare import task
from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.records import confirm
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import cut, tiles
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import TopicPartition
from tests.compare.lab import request_of

SIZE, SHIFT = 100_000, 7
ORDERS = Orders(level=Level.RECORD, committed=True, seconds=1.0, wires={})
SAME = Digest(rows=1, bytes=1, total=5, ordered=6)


def _range(partition: int, segments: int, **more: Any) -> PartitionRange:
    end = segments * SIZE
    return PartitionRange(
        topic="t",
        partition=partition,
        source_start=0,
        source_end=end,
        target_start=SHIFT,
        target_end=end + SHIFT,
        runs=Runs([Run(0, SHIFT, end)]),
        **more,
    )


def _request(*ranges: PartitionRange, seed: str = "1") -> ValidationRequest:
    return replace(request_of(ranges, segment_records=SIZE), level=Level.RECORD, seed=seed)


def _outcomes(request: ValidationRequest) -> list[SegmentOutcome]:
    return [
        SegmentOutcome.of(number, tile, "record", source=SAME, target=SAME, traits=1)
        for range_ in request.ranges
        for number, tile in tiles(range_, SIZE)
    ]


@pytest.mark.parametrize("seed", map(str, range(20)))
def test_stretch_lies_in_its_segment_on_both_sides_however_a_partition_is_asked_for(seed: str) -> None:
    whole = _range(0, 9)
    apart = [
        cut(whole, 0, 2 * SIZE, SHIFT, 2 * SIZE + SHIFT),
        cut(whole, 5 * SIZE, 9 * SIZE, 5 * SIZE + SHIFT, 9 * SIZE + SHIFT),
    ]
    request = _request(*apart, seed=seed)
    (found,) = confirm.stretches(request, _outcomes(request))
    assert 0 < found.source_end - found.source_start <= 10_000
    assert (found.target_start, found.target_end) == (found.source_start + SHIFT, found.source_end + SHIFT)
    assert found.records == found.source_end - found.source_start
    assert found.source_start // SIZE == (found.source_end - 1) // SIZE


def test_a_hundredth_of_the_segments_is_chosen_and_of_every_kind_one() -> None:
    request = _request(*(_range(n, 50) for n in range(10)))
    every = _outcomes(request)
    assert len(confirm.stretches(request, every)) == 5
    rare = random.Random(1).sample(range(len(every)), 3)
    every = [replace(one, traits=1 << (rare.index(at) + 3) if at in rare else 1) for at, one in enumerate(every)]
    chosen = {(one.partition, one.source_start // SIZE) for one in confirm.stretches(request, every)}
    assert {(every[at].partition, every[at].segment) for at in rare} < chosen
    assert confirm.stretches(replace(request, sample=0.0), every) == []


@pytest.mark.parametrize("seed", map(str, range(20)))
def test_the_same_is_chosen_whatever_order_segments_came_in_and_a_large_topic_does_not_fill_it_alone(seed: str) -> None:
    request = _request(*(_range(n, 50) for n in range(10)), seed=seed)
    every = _outcomes(request)
    assert confirm.stretches(request, every) == confirm.stretches(request, every[::-1])
    every = [replace(every[0], topic=f"small-{n}") for n in range(3)] + every
    assert len({one.topic for one in confirm.stratified(random.Random(seed), every, 5)}) == 4


def test_kinds_count_for_more_than_the_size() -> None:
    every = [replace(one, traits=1 << one.segment) for one in _outcomes(_request(_range(0, 8)))]
    assert sorted(one.segment for one in confirm.stratified(random.Random(1), every, 3)) == list(range(8))


def test_what_was_left_out_is_not_asked_of_spark() -> None:
    request = _request(_range(0, 1, left_out=((0, SIZE),)), _range(1, 1, target_left_out=((SHIFT, SIZE),)))
    every = [replace(one, traits=1 << one.partition) for one in _outcomes(request)]
    assert confirm.stretches(request, every) == []


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets what both readers find."""

    def set_(theirs: Any, ours: Digest = SAME) -> list[int]:
        sizes: list[int] = []

        def obey(orders: Orders, wanted: list[Tile]) -> Answer:
            return Answer(
                outcomes=[SegmentOutcome.of(*tile, orders.level, source=ours, target=ours) for tile in wanted]
            )

        def digests(_spark: Any, _request: Any, left: list[PartitionRange], _connections: Any) -> Any:
            sizes.append(len(left))
            return {(one.tp, side): theirs(one, side) for one in left for side in (SOURCE, TARGET)}

        monkeypatch.setattr(task, "obey", obey)
        monkeypatch.setattr(confirm, "digests", digests)
        return sizes

    return set_


def _confirmed(request: ValidationRequest, every: list[SegmentOutcome], lines: list[str]) -> list[SegmentOutcome]:
    return confirm.confirmed(None, request, every, ORDERS, {}, log=lines.append)  # type: ignore[arg-type]


def test_disagreement_fails_its_segment_and_nothing_that_differs_anyway(readers: Any) -> None:
    request = _request(_range(0, 1), _range(1, 1), _range(2, 1))
    every = [replace(one, traits=1 << one.partition) for one in _outcomes(request)]
    every[2] = replace(every[2], target=Digest(rows=1, total=9))
    lines: list[str] = []
    readers(lambda one, side: replace(SAME, total=1) if one.partition and side == TARGET else SAME)
    found = _confirmed(request, every, lines)
    assert [bool(one.failure) for one in found] == [False, True, False]
    assert "two readers disagree at source offsets" in found[1].failure
    assert "of the target we read 1 records" in found[1].failure
    assert found[2] == every[2], "it is DIFFERENT"


def test_what_one_partition_denies_spark_is_not_held_against_the_others(readers: Any) -> None:
    request = _request(*(_range(n, 1) for n in range(4)))
    every = [replace(one, traits=1 << one.partition) for one in _outcomes(request)]

    def theirs(one: PartitionRange, _side: str) -> Digest:
        if one.tp == TopicPartition("t", 2):
            raise RuntimeError("damaged")
        return SAME

    readers(theirs)
    found = _confirmed(request, every, [])
    assert [one.partition for one in found if one.failure] == [2]
    assert "not read by Spark's Kafka source: RuntimeError: damaged" in found[2].failure


def test_cluster_that_denies_spark_everything_is_not_asked_for_each_partition(readers: Any) -> None:
    request = _request(*(_range(n, 1) for n in range(16)))
    every = [replace(one, traits=1 << one.partition) for one in _outcomes(request)]

    def theirs(_one: PartitionRange, _side: str) -> Digest:
        raise RuntimeError("gone")

    sizes = readers(theirs)
    found = _confirmed(request, every, [])
    assert all(one.failure for one in found)
    assert len(sizes) <= 20


def test_names_that_the_java_client_cannot_decode_contradict_nobody(readers: Any) -> None:
    request = _request(_range(0, 1))
    every = _outcomes(request)
    readers(lambda _one, _side: replace(SAME, total=1, unclear=1))
    assert not _confirmed(request, every, [])[0].failure
    readers(lambda _one, _side: replace(SAME, rows=2, unclear=1))
    assert _confirmed(request, every, [])[0].failure
