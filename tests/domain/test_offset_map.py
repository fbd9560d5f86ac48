"""The offset map against a model that remembers every record: exact for every offset, both ways, whatever happened."""

import random
from dataclasses import dataclass, field

import pytest

from kafka_migration.domain.errors import StateConflict
from kafka_migration.domain.offset_map import NotMirroredYet, OffsetMap, Run, RunOpening
from kafka_migration.domain.openings import Openings


@dataclass
class History:
    """A partition's copy as it went: fences, gaps, attempts that died, and where every record really stands."""

    chance: random.Random
    openings: list[RunOpening] = field(default_factory=list)
    stands_at: dict[int, int] = field(default_factory=dict)
    source: int = 0
    target: int = 0
    fence: int = -1

    def take_over(self) -> None:
        """A fence, after some whose authors died before they could record them."""
        data_end = self.target
        self.target += self.chance.choice([0, 0, 1, 2])
        self.fence += self.chance.choice([1, 1, 3])
        self.target += 1
        self.records = 0
        self.openings.append(
            RunOpening(fence=self.fence, records=0, source=self.source, target=self.target, closes=data_end)
        )

    def copy(self) -> None:
        """Some records in a row, behind a gap or not."""
        if self.chance.random() < 0.5:
            self.source += self.chance.randrange(1, 9)
            closes = self.openings[-1].closes if self.records == 0 else None
            self.openings.append(
                RunOpening(
                    fence=self.fence, records=self.records, source=self.source, target=self.target, closes=closes
                )
            )
        for _ in range(self.chance.randrange(1, 6)):
            self.stands_at[self.source] = self.target
            self.source, self.target, self.records = self.source + 1, self.target + 1, self.records + 1

    def write_ahead_in_vain(self) -> None:
        """Openings of an attempt that died before their batches were sent."""
        source, records = self.source, self.records
        for _ in range(self.chance.randrange(1, 3)):
            source, records = source + self.chance.randrange(2, 9), records + self.chance.randrange(1, 9)
            target = self.target + records - self.records
            self.openings.append(RunOpening(fence=self.fence, records=records, source=source, target=target))


def _history(seed: int) -> tuple[History, OffsetMap]:
    chance = random.Random(seed)
    it = History(chance, source=chance.randrange(0, 50))
    for _ in range(chance.randrange(1, 6)):
        it.take_over()
        for _ in range(chance.randrange(0, 6)):
            it.copy()
        if chance.random() < 0.5:
            it.write_ahead_in_vain()
    source_end = it.source + chance.choice([0, 0, 4])
    stored = {(o.fence, o.records): o for o in it.openings}  # the newest of a key is what the topic keeps
    shuffled = chance.sample(list(stored.values()), len(stored))
    return it, Openings(shuffled).offset_map(source_end=source_end, target_end=it.target)


@pytest.mark.parametrize("first", range(0, 400, 20))
def test_any_history_translates_every_offset_exactly_both_ways(first):
    for seed in range(first, first + 20):
        _check(seed)


def _check(seed: int) -> None:
    it, found = _history(seed)
    sources, targets = sorted(it.stands_at), sorted(it.stands_at.values())
    source_of = {target: source for source, target in it.stands_at.items()}
    assert found.records == len(sources)
    assert Openings(it.openings).records(target_end=it.target) == len(sources), seed
    for offset in range(found.source_end + 1):
        at_or_after = next((s for s in sources if s >= offset), None)
        expected = found.target_end if at_or_after is None else it.stands_at[at_or_after]
        assert found.to_target(offset) == expected, (seed, offset)
    for offset in range(found.target_end + 1):
        at_or_after = next((t for t in targets if t >= offset), None)
        expected = found.source_end if at_or_after is None else source_of[at_or_after]
        assert found.to_source(offset) == expected, (seed, offset)


@pytest.mark.parametrize("seed", range(400, 420))
def test_runs_are_in_order_none_empty_and_make_the_same_map(seed):
    _, found = _history(seed)
    runs = list(found.runs())
    assert len(found) == len(runs)
    assert all(run.length > 0 for run in runs)
    assert runs == sorted(runs, key=lambda run: (run.source, run.target))
    again = OffsetMap(runs, source_end=found.source_end, target_end=found.target_end)
    assert [again.to_target(o) for o in range(found.source_end + 1)] == [
        found.to_target(o) for o in range(found.source_end + 1)
    ]


