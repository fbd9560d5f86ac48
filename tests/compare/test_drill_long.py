"""Long rows that one side has alone are called by their name, too, however many they are, and however large."""

import random
from collections.abc import Callable, Sequence

import pytest

from kafka_migration.compare.explain.align import Aligner
from kafka_migration.compare.explain.drill import Drill, Scope
from kafka_migration.compare.explain.left import Leftovers, TooMany
from kafka_migration.compare.explain.places import Places
from kafka_migration.compare.explain.result import Drilled, Fault
from kafka_migration.compare.explain.stream import Stream
from tests.compare.drill_sides import NOW, Side, pinned
from tests.mutation.logs import Content, Log, log_of

Sides = dict[int, Sequence[Content]]
_SIZES = (250, 97)


def _records(count: int, size: int, seed: int = 1, first: int = 0) -> list[Content]:
    """Few keys, and no headers: nothing but value and timestamp tells one from another."""
    chance = random.Random(seed)
    return [Content(b"key-%d" % (n % 7), chance.randbytes(size), (), NOW + first + n) for n in range(count)]


def _drilled(source: Sides, target: Sides) -> list[Drilled]:
    """Of partitions that should be equal; the offset map is that of a copy without faults."""
    mine = {n: log_of(them, _SIZES) for n, them in source.items()}
    theirs = {n: log_of(them, _SIZES) for n, them in target.items()}
    ranges = [pinned(mine[n], mine[n], theirs[n], n) for n in source]
    asked = [Scope(range=range_, spans=((0, range_.source_end),)) for range_ in ranges]
    return list(Drill(Side(mine), Side(theirs), ranges, examples=3).topic(asked).drilled)


@pytest.mark.parametrize(("count", "size"), [(70_000, 6), (20_000, 1_100), (300, 100_000)])
def test_long_row_that_was_lost_is_loss_and_nothing_else(count, size):
    records = _records(count + 3_000, size)
    (found,) = _drilled({0: records}, {0: records[:1_000] + records[1_000 + count :]})
    assert (found.counts, found.notes) == ({Fault.LOSS: count}, ())
    assert found.first is not None
    assert (found.first.source_offset, found.first.target_offset) == (1_001, None)


@pytest.mark.parametrize(("count", "size"), [(70_000, 6), (20_000, 1_100), (300, 100_000)])
def test_long_row_of_somebody_else_is_foreign_and_nothing_else(count, size):
    records, others = _records(3_000, size), _records(count, size, seed=2)
    (found,) = _drilled({0: records}, {0: records[:1_000] + others + records[1_000:]})
    assert (found.counts, found.notes) == ({Fault.FOREIGN: count}, ())
    assert found.first is not None
    assert (found.first.source_offset, found.first.target_offset) == (None, 1_001)


def test_long_row_that_stands_there_twice_is_duplicate():
    records = _records(25_000, 10)
    (found,) = _drilled({0: records}, {0: records[:24_000] + records[1_000:]})
    assert found.counts == {Fault.DUPLICATE: 23_000}


def test_long_tail_that_was_cut_off_is_loss():
    records = _records(60_000, 10)
    (found,) = _drilled({0: records}, {0: records[:2_000]})
    assert (found.counts, found.notes) == ({Fault.LOSS: 58_000}, ())


def test_long_row_that_went_to_another_partition_is_misroute_in_both():
    mine, others = _records(30_000, 10), _records(2_000, 10, seed=3, first=10**6)
    row = mine[1_000:26_000]
    found = _drilled({0: mine, 1: others}, {0: mine[:1_000] + mine[26_000:], 1: others[:500] + row + others[500:]})
    assert [one.counts for one in found] == [{Fault.MISROUTE: 25_000}] * 2


def test_long_row_that_changed_places_is_reorder():
    records = _records(30_000, 10)
    moved = records[:1_000] + records[6_000:] + records[1_000:6_000]
    (found,) = _drilled({0: records}, {0: moved})
    assert found.counts == {Fault.REORDER: 5_000}


def test_record_of_a_long_lost_row_that_stands_elsewhere_is_not_lost():
    records = _records(30_000, 10)
    kept = records[:1_000] + records[21_000:25_000] + [records[15_000]] + records[25_000:]
    (found,) = _drilled({0: records}, {0: kept})
    assert found.counts == {Fault.LOSS: 19_999, Fault.REORDER: 1}


def test_every_third_record_lost_of_many_is_loss_and_the_others_are_in_order():
    records = _records(12_000, 10)
    thinned = [record for n, record in enumerate(records) if not (3_000 <= n < 9_000 and n % 3 == 0)]
    (found,) = _drilled({0: records}, {0: thinned})
    assert found.counts == {Fault.LOSS: 2_000}


def test_every_third_record_altered_of_many_is_mutation():
    records = _records(12_000, 10)
    altered = [
        record._replace(value=b"?") if 3_000 <= n < 9_000 and n % 3 == 0 else record for n, record in enumerate(records)
    ]
    (found,) = _drilled({0: records}, {0: altered})
    assert found.counts == {Fault.MUTATION: 2_000}


def test_faults_before_and_behind_a_long_lost_row_keep_their_names():
    records = _records(30_000, 10)
    target = [*records[:1_000], *records[21_000:]]
    target[500] = target[500]._replace(value=b"altered")
    del target[3_000]
    (found,) = _drilled({0: records}, {0: target})
    assert found.counts == {Fault.MUTATION: 1, Fault.LOSS: 20_001}


def test_memory_is_bounded_while_a_long_row_is_followed(monkeypatch):
    held = _watch_held(monkeypatch)
    count, size = 600, 100_000
    records = _records(count + 200, size)
    (found,) = _drilled({0: records}, {0: records[:100] + records[100 + count :]})
    assert found.counts == {Fault.LOSS: count}
    assert 0 < max(held) < 2 * (16 << 20), "far less than the 60 MB of the row"


def test_rows_longer_than_the_window_get_no_class_but_a_note(monkeypatch):
    monkeypatch.setattr("kafka_migration.compare.explain.align._LARGEST_WINDOW", 4_096)
    records = _records(30_000, 10)
    for source, target in (
        (records, records[:1_000] + records[21_000:]),
        (records[:1_000] + records[21_000:], records),
    ):
        (found,) = _drilled({0: source}, {0: target})
        assert found.counts == {}
        assert "go on differently" in found.notes[0]


def test_what_is_kept_of_long_rows_is_bounded():
    records = _records(5_000, 10)
    mine, theirs = log_of(records, _SIZES), log_of(records[:10], _SIZES)
    range_ = pinned(mine, mine, theirs, 0)
    left = Leftovers(most_in_rows=2_000)

    def stream(log: Log) -> Stream:
        return Stream(lambda at: Side({0: log}).chunks(range_.tp, at, range_.source_end), 0, lambda: None)

    with pytest.raises(TooMany):
        Aligner(Places(range_), left, stream(mine), stream(theirs)).by_content()
    assert sum(len(row.digests) for row in left.rows.values()) == 2_000


def _watch_held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    held = list[int]()
    fill: Callable[[Stream, int], bool] = Stream.fill

    def watched(self: Stream, count: int) -> bool:
        filled = fill(self, count)
        held.append(sum(one.size for one in self.ready))
        return filled

    monkeypatch.setattr(Stream, "fill", watched)
    return held
