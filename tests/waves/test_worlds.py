"""Waves of three topics with shared groups, in memory and on real brokers: what check, waves and approval show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.approvals import approvals
from kafka_migration.approvals.evidence import GateName
from kafka_migration.domain.types import TopicPartition
from kafka_migration.inventory import preflight
from kafka_migration.inventory.facts import Facts
from kafka_migration.migration.context import Context
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.steps.worlds import FakeWorld, RealWorld, World


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    source, target = request.getfixturevalue("source_cluster"), request.getfixturevalue("target_cluster")
    real = RealWorld(source.bootstrap_servers, target.bootstrap_servers)
    yield real
    real.close()


def test_shared_groups_make_the_waves_that_check_and_approval_show(world: World) -> None:
    clicks, orders, payments = (
        world.topic(name, records=n) for name, n in (("clicks", 20), ("orders", 30), ("payments", 40))
    )
    first, billing, reader = (world.group(name) for name in ("first", "billing", "reader"))
    world.commit("source", first, {TopicPartition(clicks, 0): 11})
    world.commit("source", billing, {TopicPartition(orders, 0): 11, TopicPartition(payments, 0): 12})
    # By its subscription alone: it has never committed.
    leave = world.join("source", reader, [payments])
    auto = {"auto": {"most_topics": 1}}

    def ctx(**waves: Any) -> Context:
        # The world's own link knows positions alone.
        return replace(world.ctx(waves=waves), link=LinkState("moving", MemoryStore(), None, None))

    found = Facts(ctx(**auto)).waves
    assert [(wave.name, set(wave.topics), set(wave.groups)) for wave in found.waves] == [
        ("canary", {clicks}, {first}),
        ("wave-1", {orders, payments}, {billing, reader}),
    ]
    ((other, links),) = found.why(orders).items()
    assert (other, [link.title for link in links]) == (payments, [f"group {billing}"])
    seen = approvals.evidence(ctx(**auto), GateName.PLAN)
    numbers, members = (table.rows for table in seen.tables[:2])
    assert [row[:4] for row in numbers] == [("canary", "1", "1", "10"), ("wave-1", "2", "2", "50")]
    assert members[1] == ("wave-1", f"{orders}, {payments}", f"{billing}, {reader}")
    torn = {"given": [{"name": "a", "topics": [clicks, orders]}, {"name": "b", "topics": [payments]}]}
    checks = {result.name: result for result in preflight.check(ctx(**torn)).gate.results}
    spans = checks["groups within one wave"]
    assert (spans.verdict, spans.evidence) == ("FAIL", f"group {billing} spans waves a ({orders}), b ({payments})")
    leave()