@pytest.mark.parametrize("offset", [101, 10**12])
def test_offset_beyond_the_position_is_not_mirrored_yet(offset):
    found = OffsetMap([Run(0, 1, 100)], source_end=100, target_end=101)
    with pytest.raises(NotMirroredYet, match="beyond the mirror's position"):
        found.to_target(offset)
    with pytest.raises(NotMirroredYet):
        found.to_source(offset + 1)


def test_position_without_a_record_translates_to_the_other_position():
    found = OffsetMap([], source_end=40, target_end=3)
    assert (found.to_target(40), found.to_source(3)) == (3, 40)
    assert found.to_target(7) == 3, "where the first record will land"
    assert found.to_source(0) == 40


def test_offset_below_the_first_record_goes_on_at_that_record_wherever_the_logs_begin():
    found = OffsetMap([Run(1000, 501, 5)], source_end=1005, target_end=506)
    assert [found.to_target(o) for o in (0, 400, 999, 1000)] == [501] * 4, "there may be nothing below it to start at"
    assert [found.to_source(o) for o in (0, 500, 501)] == [1000] * 3


def test_offset_in_a_gap_goes_on_at_the_first_record_after_it():
    found = OffsetMap([Run(10, 1, 5), Run(20, 9, 5)], source_end=30, target_end=14)
    assert [found.to_target(o) for o in (14, 15, 19, 20)] == [5, 9, 9, 9]
    assert [found.to_source(o) for o in (5, 6, 8, 9)] == [14, 20, 20, 20]
    assert [found.to_target(o) for o in (24, 25, 29, 30)] == [13, 14, 14, 14], "a gap at the end is the end"


def test_fences_in_a_row_leave_no_run_between_them():
    openings = [RunOpening(fence=n, records=0, source=7, target=n + 1, closes=n) for n in range(4)]
    found = Openings(openings).offset_map(source_end=9, target_end=6)
    assert list(found.runs()) == [Run(7, 4, 2)]


def test_opening_written_ahead_counts_only_up_to_where_its_fence_was_closed():
    openings = [
        RunOpening(fence=0, records=0, source=0, target=1, closes=0),
        RunOpening(fence=0, records=50, source=80, target=51),  # only 30 records of this fence ever landed
        RunOpening(fence=4, records=0, source=30, target=32, closes=31),
    ]
    found = Openings(openings).offset_map(source_end=100, target_end=102)
    assert list(found.runs()) == [Run(0, 1, 30), Run(30, 32, 70)]
    assert Openings(openings).records(target_end=102) == 100


def test_position_told_before_a_newer_fence_ends_where_that_fence_closed_it():
    openings = [
        RunOpening(fence=0, records=0, source=0, target=1, closes=0),
        RunOpening(fence=1, records=0, source=60, target=62, closes=61),
    ]
    found = Openings(openings).offset_map(source_end=40, target_end=41)
    assert list(found.runs()) == [Run(0, 1, 40)]
    assert found.to_target(40) == 41
    assert Openings(openings).records(target_end=41) == 40


@pytest.mark.parametrize(
    ("runs", "source_end", "target_end"),
    [
        ([Run(0, 0, 10), Run(5, 20, 10)], 100, 100),
        ([Run(0, 0, 10), Run(20, 5, 10)], 100, 100),
        ([Run(0, 0, 10)], 9, 100),
        ([Run(0, 0, 10)], 100, 9),
        ([Run(0, 0, -1)], 100, 100),
    ],
)
def test_map_that_contradicts_itself_is_refused(runs, source_end, target_end):
    with pytest.raises(StateConflict, match="mirror the topic again"):
        OffsetMap(runs, source_end=source_end, target_end=target_end)


@pytest.mark.parametrize(
    "fields",
    [
        {"records": 0},
        {"records": 3, "closes": 4},
        {"records": 3, "source": -1},
        {"records": -3},
    ],
)
def test_opening_that_cannot_be_is_refused(fields):
    with pytest.raises(ValueError, match="opening"):
        RunOpening(**{"fence": 1, "records": 1, "source": 1, "target": 1, **fields})
