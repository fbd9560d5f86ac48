"""When waiting is over although there is time."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain.errors import AuthenticationFailed, ClusterUnreachable
from kafka_migration.domain.waiting import REJECTED_SECONDS, Rejections
from kafka_migration.steps import runner
from kafka_migration.steps.step import Decision
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


@pytest.mark.parametrize("rejected", [True, False])
def test_step_that_waits_gives_rejected_credentials_up_before_its_time(rejected: bool) -> None:
    clock, looks = FakeClock(), itertools.count()

    class Wait:
        interval_seconds = 10.0

        def __init__(self, _ctx: Any) -> None:
            """Nothing is needed."""

        def look(self) -> Decision | None:
            if rejected or next(looks) < 60:
                raise REJECTED if rejected else AWAY
            return Decision()

    step = SimpleNamespace(verbs=SimpleNamespace(Wait=Wait), seen=lambda ctx: ctx, seconds=lambda _plan: 86_400.0)
    ctx = SimpleNamespace(clock=clock, plan=None, log=lambda _text: None)
    if rejected:
        with pytest.raises(AuthenticationFailed):
            runner._decided(ctx, step)  # type: ignore[arg-type]
        assert REJECTED_SECONDS <= clock.monotonic() <= REJECTED_SECONDS + 20
    else:
        assert runner._decided(ctx, step).exit_code == 0  # type: ignore[arg-type]


def test_any_other_answer_in_between_begins_anew() -> None:
    for other in (None, AWAY):
        clock = FakeClock()
        seen = Rejections(clock)
        assert not seen.last(REJECTED)
        clock.sleep(REJECTED_SECONDS)
        assert not seen.last(other)
        assert not seen.last(REJECTED)
