"""Finding the topic that breaks every request it is named in."""

import itertools
import random

import pytest

from kafka_migration.wire.suspects import Suspects
from tests.copy.clock import Clock


class World:
    """A broker that breaks each request with a topic in `bad`; `asked` are the requests."""

    def __init__(self, topics: set[str], bad: set[str]) -> None:
        self.topics, self.bad, self.clock = topics, bad, Clock()
        self.suspects = Suspects(clock=self.clock)
        self.asked: list[frozenset[str]] = []

    def ask(self) -> frozenset[str]:
        named = frozenset(self.suspects.next(self.topics) if self.suspects else self.topics)
        self.asked.append(named)
        if not named:
            self.clock.now += 0.05
        elif named & self.bad:
            self.suspects.failed(named)
        else:
            self.suspects.answered(named)
        return named

    @property
    def broken(self) -> int:
        return sum(bool(named & self.bad) for named in self.asked)


def _topics(count: int) -> set[str]:
    return {f"t{n:04}" for n in range(count)}


@pytest.mark.parametrize("seed", range(20))
def test_halves_find_the_topics_to_blame_and_the_others_are_asked_for_together(seed: int) -> None:
    chance = random.Random(seed)
    topics = _topics(chance.choice((2, 3, 64, 1000)))
    bad = set(chance.sample(sorted(topics), chance.randint(1, min(3, len(topics) - 1))))
    world = World(topics, bad)
    while topics - bad not in world.asked:
        world.ask()
        assert len(world.asked) < 200
    assert world.broken <= len(bad) * (len(topics).bit_length() + 1)


def test_once_some_topics_are_beyond_suspicion_no_two_requests_in_a_row_break() -> None:
    world = World(_topics(64), {"t0033"})
    while world.topics - world.bad not in world.asked:
        world.ask()
    broken = [bool(named & world.bad) for named in world.asked]
    broken = broken[broken.index(False) :]
    assert sum(broken) > 2
    assert not any(before and after for before, after in itertools.pairwise(broken))


def test_topic_that_is_to_blame_rests_ever_longer_and_comes_back_once_it_is_answered() -> None:
    world = World(_topics(4), {"t0002"})
    tried = []
    for _ in range(4_000):
        if world.ask() == {"t0002"}:
            tried.append(world.clock.now)
        world.clock.now += 0.02
    rests = [after - before for before, after in itertools.pairwise(tried)]
    assert rests[:5] == pytest.approx([0.25, 0.5, 1, 2, 4], abs=0.1)
    assert max(rests) == pytest.approx(10, abs=0.1)
    world.bad = set()
    while world.suspects:
        world.ask()
        world.clock.now += 0.02
    assert world.ask() == world.topics


def test_one_broken_connection_suspects_nobody_for_long() -> None:
    world = World(_topics(8), set())
    world.suspects.failed(world.topics)
    assert [len(world.ask()) for _ in range(4)] == [4, 4, 4, 8]
    assert not world.suspects
    assert not world.suspects.is_apart, "what is asked for from now on is beyond suspicion"


def test_topics_that_are_not_wanted_now_are_not_asked_for_and_hold_up_nobody() -> None:
    suspects = Suspects(clock=Clock())
    suspects.failed({"a", "b", "c", "d"})
    assert set(suspects.next({"c", "d", "e"})) == {"c", "d"}
    assert set(suspects.next({"c", "d", "e"})) == {"e"}
    assert suspects.next(set()) == set()
