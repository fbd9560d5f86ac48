"""A real query of Spark Structured Streaming that dies on the source and goes on from its checkpoint on the target."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from kafka_migration.positions import files
from kafka_migration.positions.translation import Rules
from tests.copy.bench import Bench, bench
from tests.kafka_tools import ToSend, produce, produce_transaction, read_all
from tests.positions.conftest import migration_of
from tests.positions.query import Orders

ROOT = Path(__file__).resolve().parents[2]
DIES_IN = 2


def run(orders: Orders, folder: Path) -> None:
    Path(orders.output).mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "tests.positions.query", str(orders.write(folder / "orders.json"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'plugins'}:{ROOT}", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


def got(folder: Path) -> dict[int, list[str] | dict[str, int]]:
    """What each batch got."""
    return {int(path.stem): json.loads(path.read_text()) for path in folder.iterdir()}


def ends(checkpoint: Path, batch: int) -> dict[str, dict[str, int]]:
    """Where a batch of the query ends, by topic and partition."""
    lines = (checkpoint / "offsets" / str(batch)).read_text().split("\n")[2:]
    found: dict[str, dict[str, int]] = {}
    for line in lines:
        found |= json.loads(line[line.index("{") :])
    return found


def write_more(both: Bench, topics: list[str], seed: str) -> None:
    produce(both.source, topics[0], [ToSend(f"{seed}-{n}".encode(), b"k%d" % (n % 3), n % 2) for n in range(12)])
    for n in range(3):
        produce_transaction(both.source, topics[1], [f"{seed}-t{n}-{m}".encode() for m in range(4)])
    assert both.mirror().run(until_caught_up=True).reason == "caught_up"


def records_between(
    both: Bench, begin: Mapping[str, Mapping[str, int]], end: Mapping[str, Mapping[str, int]]
) -> list[str]:
    """The values of the source's records in these offsets."""
    return [
        str(row.value, "utf-8")
        for tp, rows in read_all(both.source, both.topics).items()
        for row in rows
        if begin[tp.topic][str(tp.partition)] <= row.offset < end[tp.topic][str(tp.partition)] and row.value
    ]


@pytest.mark.soak
@pytest.mark.parametrize("counts", [False, True], ids=["records", "state"])
def test_query_goes_on_on_the_target_with_the_very_batch_that_it_died_in(
    source_cluster, target_cluster, tmp_path, counts
):
    topics = [f"query-{uuid.uuid4().hex[:8]}-{name}" for name in "ab"]
    servers = source_cluster.bootstrap_servers, target_cluster.bootstrap_servers
    with bench(*servers, {topics[0]: 2, topics[1]: 1}) as both, migration_of(both) as ctx:
        for seed in ("first", "second"):
            write_more(both, topics, seed)
        orders = Orders(
            servers=both.source,
            topics=topics,
            checkpoint=str(tmp_path / "source"),
            output=str(tmp_path / "before"),
            per_batch=6,
            counts=counts,
            dies_in=DIES_IN,
        )
        run(orders, tmp_path)
        before = got(tmp_path / "before")
        assert sorted(before) == list(range(DIES_IN))
        planned = records_between(both, *(ends(tmp_path / "source", batch) for batch in (DIES_IN - 1, DIES_IN)))
        assert planned
        # What was counted before stands in the state.
        found = files.read(tmp_path / "source")
        done = files.translate(ctx, found, rules=Rules(), output=tmp_path / "target")
        assert done.left_out == ()
        write_more(both, topics, "third")
        moved = {
            "servers": both.target,
            "checkpoint": str(tmp_path / "target"),
            "output": str(tmp_path / "after"),
            "dies_in": -1,
        }
        run(Orders(**{**orders.__dict__, **moved}), tmp_path)
        after = got(tmp_path / "after")
        everything = [row for rows in read_all(both.source, both.topics).values() for row in rows]
    assert sorted(after)[0] == DIES_IN, "the batch that was planned is read again"
    if counts:
        keys = Counter("null" if row.key is None else row.key.decode() for row in everything)
        assert after[max(after)] == keys
    else:
        values = [value for batches in (before, after) for rows in batches.values() for value in rows]
        assert sorted(after[DIES_IN]) == sorted(planned)
        assert sorted(values) == sorted(str(row.value, "utf-8") for row in everything if row.value)
