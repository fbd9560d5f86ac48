"""What one validation found equal, and the next one need not read: and everything that makes it read again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kafka_migration.compare.digests import Digest, DigestReport, SegmentOutcome, from_line, to_line
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.compare.segments import expected_records, tiles
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.types import TopicDescription
from kafka_migration.migration.context import Context
from kafka_migration.state.store import SegmentStore
from kafka_migration.topics import handling
from kafka_migration.validation import validate
from kafka_migration.validation.pins import pin
from kafka_migration.validation.segments import Segments
from tests.steps.test_validate import RECORDS, SEGMENT, Lab, altered, right_answer, unread

EQUAL, DIFFERENT = Equality.EQUAL, Equality.DIFFERENT


@dataclass
class Remembering(Lab):
    """A lab whose store of segments outlives each validation."""

    segments: SegmentStore = field(default_factory=SegmentStore)

    def context(self, *, dry_run: bool = False) -> Context:
        return replace(super().context(dry_run=dry_run), segments=self.segments)

    def grow(self, tp: TopicPartition, records: int) -> None:
        """Producers write, and the mirror follows."""
        for cluster in (self.source, self.target):
            cluster.append(tp, records)
        self.link.at[tp] += records

    @property
    def read(self) -> list[tuple[int, int, int, int]]:
        """Source and target offsets of what was asked for last."""
        return [
            (range_.source_start, range_.source_end, range_.target_start, range_.target_end)
            for range_ in self.asked[-1].ranges
        ]


@pytest.fixture
def lab(tmp_path) -> Remembering:
    return Remembering(reports=tmp_path / "reports")


def test_second_validation_reads_nothing_of_what_was_equal_and_gives_the_same_digests(lab):
    lab.topic("orders", partitions=2)
    first, again = lab.validate(), lab.validate()
    assert len(lab.asked) == 1
    assert again.verdict is EQUAL
    assert [partition.source for partition in again.result.partitions] == [
        partition.source for partition in first.result.partitions
    ]
    assert all(segment.kept for partition in again.result.partitions for segment in partition.segments)
    assert not any(segment.kept for partition in first.result.partitions for segment in partition.segments)
    assert any("6 segments stand" in text for text in lab.told)


def test_only_new_offsets_are_read_and_add_up_with_what_was_kept(lab):
    (tp,) = lab.topic("orders")
    lab.validate()
    lab.grow(tp, 700)
    found = lab.validate()
    assert lab.read == [(RECORDS, RECORDS + 700, RECORDS + 3, RECORDS + 703)]
    (it,) = found.result.partitions
    assert (it.verdict, it.source.rows, it.expected) == (EQUAL, RECORDS + 700, RECORDS + 700)
    assert [(s.start, s.end, s.kept) for s in it.segments] == [
        (0, SEGMENT, True),
        (SEGMENT, 2 * SEGMENT, True),
        (2 * SEGMENT, 3 * SEGMENT, False),
        (3 * SEGMENT, RECORDS + 700, False),
    ]
    lab.validate()
    assert len(lab.asked) == 2


def test_everything_is_read_again_on_request(lab):
    lab.topic("orders")
    lab.validate()
    lab.validate(full=True)
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]


def test_segment_that_is_too_old_is_read_again(lab):
    lab.topic("orders")
    lab.validate()
    lab.clock.sleep(604_801)
    lab.validate()
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]


@pytest.mark.parametrize("side", ["source", "target"])
def test_segments_beneath_which_a_log_was_truncated_are_read_again(lab, side):
    (tp,) = lab.topic("orders")
    lab.validate()
    cluster, more = (lab.source, 0) if side == "source" else (lab.target, 3)
    cluster.truncate(tp, 1_500 + more)
    cluster.append(tp, RECORDS - 1_500)
    lab.validate()
    assert lab.read == [(SEGMENT, RECORDS, SEGMENT + 3, RECORDS + 3)]
    lab.validate()
    assert len(lab.asked) == 2, "it was found equal under the new leader"


@pytest.mark.parametrize("side", ["source", "target"])
def test_segments_of_an_idle_log_stand_however_often_another_broker_leads_it(lab, side):
    (tp,) = lab.topic("orders")
    cluster = lab.source if side == "source" else lab.target
    for broker in (2, 3, 1):
        cluster.lead(tp, broker)
        assert lab.validate().verdict is EQUAL
    assert len(lab.asked) == 1


def test_topic_made_anew_is_read_from_its_beginning(lab):
    lab.topic("orders")
    lab.validate()
    for cluster in (lab.source, lab.target):
        cluster.delete_topic("orders")
    lab.topic("orders")
    lab.validate()
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]


def test_segment_that_differed_is_read_again_and_its_neighbours_are_not(lab):
    (tp,) = lab.topic("orders")

    def second_differs(request: ValidationRequest, report: DigestReport) -> DigestReport:
        both = zip(report.outcomes, altered(tp)(request, report).outcomes, strict=True)
        return replace(report, outcomes=tuple(other if one.segment == 1 else one for one, other in both))

    lab.answer = second_differs
    assert lab.validate().verdict is DIFFERENT
    assert lab.validate().verdict is DIFFERENT
    assert lab.read == [(SEGMENT, 2 * SEGMENT, SEGMENT + 3, 2 * SEGMENT + 3)]
    lab.answer = lambda _, report: report
    assert lab.validate().verdict is EQUAL


def test_part_of_a_segment_that_expired_has_the_rest_read_again(lab):
    (tp,) = lab.topic("orders")
    lab.validate()
    lab.source.delete_records(tp, 300)
    lab.validate()
    assert lab.read == [(300, SEGMENT, 303, SEGMENT + 3)]


def test_what_a_dry_run_finds_is_not_kept(lab):
    lab.topic("orders")
    lab.validate(dry_run=True)
    lab.validate()
    assert len(lab.asked) == 2
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]


def _validate_until_killed(lab: Remembering, monkeypatch: pytest.MonkeyPatch, *, segments: int) -> None:
    """The job dies once it has told of so many segments."""

    def dying(_environ: Any, *, master: Any, secrets: Any, log: Any) -> Any:
        def run(request_file: Any, result_file: Any) -> None:
            lab.spark(request_file, result_file)
            request = lab.asked[-1]
            found = right_answer(request).outcomes
            assert len(found) >= segments
            log("a line for people")
            log(to_line(found[:segments]))
            raise CouldNotFindOut("the job was killed")

        return run

    monkeypatch.setattr(validate, "local_runner", dying)
    with pytest.raises(CouldNotFindOut):
        lab.validate(run=None)


def test_what_was_read_before_the_job_died_is_not_read_again(lab, monkeypatch):
    lab.topic("orders", partitions=2)
    _validate_until_killed(lab, monkeypatch, segments=4)
    assert "a line for people" in lab.told
    found = lab.validate(level=Level.BATCH)
    assert lab.read == [(SEGMENT, RECORDS, SEGMENT + 3, RECORDS + 3)], "of the second partition, the second segment on"
    assert found.verdict is EQUAL
    other = Remembering(reports=lab.reports / "other")
    other.topic("orders", partitions=2)
    whole = other.validate()
    assert [one.source for one in found.result.partitions] == [one.source for one in whole.result.partitions]


def test_segment_that_could_not_be_read_counts_once_in_what_is_shown_of_the_progress(lab, monkeypatch):
    (tp,) = lab.topic("orders")
    lab.answer = unread(tp)

    def heard(_environ: Any, *, log: Any, **_: Any) -> Any:
        def run(request_file: Any, result_file: Any) -> None:
            lab.spark(request_file, result_file)
            log(to_line(DigestReport.from_dict(json.loads(result_file.read_text())).outcomes))

        return run

    monkeypatch.setattr(validate, "local_runner", heard)
    lab.validate(run=None)
    assert [line.partition(" segments")[0] for line in lab.told if "record pairs" in line] == ["3 of 3"]


@dataclass
class Mapped:
    """A map of two runs. Between them the source has a marker at ``marker``, and the target one more."""

    marker: int

    def offset_maps(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetMap]:
        before, behind = self.marker, RECORDS - self.marker - 1
        runs = [Run(0, 0, before), Run(before + 1, before + 1, behind)]
        return {tp: OffsetMap(runs, source_end=RECORDS, target_end=RECORDS) for tp in tps}


def test_segment_of_which_the_map_says_something_else_between_its_bounds_is_read_again(lab, monkeypatch):
    lab.topic("orders")

    def of_the_map(request: ValidationRequest, report: DigestReport) -> DigestReport:
        (it,) = request.ranges
        rows = expected_records(it, SEGMENT)
        digests = {at: Digest(rows=count, total=count) for at, count in rows.items()}
        found = (replace(one, source=digests[one.segment], target=digests[one.segment]) for one in report.outcomes)
        return replace(report, outcomes=tuple(found))

    lab.answer = of_the_map
    for marker, times, read in ((400, 1, RECORDS), (400, 1, RECORDS), (500, 2, SEGMENT), (500, 2, SEGMENT)):
        monkeypatch.setattr(lab.link, "offset_maps", Mapped(marker).offset_maps)
        assert lab.validate().verdict is EQUAL
        assert (len(lab.asked), lab.read[0][:2]) == (times, (0, read))


def test_segment_that_was_kept_without_a_hash_of_its_map_is_read_once_more(lab):
    (tp,) = lab.topic("orders")
    lab.validate()
    older = {name: one for name, one in lab.segments.of(tp)[0].items() if name != "places"}
    lab.segments.record({(tp, 0): older})
    for _ in range(2):
        assert lab.validate().verdict is EQUAL
        assert (len(lab.asked), lab.read) == (2, [(0, SEGMENT, 0, SEGMENT + 3)])


@pytest.mark.parametrize(("level", "asked"), [("both", 1), ("batch", 2)])
def test_what_an_earlier_version_kept_at_both_levels_stands_and_what_it_kept_at_one_is_read_again(lab, level, asked):
    (tp,) = lab.topic("orders")
    lab.validate()
    for number, one in lab.segments.of(tp).items():
        lab.segments.record({(tp, number): {**one, "level": level, "settled": True, "traits": 16}})
    found = lab.validate()
    assert found.verdict is EQUAL
    assert {segment.level for segment in found.result.partitions[0].segments} == {"record"}
    assert len(lab.asked) == asked


def test_segment_that_a_second_pass_finds_equal_is_kept_as_such(lab):
    (tp,) = lab.topic("orders")
    ctx = lab.context()
    segments = Segments(ctx, handling.topic_ids(ctx, ["orders"]), run="run", full=False, level=Level.RECORD)
    ranges = pin(ctx, [tp]).ranges
    for total, verdict in ((7, DIFFERENT), (0, EQUAL)):
        (range_,) = segments.choose(ranges).ranges
        number, tile = next(tiles(range_, SEGMENT))
        rows = Digest(rows=SEGMENT)
        segments.found([SegmentOutcome.of(number, tile, "record", source=rows, target=replace(rows, total=total))])
        assert lab.segments.of(tp)[number]["verdict"] == verdict


def test_level_is_the_plans_unless_another_is_asked_for(lab):
    lab.topic("orders")
    lab.validate()
    lab.validate(level=Level.BATCH, full=True)
    assert [request.level for request in lab.asked] == [Level.RECORD, Level.BATCH]
    assert lab.asked[0].seed != lab.asked[1].seed


def test_record_level_reads_what_was_read_at_batch_level_only(lab):
    lab.topic("orders")
    lab.validate(level=Level.BATCH)
    lab.validate(level=Level.RECORD)
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]
    lab.validate(level=Level.RECORD)
    lab.validate(level=Level.BATCH)
    assert len(lab.asked) == 2


def _without_ids(topics: Callable[..., dict[str, TopicDescription]]) -> Callable[..., dict[str, TopicDescription]]:
    return lambda *names: {name: replace(topic, topic_id="") for name, topic in topics(*names).items()}


def test_nothing_is_kept_of_topics_without_ids(lab):
    lab.topic("orders")
    for cluster in (lab.source, lab.target):
        cluster.topics = _without_ids(cluster.topics)
    lab.validate()
    lab.validate()
    assert lab.read == [(0, RECORDS, 0, RECORDS + 3)]
    assert len(lab.asked) == 2


def test_progress_says_how_many_segments_and_pairs_are_done(lab):
    lab.topic("orders", partitions=2)
    lab.validate()
    assert any(text.startswith("6 of 6 segments, 5,000 record pairs, ") and "ETA 0 s" in text for text in lab.told)


def test_outcomes_survive_as_a_line_of_output():
    it = SegmentOutcome(
        topic="t",
        partition=1,
        segment=3,
        start=30,
        end=40,
        target_start=33,
        target_end=43,
        level="batch",
        source=Digest(rows=10, proved=10, proof=2**127 + 5),
        target=Digest(rows=9, total=2**63 + 1),
    )
    assert from_line(to_line([it])) == [it]
    assert from_line("reading 3 partitions") is None
