"""What cutover asks of a link's state: the tests' stand-in answers as the real state does."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

import pytest

from kafka_migration.domain import ledger
from kafka_migration.domain.controls import Pause
from kafka_migration.domain.offset_map import OffsetMap, Run, RunOpening
from kafka_migration.domain.types import Identity, TopicPartition
from kafka_migration.state.link import LinkState, LinkTopic
from kafka_migration.state.store import MemoryStore
from tests.state.test_link import FakeLog
from tests.steps.worlds import START, Link

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
TOPIC = LinkTopic(name="t", source_id=uuid.UUID(int=1), target_id=uuid.UUID(int=2))
AT = datetime(2030, 1, 1, tzinfo=UTC)
PAUSE = Pause(by="ada", at=AT.isoformat(), reason="backup")


class Side(Protocol):
    """A link's state, and how its mirror has it written."""

    link: Any

    def copied(self, tp: TopicPartition, *runs: Run, source_end: int, target_end: int) -> None: ...
    def halted(self, tp: TopicPartition, reason: str) -> None: ...
    def paused(self) -> None: ...
    def said(self, state: str) -> None: ...


class Stub:
    """The stand-in, which says nothing of its mirror but that it has ended."""

    def __init__(self) -> None:
        self.link = Link()

    def copied(self, tp: TopicPartition, *runs: Run, source_end: int, target_end: int) -> None:
        self.link.maps[tp] = OffsetMap(runs, source_end=source_end, target_end=target_end)

    def halted(self, tp: TopicPartition, reason: str) -> None:
        self.link.halt(tp, reason)

    def paused(self) -> None:
        self.link.pause = PAUSE

    def said(self, state: str) -> None:
        self.link.last_word = None if state == "ended" else lambda: AT


class Real:
    """The state itself, in memory. Each run of a map has a fence of its own, and so has the end."""

    def __init__(self) -> None:
        logs: Any = FakeLog(ledger.OFFSET_MAP_TOPIC), FakeLog(ledger.PROGRESS_TOPIC)
        self.link = LinkState("shop", MemoryStore(), *logs)
        self.link.pin(source_cluster="s", target_cluster="t", topics=[TOPIC], at="")

    def copied(self, tp: TopicPartition, *runs: Run, source_end: int, target_end: int) -> None:
        closes = 0
        for fence, run in enumerate([*runs, Run(source_end, target_end, 0)]):
            self.link.record_fence(fence, Identity(7, fence), at="")
            opening = RunOpening(fence=fence, records=0, source=run.source, target=run.target, closes=closes)
            self.link.record_openings([(tp, opening)])
            closes = run.target + run.length

    def halted(self, tp: TopicPartition, reason: str) -> None:
        self.link.halt(tp, reason, "", 0, 0, "")

    def paused(self) -> None:
        self.link.pause(PAUSE)

    def said(self, state: str) -> None:
        self.link.record_run({"state": state, "at": AT.isoformat()})


@pytest.fixture(params=[Stub, Real])
def side(request: pytest.FixtureRequest) -> Side:
    made: Callable[[], Side] = request.param
    return made()


def test_nothing_is_mirrored_halted_given_up_or_paused_at_first(side: Side) -> None:
    link = side.link
    assert (link.offset_maps(), link.positions(), link.progress(), link.skips(), link.halts()) == ({}, {}, {}, {}, {})
    assert link.offset_maps([TP]) == {}
    assert link.controls().pause is None


def test_maps_are_of_the_partitions_that_were_asked_for_and_have_one(side: Side) -> None:
    for tp in (TP, OTHER):
        side.copied(tp, Run(START, 0, 90), source_end=100, target_end=90)
    assert side.link.offset_maps().keys() == side.link.positions().keys() == {TP, OTHER}
    assert side.link.offset_maps([OTHER, TopicPartition("t", 2)]).keys() == {OTHER}
    assert side.link.offset_maps([]) == {}


def test_map_translates_up_to_where_the_mirror_stands_both_ways(side: Side) -> None:
    side.copied(TP, Run(START, 0, 20), Run(40, 25, 30), source_end=75, target_end=55)
    found = side.link.offset_maps([TP])[TP]
    assert (found.source_end, found.target_end, found.records) == (75, 55, 50)
    assert [found.to_target(at) for at in (START, 29, 30, 39, 40, 69, 70, 75)] == [0, 19, 25, 25, 25, 54, 55, 55]
    assert [found.to_source(at) for at in (0, 19, 25, 54)] == [START, 29, 40, 69]
    at = side.link.positions()[TP]
    assert (at.source, at.target) == (75, 55)


def test_answers_are_the_callers_to_keep(side: Side) -> None:
    side.copied(TP, Run(START, 0, 90), source_end=100, target_end=90)
    side.halted(TP, "CORRUPT")
    for found in (side.link.offset_maps(), side.link.positions(), side.link.halts()):
        found.clear()
    assert side.link.offset_maps().keys() == side.link.positions().keys() == side.link.halts().keys() == {TP}


def test_halt_has_a_reason_and_does_not_take_the_map_away(side: Side) -> None:
    side.copied(TP, Run(START, 0, 90), source_end=100, target_end=90)
    side.halted(TP, "CORRUPT")
    assert {tp: (it.reason, it.detail) for tp, it in side.link.halts().items()} == {TP: ("CORRUPT", "")}
    assert side.link.offset_maps([TP]).keys() == {TP}


def test_pause_says_who_when_and_why(side: Side) -> None:
    side.paused()
    assert side.link.controls().pause == PAUSE
    assert side.link.controls().throttle is None


@pytest.mark.parametrize("state", ["running", "ended"])
def test_run_says_how_the_mirror_is_and_since_when(side: Side, state: str) -> None:
    side.said(state)
    found = side.link.run()
    assert found["state"] == state
    assert datetime.fromisoformat(found["at"]) == AT


def test_stand_in_takes_nothing_that_the_real_state_does_not() -> None:
    asked = {name for name, it in vars(Link).items() if inspect.isfunction(it) and not name.startswith("_")} - {"halt"}
    assert asked == {"offset_maps", "positions", "progress", "run", "skips", "extras"} | {
        "halts",
        "controls",
        "topics",
        "seal",
    }
    for name in asked:
        stub, real = (list(inspect.signature(getattr(kind, name)).parameters.values()) for kind in (Link, LinkState))
        assert stub == real[: len(stub)], name
        assert all(it.default is not it.empty for it in real[len(stub) :]), name
