"""The validate phase: pinning beside a mirror that still runs, expiry, the second verdict, and the record of it all.

Spark is played by a function here, over digests that a test makes up; the last tests run the real thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.compare.digests import Digest, DigestReport, SegmentOutcome
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.compare.segments import tiles
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.controls import Controls, Pause
from kafka_migration.domain.errors import BadInput, CouldNotFindOut, Refused
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.skips import Skip
from kafka_migration.domain.types import Desired, Position, TopicPartition, TopicSpec
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from kafka_migration.topics.declared import topic_ids
from kafka_migration.validation import record as validate_record
from kafka_migration.validation import validate, verdict
from kafka_migration.validation.pins import CATCH_UP_SECONDS, pin
from tests.fakes.cluster import DEFAULT_CONFIGS, FakeCluster
from tests.steps.worlds import FakeClock

RECORDS = 2_500
SEGMENT = 1_000

#: Given a request and its right answer, what Spark answers.
Answer = Callable[[ValidationRequest, DigestReport], DigestReport]


def agrees(_summary: Path, _directory: Path, _environ: Mapping[str, str]) -> Expectations:
    """The suite, of the same opinion as ever: all is well."""
    return Expectations(success=True, failed=())


def contradicts(_summary: Path, _directory: Path, _environ: Mapping[str, str]) -> Expectations:
    """The suite, of another opinion."""
    return Expectations(success=False, failed=("every partition is EQUAL",))


class Link:
    """What validation asks of the link's state. The map is gapless, and the target's offsets are 3 higher."""

    def __init__(self) -> None:
        self.at: dict[TopicPartition, int] = {}
        self.halted: dict[TopicPartition, Any] = {}
        self.skipped: dict[TopicPartition, list[Skip]] = {}
        self.extra: dict[TopicPartition, list[tuple[int, int]]] = {}
        self.state = "running"
        self.pause: Pause | None = None
        self.sealed: Any = None

    def positions(self) -> dict[TopicPartition, Position]:
        return {tp: Position(source=at, target=at + 3, fence=1, records=at) for tp, at in self.at.items()}

    def offset_maps(self, tps: Any) -> dict[TopicPartition, OffsetMap]:
        return {
            tp: OffsetMap(
                [Run(0, 3, self.at[tp])] if self.at[tp] else [], source_end=self.at[tp], target_end=self.at[tp] + 3
            )
            for tp in tps
        }

    def controls(self) -> Controls:
        return Controls(pause=self.pause)

    def extras(self) -> dict[TopicPartition, Any]:
        return self.extra

    def skips(self) -> dict[TopicPartition, Any]:
        return self.skipped

    def rewinds(self) -> dict[TopicPartition, Any]:
        return {}

    def halts(self) -> dict[TopicPartition, Any]:
        return dict(self.halted)

    def run(self) -> dict[str, Any]:
        return {"state": self.state}

    def seal(self) -> Any:
        return self.sealed

    def wished(self) -> Any:
        return SimpleNamespace(desired=Desired.RUN)


@contextmanager
def unreachable(_source: Mapping[str, Any], _target: Mapping[str, Any]) -> Iterator[Any]:
    """Logs that nobody can read: there are no clusters."""
    raise CouldNotFindOut("no broker answers", remedy="wait")
    yield


@dataclass
class Lab:
    """A migration of made-up topics. ``asked`` are the requests that Spark got; ``answer`` may spoil an answer."""

    reports: Path
    source: FakeCluster = field(default_factory=lambda: _cluster("source"))
    target: FakeCluster = field(default_factory=lambda: _cluster("target"))
    clock: FakeClock = field(default_factory=FakeClock)
    link: Link = field(default_factory=Link)
    journal: Journal = field(default_factory=lambda: Journal(MemoryStore(), "lab"))
    told: list[str] = field(default_factory=list)
    asked: list[ValidationRequest] = field(default_factory=list)
    answer: Answer = lambda _, report: report

    def topic(self, name: str, *, partitions: int = 1, records: int = RECORDS) -> list[TopicPartition]:
        tps = [TopicPartition(name, partition) for partition in range(partitions)]
        for cluster, more in ((self.source, 0), (self.target, 3)):
            cluster.create_topics([TopicSpec(name=name, partitions=partitions, replication_factor=1)])
            for tp in tps:
                cluster.append(tp, records + more)
        self.link.at |= dict.fromkeys(tps, records)
        self.journal.record("topic", name, {"created": True, "spec": {"partitions": partitions}})
        return tps

    def context(self, *, dry_run: bool = False) -> Context:
        plan = restore_plan(
            {
                "version": 1,
                "name": "lab",
                "source": "lab_source",
                "target": "lab_target",
                "topics": {"include": [".*"]},
                "validation": {"segment_records": SEGMENT},
            }
        )
        parts: dict[str, Any] = {"source": self.source, "target": self.target, "link": self.link, "clock": self.clock}
        return Context(plan=plan, journal=self.journal, log=self.told.append, dry_run=dry_run, **parts)

    def spark(self, request_file: Path, result_file: Path) -> None:
        request = ValidationRequest.from_dict(json.loads(request_file.read_text()))
        self.asked.append(request)
        result_file.write_text(json.dumps(self.answer(request, right_answer(request)).as_dict()))

    def validate(self, **options: Any) -> validate.Validation:
        tools: dict[str, Any] = {"run": self.spark, "suite": agrees, "logs": unreachable, "consumers": lambda _ctx: {}}
        tools |= {name: options.pop(name) for name in tools.keys() & options.keys()}
        ctx = self.context(dry_run=options.pop("dry_run", False))
        return validate.apply(ctx, tools=validate.Tools(**tools), **{"reports": self.reports, **options})


def _cluster(role: str) -> FakeCluster:
    cluster = FakeCluster(role)
    properties = {"bootstrap.servers": "127.0.0.1:9"}
    cluster.connection = ClusterConnection(f"lab_{role}", properties)
    return cluster


def right_answer(request: ValidationRequest) -> DigestReport:
    """Digests of gapless records, the same on both sides: each record counts 1 in its sums."""
    outcomes = []
    for range_ in request.ranges:
        for at, tile in tiles(range_, request.segment_records):
            rows = tile.source_end - tile.source_start
            digest = Digest(rows=rows, bytes=rows, total=rows, ordered=rows)
            outcomes.append(SegmentOutcome.of(at, tile, request.level, source=digest, target=digest))
    return DigestReport(id=request.id, outcomes=tuple(outcomes), seconds=1.0)


def spoiled(tp: TopicPartition, spoil: Callable[[SegmentOutcome], SegmentOutcome]) -> Answer:
    """The right answer, but for what was found of ``tp``."""

    def answer(_request: ValidationRequest, report: DigestReport) -> DigestReport:
        return replace(report, outcomes=tuple(spoil(one) if one.tp == tp else one for one in report.outcomes))

    return answer


def unread(tp: TopicPartition) -> Answer:
    """Spark cannot read ``tp``."""
    return spoiled(tp, lambda one: replace(one, source=Digest(), target=Digest(), failure="out of range"))


def altered(tp: TopicPartition) -> Answer:
    """A record of ``tp`` on the target is another one."""
    return spoiled(tp, lambda one: replace(one, target=replace(one.target, total=1, ordered=1)))


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return Lab(tmp_path / "reports")


def test_equal_clusters_are_recorded_as_equal_and_open_the_gate(lab):
    lab.topic("a", partitions=2)
    lab.topic("empty", records=0)
    found = lab.validate()
    assert (found.verdict, found.exit_code) == (Equality.EQUAL, 0)
    assert verdict.check(lab.context()).verdict is Verdict.PASS
    record = lab.journal.read("validation", "latest")
    assert record is not None
    assert record["passed"] is True
    assert record["data_docs"] == "data_docs/index.html"
    assert {name: (kept.which, kept.partitions) for name, kept in validate_record.compared(record).items()} == {
        name: (validate_record.which(ids), partitions)
        for (name, ids), partitions in zip(topic_ids(lab.context(), ["a", "empty"]).items(), (2, 1), strict=True)
    }
    assert [one["topic"] for one in record["partitions"]] == ["a", "a", "empty"]
    first = record["partitions"][0]
    assert (first["source_records"], first["target_records"], first["equal"]) == (RECORDS, RECORDS, True)
    assert first["source_digest"] == first["target_digest"]
    written = json.loads((lab.reports / "lab" / "validation.json").read_text())
    assert written["verdict"] == "EQUAL"
    assert [len(one["segments"]) for one in written["partitions"]] == [3, 3, 0]


def test_what_consumers_depend_on_stands_beside_the_verdict_and_changes_nothing_of_it(lab):
    lab.topic("orders")
    beside = {"at": "2030-01-01T00:00:00+00:00", "unknown": "", "problems": ["group app: it would read again"]}
    found = lab.validate(consumers=lambda _ctx: beside)
    assert (found.verdict, found.exit_code) == (Equality.EQUAL, 0)
    written = json.loads((lab.reports / "lab" / "validation.json").read_text())
    recorded = lab.journal.read("validation", "latest")
    assert recorded is not None
    assert written["consumers"] == recorded["consumers"] == beside
    assert verdict.check(lab.context()).verdict is Verdict.PASS


def test_altered_record_is_exit_code_1_and_keeps_the_gate_shut(lab):
    (tp,) = lab.topic("a")
    lab.answer = altered(tp)
    found = lab.validate(suite=contradicts)
    assert (found.verdict, found.exit_code) == (Equality.DIFFERENT, 1)
    assert verdict.check(lab.context()).verdict is Verdict.FAIL
    written = json.loads((lab.reports / "lab" / "validation.json").read_text())
    assert written["partitions"][0]["drilled"]["notes"] == [
        "the records that differ were not looked for: no broker answers"
    ]


def test_target_is_read_to_its_end_while_nothing_newer_can_have_been_mirrored(lab):
    still, grows = lab.topic("a", partitions=2)
    lab.source.append(grows, 1)
    for tp in (still, grows):
        lab.target.append(tp, 2)
    lab.link.at[grows] += 1
    ends = []
    for sealed in (None, "sealed"):
        lab.link.sealed = sealed
        pins = pin(lab.context(), [still])
        ends.append(pins.ranges[0].target_end)
    assert ends == [RECORDS + 5, RECORDS + 3], "once it was drained, producers may write to the target"
    lab.link.sealed = None
    moves = lab.source.ends

    def moving(tps: Any, committed: bool = False) -> Any:
        found = moves(tps, committed=committed)
        lab.source.append(grows, 1)
        return found

    lab.source.ends = moving
    (it,) = pin(lab.context(), [grows]).ranges
    assert it.target_end == RECORDS + 4


def test_records_in_a_partition_that_the_source_lacks_are_foreign_and_shut_the_gate(lab):
    lab.topic("a", partitions=3)
    lab.topic("b")
    lab.target.add_partitions("a", 5)
    assert lab.validate().verdict is Equality.EQUAL, "they are empty"
    stray = TopicPartition("a", 3)
    lab.target.append(stray, 7)
    found = lab.validate(suite=contradicts)
    assert (found.verdict, found.exit_code) == (Equality.DIFFERENT, 1)
    (wrong,) = (partition for partition in found.result.partitions if partition.verdict is not Equality.EQUAL)
    assert (wrong.tp, wrong.target_start, wrong.target_end) == (stray, 0, 7)
    assert "foreign: the source has no such partition" in wrong.detail
    assert verdict.check(lab.context()).verdict is Verdict.FAIL
    assert lab.validate(topics=["b"]).verdict is Equality.EQUAL
    assert lab.validate(topics=["a"], suite=contradicts).verdict is Equality.DIFFERENT
    lab.link.sealed = "sealed"
    assert lab.validate().verdict is Equality.EQUAL, "producers may write to the target by now"


def test_partition_that_the_mirror_adds_meanwhile_is_not_foreign(lab):
    lab.topic("a")
    topics = lab.source.topics

    def outgrown(names: Any = None) -> Any:
        """Once the source has been looked at after reading, both have one more."""
        found = topics(names)
        if lab.asked and found["a"].partitions == 1:
            for cluster in (lab.source, lab.target):
                cluster.add_partitions("a", 2)
                cluster.append(TopicPartition("a", 1), 5)
        return found

    lab.source.topics = outgrown
    assert lab.validate().verdict is Equality.EQUAL
    assert topics(["a"])["a"].partitions == 2


def test_partition_that_spark_could_not_read_is_exit_code_3_and_never_equal(lab):
    one, other = lab.topic("a", partitions=2)
    lab.answer = unread(one)
    found = lab.validate(suite=contradicts)
    assert (found.verdict, found.exit_code) == (Equality.INCONCLUSIVE, 3)
    assert {partition.tp: partition.verdict for partition in found.result.partitions} == {
        one: Equality.INCONCLUSIVE,
        other: Equality.EQUAL,
    }
    assert verdict.check(lab.context()).verdict is Verdict.UNCHECKED


def test_difference_is_recorded_though_the_suite_fails(lab):
    (tp,) = lab.topic("orders")
    assert lab.validate().verdict is Equality.EQUAL

    def failing(*_arguments: Any) -> Any:
        raise CouldNotFindOut("no space is left", remedy="make some")

    for answer, expected in ((altered(tp), Equality.DIFFERENT), (lambda _, report: report, Equality.INCONCLUSIVE)):
        lab.answer = answer
        found = lab.validate(suite=failing, full=True)
        assert (found.verdict, found.expectations.failed) == (expected, ("no space is left",))
        assert lab.journal.read(validate_record.KIND, validate_record.LATEST)["verdict"] == expected


def test_equal_digests_are_inconclusive_if_the_suite_contradicts(lab):
    lab.topic("a")
    found = lab.validate(suite=contradicts)
    assert found.result.verdict is Equality.EQUAL
    assert (found.verdict, found.exit_code) == (Equality.INCONCLUSIVE, 3)
    assert verdict.check(lab.context()).verdict is Verdict.UNCHECKED
    assert "contradicts" in lab.told[-1]


def test_pinned_ends_wait_for_the_mirror_and_leave_out_what_is_written_meanwhile(lab):
    (tp,) = lab.topic("a")
    lab.link.at[tp] = 100

    def write_and_copy() -> None:
        lab.source.append(tp, 50)
        lab.target.append(tp, 50)
        lab.link.at[tp] = RECORDS + 50

    lab.clock.at(20, write_and_copy)
    assert lab.validate().exit_code == 0
    (it,) = lab.asked[0].ranges
    assert (it.source_start, it.source_end, it.target_start, it.target_end) == (0, RECORDS, 0, RECORDS + 3)


def test_wait_for_a_paused_mirror_names_who_paused_it(lab):
    (tp,) = lab.topic("a")
    lab.link.at[tp] = 100
    lab.link.pause = Pause(by="ada", at="2029-12-31T23:59:00+00:00")
    lab.validate()
    assert any(
        "pinned ends of 1 partitions (it is paused by ada at 2029-12-31 23:59:00 UTC" in line for line in lab.told
    )
    assert "did not get there in 600 s (it is paused by ada" in json.dumps(verdict.latest(lab.context()))


@pytest.mark.parametrize(
    ("state", "halted", "seconds", "reason"),
    [
        ("running", False, CATCH_UP_SECONDS, "did not get there"),
        ("ended", False, 0, "does not run"),
        ("running", True, 0, "halted (DATA_LOSS)"),
    ],
    ids=["too slow", "ended", "halted"],
)
def test_end_that_the_mirror_does_not_reach_is_inconclusive_and_the_rest_is_compared(
    lab, state, halted, seconds, reason
):
    late, on_time = lab.topic("a", partitions=2)
    lab.link.at[late] = 100
    lab.link.state = state
    if halted:
        lab.link.halted[late] = SimpleNamespace(reason="DATA_LOSS")
    found = lab.validate(suite=contradicts)
    results = {partition.tp: partition for partition in found.result.partitions}
    assert found.exit_code == 3
    assert results[on_time].verdict is Equality.EQUAL
    assert results[late].verdict is Equality.INCONCLUSIVE
    assert "source offset 100, short of the pinned end 2500" in results[late].detail
    assert reason in results[late].detail
    assert lab.clock.monotonic() == pytest.approx(seconds, abs=1)


def test_records_that_expire_while_being_read_are_pinned_again_without_them(lab):
    tp, _ = lab.topic("a", partitions=2)

    def expire_once(request: ValidationRequest, report: DigestReport) -> DigestReport:
        if len(lab.asked) > 1:
            return report
        lab.source.delete_records(tp, 1_200)
        # What is written meanwhile is not pinned.
        lab.source.append(tp, 10)
        return unread(tp)(request, report)

    lab.answer = expire_once
    found = lab.validate()
    assert found.exit_code == 0
    assert [[range_.tp for range_ in request.ranges] for request in lab.asked][1] == [tp]
    (it,) = lab.asked[1].ranges
    assert (it.source_start, it.source_end, it.target_start) == (1_200, RECORDS, 1_203)
    result = found.result.partitions[0]
    assert (result.expired, result.expected) == (1_200, RECORDS - 1_200)
    assert "0..1200 have expired" in result.detail


def test_what_was_given_up_and_what_is_beside_the_copy_is_not_compared_also_where_the_source_expires(lab):
    (tp,) = lab.topic("a")
    lab.link.skipped = {
        tp: [Skip(start=1_300, end=1_400, halt="DAMAGED", detail="", by="me", at=lab.context().stamp(), topic_key="")]
    }
    lab.link.extra = {tp: [(1_210, 1_220)]}

    def expire_once(request: ValidationRequest, report: DigestReport) -> DigestReport:
        if len(lab.asked) > 1:
            return report
        lab.source.delete_records(tp, 1_200)
        return unread(tp)(request, report)

    lab.answer = expire_once
    (result,) = lab.validate().result.partitions
    assert [range_.left_out for request in lab.asked for range_ in request.ranges] == [((1_300, 1_400),)] * 2
    assert [range_.target_left_out for request in lab.asked for range_ in request.ranges] == [((1_210, 1_220),)] * 2
    assert "source offsets 1300..1400 were given up" in result.detail
    assert "target offsets 1210..1220 hold what `adopt` has left there" in result.detail


def test_retention_that_never_lets_a_read_finish_is_expired_and_exit_code_3(lab):
    (tp,) = lab.topic("a")

    def expire(request: ValidationRequest, report: DigestReport) -> DigestReport:
        lab.source.delete_records(tp, 100 * len(lab.asked))
        return unread(tp)(request, report)

    lab.answer = expire
    found = lab.validate(suite=contradicts)
    assert (found.verdict, found.exit_code, len(lab.asked)) == (Equality.EXPIRED, 3, 3)


def test_records_that_expired_before_are_reported_and_not_compared(lab):
    (tp,) = lab.topic("a")
    lab.source.delete_records(tp, 700)
    found = lab.validate()
    assert found.exit_code == 0
    assert found.result.partitions[0].expired == 700


def test_same_pins_ask_for_the_same_offsets_though_the_topic_grew(lab):
    (tp,) = lab.topic("a")
    pins = pin(lab.context(), [tp])
    lab.source.append(tp, 500)
    lab.link.at[tp] += 500
    for _ in range(2):
        assert lab.validate(pins=pins).exit_code == 0
    assert lab.asked[0].ranges == lab.asked[1].ranges == pins.ranges
    assert lab.asked[0].id != lab.asked[1].id


def test_pins_name_what_is_compacted_and_what_lies_in_remote_storage_on_each_side(lab, monkeypatch):
    monkeypatch.setitem(DEFAULT_CONFIGS, "delete.retention.ms", "86400000")
    monkeypatch.setitem(DEFAULT_CONFIGS, "remote.storage.enable", "false")
    (tp,) = lab.topic("a")
    lab.source.alter_configs("a", set={"cleanup.policy": "compact,delete", "delete.retention.ms": "1000"})
    lab.target.alter_configs("a", set={"remote.storage.enable": "true"})
    (it,) = pin(lab.context(), [tp]).ranges
    assert (it.compacted, it.tiered, it.source_tombstones_ms, it.source_may_lack) == (True, False, 1_000, True)
    assert (it.target_compacted, it.target_tiered, it.target_tombstones_ms) == (False, True, 86_400_000)
    assert not it.target_may_lack


def test_some_topics_alone_never_open_the_gate_but_shut_it(lab):
    (tp,) = lab.topic("a")
    lab.topic("b")
    assert lab.validate(topics=["a"]).exit_code == 0
    assert verdict.check(lab.context()).verdict is Verdict.FAIL, "nobody has looked at b"
    assert lab.validate().exit_code == 0
    assert lab.validate(topics=["a"]).exit_code == 0
    assert verdict.check(lab.context()).verdict is Verdict.PASS
    lab.answer = altered(tp)
    assert lab.validate(topics=["a"], suite=contradicts).exit_code == 1
    assert verdict.check(lab.context()).verdict is Verdict.FAIL
    assert (lab.reports / "lab" / "partial" / "validation.json").is_file()


def test_all_runs_of_a_plan_are_in_one_site_which_tells_those_of_some_topics(lab):
    lab.topic("a")
    lab.topic("b")
    asked: list[tuple[Path, str]] = []

    def suite(table: Path, directory: Path, _environ: Mapping[str, str]) -> Expectations:
        asked.append((directory, json.loads(table.read_text())["of"]))
        return Expectations(success=True, failed=())

    site = lab.reports / "lab" / "data_docs"
    for topics in ((), ("a",)):
        assert lab.validate(suite=suite, topics=topics).data_docs == site / "index.html"
    assert asked == [(site, ""), (site, "some topics")]


def test_dry_run_compares_and_leaves_nothing_behind(lab):
    lab.topic("a")
    assert lab.validate(dry_run=True).exit_code == 0
    assert lab.journal.read("validation", "latest") is None
    assert not lab.reports.exists()


def test_record_of_very_many_partitions_keeps_those_that_differ(lab, monkeypatch):
    monkeypatch.setattr(validate_record, "_MOST_BYTES", 20_000)
    tps = lab.topic("a", partitions=100)
    lab.answer = altered(tps[70])
    lab.validate(suite=contradicts)
    record = lab.journal.read("validation", "latest")
    assert record is not None
    assert len(json.dumps(record)) < 21_000
    assert 70 in [one["partition"] for one in record["partitions"] if not one["equal"]]
    assert record["left_out"] == 100 - len(record["partitions"]) > 0


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda request, result: result.write_text("{}"), CouldNotFindOut),
        (lambda request, result: None, CouldNotFindOut),
        (
            lambda request, result: result.write_text(
                json.dumps(DigestReport(id="another", outcomes=(), seconds=0).as_dict())
            ),
            CouldNotFindOut,
        ),
    ],
    ids=["not digests", "nothing", "of another request"],
)
def test_spark_job_without_an_answer_is_an_error_and_records_nothing(lab, answer, error):
    lab.topic("a")
    with pytest.raises(error) as caught:
        lab.validate(run=answer)
    assert caught.value.exit_code == 3
    assert lab.journal.read("validation", "latest") is None


def test_nothing_mirrored_an_unknown_topic_and_a_removed_one_are_refused(lab):
    with pytest.raises(Refused, match="mirrors nothing yet"):
        lab.validate()
    lab.topic("a")
    with pytest.raises(BadInput, match="does not mirror b") as caught:
        lab.validate(topics=["b"])
    assert caught.value.exit_code == 2
    lab.journal.record("topic", "gone", {"created": True})
    with pytest.raises(Refused, match="are missing: gone"):
        lab.validate()


def test_weaker_level_than_the_plans_opens_no_gate_and_is_named(lab):
    lab.topic("a")
    assert lab.validate(level=Level.BATCH).exit_code == 0
    found = verdict.check(lab.context())
    assert found.verdict is Verdict.UNCHECKED
    assert "at level batch, and the plan asks for record" in found.evidence
    assert json.loads((lab.reports / "lab" / "validation.json").read_text())["level"] == "batch"
    assert lab.validate().exit_code == 0
    assert verdict.check(lab.context()).verdict is Verdict.PASS
