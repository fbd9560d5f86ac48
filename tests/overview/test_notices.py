"""Notices of what needs a person: one message for all of it, in time, at a growing interval, and when it is over."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.overview.attention import Attention, Kind
from kafka_migration.overview.notices import ALERTED_BY_TASKS, KIND, NAME, Notice, Notices
from kafka_migration.state.journal import Journal
from kafka_migration.state.store import MemoryStore

FENCE = Attention(Kind.FENCE, "a fence was left", "lift it", ("on the source",))
PAUSE = Attention(Kind.PAUSE, "paused by ann", "resume it", ("forward mirror",))
UNKNOWN = Attention(Kind.UNKNOWN, "lag unknown: no answer", "look", ("lag",))
DAY = 24 * 60


def halt(*partitions: str) -> Attention:
    return Attention(Kind.HALT, f"halted: {', '.join(partitions)}", "see `status`", partitions)


def group(name: str, side: str = "both sides") -> Attention:
    return Attention(Kind.GROUP, f"group {name} runs on {side}", "stop its consumers", (f"{name} on {side}",))


class Watch:
    """Looks every half minute, as a trigger does, through one journal."""

    def __init__(self) -> None:
        self.journal = Journal(MemoryStore(), "shop")
        self.now = 1_000_000.0
        self.sent: list[Notice] = []
        self.is_away = False
        self.restart()

    def restart(self) -> None:
        """Another process looks."""
        self.notices = Notices(self.send)

    def send(self, notice: Notice) -> bool:
        if not self.is_away:
            self.sent.append(notice)
        return not self.is_away

    def minutes(self, minutes: float, *needs: Attention, unknown: Sequence[str] = ()) -> list[tuple[float, Notice]]:
        """The messages while ``needs`` stand for so long, each with the minute of it."""
        found, began = [], self.now
        for _ in range(round(minutes * 2)):
            self.now += 30
            before = len(self.sent)
            page: Any = SimpleNamespace(at=datetime.fromtimestamp(self.now, UTC), unknown=dict.fromkeys(unknown, "why"))
            ctx: Any = SimpleNamespace(journal=self.journal)
            self.notices.look(ctx, page, needs)
            found += [((self.now - began) / 60, notice) for notice in self.sent[before:]]
        return found


@pytest.fixture
def watch() -> Watch:
    return Watch()


def texts(found: Sequence[tuple[float, Notice]]) -> list[str]:
    return [notice.what for _, notice in found]


def test_what_stands_for_a_minute_is_notified_of_once_with_its_remedy(watch: Watch) -> None:
    [(minute, notice)] = watch.minutes(30, halt("orders-0"))
    assert minute == 1.5
    assert notice == Notice("needs a person: halted: orders-0", "see `status`")


def test_what_is_gone_within_a_minute_is_no_news_and_begins_anew(watch: Watch) -> None:
    for _ in range(10):
        assert watch.minutes(1, halt("orders-0")) == []
        assert watch.minutes(0.5) == []


def test_all_that_stands_is_one_message_which_names_the_first_and_counts_the_rest(watch: Watch) -> None:
    [(_, notice)] = watch.minutes(30, FENCE, halt("orders-0"), group("a"), group("b"))
    assert notice.what == "needs a person: a fence was left; halted: orders-0; and 2 more"
    assert notice.remedy == "lift it; see `status`; and 1 more"


def test_message_is_one_short_line_whatever_stands_in_it(watch: Watch) -> None:
    evil = replace(PAUSE, what="paused by ann: x\ny\rBcc: a@b\u202e" + "z" * 5_000)
    [(_, notice)] = watch.minutes(5, evil, halt("orders-0"))
    assert notice.what.startswith("needs a person: paused by ann: x\\ny\\rBcc: a@b\\u202ezz")
    assert notice.what.endswith("…; halted: orders-0")
    assert len(notice.what) < 300


def test_it_is_repeated_at_a_growing_interval_up_to_a_day(watch: Watch) -> None:
    found = watch.minutes(9 * DAY, halt("orders-0"))
    hours = [round((later - before) / 60) for (before, _), (later, _) in pairwise(found)]
    assert hours == [1, 2, 4, 8, 16, *[24] * len(hours[5:])]
    assert len(hours) > 10


def test_another_kind_is_notified_of_at_once_and_more_of_a_kind_after_five_minutes(watch: Watch) -> None:
    watch.minutes(2, group("a"))
    [(minute, notice)] = watch.minutes(3, group("a"), FENCE)
    assert minute == 1.5
    assert notice.what == "needs a person: a fence was left; group a runs on both sides"
    [(minute, notice)] = watch.minutes(20, group("a"), FENCE, group("b"), group("c"))
    assert 3 <= minute <= 5
    assert notice.what.startswith("needs a person: group b runs on both sides; group c runs on both sides; and 2 more")


def test_hundred_groups_one_after_the_other_are_a_message_in_five_minutes_at_most(watch: Watch) -> None:
    for until in range(100):
        watch.minutes(1, *(group(f"g{n}") for n in range(until + 1)))
    assert 15 <= len(watch.sent) <= 21


def test_other_things_of_the_same_kind_are_news_however_many_there_were(watch: Watch) -> None:
    watch.minutes(10, halt("a-0", "a-1"), group("g", "neither side"))
    assert texts(watch.minutes(10, halt("a-0", "b-7"), group("g", "neither side")))[0].startswith(
        "needs a person: halt: 1 new, such as b-7; 2 in all; "
    )
    [text] = texts(watch.minutes(4.5, halt("a-0", "b-7"), group("g", "both sides")))
    assert text.startswith("needs a person: group g runs on both sides; ")


def test_what_is_over_is_notified_of_with_what_still_stands_and_then_no_more(watch: Watch) -> None:
    watch.minutes(10, halt("orders-0"), PAUSE)
    [(minute, notice)] = watch.minutes(10, PAUSE)
    assert minute == 1.5
    assert notice == Notice("needs a person: paused by ann; over: halt: orders-0", "resume it")
    [(_, notice)] = watch.minutes(10)
    assert notice == Notice("over: pause: forward mirror", "")
    assert watch.minutes(10 * DAY) == []


def test_what_comes_back_soon_after_was_never_over(watch: Watch) -> None:
    watch.minutes(10, PAUSE)
    for _ in range(5):
        assert watch.minutes(1) == []
        assert watch.minutes(1, PAUSE) == []


def test_what_comes_and_goes_all_day_is_no_storm(watch: Watch) -> None:
    for _ in range(DAY // 10):
        watch.minutes(2, group("nightly"))
        watch.minutes(8)
    assert 4 <= len(watch.sent) <= 20
    watch.minutes(3 * DAY)
    watch.sent.clear()
    assert len(watch.minutes(3, group("nightly"))) == 1, "days later it is news again"


def test_nothing_is_over_that_could_not_be_looked_at_and_all_else_is(watch: Watch) -> None:
    watch.minutes(10, group("a"), PAUSE)
    assert texts(watch.minutes(30, unknown=["groups"])) == ["over: pause: forward mirror"]
    assert texts(watch.minutes(10)) == ["over: group: a on both sides"]


def test_what_people_do_again_is_news_though_it_was_over_a_while_ago(watch: Watch) -> None:
    watch.minutes(4 * DAY, PAUSE)
    watch.minutes(60)
    watch.sent.clear()
    assert texts(watch.minutes(6, PAUSE)) == ["needs a person: paused by ann"]
    assert len(watch.minutes(61, PAUSE)) == 1, "and an hour later, however seldom it was before"


def test_message_that_was_sent_and_could_not_be_recorded_is_not_sent_again(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise CouldNotFindOut("target: not enough replicas")

    with monkeypatch.context() as patch:
        patch.setattr(watch.journal, "record", refuse)
        with pytest.raises(CouldNotFindOut):
            watch.minutes(5, PAUSE)
        assert watch.minutes(50, PAUSE) == []
    assert len(watch.sent) == 1
    assert watch.minutes(30, PAUSE)[0][1].what == "needs a person: paused by ann"
    assert watch.journal.read(KIND, NAME) is not None


def test_memory_of_another_version_is_read_as_far_as_it_is_known(watch: Watch) -> None:
    known = {"stands": ["later: it", "pause: forward mirror"], "last": watch.now, "next": watch.now + 9_000}
    watch.journal.record(KIND, NAME, {**known, "more": 1})
    assert watch.minutes(4, PAUSE) == []
    assert texts(watch.minutes(10, PAUSE)) == ["needs a person: paused by ann; over: later: it"]


def test_group_that_is_back_after_days_is_named_within_hours(watch: Watch) -> None:
    watch.minutes(4 * DAY, group("a"))
    watch.minutes(60)
    watch.sent.clear()
    [(minute, _)] = watch.minutes(5 * 60, group("a"))
    assert minute <= 4 * 60


def test_memory_outlives_the_process_and_no_message_is_sent_again(watch: Watch) -> None:
    watch.minutes(10, PAUSE)
    watch.restart()
    assert watch.minutes(30, PAUSE) == []
    assert texts(watch.minutes(60, PAUSE)) == ["needs a person: paused by ann"]


def test_message_that_nobody_got_is_tried_again_at_a_growing_interval_until_somebody_does(watch: Watch) -> None:
    tries: list[float] = []

    def refuse(_notice: Notice) -> bool:
        tries.append(watch.now)
        return False

    watch.notices = Notices(refuse)
    watch.minutes(8 * 60, PAUSE)
    assert [round((later - before) / 60) for before, later in pairwise(tries)][:5] == [5, 10, 20, 40, 60]
    assert watch.journal.read(KIND, NAME) is None
    watch.restart()
    assert texts(watch.minutes(2, PAUSE)) == ["needs a person: paused by ann"]
    watch.is_away = True
    assert watch.minutes(2) == []
    watch.is_away = False
    assert texts(watch.minutes(30)) == ["over: pause: forward mirror"], "what is over, too"


def test_nothing_is_over_because_more_stands_than_is_remembered(watch: Watch) -> None:
    watch.minutes(10, halt(*(f"orders-{n}" for n in range(600))))
    found = watch.minutes(10, halt("audit-0", *(f"orders-{n}" for n in range(600))))
    assert [text for text in texts(found) if "over" in text] == []


def test_thousands_of_halts_are_remembered_in_a_small_record(watch: Watch) -> None:
    watch.minutes(10, halt(*(f"orders-{n}" for n in range(50_000))))
    known = watch.journal.read(KIND, NAME)
    assert known is not None
    assert len(known["stands"]) == 500
    assert len(watch.sent) == 1
    watch.minutes(10, *(group(f"g{n}") for n in range(3_000)))
    assert len(str(watch.journal.read(KIND, NAME))) < 200_000


@pytest.mark.parametrize("kind", sorted(ALERTED_BY_TASKS))
def test_what_tasks_alert_of_themselves_is_left_to_them(watch: Watch, kind: Kind) -> None:
    assert watch.minutes(100, Attention(kind, "it", "that", ("it",))) == []


def test_what_is_unknown_is_notified_of_and_over_once_it_is_known(watch: Watch) -> None:
    assert texts(watch.minutes(5, UNKNOWN, unknown=["lag"])) == ["needs a person: lag unknown: no answer"]
    assert texts(watch.minutes(10)) == ["over: unknown: lag"]
