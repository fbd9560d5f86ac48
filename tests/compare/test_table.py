"""The offset map as the table that Spark joins the target's records with: without Spark."""

import random

import pytest

from kafka_migration.compare.records import reader
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import Pieces, bucket_shift
from kafka_migration.domain.offset_map import Run


@pytest.mark.parametrize("seed", range(20))
def test_every_target_offset_finds_one_row_by_its_bucket_and_that_leads_to_its_place(seed: int) -> None:
    dice = random.Random(seed)
    runs, source, target = list[Run](), dice.randrange(9), dice.randrange(3)
    for _ in range(dice.randrange(60)):
        length = dice.choice([1, 2, 7, 300])
        runs.append(Run(source, target, length))
        source, target = source + length + dice.choice([0, 1, 5]), target + length + dice.choice([0, 1, 3])
    it = PartitionRange(
        topic="t",
        partition=3,
        source_start=0,
        source_end=source + 1,
        target_start=0,
        target_end=target + 2,
        runs=Runs(runs),
    )
    shift = bucket_shift([Pieces(it)])
    table = reader._table(it, Pieces(it), shift)
    kinds = {name: str(table.schema.field(name).type) for name in table.schema.names}
    assert (kinds["topic"], kinds["partition"], kinds["piece_in_run"]) == ("string", "int32", "bool")
    assert {kinds[name] for name in ("bucket", "piece_start", "piece_end", "piece_source")} == {"int64"}
    rows = table.to_pylist()
    assert {(row["topic"], row["partition"]) for row in rows} == {("t", 3)}
    held = {run.target + n: run.source + n for run in runs for n in range(run.length)}
    for offset in range(it.target_end):
        (row,) = [
            row for row in rows if row["bucket"] == offset >> shift and row["piece_start"] <= offset < row["piece_end"]
        ]
        assert row["piece_in_run"] == (offset in held)
        if row["piece_in_run"]:
            assert row["piece_source"] + offset - row["piece_start"] == held[offset]
