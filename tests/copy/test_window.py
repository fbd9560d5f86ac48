"""How much is under way to a broker that throttles."""

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
