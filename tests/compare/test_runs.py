"""Runs as columns: the same as one by one, and a million of them cost the driver next to nothing."""

import json
import pickle
import random
import time
import tracemalloc

import pytest

from bench.scale_validation import MOST_MB, map_of, on_driver
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition

#: What is promised is 2 s; a machine that is busy with other things takes longer, and a scan of all runs by each
#: segment much longer.
_MOST_CPU_SECONDS = 10.0


def _some(dice: random.Random) -> list[Run]:
    found, source, target = [], dice.randrange(20), dice.randrange(3)
    for _ in range(dice.randrange(15)):
        length = dice.choice([1, 2, 7, 30])
        found.append(Run(source, target, length))
        source += length + dice.choice([0, 1, 5])
        target += length + dice.choice([0, 0, 1])
    return found


def _clipped(runs: list[Run], start: int, end: int) -> list[Run]:
    """One by one."""
    found = []
    for run in runs:
        low, high = max(run.source, start), min(run.source + run.length, end)
        if low < high:
            found.append(Run(low, run.target + low - run.source, high - low))
    return found


@pytest.mark.parametrize("seed", range(40))
def test_columns_are_cut_counted_and_written_as_their_runs_are(seed: int) -> None:
    dice = random.Random(seed)
    them = _some(dice)
    runs = Runs(them)
    assert (list(runs), runs.records) == (them, sum(one.length for one in them))
    assert Runs.from_dict(json.loads(json.dumps(runs.as_dict()))) == runs
    for _ in range(30):
        start = dice.randrange(runs.source_end + 5)
        end = dice.randrange(start, runs.source_end + 6)
        part = runs.clip(start, end)
        assert list(part) == _clipped(them, start, end)
        assert list(pickle.loads(pickle.dumps(part))) == list(part)
        (before,) = runs.records_before(Runs([Run(start, 0, 1)]).sources)
        assert before == sum(one.length for one in _clipped(them, 0, start))
    divided = [Run(one.source + n, one.target + n, 1) for one in them for n in range(one.length)]
    assert list(Runs(divided).merged()) == list(runs.merged())


@pytest.mark.parametrize("seed", range(10))
def test_columns_of_a_map_are_its_runs(seed: int) -> None:
    them = _some(random.Random(seed))
    end = them[-1] if them else Run(0, 0, 0)
    found = OffsetMap(them, source_end=end.source + end.length, target_end=end.target + end.length)
    # Neighbours that are one behind the other on both sides are one run to the map, too.
    assert list(Runs.of_map(found)) == list(found.runs())


def test_slice_for_a_task_holds_nothing_of_the_others() -> None:
    runs = Runs(Run(2 * n, n, 1) for n in range(100_000))
    assert len(pickle.dumps(runs.clip(1_000, 1_200))) < 5_000


def test_million_runs_cost_the_driver_little_time() -> None:
    offset_map = map_of(1_000_000)
    began = time.process_time()
    assert on_driver(offset_map)["segments"] == 6
    assert time.process_time() - began < _MOST_CPU_SECONDS


def test_million_runs_cost_the_driver_little_memory_and_many_segments_no_more_time() -> None:
    offset_map = map_of(1_000_000)
    ends = [PartitionEnds(start=0, end=end) for end in (offset_map.source_end, offset_map.target_end)]
    tracemalloc.start()
    try:
        it = PartitionRange.pinned(TopicPartition("t", 0), offset_map, source=ends[0], target=ends[1])
        json.dumps(it.as_dict())
        assert tracemalloc.get_traced_memory()[1] < MOST_MB << 20
    finally:
        tracemalloc.stop()
    began = time.process_time()
    cut = [it.runs.clip(at, at + 600) for at in range(0, it.source_end, 600)]
    assert sum(part.records for part in cut) == it.records
    assert (len(cut), time.process_time() - began < _MOST_CPU_SECONDS) == (10_000, True)
