"""Every way in which a copy can be wrong by one record is found, and an equal copy is equal: on real brokers."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.validation.job import run
from kafka_migration.validation.result import Difference, Equality, PartitionResult
from kafka_migration.validation.verdict import judge, misrouted
from tests.kafka_tools import ToSend
from tests.validation.lab import LEADING, Damage, Partitions, Wanted, records

COUNT, SUM, ORDER = Difference.COUNT, Difference.SUM, Difference.ORDER

#: Places in `records(30)`, all in the segment of source offsets 20 to 30.
ONE_HEADER, TWO_HEADERS, NULL_HEADER = 16, 17, 18
TOMBSTONE, EMPTY_VALUE, NO_KEY, EMPTY_KEY = 17, 19, 20, 22


def _change(at: int, **fields: Any) -> Damage:
    def damage(partitions: Partitions) -> None:
        before = partitions[0][at]
        partitions[0][at] = dataclasses.replace(before, **fields)
        assert partitions[0][at] != before, "the damage would be none"

    return damage


def _drop(partitions: Partitions) -> None:
    del partitions[0][15]


def _double(partitions: Partitions) -> None:
    partitions[0].insert(15, partitions[0][15])


def _swap(partitions: Partitions) -> None:
    sent = partitions[0]
    sent[15], sent[16] = sent[16], sent[15]


def _misroute(partitions: Partitions) -> None:
    partitions[1].insert(15, dataclasses.replace(partitions[0].pop(15), partition=1))


def _exchange_partitions(partitions: Partitions) -> None:
    for at in (0, 1):
        partitions[at][15] = dataclasses.replace(records(30, 1 - at)[15], partition=at)


def _add_foreign(partitions: Partitions) -> None:
    partitions[0].append(ToSend(b"of another writer", b"k", 0, 1_700_000_000_000))


def _lose_the_last(partitions: Partitions) -> None:
    partitions[0].pop()


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is done to the copy, and what must be found in one of its segments."""

    damage: Damage
    differences: tuple[Difference, ...]
    missing: int = 0
    extra: int = 0
    partitions: int = 1


FAULTS = {
    "dropped": Fault(_drop, (COUNT, SUM, ORDER), missing=1),
    "lost at the end": Fault(_lose_the_last, (COUNT, SUM, ORDER), missing=1),
    "doubled": Fault(_double, (COUNT, SUM, ORDER), extra=1),
    "foreign": Fault(_add_foreign, (COUNT, SUM, ORDER), extra=1),
    "swapped": Fault(_swap, (ORDER,)),
    "misrouted": Fault(_misroute, (COUNT, SUM, ORDER), missing=1, partitions=2),
    "exchanged": Fault(_exchange_partitions, (SUM, ORDER), partitions=2),
    "key": Fault(_change(ONE_HEADER, key=b"another"), (SUM, ORDER)),
    "key empty instead of null": Fault(_change(NO_KEY, key=b""), (SUM, ORDER)),
    "key null instead of empty": Fault(_change(EMPTY_KEY, key=None), (SUM, ORDER)),
    "value": Fault(_change(ONE_HEADER, value=b"value 16 of 1"), (SUM, ORDER)),
    "value empty instead of null": Fault(_change(TOMBSTONE, value=b""), (SUM, ORDER)),
    "value null instead of empty": Fault(_change(EMPTY_VALUE, value=None), (SUM, ORDER)),
    "byte from value to key": Fault(_change(18, key=b"keyv", value=b"alue 18 of 0"), (SUM, ORDER)),
    "key and value exchanged": Fault(_change(18, key=b"value 18 of 0", value=b"key"), (SUM, ORDER)),
    "header's name": Fault(_change(ONE_HEADER, headers=[("two", b"1")]), (SUM, ORDER)),
    "header's value": Fault(_change(ONE_HEADER, headers=[("one", b"2")]), (SUM, ORDER)),
    "header dropped": Fault(_change(ONE_HEADER, headers=[]), (SUM, ORDER)),
    "header added": Fault(_change(NO_KEY, headers=[("", b"")]), (SUM, ORDER)),
    "headers' order": Fault(_change(TWO_HEADERS, headers=[("b", b"y"), ("a", b"x")]), (SUM, ORDER)),
    "headers' values exchanged": Fault(_change(TWO_HEADERS, headers=[("a", b"y"), ("b", b"x")]), (SUM, ORDER)),
    "header empty instead of null": Fault(_change(NULL_HEADER, headers=[("null", b""), ("empty", b"")]), (SUM, ORDER)),
    "header null moved": Fault(_change(NULL_HEADER, headers=[("null", b""), ("empty", None)]), (SUM, ORDER)),
    "timestamp": Fault(_change(ONE_HEADER, timestamp=1_600_000_016_001), (SUM, ORDER)),
}


