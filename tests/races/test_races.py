"""The short form of `make races`: fewer interleavings, and a few of them on real brokers."""

from __future__ import annotations

import pytest

from demo.brokers import EmbeddedKafka
from kafka_migration.state.journal import Journal
from tests.races.run import Races, on_brokers
from tests.steps.worlds import FakeWorld, RealWorld


def test_two_movers_of_a_group_leave_it_on_the_target_whatever_the_interleaving() -> None:
    world = FakeWorld()
    found = list(Races(world, lambda: world.store).every(second_every=30))
    assert len(found) >= 100
    assert {f"{it}: {outcome}" for it, outcome in found if outcome.faults} == set()
    # The first mover lost its claim in most of them, and said so.
    assert sum("first TakenOver" in outcome.history[-1] for _, outcome in found) > len(found) / 2


def test_races_find_a_mover_that_does_not_look_at_its_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Journal, "_require_owner", lambda *_: None)
    world = FakeWorld()
    wanted, found = {"both_sides", "lost_record"}, set[str]()
    races = Races(world, lambda: world.store).every(second_every=9)
    while not wanted <= found:
        found.update(next(races)[1].faults)


def test_two_movers_on_real_brokers_leave_a_group_on_the_target(
    source_cluster: EmbeddedKafka, target_cluster: EmbeddedKafka
) -> None:
    world = RealWorld(source_cluster.bootstrap_servers, target_cluster.bootstrap_servers)
    try:
        with on_brokers(world) as races:
            found = list(races.some(4))
    finally:
        world.close()
    assert {f"{it}: {outcome}" for it, outcome in found if outcome.faults} == set()
