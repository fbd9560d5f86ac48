"""Shares of a batch level validation without clusters and Spark: what one partition's trouble does to the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from kafka_migration.compare.batches import job
from kafka_migration.compare.batches.side import CannotRead, Unanswered
from kafka_migration.compare.digests import Digest, SegmentOutcome
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.offset_map import Run
from kafka_migration.domain.types import TopicPartition
from tests.compare.lab import request_of

SEGMENTS, PARTITIONS = 30, 4
SLOW = TopicPartition("t", 1)


class _Side:
    def __init__(self, cluster: Any, tp: TopicPartition, *_: Any, **__: Any) -> None:
        self.role, self.tp = cluster.role, tp


class _Cluster:
    def __init__(self, _net: Any, _wire: Any, role: str) -> None:
        self.role = role

    def connect(self) -> None:
        """At once."""

    close = connect

    async def wait_for_leaders(self, *_: Any, **__: Any) -> None:
        """All are known."""


class _Spark:
    """Runs what a task would, here."""

    defaultParallelism = 2  # noqa: N815

    def __init__(self) -> None:
        self.sparkContext = self

    def setJobGroup(self, *_: Any) -> None:  # noqa: N802
        """Nobody looks."""

    def parallelize(self, *_: Any) -> _Spark:
        return self

    def map(self, work: Callable[[int], Any]) -> _Spark:
        # Nothing of it may stand in this object: several threads have their jobs run here.
        answer, found = work(0), _Spark()
        found.collect = lambda: [answer]  # type: ignore[method-assign]
        return found

    def collect(self) -> list[Any]:
        raise AssertionError("nothing was mapped")


@pytest.mark.parametrize("error", [Unanswered, CannotRead])
def test_slow_broker_fails_its_partitions_segments_and_no_others(
    error: type[CannotRead], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: Counter[TopicPartition] = Counter()

    async def compared(it: PartitionRange, source: _Side, _target: _Side) -> tuple[Digest, Digest, int]:
        read[it.tp] += 1
        if it.tp == SLOW and it.source_start >= 50_000:
            raise error(f"{source.role}: {it.tp}: no answer", remedy="")
        return Digest(rows=1), Digest(rows=1), 1

    monkeypatch.setattr(job, "WireCluster", _Cluster)
    monkeypatch.setattr(job, "Side", _Side)
    monkeypatch.setattr(job, "compare", compared)
    size = SEGMENTS * 10_000
    ranges = [
        PartitionRange(
            topic="t",
            partition=n,
            source_start=0,
            source_end=size,
            target_start=0,
            target_end=size,
            runs=Runs([Run(0, 0, size)]),
        )
        for n in range(PARTITIONS)
    ]
    request = request_of(ranges, segment_records=10_000)
    found: list[SegmentOutcome] = job.run(_Spark(), request, ranges, {"source": {}, "target": {}})  # type: ignore[arg-type]
    assert len(found) == SEGMENTS * PARTITIONS
    assert {one.tp for one in found if one.failure} == {SLOW}
    assert sum(bool(one.failure) for one in found) == SEGMENTS - 5
    assert all(one.failure == "source: t-1: no answer" for one in found if one.failure)
    if error is Unanswered:
        # Once for each share that was under way: nobody waits a minute for each of its segments.
        assert read[SLOW] < SEGMENTS / 2
    else:
        assert read[SLOW] == SEGMENTS
