"""What the phase makes of a drill-down: which partitions it looks into, and what it says of them. Spark and brokers are
played; the logs are made up, and read as fetched ones are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.explain.drill import Found, Scope
from kafka_migration.compare.explain.result import Drilled, Fault
from kafka_migration.compare.result import Equality, PartitionResult
from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation import comparison, explain
from tests.compare.drill_sides import Side, contents
from tests.mutation.logs import Log, log_of
from tests.steps.test_validate import RECORDS, SEGMENT, Answer, Lab, spoiled

TP = TopicPartition("orders", 0)


@pytest.fixture
def lab(tmp_path: Any) -> Lab:
    found = Lab(tmp_path)
    found.topic(TP.topic)
    return found


def _opens(source: Log, target: Log) -> Any:
    @contextmanager
    def logs(_source: Mapping[str, Any], _target: Mapping[str, Any]) -> Iterator[Any]:
        yield Side({0: source}), Side({0: target})

    return logs


def _answers(*, unequal: tuple[int, ...], unread: tuple[int, ...]) -> Answer:
    """Of these segments the target's digest is another one, those could not be read."""

    def spoil(one: SegmentOutcome) -> SegmentOutcome:
        if one.segment in unread:
            return replace(one, source=Digest(), target=Digest(), failure="checksum is wrong")
        if one.segment in unequal:
            return replace(one, target=replace(one.target, total=1, ordered=1))
        return one

    return spoiled(TP, spoil)


def _drilled(lab: Lab, target: Log, source: Log, **answer: Any) -> PartitionResult:
    lab.answer = _answers(**answer)
    (found,) = lab.validate(logs=_opens(source, target)).result.partitions
    return found


def _logs() -> tuple[Log, Log]:
    """As the lab's map has them."""
    records = contents(RECORDS, 5)
    return log_of(records, [97, 250], gaps=0), log_of(records, [97, 250], gaps=3)


def test_segment_that_cannot_be_read_leaves_the_others_to_be_looked_into(lab):
    source, target = _logs()
    target.remove(400)
    found = _drilled(lab, target, source, unequal=(0, 2), unread=(1,))
    assert found.verdict is Equality.DIFFERENT
    assert found.drilled is not None
    assert found.drilled.counts == {Fault.LOSS: 1}, "and nothing of what it has shifted over the gap"
    assert found.drilled.first is not None
    assert found.drilled.first.source_offset == 400
    assert f"source offsets {SEGMENT}..{2 * SEGMENT} could not be read" in found.drilled.notes[0]


def test_records_at_the_border_of_an_unread_segment_are_told_apart_from_shifted_ones(lab):
    source, target = _logs()
    for at in (SEGMENT - 1, 2 * SEGMENT):
        target[at] = target[at]._replace(timestamp=7)
    found = _drilled(lab, target, source, unequal=(0, 2), unread=(1,))
    assert found.drilled is not None
    assert found.drilled.counts == {Fault.MUTATION: 2}


def test_partition_of_which_only_unread_segments_are_unequal_is_not_looked_into(lab):
    source, target = _logs()
    found = _drilled(lab, target, source, unequal=(), unread=(1,))
    assert (found.verdict, found.drilled) == (Equality.INCONCLUSIVE, None)


class _Credulous:
    """A search that takes whatever differs for compacted away."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def topic(self, scopes: Sequence[Scope]) -> Found:
        tps = [one.range.tp for one in scopes]
        return Found(
            drilled=tuple(Drilled(topic=tp.topic, partition=tp.partition) for tp in tps),
            explained={tp: frozenset(range(SEGMENT)) for tp in tps},
        )


@pytest.mark.parametrize("readings", [2, 100])
def test_what_a_search_takes_for_compacted_is_read_again_whole_and_judged_by_that_alone(
    lab: Lab, readings: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.source.alter_configs(TP.topic, set={"cleanup.policy": "compact"})
    monkeypatch.setattr(explain, "Drill", _Credulous)
    differs = _answers(unequal=(0,), unread=())
    lab.answer = lambda request, report: differs(request, report) if len(lab.asked) < readings else report
    found = lab.validate(logs=_opens(*_logs()))
    assert found.verdict is (Equality.EQUAL if readings == 2 else Equality.DIFFERENT)
    assert len(lab.asked) == (2 if readings == 2 else comparison.PASSES)
    assert len({request.ranges for request in lab.asked}) == 1, "the same records each time, and nothing left out"
