"""How closely a validation compares both clusters."""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Level(enum.StrEnum):
    """What a plan may ask for; see :mod:`kafka_migration.validation.job`."""

    BATCH = "batch"
    RECORD = "record"
    SAMPLED = "sampled"

    def covers(self, other: Level) -> bool:
        """Whether what was found equal at this level would do where ``other`` is asked for."""
        return _RISING.index(self) >= _RISING.index(other)


_RISING = (Level.BATCH, Level.SAMPLED, Level.RECORD)


#: Fewer than this prove little, however small their share would be.
_LEAST_SAMPLE = 20


def sample_size(count: int, share: float) -> int:
    """How many of ``count`` segments a sample of ``share`` holds: 20 at the least, or all if there are fewer."""
    return min(count, max(_LEAST_SAMPLE, round(share * count))) if share else 0


def stratified(
    chance: random.Random, items: Sequence[T], size: int, *, topic: Callable[[T], str], traits: Callable[[T], int]
) -> list[T]:
    """``size`` of ``items``, drawn by ``chance``: every trait (a bit) that any of them has is in the sample, if need be
    in more than ``size``, and the topics take turns, so that a large one does not fill it alone."""
    if not size:
        return []
    waiting: dict[str, list[T]] = {}
    chosen: list[T] = []
    covered = 0
    for item in chance.sample(items, len(items)):
        if traits(item) & ~covered:
            covered |= traits(item)
            chosen.append(item)
        else:
            waiting.setdefault(topic(item), []).append(item)
    seen = {topic(item) for item in chosen}
    turns = deque(sorted(waiting, key=lambda name: name in seen))
    while len(chosen) < size and turns:
        name = turns.popleft()
        chosen.append(waiting[name].pop())
        if waiting[name]:
            turns.append(name)
    return chosen
