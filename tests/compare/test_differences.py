"""Every way in which a copy can be wrong by one record is found, and an equal copy is equal: on real brokers."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Difference, Equality, PartitionResult
from kafka_migration.compare.verdict import judge, misrouted
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.skips import Skip
from kafka_migration.validation.job import run
from tests.compare.lab import (
    FIRST_TIMESTAMP,
    LEADING,
    SEGMENT,
    Damage,
    Partitions,
    Wanted,
    records,
    request_of,
    source_offset,
)
from tests.kafka_tools import ToSend

COUNT, SUM, ORDER = Difference.COUNT, Difference.SUM, Difference.ORDER


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
    """What is done to the copy, and what must be found: in a segment, and in all."""

    damage: Damage
    differences: tuple[Difference, ...]
    missing: int = 0
    extra: int = 0
    partitions: int = 1
    place: int = 15


FAULTS = {
    "dropped": Fault(_drop, (COUNT, SUM, ORDER), missing=1),
    "lost at the end": Fault(_lose_the_last, (COUNT, SUM, ORDER), missing=1, place=29),
    "doubled": Fault(_double, (COUNT, SUM, ORDER), extra=1),
    "foreign": Fault(_add_foreign, (COUNT, SUM, ORDER), extra=1, place=29),
    "swapped": Fault(_swap, (ORDER,)),
    "misrouted": Fault(_misroute, (COUNT, SUM, ORDER), missing=1, partitions=2),
    "exchanged": Fault(_exchange_partitions, (SUM, ORDER), partitions=2),
}

_ONE = ToSend(b"value", b"key", 0, FIRST_TIMESTAMP)


def _one(**fields: Any) -> ToSend:
    return dataclasses.replace(_ONE, **fields)


#: Pairs of records that differ in one respect: what stands on the source, and what on the target.
WRONG_FIELDS = {
    "key": (_ONE, _one(key=b"kez")),
    "key empty instead of null": (_one(key=None), _one(key=b"")),
    "key null instead of empty": (_one(key=b""), _one(key=None)),
    "value": (_ONE, _one(value=b"valuf")),
    "value longer by a zero": (_ONE, _one(value=b"value\0")),
    "value empty instead of null": (_one(value=None), _one(value=b"")),
    "value null instead of empty": (_one(value=b""), _one(value=None)),
    "byte of the key in the value": (_ONE, _one(key=b"ke", value=b"yvalue")),
    "key and value exchanged": (_ONE, _one(key=b"value", value=b"key")),
    "key in place of the value": (_one(value=None), _one(key=None, value=b"key")),
    "header's name": (_one(headers=[("one", b"1")]), _one(headers=[("two", b"1")])),
    "header's value": (_one(headers=[("one", b"1")]), _one(headers=[("one", b"2")])),
    "header dropped": (_one(headers=[("one", b"1")]), _ONE),
    "header added": (_ONE, _one(headers=[("", b"")])),
    "headers' order": (_one(headers=[("a", b"x"), ("b", b"y")]), _one(headers=[("b", b"y"), ("a", b"x")])),
    "order of one name": (_one(headers=[("a", b"x"), ("a", b"y")]), _one(headers=[("a", b"y"), ("a", b"x")])),
    "headers' values exchanged": (_one(headers=[("a", b"x"), ("b", b"y")]), _one(headers=[("a", b"y"), ("b", b"x")])),
    "byte of the name in the value": (_one(headers=[("ab", b"c")]), _one(headers=[("a", b"bc")])),
    "header empty instead of null": (_one(headers=[("a", None)]), _one(headers=[("a", b"")])),
    "header null in the other": (_one(headers=[("a", None), ("b", b"")]), _one(headers=[("a", b""), ("b", None)])),
    "two headers as one": (_one(headers=[("a", b""), ("b", b"")]), _one(headers=[("ab", b"")])),
    "timestamp": (_ONE, _one(timestamp=FIRST_TIMESTAMP + 1)),
}
#: Each stands in a segment of its own, with a whole one before the next.
PLACES = {name: 20 * at + 5 for at, name in enumerate(WRONG_FIELDS)}
MANY = 20 * len(WRONG_FIELDS)


def _put_wrong_fields(partitions: Partitions) -> None:
    for name, (_, wrong) in WRONG_FIELDS.items():
        partitions[0][PLACES[name]] = wrong


@dataclasses.dataclass(frozen=True)
class Judged:
    """The results of a topic's partitions."""

    partitions: list[PartitionResult]
    hints: tuple[str, ...]


