"""Waves of a validation without clusters and Spark: what is read when, and whom one partition's trouble concerns."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.compare import job, task
from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.orders import Answer, Orders, Tile
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import TopicPartition
from tests.compare.lab import request_of

SEGMENTS, PARTITIONS, SIZE = 30, 4, 10_000
SLOW = TopicPartition("t", 1)
ORDERS = Orders(level=Level.BATCH, committed=True, seconds=1.0, wires={"source": {}, "target": {}})

Obey = Callable[[Orders, Sequence[Tile], object], Answer]
Waves = list[list[tuple[Tile, ...]]]


def _spark(slots: Iterator[int], waves: Waves) -> Any:
    """As far as waves ask for it; so many slots, each time they ask."""

    class Context:
        @property
        def defaultParallelism(self) -> int:  # noqa: N802
            return next(slots)

        def setJobGroup(self, *_: Any) -> None:  # noqa: N802
            """Nobody looks."""

        def parallelize(self, shares: list[tuple[Tile, ...]], slices: int) -> Any:
            assert slices == len(shares)
            waves.append(shares)
            return SimpleNamespace(map=lambda task: SimpleNamespace(collect=lambda: [task(one) for one in shares]))

    return SimpleNamespace(sparkContext=Context())


def _always(number: int) -> Iterator[int]:
    while True:
        yield number


@pytest.fixture
def reading(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., tuple[list[SegmentOutcome], Waves]]:
    """What is found, and the waves, where tasks answer as `obey` has it."""

    def run(
        obey: Obey,
        ranges: Sequence[PartitionRange],
        *,
        slots: Iterator[int] | None = None,
        segment_records: int = SIZE,
        **options: Any,
    ) -> tuple[list[SegmentOutcome], Waves]:
        waves: Waves = []

        monkeypatch.setattr(task, "obey", obey)
        request = request_of(ranges, segment_records=segment_records)
        found = job.run(_spark(slots or _always(2), waves), request, ranges, ORDERS, **options)
        return found, waves

    return run


def _ranges(partitions: int = PARTITIONS, segments: int = SEGMENTS) -> list[PartitionRange]:
    size = segments * SIZE
    return [
        PartitionRange(
            topic="t",
            partition=n,
            source_start=0,
            source_end=size,
            target_start=0,
            target_end=size,
            runs=Runs([Run(0, 0, size)]),
        )
        for n in range(partitions)
    ]


def _found(tiles: Iterable[Tile], size: int = 1) -> Answer:
    rows = Digest(rows=1, bytes=size)
    return Answer(outcomes=[SegmentOutcome.of(*tile, "batch", source=rows, target=rows, traits=2) for tile in tiles])


def _by_offsets(_orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
    """A byte an offset."""
    return Answer(outcomes=[_found([one], one[1].source_end - one[1].source_start).outcomes[0] for one in tiles])


def test_slow_leader_keeps_nobody_waiting_and_is_asked_again_once_all_else_is_read(reading):
    asked: list[tuple[TopicPartition, float]] = []

    def obey(orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        answer = Answer()
        for number, tile in tiles:
            if tile.tp == SLOW and orders.seconds == ORDERS.seconds:
                if tile.tp not in answer.unanswered:
                    asked.append((tile.tp, orders.seconds))
                answer.unanswered[tile.tp] = "no answer"
                answer.fail(orders, [(number, tile)], "no answer")
            else:
                asked.append((tile.tp, orders.seconds))
                answer.outcomes += _found([(number, tile)]).outcomes
        return answer

    found, _ = reading(obey, _ranges())
    assert len(found) == SEGMENTS * PARTITIONS
    assert not [one for one in found if one.failure]
    late = [tp for tp, seconds in asked if seconds != ORDERS.seconds]
    assert late == [SLOW] * SEGMENTS
    assert [tp for tp, _ in asked][-SEGMENTS:] == late, "once all others are read"
    # Once for each share of the waves that were under way: nobody waits for each of its segments.
    assert Counter(tp for tp, seconds in asked if seconds == ORDERS.seconds)[SLOW] <= 16


def test_leader_that_never_answers_leaves_its_own_segments_unread(reading, monkeypatch):
    monkeypatch.setattr(job, "PATIENCE_SECONDS", 0.0)

    def obey(orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        answer = Answer(unanswered={SLOW: "source: t-1: no answer"})
        for tile in tiles:
            if tile[1].tp == SLOW:
                answer.fail(orders, [tile], "source: t-1: no answer")
            else:
                answer.outcomes += _found([tile]).outcomes
        return answer

    found, _ = reading(obey, _ranges())
    assert {one.tp for one in found if one.failure} == {SLOW}
    assert sum(bool(one.failure) for one in found) == SEGMENTS
    assert {one.failure for one in found} == {"", "source: t-1: no answer"}


def test_cluster_that_nobody_reaches_ends_the_reading(reading):
    calls: list[int] = []

    def obey(orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        calls.append(1)
        answer = Answer(unreachable="source: no broker answers, secret")
        answer.fail(orders, tiles, answer.unreachable)
        return answer

    found, waves = reading(obey, _ranges(segments=200), secrets={"secret"})
    assert {one.failure for one in found} == {"source: no broker answers, <hidden>"}
    assert len(found) == 200 * PARTITIONS
    assert len(waves) <= 2, "those that were under way"


def test_task_that_dies_takes_nobody_with_it_but_the_segment_that_kills_it(reading):
    lines: list[str] = []

    def obey(_orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        if any(number == 7 and tile.partition == 2 for number, tile in tiles):
            raise MemoryError("too large: secret")
        return _found(tiles)

    found, _ = reading(obey, _ranges(), secrets={"secret"}, log=lines.append)
    assert [(one.segment, one.partition) for one in found if one.failure] == [(7, 2)]
    assert len(found) == SEGMENTS * PARTITIONS
    assert "secret" not in str(found) + str(lines)


def test_large_segments_are_read_in_parts_and_are_whole_again(reading, monkeypatch):
    told: list[SegmentOutcome] = []

    def obey(_orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        answer = Answer()
        for number, tile in tiles:
            rows = Digest(rows=tile.records, total=tile.source_start)
            answer.outcomes.append(
                SegmentOutcome.of(number, tile, "batch", source=rows, target=rows, traits=1 << tile.source_start % 7)
            )
        return answer

    found, waves = reading(obey, _ranges(partitions=2, segments=1), on_read=told.extend)
    assert [len(share) for wave in waves for share in wave] == [2], "it is little"
    monkeypatch.setattr(job, "_LEAST_BYTES", 1 << 20)
    told.clear()
    again, waves = reading(obey, _ranges(partitions=2, segments=1), on_read=told.extend)
    parts = [share for wave in waves for share in wave]
    assert told == again
    # Which of two waves that are under way at once ends first is chance.
    assert sorted((one.tp, one.start, one.end, one.source.rows) for one in again) == [
        (one.tp, one.start, one.end, one.source.rows) for one in found
    ]
    for one in again:
        mine = [tile.source_start for share in parts for _, tile in share if tile.tp == one.tp]
        assert len(mine) >= 4
        assert one.source.total == sum(mine)
        assert one.traits == sum({1 << start % 7 for start in mine})


def test_part_that_cannot_be_read_leaves_its_segment_unread(reading, monkeypatch):
    monkeypatch.setattr(job, "_LEAST_BYTES", 1 << 20)

    def obey(orders: Orders, tiles: Sequence[Tile], _reach: object) -> Answer:
        answer = Answer()
        for tile in tiles:
            if tile[1].source_start <= 12_345 < tile[1].source_end:
                answer.fail(orders, [tile], "damaged")
            else:
                answer.outcomes += _found([tile], size=10_000_000).outcomes
        return answer

    found, _ = reading(obey, _ranges(partitions=1))
    assert [(one.segment, one.failure) for one in found if one.failure] == [(1, "damaged")]
    assert len(found) == SEGMENTS


@pytest.mark.parametrize("segment_records", [3_000, 10_000, 17_000, 70_000])
def test_shares_of_a_wave_are_about_equal_whatever_segments_are(reading, monkeypatch, segment_records):
    monkeypatch.setattr(job, "_MOST_BYTES", 8_000)
    monkeypatch.setattr(job, "_LEAST_BYTES", 1)

    found, waves = reading(_by_offsets, _ranges(), segment_records=segment_records)
    assert len(found) == PARTITIONS * -(-SEGMENTS * SIZE // segment_records)
    for wave in waves:
        sizes = [sum(tile.source_end - tile.source_start for _, tile in share) for share in wave]
        assert max(sizes) <= 1.25 * statistics.median(sizes)


def test_slots_are_asked_for_again_with_each_wave(reading, monkeypatch):
    monkeypatch.setattr(job, "_MOST_BYTES", 10_000_000)
    monkeypatch.setattr(job, "_LEAST_BYTES", 1)
    slots = iter([1, 1, 1, *[5] * 100])
    _, waves = reading(lambda _orders, tiles, _reach: _found(tiles, size=10_000_000), _ranges(), slots=slots)
    # The first two are small: nothing is known yet.
    sizes = sorted(len(wave) for wave in waves)  # two are under way at once: which is noted first is chance
    assert (sizes[:3], sizes[-1]) == ([1, 1, 4], 20)


def test_leaders_take_turns_with_the_parts_of_their_segments_too(reading, monkeypatch):
    monkeypatch.setattr(job, "_MOST_BYTES", 4_000)
    monkeypatch.setattr(job, "_LEAST_BYTES", 1)

    ranges = _ranges(partitions=3, segments=6)
    leaders = {range_.tp: range_.partition for range_ in ranges}
    _, waves = reading(_by_offsets, ranges, segment_records=20_000, leaders=leaders)
    for shares in sorted(waves, key=len)[2:]:
        concerned = [{tile.partition for _, tile in share} for share in shares]
        assert all(one != other for one, other in pairwise(concerned))


@pytest.mark.parametrize("seed", range(10))
def test_leaders_take_turns(seed):
    dice = random.Random(seed)
    leaders = {TopicPartition("t", n): dice.randrange(3) for n in range(12)}
    tiles = [(0, range_) for range_ in _ranges(partitions=12, segments=1)]
    found = job.in_turns(tiles, leaders)
    assert sorted(tile.partition for _, tile in found) == list(range(12))
    left = Counter(leaders.values())
    turns = [leaders[tile.tp] for _, tile in found]
    while left:
        round_, turns = turns[: len(left)], turns[len(left) :]
        assert set(round_) == set(left)
        left -= Counter(round_)
