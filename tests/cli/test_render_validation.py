"""What a terminal shows of a validation that found something."""

from io import StringIO
from pathlib import Path

from rich.console import Console

from kafka_migration.cli.render.evidence import validation
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.launch import Expectations
from kafka_migration.compare.result import Equality, PartitionResult, SegmentResult, ValidationResult
from kafka_migration.domain.levels import Level
from kafka_migration.domain.types import TopicPartition
from kafka_migration.validation.validate import Validation
from tests.steps.histories import drilled


def _shown(verdict: Equality) -> str:
    tp = TopicPartition("shop.orders", 1)
    digest = Digest(rows=100)
    segment = SegmentResult(segment=0, start=0, end=100, expected=100, source=digest, target=digest, verdict=verdict)
    it = PartitionResult(
        topic=tp.topic,
        partition=tp.partition,
        source_start=0,
        source_end=100,
        target_start=0,
        target_end=100,
        expected=100,
        segments=(segment,),
        verdict=verdict,
        detail="",
        is_read=True,
        drilled=drilled(tp) if verdict is Equality.DIFFERENT else None,
    )
    result = ValidationResult(
        id="v", migration="shop", at="", level=Level.BATCH, segment_records=1000, partitions=(it,), seconds=1.0
    )
    found = Validation(result=result, expectations=Expectations(success=True, failed=()), folder=Path("reports"))
    out = StringIO()
    Console(file=out, width=160).print(validation(found))
    return out.getvalue()


def test_records_that_differ_stand_in_a_table_with_what_differs():
    text = _shown(Equality.DIFFERENT)
    assert "Records that differ" in text
    (lost,) = (line.split() for line in text.splitlines() if " loss " in line and "1 loss" not in line)
    assert lost == ["shop.orders-1", "loss", "40", "-", "6b3c"]
    (altered,) = (line for line in text.splitlines() if "value from byte 3: 41 against 61" in line)
    assert altered.split()[:4] == ["shop.orders-1", "mutation", "70", "70"]
    assert "1 loss, 1 mutation; no time was left for the rest" in text


def test_equal_validation_shows_no_such_table():
    assert "Records that differ" not in _shown(Equality.EQUAL)
