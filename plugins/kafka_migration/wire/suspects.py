"""Which topic makes a broker's connection break whenever it is asked for: found by halves, and then asked for alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

_FIRST_REST_SECONDS, _LONGEST_REST_SECONDS = 0.25, 10.0


class Suspects:
    """The topics of one broker. A request that breaks its connection would break every one that names the same topics,
    and nothing would be fetched from that broker any more; so halves of them are asked for, in requests of their own,
    until the topic that is to blame is known. That one rests, and is tried again alone.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._groups: list[frozenset[str]] = []
        self._resting: dict[str, tuple[float, float]] = {}
        self.is_apart = False
        """Whether what :meth:`next` returned last is suspected."""

    def __bool__(self) -> bool:
        """Whether any topic is suspected."""
        return bool(self._groups or self._resting)

    def failed(self, asked: Collection[str]) -> None:
        """A request for these topics broke its connection, while its broker answers others."""
        self._forget(asked)
        topics = sorted(asked)
        if len(topics) > 1:
            half = len(topics) // 2
            self._groups[:0] = frozenset(topics[:half]), frozenset(topics[half:])
            return
        for topic in topics:
            _, before = self._resting.get(topic, (0.0, _FIRST_REST_SECONDS / 2))
            rest = min(2 * before, _LONGEST_REST_SECONDS)
            self._resting[topic] = self._clock() + rest, rest

    def answered(self, asked: Collection[str]) -> None:
        """A request for these topics was answered: they are asked for with all others again."""
        self._forget(asked)
        for topic in self._resting.keys() & set(asked):
            del self._resting[topic]
        # Nobody asks :meth:`next` any more once none is suspected.
        self.is_apart = self.is_apart and bool(self)

    @property
    def guilty(self) -> frozenset[str]:
        """Topics of which more than one request broke that named nothing else."""
        return frozenset(topic for topic, (_, rest) in self._resting.items() if rest > _FIRST_REST_SECONDS)

    def next(self, topics: Collection[str]) -> Collection[str]:
        """Which of ``topics`` the next request is to name: all that nobody suspects and, in turn with them, a group
        that is suspected, or one topic that has rested. Empty if there is neither now."""
        sound = set(topics).difference(self._resting, *self._groups)
        now = self._clock()
        rested = (frozenset({topic}) for topic, (until, _) in self._resting.items() if now >= until)
        group = next((asked for some in (*self._groups, *rested) if (asked := some.intersection(topics))), frozenset())
        self.is_apart = bool(group) and not (self.is_apart and sound)
        return group if self.is_apart else sound

    def _forget(self, topics: Collection[str]) -> None:
        left = (group.difference(topics) for group in self._groups)
        self._groups = [group for group in left if group]
