"""A run's claim on the link, and for how long what came before it may still write: without brokers."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.copy.driver import attempts
from kafka_migration.copy.driver.attempts import Attempts
from kafka_migration.copy.orders import Limits
from kafka_migration.domain.errors import StateConflict, TakenOver
from kafka_migration.domain.types import TopicPartition
from kafka_migration.state.link import LinkState
from kafka_migration.state.store import MemoryStore
from tests.copy.clock import Clock

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
LIMITS = Limits(lease_seconds=10, answer_seconds=30, closed_seconds=5)
#: How long an attempt may write that nobody saw end, and one whose connections were closed with all answered.
#: The lease, an answer, five requests that wait for replicas one behind the other, and what a broker may need besides.
UNSEEN, CLOSED = 10.0 + 30.0 + 5 * 20.0 + 5.0, 5.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def link() -> LinkState:
    return LinkState("shop", MemoryStore(), None, None)


def of(link: LinkState, clock: Clock, target: Any = None) -> Attempts:
    return Attempts(link, target, LIMITS, lambda _text: None, clock=clock)


def test_claim_holds_unless_somebody_claims_the_link_right_behind_it(
    link: LinkState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of(link, clock).claim()
    claim = link.claim

    def and_somebody_else(attempt: str, *, at: str) -> None:
        claim(attempt, at=at)
        claim("somebody else", at=at)

    monkeypatch.setattr(link, "claim", and_somebody_else)
    with pytest.raises(TakenOver):
        of(link, clock).claim()


def test_what_came_before_a_run_is_held_also_where_its_own_requests_need_less(link: LinkState, clock: Clock) -> None:
    of(link, clock).claim()
    mine = of(link, clock)
    mine.claim()
    mine.closed({TP: 0.0})
    mine.hold([TP])
    assert (mine.hold_seconds(TP), mine.hold_seconds(OTHER)) == (UNSEEN, UNSEEN)
    clock.now += UNSEEN
    mine.closed({TP: 0.0})
    mine.hold([TP])
    assert (mine.hold_seconds(TP), mine.hold_seconds(OTHER)) == (CLOSED, 0.0)


def test_tasks_that_nobody_saw_end_are_waited_for_though_others_ended_in_order(link: LinkState, clock: Clock) -> None:
    mine = of(link, clock)
    mine.claim()
    mine.lost(1, [TP])
    clock.now += 10
    mine.closed({TP: 0.0})
    mine.hold([TP])
    assert mine.hold_seconds(TP) == UNSEEN - 10
    mine.hold([OTHER])
    assert mine.hold_seconds(OTHER) == 0.0, "it was another task's"
    mine.ended()
    assert link.attempts()[mine.name], "the next run waits, too"


def test_request_that_was_not_answered_holds_its_partition_for_as_long_as_it_may_land(
    link: LinkState, clock: Clock
) -> None:
    mine = of(link, clock)
    mine.claim()
    mine.closed({TP: 65.0, OTHER: 0.0})
    mine.hold([TP, OTHER])
    assert (mine.hold_seconds(TP), mine.hold_seconds(OTHER)) == (65.0, CLOSED)
    clock.now += 60
    mine.ended()
    assert link.attempts()[mine.name], "the next run waits, too"
    # Its broker was frozen, and takes only now what it was sent.
    mine.stalled([TP])
    mine.hold([TP])
    assert mine.hold_seconds(TP) == 65.0
    clock.now += 65
    mine.ended()
    assert not link.attempts()[mine.name]


def test_what_is_landing_is_not_forgotten_before_it_has_landed_and_is_then(link: LinkState, clock: Clock) -> None:
    mine = of(link, clock)
    mine.claim()
    mine.closed({TP: 65.0})
    clock.now += 30
    # The next round ends without anything sent, and another one with all of it answered.
    mine.closed({TP: 0.0})
    mine.answered([TP])
    mine.stalled([TP])
    mine.hold([TP])
    assert mine.hold_seconds(TP) == 65.0
    clock.now += 65
    mine.answered([TP])
    mine.stalled([TP])
    mine.hold([TP])
    assert mine.hold_seconds(TP) == CLOSED


def test_frozen_broker_may_have_what_a_run_sent_whose_end_nobody_saw(link: LinkState, clock: Clock) -> None:
    of(link, clock).claim()
    mine = of(link, clock)
    mine.claim()
    clock.now += UNSEEN
    mine.stalled([TP])
    mine.hold([TP])
    assert (mine.hold_seconds(TP), mine.hold_seconds(OTHER)) == (UNSEEN - LIMITS.lease_seconds, 0.0)


def test_half_of_the_brokers_memory_less_the_hold_is_young(
    link: LinkState, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "producer_memory_ms", lambda _target: 86_400_000)
    target = SimpleNamespace(net=SimpleNamespace(run=lambda work, *args: work(*args)))
    mine = of(link, clock, target)
    assert mine.young_ms() is None, "nothing is held"
    mine.lost(1, [TP])
    mine.hold([TP])
    assert mine.young_ms() == 43_200_000 - 1000 * UNSEEN


@pytest.mark.parametrize(
    ("ids", "is_another"),
    [([1, 1], False), ([0, 1, 1], False), ([1, 0, 1], False), ([1, 2], True), ([0, 1, 2], True)],
    ids=["the same", "upgraded meanwhile", "asked of an old broker in between", "another", "another, since upgraded"],
)
def test_state_is_another_one_by_an_id_alone(link: LinkState, clock: Clock, ids: list[int], is_another: bool) -> None:
    home = SimpleNamespace(role="target", topic_ids={}, refresh=None)
    home.net = SimpleNamespace(run=lambda *_: {})
    mine, errors = of(link, clock, home), []
    for number in ids:
        home.topic_ids = dict.fromkeys(attempts._STATE, uuid.UUID(int=number))
        try:
            mine.check_state()
        except StateConflict as error:
            errors.append(error)
    assert bool(errors) is is_another
