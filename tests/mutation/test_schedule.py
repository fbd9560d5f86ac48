"""What `make mutation` counts: every kind of fault in every codec, and every word that would keep the gate shut."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kafka_migration.compare.explain.result import Fault
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.result import Equality, PartitionResult, ValidationResult
from kafka_migration.compare.verdict import foreign
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import PartitionEnds, TopicPartition
from kafka_migration.state.store import SegmentStore
from kafka_migration.validation.validate import Validation
from tests.mutation import faulty
from tests.mutation.clean import Clean, judge
from tests.mutation.copies import CODECS, Original
from tests.mutation.faults import KINDS, Expected
from tests.mutation.faulty import Faults, faults
from tests.mutation.logs import Log
from tests.mutation.run import Found
from tests.mutation.validator import Validator


def _tried(count: int) -> Counter[tuple[str, str]]:
    return Counter((fault.kind, fault.codec) for fault in faults(count, 1, list(KINDS), CODECS))


def test_every_kind_of_fault_is_tried_in_every_codec_and_all_about_as_often():
    every = {(kind, codec) for kind in KINDS for codec in CODECS}
    assert _tried(len(every)).keys() == every
    usual = _tried(414)
    assert usual.keys() == every
    assert max(usual.values()) - min(usual.values()) <= 1


def test_run_that_left_a_codec_out_is_not_good():
    def found(pairs: Counter[tuple[str, str]]) -> Found:
        count = pairs.total()
        return Found(1, Faults(count, count, count, count, count, pairs=pairs), Clean(), len(KINDS) * len(CODECS))

    assert found(_tried(414)).is_good
    assert not found(Counter({(kind, "lz4"): 18 for kind in KINDS})).is_good


def test_clean_run_that_the_expectations_contradict_is_a_false_alarm():
    def validated(*failed: str) -> Clean:
        empty = PartitionEnds(start=0, end=0)
        partitions = (replace(foreign(TopicPartition("t", 0), empty), verdict=Equality.EQUAL),)
        result = ValidationResult(
            id="1", migration="m", at="", segment_records=1, partitions=partitions, seconds=1.0, level=Level.RECORD
        )
        said = Validation(result=result, expectations=Expectations(success=not failed, failed=failed), folder=Path())
        assert said.result.verdict is Equality.EQUAL
        found, it = Clean(), SimpleNamespace(link=None, topics={})
        judge(found, cast(Validator, SimpleNamespace(validate=lambda *_, **__: said)), cast(Any, it), SegmentStore())
        return found

    assert (validated().runs, validated().alarms) == (1, 0)
    found = validated("freshness")
    assert (found.alarms, found.wrong) == (1, ["run 1: the suite says freshness"])


def _said(verdict: Equality) -> PartitionResult:
    return replace(foreign(TopicPartition("t", 0), PartitionEnds(start=0, end=1)), verdict=verdict)


def test_levels_that_say_different_things_of_a_fault_are_a_contradiction() -> None:
    expected = Expected(Fault.LOSS, 0, 0, None)
    copy = faulty._Copy(faulty.Fault(0, "drop", "lz4", 1), Original("lz4", {}, {}, {}), {0: Log([], [])}, expected)
    control = replace(copy, expected=None)
    agreed = {key: {0: _said(Equality.DIFFERENT)} for key in faulty.LEVELS}
    for results, contradictions in (
        (agreed, 0),
        ({**agreed, Level.RECORD: {0: _said(Equality.EQUAL)}}, 1),
    ):
        found = Faults()
        faulty._judge(found, copy, results)
        assert (found.contradictions, found.faults) == (contradictions, 1)
        assert found.detected == 1 - contradictions
    found = Faults()
    faulty._judge(found, control, agreed)
    assert (found.controls, found.control_alarms, found.faults, found.is_good) == (1, 1, 0, False)
    found = Faults()
    faulty._judge(found, control, {key: {0: _said(Equality.EQUAL)} for key in faulty.LEVELS})
    assert (found.control_alarms, found.is_good) == (0, True)
