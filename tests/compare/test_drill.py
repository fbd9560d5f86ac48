"""What is left over on either side is called by its name, at its place: on made-up logs, many times by chance."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from kafka_migration.compare.explain.drill import Drill, Scope
from kafka_migration.compare.explain.result import Drilled, Fault
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import parse_header
from tests.compare.drill_sides import NOW, TOPIC, Side, contents, end_of, pinned, scopes, unequal_segments
from tests.mutation.faults import (
    FAULTS,
    drop,
    drop_identical,
    duplicate,
    flip_value,
    foreign,
    misroute,
    off_by_one,
    right,
    swap_far,
)
from tests.mutation.logs import Content, Log, log_of

_SEGMENT = 500


def _logs(seed: int, *, counts: Sequence[int] = (3_000, 400)) -> dict[int, Log]:
    return {n: log_of(contents(count, seed * 10 + n), [97, 1, 250]) for n, count in enumerate(counts)}


def _rebatched(logs: dict[int, Log], sizes: Sequence[int]) -> dict[int, Log]:
    """The same records in other batches, behind other markers."""
    out = {}
    for partition, log in logs.items():
        records = [log.peek(n) for n in range(len(log))]
        half = len(records) // 2
        first, rest = log_of(records[:half], sizes, gaps=3), log_of(records[half:], sizes, gaps=1)
        out[partition] = Log([*first.sections, *rest.sections], [*first.gaps, *rest.gaps])
    return out


def _drilled(
    source: dict[int, Log], before: dict[int, Log], target: dict[int, Log], **more: object
) -> tuple[dict[int, Drilled], Side, Side]:
    """A drill-down into the segments that are not equal."""
    ranges = [pinned(source[n], before[n], target[n], n) for n in source]
    unequal = {
        range_.partition: unequal_segments(source[range_.partition], target[range_.partition], range_, _SEGMENT)
        for range_ in ranges
    }
    asked = list(scopes(ranges, {n: spans for n, spans in unequal.items() if spans}))
    sides = Side(source), Side(target)
    settings: dict[str, object] = {"examples": 10, **more}
    found = Drill(*sides, ranges, **settings).topic(asked)  # type: ignore[arg-type]
    return {partition.partition: partition for partition in found.drilled}, *sides


def test_what_the_target_is_known_to_hold_beside_the_copy_is_no_finding():
    source = log_of(contents(300, 1), [97])
    target = source.copy()
    strange, late = contents(2, 9)
    target.insert(100, strange)
    target.insert(200, late)
    before = pinned(source, source, target, 0)
    runs = Runs([Run(1, 1, 100), Run(101, 102, 99), Run(200, 202, 101)])
    for left_out, found in (((), {Fault.FOREIGN: 2}), (((101, 102),), {Fault.FOREIGN: 1})):
        range_ = replace(before, runs=runs, target_left_out=left_out)
        drill = Drill(Side({0: source}), Side({0: target}), [range_], examples=10)
        (drilled,) = drill.topic([Scope(range=range_, spans=((0, range_.source_end),))]).drilled
        assert drilled.counts == found


@pytest.mark.parametrize("sizes", [(97, 1, 250), (33, 7)], ids=["as on the source", "other batches"])
@pytest.mark.parametrize("fault", FAULTS)
def test_one_fault_has_its_class_its_field_and_its_offsets(fault, sizes):
    for seed in range(3):
        source = _logs(seed)
        before = _rebatched(source, sizes)
        target = {n: log.copy() for n, log in before.items()}
        expected = FAULTS[fault](target, random.Random(seed))
        expected = expected.on_source(list(source[0].offsets()))
        found, *_ = _drilled(source, before, target)
        it = found[expected.partition]
        assert right(expected, it.examples) == (True, True), (seed, expected, it.text, it.first)
        assert it.counts in [one.counts for one in (expected, *expected.instead)], (seed, expected)
        assert it.notes == ()


@pytest.mark.parametrize("seed", range(6))
def test_one_of_records_that_are_the_same_is_lost_and_nobody_can_say_which(seed: int) -> None:
    source = _logs(seed)
    before = _rebatched(source, (33, 7))
    target = {n: log.copy() for n, log in before.items()}
    expected = drop_identical(source, target, random.Random(seed)).on_source(list(source[0].offsets()))
    found, *_ = _drilled(source, before, target)
    assert right(expected, found[0].examples) == (True, True), (expected, found[0].first)
    assert found[0].counts == {Fault.LOSS: 1}


@pytest.mark.parametrize("seed", range(6))
def test_map_that_leads_one_further_is_found_where_it_begins_to(seed: int) -> None:
    source = _logs(seed)
    target = _rebatched(source, (33, 7))
    ranges = [pinned(source[n], target[n], target[n], n) for n in source]
    right_map = OffsetMap(ranges[0].runs, source_end=ranges[0].source_end, target_end=ranges[0].target_end)
    expected = off_by_one(target, right_map, random.Random(seed)).on_source(list(source[0].offsets()))
    assert expected.map is not None
    wrong = [replace(ranges[0], runs=Runs(expected.map.runs())), ranges[1]]
    unequal = unequal_segments(source[0], target[0], wrong[0], _SEGMENT)
    asked = [Scope(range=wrong[0], spans=tuple(unequal))]
    (found,) = Drill(Side(source), Side(target), wrong, examples=3).topic(asked).drilled
    assert right(expected, found.examples) == (True, True), (expected, found.first)
    assert found.counts == expected.counts


def test_several_faults_at_once_are_all_found_and_none_of_what_they_shift():
    for seed in range(8):
        chance = random.Random(seed)
        source = _logs(seed, counts=(6_000, 2_000))
        before = _rebatched(source, (120, 45))
        target = {n: log.copy() for n, log in before.items()}
        faults = [drop, drop, duplicate, flip_value, flip_value, misroute, foreign]
        expected: Counter[Fault] = Counter()
        for fault in chance.sample(faults, len(faults)):
            it = fault(target, chance)
            expected[it.fault] += it.count
        found, *_ = _drilled(source, before, target, examples=100)
        assert Counter(found[0].counts) == expected, (seed, found[0].text)
        assert found[1].counts == {Fault.MISROUTE: 1}


def test_swap_and_a_loss_in_between_are_told_apart():
    source = _logs(1)
    target = {n: log.copy() for n, log in source.items()}
    swapped = swap_far(target, random.Random(3))
    target[0].remove((swapped.source or 0) + 500)
    found, *_ = _drilled(source, source, target)
    assert found[0].counts == {Fault.LOSS: 1, Fault.REORDER: 2}


def test_record_that_was_replaced_by_quite_another_is_lost_and_the_other_foreign():
    source = _logs(2)
    target = {n: log.copy() for n, log in source.items()}
    target[0][700] = Content(b"who", b"knows", ((b"x", b"y"),), NOW - 5)
    found, *_ = _drilled(source, source, target)
    assert found[0].counts == {Fault.LOSS: 1, Fault.FOREIGN: 1}
    assert [example.source_offset for example in found[0].examples] == [701, None]
    assert [example.target_offset for example in found[0].examples] == [None, 701]


def test_records_equal_and_in_order_but_not_where_the_map_says_are_misplaced():
    source = _logs(3)
    ranges = [pinned(source[n], source[n], source[n], n) for n in source]
    (run,) = ranges[0].runs
    shifted = (Run(run.source, run.target, 1000), Run(run.source + 1001, run.target + 1000, run.length - 1001))
    wrong = [replace(ranges[0], runs=Runs(shifted)), ranges[1]]
    asked = [Scope(range=wrong[0], spans=((0, wrong[0].source_end),))]
    (found,) = Drill(Side(source), Side(source), wrong, examples=3).topic(asked).drilled
    assert found.counts == {Fault.MISPLACED: 1}
    first = found.examples[0]
    assert (first.source_offset, first.target_offset, first.expected_target) == (1001, 1001, None)


def test_only_unequal_segments_are_read_again_and_the_source_where_an_original_is_looked_for():
    source = _logs(4)
    target = {n: log.copy() for n, log in source.items()}
    it = flip_value(target, random.Random(1))
    _, mine, theirs = _drilled(source, source, target)
    start = (it.source or 0) // _SEGMENT * _SEGMENT
    assert len(mine.asked) == len(theirs.asked) == 1
    partition, low, high = mine.asked[0]
    assert partition == 0
    assert start <= low < high <= start + 2 * _SEGMENT


def test_examples_are_as_many_as_asked_for_and_all_are_counted():
    source = _logs(5)
    target = {n: log.copy() for n, log in source.items()}
    for n in range(0, 2_000, 100):
        content = target[0][n]
        target[0][n] = content._replace(timestamp=content.timestamp + 1_000_000)
    found, *_ = _drilled(source, source, target, examples=4)
    assert len(found[0].examples) == 4
    assert found[0].counts == {Fault.MUTATION: 20}


def test_private_payloads_show_no_byte_of_them():
    source = _logs(6)
    for fault in FAULTS.values():
        target = {n: log.copy() for n, log in source.items()}
        fault(target, random.Random(2))
        found, *_ = _drilled(source, source, target, private=True)
        for example in found[0].examples:
            said = example.as_dict()
            assert (said["key"], said["content"]) == (None, None)
            for one in said["altered"]:
                assert one["part"] == "timestamp" or (one["source"], one["target"]) == (None, None)


def test_bytes_that_differ_are_shown_with_where_they_begin():
    source = {0: log_of([Content(b"key", b"value %d" % n, (), NOW + n) for n in range(600)], [50])}
    target = {0: source[0].copy()}
    target[0][300] = target[0][300]._replace(value=b"value 3\xff0")
    found, *_ = _drilled(source, source, target)
    (one,) = found[0].examples[0].altered
    assert (one.at, one.source, one.target, one.source_bytes) == (7, b"00".hex(), "ff30", 9)
    assert "value from byte 7: 3030 against ff30" in found[0].examples[0].text


def test_what_cannot_be_read_again_is_a_note_and_says_nothing_is_equal():
    class Broken(Side):
        def chunks(self, tp, start, end, **options):
            raise CouldNotFindOut("no broker answers", remedy="wait")

    source = _logs(7)
    it = pinned(source[0], source[0], source[0], 0)
    (found,) = Drill(Broken(source), Side(source), [it], examples=3).topic([Scope(range=it, spans=((0, 500),))]).drilled
    assert found.counts == {}
    assert "no broker answers" in found.notes[0]


def test_what_was_given_up_is_not_read_again_since_it_may_be_damaged():
    class Damaged(Side):
        def _batches(self, tp, start, end):
            at = start
            for batch in super()._batches(tp, start, end):
                harm = at < 98
                at = parse_header(batch).next_offset
                yield batch[:-1] + b"?" if harm else batch

    records = contents(3_000, 70)
    source, before = log_of(records, [97, 1, 250]), log_of(records[97:], [250], gaps=98)
    assert (source.offset(97), before.offset(0)) == (98, 98)
    target = {0: before.copy()}
    expected = flip_value(target, random.Random(3))
    it = PartitionRange(
        topic=TOPIC,
        partition=0,
        source_start=0,
        source_end=end_of(source),
        target_start=0,
        target_end=end_of(target[0]),
        runs=Runs([Run(98, 98, 2_903)]),
        left_out=((0, 98),),
    )
    asked = [Scope(range=it, spans=((0, it.source_end),))]
    (found,) = Drill(Damaged({0: source}), Side(target), [it], examples=3).topic(asked).drilled
    assert (found.counts, found.notes) == ({Fault.MUTATION: 1}, ())
    assert found.examples[0].target_offset == expected.target


def test_deadline_ends_it_with_a_note():
    source = _logs(8)
    target = {n: log.copy() for n, log in source.items()}
    drop(target, random.Random(1))
    found, *_ = _drilled(source, source, target, until=0.0, clock=lambda: 1.0)
    assert "no time was left" in found[0].notes[0]


def test_segments_that_are_equal_after_all_say_that_two_readers_disagree():
    source = _logs(9)
    it = pinned(source[0], source[0], source[0], 0)
    (found,) = Drill(Side(source), Side(source), [it], examples=3).topic([Scope(range=it, spans=((0, 500),))]).drilled
    assert "disagree" in found.notes[0]


def test_very_many_differing_records_end_it_with_a_note():
    source = {0: log_of(contents(30_000, 1), [500])}
    target = {0: log_of(contents(30_000, 2), [500])}
    it: PartitionRange = pinned(source[0], source[0], target[0], 0)
    asked = [Scope(range=it, spans=((0, it.source_end),))]
    (found,) = Drill(Side(source), Side(target), [it], examples=5).topic(asked).drilled
    assert len(found.examples) == 5
    assert "too many records differ" in found.notes[0]
    assert found.tp == TopicPartition("drilled", 0)