@pytest.fixture(scope="module", params=[Level.RECORD, Level.BATCH])
def judged(lab, spark, request) -> Callable[[str], Judged]:
    """Results by name of the fault; "equal" has none. All in one request: Spark jobs have a price each."""
    level = request.param
    wanted = {name: Wanted(damage=item.damage, partitions=item.partitions) for name, item in FAULTS.items()}
    special = {PLACES[name]: right for name, (right, _) in WRONG_FIELDS.items()}
    wanted["fields"] = Wanted(count=MANY, special=special, damage=_put_wrong_fields)
    copies = lab.copies({**wanted, "equal": Wanted(partitions=2), "nothing": Wanted(count=0)})
    asked = dataclasses.replace(lab.request(*copies.values()), level=level)
    report = run(spark, asked, lab.connections, lab.wires)
    assert not any(one.failure for one in report.outcomes)
    results = judge(asked, report, {})

    def of(name: str) -> Judged:
        mine = [result for result in results if result.topic == copies[name].topic]
        return Judged(mine, misrouted(mine))

    return of


def test_equal_copy_at_other_offsets_is_equal(judged):
    found = judged("equal")
    assert [partition.verdict for partition in found.partitions] == [Equality.EQUAL] * 2
    for partition in found.partitions:
        assert partition.source == partition.target
        assert partition.source is not None
        assert partition.source.rows == partition.expected == 30
        assert partition.source_start == LEADING
        assert partition.covered == partition.source_end - partition.source_start == 31, (
            "the marker is covered, but no record"
        )
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
    assert bad[0].segment == source_offset(fault.place, 30) // SEGMENT, "the segment with the record"
    assert fault.differences in [segment.differences for segment in bad]
    assert sum(one.extra - one.missing for one in bad) == fault.extra - fault.missing
    assert str(bad[0].start) in it.detail


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_one_wrong_field_is_found(judged, name):
    (it,) = judged("fields").partitions
    segments = {segment.segment: segment for segment in it.segments}
    wrong = segments[source_offset(PLACES[name], MANY) // SEGMENT]
    assert wrong.verdict is Equality.DIFFERENT
    assert wrong.differences == (SUM, ORDER)


def test_wrong_field_of_one_record_leaves_the_other_segments_equal(judged):
    (it,) = judged("fields").partitions
    wrong = {source_offset(place, MANY) // SEGMENT for place in PLACES.values()}
    assert {s.segment for s in it.segments if s.verdict is Equality.EQUAL} == {s.segment for s in it.segments} - wrong
    assert len(wrong) == len(WRONG_FIELDS)


def test_misrouted_record_is_hinted_at_and_named_by_topic(judged):
    for name in ("misrouted", "exchanged"):
        found = judged(name)
        assert [partition.verdict for partition in found.partitions] == [Equality.DIFFERENT] * 2
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
    (it,) = judge(request, run(spark, request, lab.connections, lab.wires), {})
    assert it.verdict is Equality.DIFFERENT
    assert it.source is not None
    assert it.target is not None
    assert it.source.total == it.target.total


def test_offsets_that_were_given_up_are_not_compared(lab, spark):
    copy = lab.copies({"": Wanted(damage=_drop)})[""]
    (tp,) = copy.maps
    gap = source_offset(15, 30)
    runs = [Run(LEADING, 0, 10), Run(LEADING + 10, 11, 5), Run(gap + 1, 16, 4), Run(LEADING + 21, 20, 10)]
    offsets = OffsetMap(runs, source_end=LEADING + 31, target_end=30)
    source, target = lab.ends(SOURCE, [tp])[tp], lab.ends(TARGET, [tp])[tp]
    skip = Skip(start=gap, end=gap + 1, halt="REFUSED", detail="", by="ada", at="", topic_key="")
    for skips, verdict in (((), Equality.DIFFERENT), ((skip,), Equality.EQUAL)):
        asked = request_of([PartitionRange.pinned(tp, offsets, source=source, target=target, skips=skips)])
        request = ValidationRequest.from_dict(json.loads(json.dumps(asked.as_dict())))
        (it,) = judge(request, run(spark, request, lab.connections, lab.wires), {})
        assert it.verdict is verdict


@pytest.mark.parametrize("level", [Level.RECORD, Level.BATCH])
def test_offsets_at_which_the_target_is_known_to_hold_more_are_not_compared(lab, spark, level):
    strange = ToSend(b"strange", timestamp=FIRST_TIMESTAMP)
    copy = lab.copies({"": Wanted(damage=lambda partitions: partitions[0].insert(15, strange))})[""]
    (tp,) = copy.maps
    runs = [Run(LEADING, 0, 10), Run(LEADING + 10, 11, 5), Run(LEADING + 15, 17, 5), Run(LEADING + 21, 22, 10)]
    offsets = OffsetMap(runs, source_end=LEADING + 31, target_end=32)
    source, target = lab.ends(SOURCE, [tp])[tp], lab.ends(TARGET, [tp])[tp]
    for extras, verdict in (((), Equality.DIFFERENT), (((16, 17),), Equality.EQUAL), (((3, 4),), Equality.DIFFERENT)):
        asked = request_of([PartitionRange.pinned(tp, offsets, source=source, target=target, extras=extras)])
        request = ValidationRequest.from_dict(json.loads(json.dumps(dataclasses.replace(asked, level=level).as_dict())))
        (it,) = judge(request, run(spark, request, lab.connections, lab.wires), {})
        assert it.verdict is verdict
