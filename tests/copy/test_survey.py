"""What is believed of a topic that a broker does not know, or knows as another one: never one broker's word."""

import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafka_migration.copy.driver.survey import Survey
from kafka_migration.domain.types import Halt
from kafka_migration.wire.cluster import NO_TOPIC_ID, Reported, WireCluster

PINNED, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)
KNOWN, ANOTHER, UNKNOWN = Reported(0, PINNED), Reported(0, OTHER), Reported(3, NO_TOPIC_ID)


@dataclass
class World:
    """A cluster of which each broker reports what a test says; the first one answers all that is asked of any."""

    brokers: list[Reported]
    role: str = "source"
    now: float = 0.0
    pinned: dict[str, uuid.UUID] = field(default_factory=lambda: {"t": PINNED})
    topic_ids: dict[str, uuid.UUID] = field(default_factory=dict)
    asked: int = 0
    is_another = WireCluster.is_another

    def run(self, work: Callable[..., Any], *args: Any) -> Any:
        return work(*args)

    def refresh(self, topics: Collection[str]) -> dict[str, int]:
        first = self.brokers[0]
        if first.error:
            return dict.fromkeys(topics, first.error)
        self.topic_ids = dict.fromkeys(topics, first.topic_id)
        return {}

    def name_here(self, topic: str) -> str:
        return topic

    def reports(self, topics: Collection[str]) -> list[dict[str, Reported]]:
        self.asked += 1
        return [dict.fromkeys(topics, it) for it in self.brokers]


def _survey(world: World) -> Survey:
    return Survey(world, world, clock=lambda: world.now)  # type: ignore[arg-type]


def _watched(world: World, survey: Survey, seconds: int) -> None:
    for _ in range(seconds):
        survey.look({"t"})
        world.now += 1


def test_topic_that_no_broker_knows_for_ten_seconds_is_missing() -> None:
    world = World([UNKNOWN, UNKNOWN])
    survey = _survey(world)
    _watched(world, survey, 10)
    assert (survey.lost, survey.is_in_doubt) == ({}, True)
    _watched(world, survey, 1)
    assert survey.lost["t"] == (Halt.TOPIC_MISSING, "the source has no topic of this name")


def test_topic_that_all_brokers_know_as_another_one_is_recreated_at_last() -> None:
    world = World([ANOTHER, ANOTHER, ANOTHER])
    survey = _survey(world)
    _watched(world, survey, 11)
    assert survey.lost["t"][0] is Halt.RECREATED


def test_one_broker_that_knows_the_pinned_topic_outweighs_all_others() -> None:
    for wrong in (UNKNOWN, ANOTHER):
        world = World([wrong, wrong, KNOWN])
        survey = _survey(world)
        _watched(world, survey, 60)
        assert (survey.lost, survey.is_in_doubt) == ({}, False)


def test_doubt_that_passes_begins_anew() -> None:
    world = World([UNKNOWN, UNKNOWN])
    survey = _survey(world)
    _watched(world, survey, 9)
    world.brokers = [KNOWN, KNOWN]
    _watched(world, survey, 1)
    world.brokers = [UNKNOWN, UNKNOWN]
    _watched(world, survey, 9)
    assert survey.lost == {}


def test_topic_of_which_brokers_come_to_say_something_else_is_watched_anew() -> None:
    world = World([UNKNOWN, UNKNOWN])
    survey = _survey(world)
    _watched(world, survey, 9)
    world.brokers = [ANOTHER, ANOTHER]
    _watched(world, survey, 9)
    assert survey.lost == {}
    _watched(world, survey, 2)
    assert survey.lost["t"][0] is Halt.RECREATED


def test_brokers_that_say_different_things_prove_nothing_yet() -> None:
    world = World([UNKNOWN, ANOTHER])
    survey = _survey(world)
    _watched(world, survey, 60)
    assert survey.lost == {}


def test_too_few_brokers_that_answer_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([UNKNOWN])
    survey = _survey(world)
    monkeypatch.setattr(world, "reports", lambda _topics: [])
    _watched(world, survey, 60)
    assert survey.lost == {}


def test_id_of_zero_is_unknown_and_no_other_topic() -> None:
    world = World([Reported(0, NO_TOPIC_ID)])
    survey = _survey(world)
    _watched(world, survey, 60)
    assert (survey.lost, world.asked) == ({}, 0)


def test_topic_that_may_not_be_described_is_hidden_and_never_lost() -> None:
    world = World([Reported(29, NO_TOPIC_ID)])
    survey = _survey(world)
    _watched(world, survey, 60)
    assert survey.lost == {}
    assert survey.hidden == {
        "t": "source: not authorized: Describe on topic t; grant it to the principal of this connection"
    }
    world.brokers = [KNOWN]
    _watched(world, survey, 1)
    assert survey.hidden == {}
