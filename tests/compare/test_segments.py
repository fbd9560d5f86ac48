"""How ranges fall into segments and pieces: arithmetic, over made-up maps."""

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest

from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import (
    Pieces,
    cut,
    expected_records,
    parts,
    places_hash,
    split_bounds,
    tiles,
)
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from tests.compare.lab import request_of

TP = TopicPartition("topic", 0)


class _Piece(NamedTuple):
    """One of :class:`Pieces`."""

    start: int
    end: int
    source: int
    in_run: bool


def _pieces(range_: PartitionRange) -> Iterator[_Piece]:
    found = Pieces(range_)
    yield from map(_Piece, found.starts.tolist(), found.ends.tolist(), found.sources.tolist(), found.in_run.tolist())


def _part(range_: PartitionRange, first: int, last: int, segment_records: int) -> PartitionRange:
    """Segments ``first`` up to, and without, ``last``, as a range. Raises ValueError if it has none."""
    found = [tile for segment, tile in tiles(range_, segment_records) if first <= segment < last]
    if not found:
        raise ValueError(f"no segment from {first} to {last}")
    head, tail = found[0], found[-1]
    return cut(range_, head.source_start, tail.source_end, head.target_start, tail.target_end)


def _random_map(dice: random.Random) -> OffsetMap:
    """Runs and gaps of random lengths, on both sides."""
    runs, source, target = [], dice.randrange(50), dice.randrange(3)
    for _ in range(dice.randrange(12)):
        length = dice.choice([1, 2, 7, 100])
        runs.append(Run(source, target, length))
        source += length + dice.choice([0, 0, 1, 5])
        target += length + dice.choice([0, 1, 3])
    return OffsetMap(runs, source_end=source, target_end=target)


def _range(found: OffsetMap, start: int, end: int) -> PartitionRange:
    return PartitionRange.pinned(
        TP,
        found,
        source=PartitionEnds(start=start, end=end),
        target=PartitionEnds(start=0, end=found.target_end + 10),
    )


@pytest.mark.parametrize("seed", range(60))
def test_pieces_cover_the_target_range_and_lead_to_the_source_offset_that_the_map_says(seed):
    dice = random.Random(seed)
    found = _random_map(dice)
    start = dice.randrange(found.source_end + 1)
    it = _range(found, start, dice.randrange(start, found.source_end + 1))
    covered = list(_pieces(it))
    assert [offset for piece in covered for offset in range(piece.start, piece.end)] == list(
        range(it.target_start, it.target_end)
    )
    held = {run.target + at: run.source + at for run in it.runs for at in range(run.length)}
    for piece in covered:
        for offset in range(piece.start, piece.end):
            assert piece.in_run == (offset in held)
            if piece.in_run:
                assert piece.source + offset - piece.start == held[offset]
    columns = Pieces(it)
    offsets = np.arange(it.target_start, it.target_end)
    places, placed = columns.place(offsets)
    assert placed.tolist() == [offset in held for offset in offsets.tolist()]
    assert [at for at, is_held in zip(places.tolist(), placed.tolist(), strict=True) if is_held] == [
        held[offset] for offset in offsets.tolist() if offset in held
    ]


