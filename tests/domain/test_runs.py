"""Runs by the million: added in any order, kept in eight bytes each, and found without a scan."""

import random
import time
import tracemalloc

import pytest

from kafka_migration.domain import runs as module
from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import OffsetMap, RunOpening
from kafka_migration.domain.openings import Openings
from kafka_migration.domain.runs import FenceRuns


@pytest.mark.parametrize("seed", range(60))
def test_runs_added_in_any_order_and_twice_stand_in_order_with_the_last_of_each(seed, monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 8)
    monkeypatch.setattr(module, "_PENDING", 5)
    chance = random.Random(seed)
    found, expected = FenceRuns(3, 1_000), dict[int, tuple[int, int]]()
    wide = chance.choice([1, 1, 2**33])
    for _ in range(chance.randrange(1, 200)):
        records = chance.choice([len(expected) * 2, chance.randrange(200)]) * wide
        source, epoch = 3 * records + chance.choice([0, 0, 0, 1]), chance.choice([5, 5, 5, 6])
        found.add(records, source, epoch)
        expected[records] = source, epoch
        if chance.random() < 0.1:
            assert len(found) == len(expected)
    ordered = sorted(expected)
    assert [found.records_at(i) for i in range(len(found))] == ordered
    assert [found.target_at(i) for i in range(len(found))] == [1_000 + records for records in ordered]
    assert [(found.source_at(i), found.epoch_at(i)) for i in range(len(found))] == [expected[r] for r in ordered]
    for target in (0, 1_000, 1_001, 1_050 * wide, 10**12):
        assert found.before(target) == sum(1_000 + records < target for records in ordered)


def test_run_that_begins_within_the_one_before_it_is_found_wherever_it_stands(monkeypatch):
    monkeypatch.setattr(module, "_CHUNK", 4)
    for wrong in range(1, 12):
        found = FenceRuns(0, 0)
        for n in range(12):
            found.add(10 * n, 20 * n - (15 if n == wrong else 0))
        assert found.first_overlap(12) == wrong
        assert found.first_overlap(wrong) is None
        with pytest.raises(StateConflict, match="overlaps"):
            OffsetMap.of_fences([found], source_end=1_000, target_end=1_000)
        assert len(OffsetMap.of_fences([found], source_end=1_000, target_end=10 * wrong)) == wrong, "void beyond that"


def test_openings_are_a_sequence_like_any_other():
    stored = [
        RunOpening(fence=2, records=0, source=7, target=12, closes=9, epoch=4),
        RunOpening(fence=0, records=5, source=6, target=6),
        RunOpening(fence=0, records=0, source=0, target=1, closes=0),
    ]
    found, ordered = Openings(stored), sorted(stored, key=lambda it: (it.fence, it.records))
    assert list(found) == ordered
    assert [found[n] for n in range(3)] == ordered
    assert (found[-1], found[1:], len(found)) == (ordered[-1], ordered[1:], 3)
    assert list(found.newest()) == ordered[2:]
    assert found.first_of_newest() == ordered[2]
    assert list(Openings().newest()) == []
    for index in (3, -4):
        with pytest.raises(IndexError):
            found[index]


def test_opening_that_does_not_stand_behind_its_fence_is_refused():
    found = Openings([RunOpening(fence=0, records=0, source=0, target=1, closes=0)])
    with pytest.raises(StateConflict, match="mirror the topic again"):
        found.add(RunOpening(fence=0, records=5, source=6, target=7))


def test_many_runs_take_a_few_bytes_each_and_translate_at_once():
    count = 300_000
    tracemalloc.start()
    found = Openings()
    found.add(RunOpening(fence=0, records=0, source=0, target=1, closes=0))
    for n in range(1, count):
        found.add(RunOpening(fence=0, records=3 * n, source=4 * n, target=1 + 3 * n))
    offsets = found.offset_map(source_end=4 * count, target_end=1 + 3 * count)
    assert len(offsets) == count
    used = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert used < 10 * count
    assert [offsets.to_target(4 * n + 1) for n in (0, 77_777, count - 1)] == [3 * n + 2 for n in (0, 77_777, count - 1)]
    assert [offsets.to_target(4 * n + 3) for n in (0, 77_777)] == [3 * n + 4 for n in (0, 77_777)], "the next run's"
    assert offsets.to_source(3 * 77_777 + 2) == 4 * 77_777 + 1
    # Thousands of them take milliseconds; to look through all runs each time would take minutes of processor time.
    began = time.process_time()
    assert all(offsets.to_target(4 * n + 1) == 3 * n + 2 for n in range(0, count, 50))
    assert time.process_time() - began < 5
