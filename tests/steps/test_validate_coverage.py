"""How much of what was mirrored was ever compared: an EQUAL of next to nothing opens no gate."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from kafka_migration.compare.result import Equality, ValidationResult
from kafka_migration.domain.checks import CheckResult, Verdict
from kafka_migration.domain.levels import Level
from kafka_migration.migration.context import Context
from kafka_migration.validation import verdict
from tests.steps.test_validate import RECORDS, SEGMENT, Lab
from tests.steps.test_validate_segments import Remembering


@dataclass
class Lossy(Remembering):
    """A lab whose plan may ask for another floor."""

    floor: float = 0.5
    segment_records: int = SEGMENT

    def context(self, *, dry_run: bool = False) -> Context:
        ctx = super().context(dry_run=dry_run)
        changed = {"least_coverage": self.floor, "segment_records": self.segment_records}
        validation = ctx.plan.validation.model_copy(update=changed)
        return replace(ctx, plan=ctx.plan.model_copy(update={"validation": validation}))


@pytest.fixture
def lab(tmp_path: Path) -> Lossy:
    return Lossy(reports=tmp_path / "reports")


def _coverage(lab: Lab) -> CheckResult:
    return verdict.coverage(lab.context())


def test_topic_that_expired_before_anybody_looked_shuts_the_gate_though_what_is_left_is_equal(lab: Lossy) -> None:
    (tp,) = lab.topic("short")
    lab.topic("long", partitions=3)
    lab.source.delete_records(tp, 2_400)
    assert lab.validate().verdict is Equality.EQUAL
    found = _coverage(lab)
    assert (found.name, found.verdict) == ("coverage", Verdict.FAIL)
    assert "2,400 expired before any validation read them" in found.evidence
    assert "these topics are below: short 4% (2,400 never compared)" in found.evidence
    assert "least_coverage" in found.remedy
    lab.floor = 0.04
    assert _coverage(lab).verdict is Verdict.PASS


def test_what_an_earlier_validation_compared_before_it_expired_counts(lab: Lossy) -> None:
    (tp,) = lab.topic("orders")
    for before in (1_300, 1_700, 2_400):
        assert lab.validate().verdict is Equality.EQUAL
        lab.source.delete_records(tp, before)
    found = lab.validate().result
    (it,) = found.partitions
    assert (it.expired, it.never_compared) == (2_400, 0)
    assert "2400 of these 2400 were, before they expired" in it.detail
    assert _coverage(lab).verdict is Verdict.PASS
    assert [(one.compared, one.never) for one in found.coverage] == [(RECORDS, 0)]


def test_what_was_compared_in_segments_of_two_sizes_counts_once(lab: Lossy) -> None:
    (tp,) = lab.topic("orders")
    lab.validate()
    lab.segment_records = 2 * SEGMENT
    lab.validate()
    lab.source.delete_records(tp, 2_400)
    (it,) = lab.validate().result.partitions
    assert (it.expired, it.never_compared) == (2_400, 0)


def test_what_was_compared_of_a_topic_that_was_recreated_since_does_not_count(
    lab: Lossy, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tp,) = lab.topic("orders")
    lab.validate()
    ids = {"orders": ["another", "others"]}
    monkeypatch.setattr("kafka_migration.topics.handling.topic_ids", lambda _ctx, _names: ids)
    lab.source.delete_records(tp, 2_400)
    (it,) = lab.validate().result.partitions
    assert (it.expired, it.never_compared) == (2_400, 2_400)


def test_topics_that_are_empty_on_both_sides_are_equal_and_hold_nothing_up(lab: Lossy) -> None:
    lab.topic("empty", records=0)
    assert lab.validate().verdict is Equality.EQUAL
    assert _coverage(lab).verdict is Verdict.PASS


def test_topic_of_which_all_expired_is_never_compared(lab: Lossy) -> None:
    (tp,) = lab.topic("gone")
    lab.source.delete_records(tp, RECORDS)
    lab.validate()
    assert _coverage(lab).verdict is Verdict.FAIL
    lab.floor = 0.0
    assert _coverage(lab).verdict is Verdict.PASS


@pytest.mark.parametrize("before", [None, {"verdict": "EQUAL", "partitions": [], "at": "2030-01-01T00:00:00+00:00"}])
def test_verdict_that_does_not_count_what_it_covers_is_unchecked(lab: Lossy, before: dict[str, Any] | None) -> None:
    if before is not None:
        lab.journal.record("validation", "latest", before)
    assert _coverage(lab).verdict is Verdict.UNCHECKED


def test_nothing_is_equal_of_nothing() -> None:
    nothing = ValidationResult(
        id="1", migration="m", at="", level=Level.BATCH, segment_records=1, partitions=(), seconds=0.0
    )
    assert nothing.verdict is Equality.INCONCLUSIVE
