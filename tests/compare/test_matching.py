"""Maps that are found from both logs: in memory, with what a copier that is killed does to its copy."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_migration.compare.explain import matching
from kafka_migration.compare.explain.log import Chunks, LogReader
from kafka_migration.compare.explain.matching import Match, Mismatch, match
from kafka_migration.compare.explain.stream import Stream
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.wire.batch import TRANSACTIONAL
from tests.compare.drill_sides import Side, contents, end_of
from tests.mutation.logs import Content, Log, log_of

TP = TopicPartition("orders", 0)
SIZES, OTHERS = (7, 3, 12), (5, 9)


class Only(LogReader):
    """A log without some of its records, as whoever reads committed ones sees it."""

    def __init__(self, log: Log, aborted: Sequence[int]) -> None:
        self._side, self._aborted = Side({0: log}), aborted

    def chunks(self, tp: TopicPartition, start: int, end: int, **options: Any) -> Chunks:
        for chunk in self._side.chunks(tp, start, end, **options):
            if chunk.first not in self._aborted:
                yield chunk


def matched(
    source: Sequence[Content],
    target: Sequence[Content],
    *,
    starts: tuple[int, int] = (0, 0),
    gaps: tuple[int, int] = (0, 0),
    aborted: Sequence[int] = (),
    begins_late: bool = False,
) -> Match:
    """The match of two logs, whose batches are cut differently, from these offsets on. ``gaps``: between batches."""
    here, there = log_of(source, SIZES, gaps=gaps[0]), log_of(target, OTHERS, gaps=gaps[1])
    ends = [PartitionEnds(start=at, end=max(at, end_of(log))) for at, log in zip(starts, (here, there), strict=True)]
    return match(
        TP,
        Only(here, aborted),
        Side({0: there}),
        with_aborted=Side({0: here}),
        ends=(ends[0], ends[1]),
        begins_late=begins_late,
    )


def pairs(found: Match) -> dict[int, int]:
    return {run.source + n: run.target + n for run in found.runs for n in range(run.length)}


def places(found: Match) -> Mapping[Mismatch, list[int]]:
    return {kind: [at for span in spans for at in range(*span[:2])] for kind, spans in found.differences.items()}


def test_copy_without_a_fault_is_one_run_where_neither_log_has_gaps():
    records = contents(100, 1)
    found = matched(records, records)
    assert ([*found.runs], found.source_at, found.differences) == ([Run(0, 0, 100)], 100, {})


def test_gaps_of_both_logs_are_no_differences_and_every_record_has_its_place():
    records = contents(100, 1)
    found = matched(records, records, gaps=(3, 2))
    here, there = log_of(records, SIZES, gaps=3), log_of(records, OTHERS, gaps=2)
    assert pairs(found) == dict(zip(here.offsets(), there.offsets(), strict=True))
    assert not found.differences


def test_what_the_source_has_behind_the_copy_is_not_missing_but_still_to_be_copied():
    records = contents(5_000, 1)
    found = matched(records, records[:60])
    assert ([*found.runs], found.source_at, found.differences) == ([Run(0, 0, 60)], 60, {})


@pytest.mark.parametrize("copied", [0, 1])
def test_copy_that_has_hardly_begun_goes_on_where_it_ends(copied):
    found = matched(contents(50, 1), contents(50, 1)[:copied])
    assert (found.records, found.source_at, found.differences) == (copied, copied, {})


def test_block_that_was_written_twice_is_doubled_and_the_first_is_in_the_map():
    records = contents(100, 1)
    found = matched(records, [*records[:40], *records[25:40], *records[40:]])
    assert [*found.runs] == [Run(0, 0, 40), Run(40, 55, 60)]
    assert places(found) == {Mismatch.DOUBLED: [*range(40, 55)]}


def test_copier_that_was_killed_again_and_again_leaves_each_block_that_it_doubled():
    records = contents(3_000, 1)
    copy = [*records[:900], *records[700:2_000], *records[1_990:2_500], *records[1_990:]]
    found = matched(records, copy)
    assert places(found) == {Mismatch.DOUBLED: [*range(900, 1_100), *range(2_200, 2_210), *range(2_710, 3_220)]}
    assert found.records == 3_000


def test_block_that_was_doubled_at_the_very_end_of_the_copy_is_found_although_the_source_goes_on():
    records = contents(5_000, 1)
    found = matched(records, [*records[:40], *records[30:37]])
    assert (places(found), found.source_at) == ({Mismatch.DOUBLED: [*range(40, 47)]}, 40)


def test_lost_records_are_missing_by_their_offsets_on_the_source():
    records = contents(100, 1)
    found = matched(records, [*records[:20], *records[23:60], *records[61:]])
    assert places(found) == {Mismatch.MISSING: [20, 21, 22, 60]}
    assert [*found.runs] == [Run(0, 0, 20), Run(23, 20, 37), Run(61, 57, 39)]


def test_lost_and_doubled_records_side_by_side_are_distinguished():
    records = contents(100, 1)
    found = matched(records, [*records[:20], *records[10:20], *records[22:]])
    assert places(found) == {Mismatch.MISSING: [20, 21], Mismatch.DOUBLED: [*range(20, 30)]}


def test_record_of_somebody_else_is_foreign_and_an_old_one_at_the_end_is_doubled():
    records, (foreign, *_) = contents(100, 1), contents(1, 9)
    found = matched(records, [*records[:50], foreign, *records[50:], records[3]])
    assert places(found) == {Mismatch.FOREIGN: [50], Mismatch.DOUBLED: [101]}


def test_records_that_changed_places_are_reordered_and_neither_missing_nor_doubled():
    records = contents(100, 1)
    found = matched(records, [*records[:50], records[51], records[50], *records[52:]])
    assert [*found.differences] == [Mismatch.REORDERED]


def test_record_of_an_aborted_transaction_that_was_copied_is_named_as_such():
    records = contents(30, 1)
    # The second batch of the source: three records.
    found = matched(records, records, aborted=[7])
    assert places(found) == {Mismatch.ABORTED: [7, 8, 9]}
    assert [*found.runs] == [Run(0, 0, 7), Run(10, 10, 20)]


@pytest.mark.parametrize(("starts", "kind"), [((30, 0), Mismatch.OLDER), ((0, 30), Mismatch.EXPIRED)])
def test_what_one_side_has_deleted_at_its_beginning_is_no_fault_of_the_copy(starts, kind):
    records = contents(100, 1)
    found = matched(records, records, starts=starts)
    assert (places(found), [*found.runs]) == ({kind: [*range(30)]}, [Run(30, 30, 70)])


def test_first_records_that_neither_side_has_deleted_are_missing_or_foreign():
    records = contents(100, 1)
    assert places(matched(records, records[30:])) == {Mismatch.MISSING: [*range(30)]}
    assert places(matched(records[30:], records)) == {Mismatch.FOREIGN: [*range(30)]}


@pytest.mark.parametrize(("starts", "kind"), [((6_000, 0), Mismatch.OLDER), ((0, 6_000), Mismatch.EXPIRED)])
def test_logs_whose_beginnings_lie_further_apart_than_the_window_are_matched_all_the_same(monkeypatch, starts, kind):
    monkeypatch.setattr("kafka_migration.compare.explain.align._LARGEST_WINDOW", 1_024)
    records = contents(8_000, 1)
    found = matched(records, records, starts=starts)
    assert ([*found.runs], found.counts()) == ([Run(6_000, 6_000, 2_000)], {kind: 6_000})
    assert found.source_at == 8_000


@pytest.mark.parametrize(
    ("copied", "doubled", "records"),
    [([(5, 12), (5, 10), (12, 60)], [*range(7, 12)], 50), ([(5, 20), (5, 20), (20, 60)], [*range(15, 30)], 50)],
)
def test_old_records_that_were_written_twice_are_doubled_where_they_stand_behind_newer_ones(copied, doubled, records):
    source = contents(60, 1)
    found = matched(source, [one for start, end in copied for one in source[start:end]], starts=(10, 0))
    assert places(found) == {Mismatch.DOUBLED: doubled, Mismatch.OLDER: [*range(5)]}
    assert (found.records, found.trouble) == (records, "")


def test_target_record_that_would_have_no_name_is_noticed(monkeypatch):
    records = contents(60, 1)
    monkeypatch.setattr(matching, "_among", lambda *_: set())
    monkeypatch.setattr(matching, "_all", lambda _offsets: [])
    found = matched(records, [*records[:30], *records[20:]])
    assert found.trouble == "of 70 records on the target 60 are accounted for"


@pytest.mark.parametrize("most", [10, 1 << 20])
def test_all_of_a_copy_is_older_than_a_source_that_has_deleted_everything(monkeypatch, most):
    monkeypatch.setattr(matching, "_MOST", most)
    found = matched([], contents(60, 1), starts=(1_000, 0))
    assert (found.trouble, found.source_at, places(found)) == ("", 1_000, {Mismatch.OLDER: [*range(60)]})


def test_row_of_nothing_is_found_nowhere():
    side = Side({0: log_of(contents(5, 1), SIZES, gaps=0)})
    assert Stream(lambda at: side.chunks(TP, at, 5), 0, lambda: None).find([]) is None


def test_copy_that_the_target_has_deleted_does_not_show_how_far_it_went():
    records = contents(60, 1)
    assert "has deleted all of its copy" in matched(records, records, starts=(0, 60)).trouble
    # Neither has anything: nothing was lost.
    assert not matched(records, records, starts=(60, 60)).trouble


def test_place_where_a_copy_was_to_begin_later_is_unknown_without_a_record_of_it():
    records = contents(60, 1)
    assert not matched(records, []).trouble
    assert "nothing on the target shows where" in matched(records, [], begins_late=True).trouble
    assert not matched([], [], begins_late=True).trouble


def test_logs_that_have_nothing_in_common_have_no_map(monkeypatch):
    monkeypatch.setattr("kafka_migration.compare.explain.align._LARGEST_WINDOW", 1_024)
    found = matched(contents(9_000, 1), [one._replace(timestamp=one.timestamp + 10**6) for one in contents(9_000, 2)])
    assert (found.trouble, len(found.runs)) == (
        "from their beginnings on both logs differ for more records than are followed",
        0,
    )


def test_more_differences_than_are_kept_are_no_map_either(monkeypatch):
    monkeypatch.setattr(matching, "_MOST", 20)
    records = contents(100, 1)
    assert "from source offset 30 on" in matched(records, [*records[:30], *records[9:30], *records[30:]]).trouble


def test_copy_that_was_written_in_transactions_is_not_taken():
    records = contents(40, 1)
    copy = log_of(records, OTHERS, gaps=0)
    for section in copy.sections:
        for batch in section:
            batch.attributes = TRANSACTIONAL
    ends = PartitionEnds(start=0, end=40)
    source = Side({0: log_of(records, SIZES, gaps=0)})
    found = match(TP, source, Side({0: copy}), with_aborted=source, ends=(ends, ends))
    assert "of its batches on the target were written in transactions" in found.trouble
