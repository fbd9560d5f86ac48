"""A migration in memory, and the map of a topic that has gaps on either side; and one of real clusters."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kafka_migration.domain.offset_map import OffsetMap, Run
from kafka_migration.domain.types import TopicPartition
from kafka_migration.kafka.cluster import Cluster
from kafka_migration.kafka.connections import ClusterConnection
from kafka_migration.migration.context import Context
from kafka_migration.plans.load import restore_plan
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore
from tests.copy.bench import Bench
from tests.steps.worlds import FakeWorld

#: Of ``gappy``: source 10..19 at target 1..10, source 25..29 at target 12..16; the source goes on behind it.
RUNS = (Run(10, 1, 10), Run(25, 12, 5))
MIRRORED, WRITTEN = 30, 40


@pytest.fixture
def world() -> FakeWorld:
    return FakeWorld()


@pytest.fixture
def gappy(world: FakeWorld) -> str:
    """A topic whose two partitions have the map of RUNS; its source log starts at 5, and ends at WRITTEN."""
    name = f"{world.name}.gappy"
    for side, start, end in (("source", 5, WRITTEN), ("target", 0, 17)):
        world._fill(side, name, 2, end, start)
    for partition in range(2):
        world.link.maps[TopicPartition(name, partition)] = OffsetMap(RUNS, source_end=MIRRORED, target_end=17)
    return name


@contextmanager
def migration_of(both: Bench) -> Iterator[Context]:
    """The context of a plan for the topics of a real link."""
    plan = {"version": 1, "name": "positions", "source": "a", "target": "b", "topics": {"include": list(both.topics)}}
    source = Cluster("source", ClusterConnection("source", {"bootstrap.servers": both.source}))
    target = Cluster("target", ClusterConnection("target", {"bootstrap.servers": both.target}))
    with source, target:
        yield Context(
            plan=restore_plan(plan),
            source=source,
            target=target,
            journal=Journal(MemoryStore(), "positions"),
            link=both.link,
        )
