"""How much is under way to a broker that throttles, and to one that is busy with others."""

from dataclasses import replace

import pytest

from kafka_migration.copy.orders import Limits
from kafka_migration.copy.task.outlet import Window

LIMITS = Limits(in_flight_requests=5, request_bytes=8_000_000)


def test_broker_that_throttles_gets_one_request_at_a_time_of_what_its_quota_takes_in_a_second() -> None:
    window = Window(LIMITS)
    assert (window.requests, window.bytes) == (5, 8_000_000)
    window.answered(4_000_000, 20.0)
    assert (window.requests, window.bytes) == (1, 200_000)
    window.answered(200_000, 500.0)
    assert (window.requests, window.bytes) == (1, 65_536)


def test_everything_is_allowed_again_once_answers_come_without_a_throttle() -> None:
    window = Window(LIMITS)
    window.answered(3_000_000, 1.0)
    window.answered(1_000_000, 0.0)
    assert (window.requests, window.bytes) == (1, 6_000_000)
    window.answered(1_000_000, 0.0)
    assert (window.requests, window.bytes) == (1, 8_000_000)
    window.answered(1_000_000, 0.0)
    assert (window.requests, window.bytes) == (5, 8_000_000)


def test_who_gives_way_rests_after_an_answer_that_came_late_twice_as_long_as_it_was_late() -> None:
    now = [100.0]
    window = Window(replace(LIMITS, niceness=1), clock=lambda: now[0])
    for size, took, rest in (
        (1_000_000, 0.050, 0.0),  # there is no better pace yet
        (1_000_000, 0.010, 0.0),
        (2_000_000, 0.020, 0.0),
        (1_000_000, 0.030, 0.040),
        (10_000, 0.010, 0.0),  # none was answered sooner
        (10_000, 0.012, 0.004),
        (1_000_000, 9.0, 0.5),
        (1_000_000, 0.010, 0.0),
    ):
        window.appended(size, took)
        assert window.rest_seconds == pytest.approx(rest, abs=0.0001)
    window.appended(1_000_000, 0.030)
    now[0] += 0.015
    assert window.rest_seconds == pytest.approx(0.025, abs=0.0001)
    now[0] += 1.0
    assert window.rest_seconds == 0.0


def test_what_was_fast_once_is_forgotten() -> None:
    window = Window(replace(LIMITS, niceness=1), clock=lambda: 0.0)
    window.appended(1_000_000, 0.001)
    rests = []
    for _ in range(30_000):
        window.appended(1_000_000, 0.010)
        rests.append(window.rest_seconds)
    assert rests[0] == pytest.approx(0.018, abs=0.0001)
    assert rests == sorted(rests, reverse=True)
    assert rests[-1] == 0.0


def test_who_gives_way_to_nobody_never_rests() -> None:
    window = Window(LIMITS)
    window.appended(1_000_000, 0.010)
    window.appended(1_000_000, 5.0)
    assert window.rest_seconds == 0.0
