"""From digests to a verdict, without clusters: what is equal, different, expired, or not known."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from kafka_migration.compare.digests import Digest, DigestReport, SegmentOutcome
from kafka_migration.compare.request import PartitionRange, ValidationRequest
from kafka_migration.compare.result import Difference, Equality, PartitionResult, ValidationResult, worst
from kafka_migration.compare.summary import COLUMNS, Limits, summary
from kafka_migration.compare.verdict import judge, misrouted, not_compared
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from tests.compare.lab import request_of

TP = TopicPartition("topic", 0)
EQUAL, DIFFERENT, EXPIRED, INCONCLUSIVE = Equality.EQUAL, Equality.DIFFERENT, Equality.EXPIRED, Equality.INCONCLUSIVE


def _request(records: int = 25, partitions: int = 1) -> ValidationRequest:
    """Segments of ten: two full ones and a half one."""
    found = OffsetMap([Run(0, 0, records)], source_end=records, target_end=records)
    ends = PartitionEnds(start=0, end=records)
    return request_of(
        PartitionRange.pinned(TopicPartition("topic", at), found, source=ends, target=ends) for at in range(partitions)
    )


def _digest(rows: int = 10, total: int = 7, ordered: int = 8, misplaced: int = 0) -> Digest:
    return Digest(rows=rows, bytes=rows, total=total, ordered=ordered, misplaced=misplaced)


RIGHT = {0: _digest(), 1: _digest(), 2: _digest(rows=5)}


def _outcomes(
    source: dict[int, Digest], target: dict[int, Digest], *, partition: int = 0, failures: dict[int, str] | None = None
) -> list[SegmentOutcome]:
    """What was found of segments, by their numbers."""
    numbers = sorted({*source, *target, *(failures or {})})
    return [
        SegmentOutcome(
            topic="topic",
            partition=partition,
            segment=at,
            start=10 * at,
            end=10 * at + 10,
            target_start=10 * at,
            target_end=10 * at + 10,
            level="record",
            source=source.get(at, Digest()),
            target=target.get(at, Digest()),
            failure=(failures or {}).get(at, ""),
        )
        for at in numbers
    ]


def _report(request: ValidationRequest, outcomes: list[SegmentOutcome]) -> DigestReport:
    return DigestReport(id=request.id, outcomes=tuple(outcomes), seconds=1.0)


def _judge(
    request: ValidationRequest,
    source: dict[int, Digest],
    target: dict[int, Digest],
    *,
    source_start: int = 0,
    failures: dict[int, str] | None = None,
) -> PartitionResult:
    report = _report(request, _outcomes(source, target, failures=failures))
    assert DigestReport.from_dict(report.as_dict()) == report
    (it,) = judge(request, report, {TP: source_start})
    return it


def test_equal_digests_of_all_that_the_map_holds_are_equal():
    it = _judge(_request(), RIGHT, RIGHT)
    assert (it.verdict, it.detail, it.covered) == (EQUAL, "equal", 25)
    assert it.source == Digest(rows=25, bytes=25, total=21, ordered=24)


@pytest.mark.parametrize(
    ("wrong", "differences", "words"),
    [
        (_digest(rows=9, total=1, ordered=1), ("count", "sum", "order"), "1 missing on the target"),
        (
            _digest(rows=12, total=1, ordered=1, misplaced=2),
            ("count", "sum", "order"),
            "2 where the offset map has none",
        ),
        (_digest(total=1, ordered=1), ("sum", "order"), "not the same"),
        (_digest(ordered=1), ("order",), "the same records in other places"),
    ],
)
def test_segment_that_differs_is_named_with_what_differs(wrong, differences, words):
    it = _judge(_request(), RIGHT, {**RIGHT, 1: wrong})
    assert it.verdict is DIFFERENT
    assert [segment.verdict for segment in it.segments] == [EQUAL, DIFFERENT, EQUAL]
    assert it.segments[1].differences == tuple(Difference(name) for name in differences)
    assert it.detail.startswith("source offsets 10..20: ")
    assert words in it.detail


def test_segment_that_neither_side_returned_is_not_equal():
    without = {0: RIGHT[0], 2: RIGHT[2]}
    it = _judge(_request(), without, without)
    assert it.verdict is INCONCLUSIVE
    assert "0 of 10" in it.detail


def test_sides_read_short_alike_are_not_equal():
    short = {**RIGHT, 1: _digest(rows=9)}
    assert _judge(_request(), short, short).verdict is INCONCLUSIVE


def test_records_outside_of_every_segment_make_a_difference():
    assert _judge(_request(), RIGHT, {**RIGHT, -1: _digest(rows=1, misplaced=1)}).verdict is DIFFERENT


def test_partition_that_could_not_be_read_is_inconclusive_whatever_was_read_of_it():
    it = _judge(_request(), RIGHT, RIGHT, failures={1: "the broker hung up"})
    assert it.segments[1].source == it.segments[1].target == Digest(), "what was read of it counts nowhere"
    assert (it.verdict, it.verdict.exit_code, it.source) == (INCONCLUSIVE, 3, None)
    assert "the broker hung up" in it.detail


def test_partition_that_expired_while_it_could_not_be_read_says_so():
    it = _judge(_request(), {}, {}, failures=dict.fromkeys(range(3), "out of range"), source_start=12)
    assert (it.verdict, it.verdict.exit_code) == (EXPIRED, 3)
    assert "the source's log starts at 12 by now" in it.detail


def test_segment_that_only_lacks_what_expired_is_expired_and_the_others_are_judged():
    source = {**RIGHT, 0: _digest(rows=6, total=1, ordered=1)}
    assert _judge(_request(), source, RIGHT, source_start=4).verdict is EXPIRED
    assert _judge(_request(), source, RIGHT, source_start=0).verdict is DIFFERENT
    assert _judge(_request(), source, {**RIGHT, 2: _digest(rows=4)}, source_start=4).verdict is DIFFERENT


def test_expiry_excuses_nothing_but_missing_records_of_the_source():
    altered = {**RIGHT, 0: _digest(total=1, ordered=1)}
    lost = {**RIGHT, 0: _digest(rows=6, total=1, ordered=1)}
    assert _judge(_request(), RIGHT, altered, source_start=4).verdict is DIFFERENT
    assert _judge(_request(), RIGHT, lost, source_start=4).verdict is DIFFERENT
    assert _judge(_request(), lost, lost | {0: _digest(rows=5)}, source_start=4).verdict is DIFFERENT


def test_equal_stays_equal_if_the_source_expires_after_it_was_read():
    assert _judge(_request(), RIGHT, RIGHT, source_start=20).verdict is EQUAL


def test_report_of_another_request_is_no_answer():
    with pytest.raises(ValueError, match="does not answer"):
        judge(_request(), DigestReport(id="another", outcomes=(), seconds=0.0), {})


def test_worst_verdict_wins_and_only_equal_has_exit_code_0():
    assert worst([EQUAL, EXPIRED]) is EXPIRED
    assert worst([EXPIRED, INCONCLUSIVE, EQUAL]) is INCONCLUSIVE
    assert worst([INCONCLUSIVE, DIFFERENT]) is DIFFERENT
    assert {one: one.exit_code for one in Equality} == {DIFFERENT: 1, INCONCLUSIVE: 3, EXPIRED: 3, EQUAL: 0}


def test_hint_of_misrouting_needs_all_partitions_to_have_been_read():
    request = _request(partitions=2)
    other = _digest(total=1, ordered=1)
    moved = {**RIGHT, 0: other}
    results = judge(request, _report(request, _outcomes(RIGHT, moved) + _outcomes(moved, RIGHT, partition=1)), {})
    assert len(misrouted(results)) == 1
    assert misrouted([*results, not_compared(TopicPartition("topic", 2), 0, 5, "why not", lag=5)]) == ()


def test_summary_has_a_row_for_every_partition_and_every_column_and_none_for_what_was_not_read():
    equal = _judge(_request(), RIGHT, RIGHT)
    kept = (replace(equal.segments[0], kept=True, read_at="2030-01-01T00:00:00+00:00"), *equal.segments[1:])
    equal = replace(equal, segments=kept)
    unread = not_compared(TopicPartition("topic", 1), 0, 5, "the mirror is halted", lag=3)
    at = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    result = ValidationResult(
        id="1",
        migration="m",
        at=at.isoformat(),
        level=Level.BATCH,
        segment_records=10,
        partitions=(equal, unread),
        seconds=2.0,
    )
    table = summary(result, now=at + timedelta(seconds=7), limits=Limits(age_seconds=60, pinned_seconds=10))
    assert table["limits"] == {"age_seconds": 60, "pinned_seconds": 10}
    columns = ("lag_offsets", "age_seconds", "pinned_seconds")
    assert [tuple(row[one] for one in columns) for row in table["rows"]] == [(0, 60, 7), (3, 0, 7)]
    assert table["partitions"] == 2
    assert [tuple(row) for row in table["rows"]] == [tuple(COLUMNS)] * 2
    assert table["rows"][0]["source_sum"] == f"{21:016x}"
    assert table["rows"][1]["source_records"] is None
    assert result.verdict is INCONCLUSIVE
    assert "1 INCONCLUSIVE, 1 EQUAL" in result.summary()
    shown = result.as_dict(with_segments=False)["partitions"]
    assert [len(one["segments"]) for one in shown] == [0, 0]
    assert [one["equal"] for one in shown] == [True, False]


def test_pinned_end_that_consumers_of_committed_records_cannot_reach_is_not_equal() -> None:
    request = _request()
    report = _report(request, _outcomes(RIGHT, RIGHT))
    found = {end: judge(request, report, {TP: 0}, stable={TP: end})[0] for end in (24, 25)}
    assert {end: one.verdict for end, one in found.items()} == {24: INCONCLUSIVE, 25: EQUAL}
    assert (found[24].unstable, found[25].unstable) == (1, 0)
    assert "the target's last stable offset is 24, before the pinned end 25" in found[24].detail


@pytest.mark.parametrize(("starts", "verdict"), [(0, INCONCLUSIVE), (1, EXPIRED)])
def test_segment_that_could_not_be_read_is_expired_only_where_something_expired(starts: int, verdict: Equality) -> None:
    digests = {at: one for at, one in RIGHT.items() if at != 1}
    found = _judge(_request(), digests, digests, source_start=starts, failures={1: "out of range"})
    assert [segment.verdict for segment in found.segments] == [EQUAL, verdict, EQUAL]


def test_foreign_record_is_no_expiry_though_the_source_expired_meanwhile() -> None:
    source = {**RIGHT, 0: _digest(rows=6, total=1, ordered=1)}
    foreign = {**RIGHT, 0: _digest(rows=10, misplaced=1)}
    assert _judge(_request(), source, foreign, source_start=4).verdict is DIFFERENT
    hidden = {**RIGHT, 0: replace(_digest(), attributes=0x10)}
    assert _judge(_request(), source, hidden, source_start=4).verdict is DIFFERENT


def test_partitions_that_differ_in_places_alone_are_not_called_misrouted() -> None:
    request = _request(partitions=2)
    source, target = ({**RIGHT, 0: _digest(ordered=ordered)} for ordered in (8, 9))
    found = [one for at in range(2) for one in _outcomes(source, target, partition=at)]
    results = judge(request, _report(request, found), {})
    assert [result.verdict for result in results] == [DIFFERENT, DIFFERENT]
    assert misrouted(results) == ()