@pytest.mark.parametrize("shorter", [False, True], ids=["as mirrored", "the target lost its tail"])
@pytest.mark.parametrize("seed", range(60))
def test_tiles_leave_nothing_over_and_put_every_target_offset_where_its_piece_counts(seed, shorter):
    dice = random.Random(seed)
    found, size = _random_map(dice), dice.choice([3, 10, 64])
    start = dice.randrange(found.source_end + 1)
    it = _range(found, start, dice.randrange(start, found.source_end + 1))
    if shorter:
        it = replace(it, target_end=dice.randint(it.target_start, it.target_end))
    cut_up = list(tiles(it, size))
    assert [offset for _, tile in cut_up for offset in range(tile.source_start, tile.source_end)] == list(
        range(it.source_start, it.source_end)
    )
    assert [offset for _, tile in cut_up for offset in range(tile.target_start, tile.target_end)] == list(
        range(it.target_start, it.target_end)
    )
    whole = {offset: piece.source // size for piece in _pieces(it) for offset in range(piece.start, piece.end)}
    whole |= {
        offset: (piece.source + offset - piece.start) // size
        for piece in _pieces(it)
        if piece.in_run
        for offset in range(piece.start, piece.end)
    }
    for number, tile in cut_up:
        assert {whole[offset] for offset in range(tile.target_start, tile.target_end)} <= {number}
        assert expected_records(tile, size).get(number, 0) == expected_records(it, size).get(number, 0)
    if cut_up and it.source_start < it.source_end:
        first, last = cut_up[0][0], cut_up[-1][0]
        assert _part(it, first, last + 1, size) == it
        with pytest.raises(ValueError, match="no segment"):
            _part(it, last + 1, last + 2, size)


@pytest.mark.parametrize("seed", range(60))
def test_range_may_be_split_where_nothing_but_a_gap_lies(seed):
    dice = random.Random(seed)
    found = _random_map(dice)
    it = _range(found, 0, found.source_end)
    at = dice.randrange(found.source_end + 1)
    low, high = split_bounds(it, at)
    assert low <= high
    for target in range(low, high + 1):
        one = cut(it, it.source_start, at, it.target_start, target)
        other = cut(it, at, it.source_end, target, it.target_end)
        assert one.records + other.records == it.records
        assert all(run.target + run.length <= target for run in one.runs)
        assert all(run.target >= target for run in other.runs)


@pytest.mark.parametrize("seed", range(60))
def test_parts_leave_nothing_over_and_hold_the_runs_of_their_own_records(seed):
    dice = random.Random(seed)
    found = _random_map(dice)
    start = dice.randrange(found.source_end + 1)
    it = _range(found, start, dice.randrange(start, found.source_end + 1))
    count = dice.randrange(1, 9)
    found_parts = list(parts(it, count))
    assert len(found_parts) <= count
    for side in ("source", "target"):
        bounds = [(getattr(part, f"{side}_start"), getattr(part, f"{side}_end")) for part in found_parts]
        assert (bounds[0][0], bounds[-1][1]) == (getattr(it, f"{side}_start"), getattr(it, f"{side}_end"))
        assert all(one[1] == other[0] for one, other in pairwise(bounds))
    assert sum(part.records for part in found_parts) == it.records
    sizes = [part.source_end - part.source_start for part in found_parts]
    assert max(sizes) - min(sizes) <= 1 or it.source_end - it.source_start < count


@pytest.mark.parametrize("seed", range(60))
def test_expected_records_count_every_record_of_the_runs_once(seed):
    dice = random.Random(seed)
    found = _random_map(dice)
    start = dice.randrange(found.source_end + 1)
    it = _range(found, start, dice.randrange(start, found.source_end + 1))
    size = dice.choice([1, 3, 10, 1000])
    expected = expected_records(it, size)
    every = [run.source + at for run in found.runs() for at in range(run.length)]
    mine = [offset for offset in every if it.source_start <= offset < it.source_end]
    assert sum(expected.values()) == it.records == len(mine)
    for segment, count in expected.items():
        assert count == sum(offset // size == segment for offset in mine)
    assert {offset // size for offset in range(it.source_start, it.source_end)} == set(expected)


def test_range_from_where_the_map_begins_takes_the_target_from_its_log_start():
    found = OffsetMap([Run(10, 3, 5)], source_end=15, target_end=8)
    assert _range(found, 10, 15).target_start == 0, "a record before the first mirrored one would be foreign"
    assert _range(found, 4, 15).target_start == 0


def test_range_whose_beginning_expired_leaves_the_same_records_out_on_the_target():
    found = OffsetMap([Run(10, 3, 5)], source_end=15, target_end=8)
    it = _range(found, 12, 15)
    assert (it.target_start, it.target_end, it.runs) == (5, 8, Runs([Run(12, 5, 3)]))
    assert len(_range(found, 15, 15).runs) == 0


def test_range_asks_the_target_for_no_offset_that_it_lacks():
    found = OffsetMap([Run(0, 0, 10)], source_end=10, target_end=10)
    it = PartitionRange.pinned(TP, found, source=PartitionEnds(start=0, end=10), target=PartitionEnds(start=2, end=7))
    assert (it.target_start, it.target_end, it.records) == (2, 7, 10)


def test_range_beyond_the_mirrors_position_cannot_be_pinned():
    with pytest.raises(NotMirroredYet):
        _range(OffsetMap([Run(0, 0, 10)], source_end=10, target_end=10), 0, 11)


@pytest.mark.parametrize(
    "runs",
    [(Run(0, 0, 0),), (Run(5, 0, 3), Run(6, 3, 3)), (Run(8, 0, 3),)],
    ids=["empty run", "overlap", "beyond the range"],
)
def test_runs_that_contradict_their_range_are_refused(runs):
    with pytest.raises(ValueError, match="topic-0"):
        PartitionRange(
            topic="topic", partition=0, source_start=0, source_end=10, target_start=0, target_end=10, runs=Runs(runs)
        )


def test_request_survives_json():
    found = OffsetMap([Run(10, 3, 5), Run(17, 9, 2)], source_end=20, target_end=12)
    request = request_of([_range(found, 11, 20)])
    assert ValidationRequest.from_dict(request.as_dict()) == request


def test_hash_of_places_is_that_of_the_map_however_it_is_divided():
    whole = [Run(0, 3, 400), Run(401, 404, 600)]
    divided = [Run(0, 3, 150), Run(150, 153, 250), Run(401, 404, 1), Run(402, 405, 599)]
    others = [
        [],
        [Run(0, 3, 500), Run(501, 504, 500)],
        [Run(0, 3, 400), Run(401, 404, 599)],
        [Run(0, 3, 400), Run(401, 405, 600)],
        [Run(0, 3, 401), Run(401, 404, 600)],
    ]
    assert places_hash(Runs(whole)) == places_hash(Runs(divided))
    # What earlier versions kept stays readable: read again would be all that was validated.
    assert places_hash(Runs(whole)) == "835b8ea742ddaeb9"
    assert len({places_hash(Runs(runs)) for runs in (whole, *others)}) == 1 + len(others)
