"""Notices of what needs a person: one message for all of it, in time, at a growing interval, and when it is over."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise

import pytest

from kafka_migration.steps.attention import Attention, Kind
from kafka_migration.steps.notices import OF_TASKS, Notice, Notices, not_sent

HALT = Attention(Kind.HALT, "halted: orders-0", "see `status`", of="forward")
FENCE = Attention(Kind.FENCE, "a fence was left", "lift it")
PAUSE = Attention(Kind.PAUSE, "paused", "resume it", of="forward")


def group(name: str) -> Attention:
    return Attention(Kind.GROUP, f"group {name} runs twice", "stop its consumers", of=name)


class Watch:
    """Looks every half minute, as a trigger does."""

    def __init__(self, notices: Notices | None = None) -> None:
        self.notices = notices or Notices()
        self.now = 1_000_000.0

    def minutes(self, minutes: float, *needs: Attention, is_whole: bool = True) -> list[tuple[float, Notice]]:
        """The messages while ``needs`` stand for so long, each with the minute of it."""
        found, began = [], self.now
        for _ in range(round(minutes * 2)):
            self.now += 30
            notice = self.notices.look(needs, self.now, is_whole=is_whole)
            if notice is not None:
                found.append(((self.now - began) / 60, notice))
        return found


def texts(found: Sequence[tuple[float, Notice]]) -> list[str]:
    return [notice.what for _, notice in found]


def test_what_stands_for_a_minute_is_notified_of_once_with_its_remedy() -> None:
    [(minute, notice)] = Watch().minutes(30, HALT)
    assert minute == 1.5
    assert notice == Notice("needs a person: halted: orders-0", "see `status`")


def test_what_is_gone_within_a_minute_is_no_news_and_begins_anew() -> None:
    watch = Watch()
    for _ in range(10):
        assert watch.minutes(1, HALT) == []
        assert watch.minutes(0.5) == []


def test_all_that_stands_is_one_message() -> None:
    [(_, notice)] = Watch().minutes(30, HALT, FENCE, group("a"), group("b"))
    assert notice.what == "needs a person: halted: orders-0; a fence was left; group a runs twice; group b runs twice"
    assert notice.remedy == "see `status`; lift it; stop its consumers"


def test_it_is_repeated_at_a_growing_interval_up_to_a_day() -> None:
    found = Watch().minutes(9 * 24 * 60, HALT)
    hours = [round((later - before) / 60) for (before, _), (later, _) in pairwise(found)]
    assert hours == [1, 2, 4, 8, 16, *[24] * len(hours[5:])]
    assert len(hours) > 10


def test_another_kind_is_notified_of_at_once_and_more_of_a_kind_after_five_minutes() -> None:
    watch = Watch()
    watch.minutes(2, group("a"))
    [(minute, notice)] = watch.minutes(3, group("a"), FENCE)
    assert minute == 1.5
    assert notice.what == "needs a person: a fence was left; group a runs twice"
    [(minute, notice)] = watch.minutes(20, group("a"), FENCE, group("b"), group("c"))
    assert 3 <= minute <= 5
    assert notice.what.startswith("needs a person: group b runs twice; group c runs twice; ")


def test_hundred_groups_one_after_the_other_are_a_message_in_five_minutes_at_most() -> None:
    watch, sent = Watch(), 0
    for until in range(100):
        sent += len(watch.minutes(1, *(group(f"g{n}") for n in range(until + 1))))
    assert 15 <= sent <= 21


def test_more_of_the_same_is_news_and_less_is_not() -> None:
    def halts(count: int) -> Attention:
        return Attention(Kind.HALT, f"halted: {count}", "see `status`", of="forward", count=count)

    watch = Watch()
    watch.minutes(10, halts(2))
    assert watch.minutes(10, halts(1)) == []
    assert texts(watch.minutes(10, halts(2))) == []
    assert texts(watch.minutes(10, halts(3))) == ["needs a person: halted: 3"]


def test_what_is_over_is_notified_of_with_what_still_stands_and_then_no_more() -> None:
    watch = Watch()
    watch.minutes(10, HALT, PAUSE)
    [(minute, notice)] = watch.minutes(10, PAUSE)
    assert minute == 1.5
    assert notice == Notice("needs a person: paused; over: halted: orders-0", "resume it")
    [(_, notice)] = watch.minutes(10)
    assert notice == Notice("over: paused", "")
    assert watch.notices.memory == {}
    assert watch.minutes(10_000) == []


def test_what_comes_back_soon_after_was_never_over() -> None:
    watch = Watch()
    watch.minutes(10, HALT)
    for _ in range(5):
        assert watch.minutes(1) == []
        assert watch.minutes(1, HALT) == []


def test_nothing_is_over_while_not_all_could_be_looked_at() -> None:
    watch = Watch()
    watch.minutes(10, HALT)
    assert watch.minutes(30, is_whole=False) == []
    assert texts(watch.minutes(10)) == ["over: halted: orders-0"]


def test_memory_outlives_the_process_and_no_message_is_sent_again() -> None:
    watch = Watch()
    watch.minutes(10, HALT)
    stored = json.loads(json.dumps(watch.notices.memory))
    later = Watch(Notices(stored))
    assert later.minutes(30, HALT) == []
    assert texts(later.minutes(60, HALT)) == ["needs a person: halted: orders-0"]


def test_message_that_could_not_be_sent_is_sent_again_in_five_minutes_and_counts_as_the_first() -> None:
    watch = Watch()
    watch.minutes(2, HALT)
    later = Watch(Notices(json.loads(json.dumps(not_sent(watch.notices.memory)))))
    later.now = watch.now
    [(minute, _), (next_one, _)] = later.minutes(130, HALT)
    assert 4 <= minute <= 5.5
    assert next_one - minute in (60, 120)
    assert not_sent({}) == {}


@pytest.mark.parametrize("kind", sorted(OF_TASKS))
def test_what_tasks_alert_of_themselves_is_left_to_them(kind: Kind) -> None:
    assert Watch().minutes(100, Attention(kind, "it", "that")) == []
