"""What makes a partition suspect: an end beyond what was told, twice, while nothing moves there. No broker needed."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_migration.copy.driver.health import ForeignWriters
from kafka_migration.domain.types import Position, TopicPartition

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class World:
    """A target whose ends a test sets, and a clock that it moves."""

    ends: dict[TopicPartition, int] = field(default_factory=dict)
    leaders: dict[TopicPartition, object] = field(default_factory=lambda: {TP: object(), OTHER: object()})
    now: float = 0.0
    asked: list[set[TopicPartition]] = field(default_factory=list)

    def run(self, work: Any) -> Any:
        return work()

    def offsets_in_reach(self, tps: list[TopicPartition], _when: int, *, seconds: float) -> dict[TopicPartition, int]:
        self.asked.append(set(tps))
        return {tp: self.ends[tp] for tp in tps}

    def look(self, writers: ForeignWriters, seconds: float = 5.0, **told: int) -> set[TopicPartition]:
        self.now += seconds
        targets = {TP: told.get("first", 10), OTHER: told.get("other", 10)}
        positions = {tp: Position(source=at, target=at, fence=1, records=at) for tp, at in targets.items()}
        return writers.beyond(positions)


@pytest.fixture
def world() -> World:
    return World(ends={TP: 10, OTHER: 10})


@pytest.fixture
def writers(world: World) -> ForeignWriters:
    return ForeignWriters(world, world, clock=lambda: world.now)  # type: ignore[arg-type]


def test_end_beyond_a_position_that_rests_is_suspect_at_the_second_look(world: World, writers: ForeignWriters) -> None:
    assert world.look(writers) == set()
    world.ends[TP] = 11
    assert world.look(writers) == set()
    assert world.look(writers) == {TP}


def test_position_that_moves_is_not_suspect_however_far_its_end_is_ahead(world: World, writers: ForeignWriters) -> None:
    for at in range(10, 60, 10):
        world.ends[TP] = at + 30
        assert world.look(writers, first=at) == set()
    world.ends[TP] = 60
    assert world.look(writers, first=60) == set()


def test_answer_that_was_late_is_forgotten(world: World, writers: ForeignWriters) -> None:
    world.ends[TP] = 11
    assert world.look(writers) == set()
    assert world.look(writers, first=11) == set()
    world.ends[TP] = 12
    assert world.look(writers, first=11) == set(), "seen once since"


def test_ends_are_asked_for_every_five_seconds_and_only_where_somebody_leads(
    world: World, writers: ForeignWriters
) -> None:
    del world.leaders[OTHER]
    world.look(writers)
    world.look(writers, seconds=4.9)
    world.look(writers, seconds=0.1)
    assert world.asked == [{TP}, {TP}]
