"""What a validation says in the journal while it reads, if it dies, and beside others: gates must hear of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.compare.digests import SOURCE, TARGET, DigestReport, SegmentOutcome, to_line
from kafka_migration.compare.request import ValidationRequest
from kafka_migration.compare.result import Equality
from kafka_migration.domain.checks import Verdict
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation import validate, verdict
from tests.steps.test_validate import Answer, Lab, altered, contradicts, right_answer, spoiled, unread
from tests.steps.test_validate_segments import Remembering


def as_it_is(_request: ValidationRequest, report: DigestReport) -> DigestReport:
    return report


@pytest.fixture
def lab(tmp_path) -> Remembering:
    """The last validation said EQUAL."""
    lab = Remembering(reports=tmp_path / "reports")
    lab.topic("orders")
    lab.topic("payments")
    assert lab.validate().exit_code == 0
    assert gate(lab)[0] is Verdict.PASS
    return lab


def gate(lab: Lab) -> tuple[Verdict, str]:
    found = verdict.check(lab.context())
    return found.verdict, found.evidence


def _until_it_dies(
    lab: Remembering, monkeypatch: pytest.MonkeyPatch, answer: Answer, **options: Any
) -> tuple[Verdict, str]:
    """What the gate says once the job has told all of ``answer``: what a run that is killed just then leaves behind.
    After that the job dies."""
    meanwhile: list[tuple[Verdict, str]] = []

    def dying(_environ: Any, *, log: Callable[[str], None], **_: Any) -> Any:
        def run(request_file: Any, result_file: Any) -> None:
            lab.spark(request_file, result_file)
            request = lab.asked[-1]
            log(to_line(answer(request, right_answer(request)).outcomes))
            meanwhile.append(gate(lab))
            raise CouldNotFindOut("the job ended with code 137")

        return run

    with monkeypatch.context() as patch:
        patch.setattr(validate, "local_runner", dying)
        with pytest.raises(CouldNotFindOut):
            lab.validate(run=None, **{"full": True} | options)
    return meanwhile[0]


def test_difference_that_was_heard_shuts_the_gate_though_the_run_dies(lab, monkeypatch):
    tp = TopicPartition("orders", 0)
    meanwhile = _until_it_dies(lab, monkeypatch, altered(tp))
    for said_, evidence in (meanwhile, gate(lab)):
        assert said_ is Verdict.FAIL
        assert "orders-0 at source offsets 0..1000" in evidence
    assert "has not ended" in meanwhile[1]
    assert "broke off: the job ended with code 137" in gate(lab)[1]
    found = verdict.latest(lab.context())
    assert found is not None
    assert (found["verdict"], found["passed"]) == ("DIFFERENT", False)
    assert lab.validate().verdict is Equality.EQUAL
    assert gate(lab)[0] is Verdict.PASS, "it was read again"


def test_run_under_way_leaves_the_gate_open_until_it_breaks_off(lab, monkeypatch):
    meanwhile = _until_it_dies(lab, monkeypatch, as_it_is)
    assert meanwhile[0] is Verdict.WARN
    assert "has not ended" in meanwhile[1]
    assert gate(lab)[0] is Verdict.UNCHECKED
    assert "broke off" in gate(lab)[1]
    assert lab.validate().exit_code == 0
    assert gate(lab)[0] is Verdict.PASS


def test_records_that_may_have_expired_while_they_were_read_are_no_difference_yet(lab, monkeypatch):
    def short(side: str) -> Answer:
        def spoil(one: SegmentOutcome) -> SegmentOutcome:
            left = replace(one.source, rows=7, total=7, ordered=7)
            if one.segment:
                return one
            return replace(one, source=left) if side == SOURCE else replace(one, target=left)

        return spoiled(TopicPartition("orders", 0), spoil)

    assert _until_it_dies(lab, monkeypatch, short(SOURCE))[0] is Verdict.WARN
    assert _until_it_dies(lab, monkeypatch, short(TARGET))[0] is Verdict.FAIL


def test_what_compaction_may_explain_is_no_difference_yet(lab, monkeypatch):
    lab.source.alter_configs("orders", set={"cleanup.policy": "compact"})
    assert _until_it_dies(lab, monkeypatch, altered(TopicPartition("orders", 0)))[0] is Verdict.WARN


def test_verdict_is_recorded_before_it_is_looked_what_differs(lab):
    meanwhile: list[tuple[Verdict, str]] = []

    @contextmanager
    def slow(_source: Mapping[str, Any], _target: Mapping[str, Any]) -> Iterator[Any]:
        meanwhile.append(gate(lab))
        raise CouldNotFindOut("no broker answers", remedy="wait")
        yield

    lab.answer = altered(TopicPartition("orders", 0))
    lab.validate(logs=slow, suite=contradicts, full=True)
    assert [each for each, _ in meanwhile] == [Verdict.FAIL]
    record = lab.journal.read("validation", "latest")
    assert record["partitions"][0]["drilled"]["notes"] == [
        "the records that differ were not looked for: no broker answers"
    ]
    assert [each["verdict"] for each in record["earlier"]] == ["EQUAL"], "it is one verdict, recorded twice"


@pytest.mark.parametrize("answer", [altered(TopicPartition("orders", 0)), unread(TopicPartition("orders", 0))])
def test_verdict_that_was_given_while_another_run_read_is_not_overruled_by_it(lab, answer):
    def another_says(request: ValidationRequest, report: DigestReport) -> DigestReport:
        lab.answer = answer
        assert lab.validate(suite=contradicts, full=True).exit_code != 0
        return report

    lab.answer = another_says
    assert lab.validate(full=True).verdict is Equality.EQUAL
    assert gate(lab)[0] in (Verdict.FAIL, Verdict.UNCHECKED)
    assert any("while this one read, and its verdict stands" in line for line in lab.told)
    lab.answer = as_it_is
    assert lab.validate().verdict is Equality.EQUAL
    assert gate(lab)[0] is Verdict.PASS


def test_difference_that_a_run_heard_while_another_read_is_not_overruled_by_it(lab, monkeypatch):
    def another_dies(request: ValidationRequest, report: DigestReport) -> DigestReport:
        lab.answer = as_it_is
        _until_it_dies(lab, monkeypatch, altered(TopicPartition("orders", 0)))
        return report

    lab.answer = another_dies
    assert lab.validate(full=True).verdict is Equality.EQUAL
    assert gate(lab)[0] is Verdict.FAIL


def test_run_of_some_topics_shuts_the_gate_but_does_not_open_it(lab, monkeypatch):
    _until_it_dies(lab, monkeypatch, altered(TopicPartition("orders", 0)), topics=["orders"])
    assert gate(lab)[0] is Verdict.FAIL
    assert "the validation of orders that began at" in gate(lab)[1]
    assert lab.validate(topics=["orders"], full=True).verdict is Equality.EQUAL
    assert gate(lab)[0] is Verdict.FAIL
    assert lab.validate().verdict is Equality.EQUAL
    assert gate(lab)[0] is Verdict.PASS
    assert lab.journal.all("validation-run") == {}


def test_difference_in_some_topics_ends_that_the_whole_was_equal(lab):
    lab.answer = altered(TopicPartition("orders", 0))
    assert lab.validate(topics=["orders"], full=True).verdict is Equality.DIFFERENT
    last = lab.journal.read("validation", "latest")
    assert (last["verdict"], last["passed"]) == ("DIFFERENT", False)
    assert last["hints"] == ["orders: validated again, alone"]
    assert [one["topic"] for one in last["partitions"]] == ["orders", "payments"], "it is the whole's, still"