@dataclasses.dataclass(frozen=True)
class Judged:
    """The results of a topic's partitions."""

    partitions: list[PartitionResult]
    hints: tuple[str, ...]


@pytest.fixture(scope="module")
def judged(lab, spark) -> Callable[[str], Judged]:
    """Results by name of the fault; "equal" has none. All in one request: Spark jobs have a price each."""
    wanted = {name: Wanted(damage=it.damage, partitions=it.partitions) for name, it in FAULTS.items()}
    copies = lab.copies({**wanted, "equal": Wanted(partitions=2), "nothing": Wanted(count=0)})
    request = lab.request(*copies.values())
    report = run(spark, request, lab.connections)
    assert report.failures == ()
    results = judge(request, report, {})

    def of(name: str) -> Judged:
        mine = [it for it in results if it.topic == copies[name].topic]
        return Judged(mine, misrouted(mine))

    return of


def test_equal_copy_at_other_offsets_is_equal(judged):
    found = judged("equal")
    assert [it.verdict for it in found.partitions] == [Equality.EQUAL] * 2
    for it in found.partitions:
        assert it.source == it.target
        assert it.source is not None
        assert it.source.rows == it.expected == 30
        assert it.source_start == LEADING
        assert it.covered == it.source_end - it.source_start == 31, "the marker is covered, but no record"
    assert found.partitions[0].source != found.partitions[1].source
    assert found.hints == ()


def test_empty_topic_is_equal(judged):
    (it,) = judged("nothing").partitions
    assert it.verdict is Equality.EQUAL
    assert it.source is not None
    assert it.source.rows == 0


@pytest.mark.parametrize("name", FAULTS)
def test_one_wrong_record_is_found(judged, name):
    fault, it = FAULTS[name], judged(name).partitions[0]
    assert it.verdict is Equality.DIFFERENT
    assert it.verdict.exit_code == 1
    bad = [segment for segment in it.segments if segment.verdict is not Equality.EQUAL]
    assert bad
    assert bad[0].start == (30 if name in ("foreign", "lost at the end") else 20), "the segment with the record"
    assert fault.differences in [segment.differences for segment in bad]
    assert (
        sum(segment.missing for segment in bad) - sum(segment.extra for segment in bad) == fault.missing - fault.extra
    )
    assert str(bad[0].start) in it.detail


def test_wrong_field_of_one_record_leaves_the_other_segments_equal(judged):
    segments = judged("timestamp").partitions[0].segments
    assert [segment.verdict is Equality.EQUAL for segment in segments] == [True, True, False, True]


def test_misrouted_record_is_hinted_at_and_named_by_topic(judged):
    for name in ("misrouted", "exchanged"):
        found = judged(name)
        assert [it.verdict for it in found.partitions] == [Equality.DIFFERENT] * 2
        assert [hint.split(":")[1] for hint in found.hints] == [
            " partitions 0, 1 differ, but hold the same records together"
        ]
    assert judged("swapped").hints == ()


def test_foreign_record_stands_where_the_map_has_none(judged):
    assert sum(segment.target.misplaced for segment in judged("foreign").partitions[0].segments) == 1


def test_records_of_a_wrong_offset_map_are_different(lab, spark):
    """The records are equal, and in order; but a group would be moved to an offset beside its record."""
    copy = lab.copy()
    (tp,) = copy.maps
    right = list(copy.maps[tp].runs())
    # The map takes the marker to stand one record earlier than it does.
    wrong = [
        Run(right[0].source, right[0].target, right[0].length - 1),
        Run(right[1].source - 1, right[1].target - 1, right[1].length + 1),
        right[2],
    ]
    ends = copy.maps[tp]
    shifted = OffsetMap(wrong, source_end=ends.source_end, target_end=ends.target_end)
    request = lab.request(copy, maps={tp: shifted})
    (it,) = judge(request, run(spark, request, lab.connections), {})
    assert it.verdict is Equality.DIFFERENT
    assert it.source is not None
    assert it.target is not None
    assert it.source.total == it.target.total
