"""When waiting is over although there is time."""

from __future__ import annotations

from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable
from kafka_migration.domain.waiting import REJECTED_SECONDS, Rejections
from tests.steps.worlds import FakeClock

REJECTED, AWAY = AuthenticationFailed("target", "h:1", "bad"), ClusterUnreachable("target", "h:1", "gone")


def test_credentials_that_are_rejected_for_minutes_are_given_up() -> None:
    clock = FakeClock()
    seen = Rejections(clock)
    assert not seen.last(REJECTED)
    clock.sleep(REJECTED_SECONDS - 1)
    assert not seen.last(REJECTED)
    clock.sleep(1)
    assert seen.last(REJECTED)


def test_any_other_answer_in_between_begins_anew() -> None:
    for other in (None, AWAY):
        clock = FakeClock()
        seen = Rejections(clock)
        assert not seen.last(REJECTED)
        clock.sleep(REJECTED_SECONDS)
        assert not seen.last(other)
        assert not seen.last(REJECTED)
