"""Sees the target grow: a fault counts only if it falls while the mirror is at work."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from typing import Self

import confluent_kafka
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.chaos.reader import Place

_EVERY_SECONDS = 0.2
_ASK_SECONDS = 1.5

Ends = Callable[[], dict[Place, int]]


def ends_of(servers: str, places: Collection[Place]) -> Ends:
    """Asks for the high watermarks of `places`, of those whose broker answers soon."""
    admin: AdminClient | None = None
    wanted = {confluent_kafka.TopicPartition(*place): OffsetSpec.latest() for place in places}

    def ask() -> dict[Place, int]:
        nonlocal admin
        asked = admin or AdminClient({"bootstrap.servers": servers, "log_level": 0})
        # One that failed begins anew: librdkafka goes on to ask the leader of before for minutes.
        admin, found = asked, {}
        for tp, future in asked.list_offsets(wanted, request_timeout=_ASK_SECONDS).items():
            try:
                found[tp.topic, tp.partition] = future.result(2 * _ASK_SECONDS).offset
            except (KafkaException, TimeoutError):
                admin = None
        return found

    return ask


class Watch(ABC):
    """Looks all the time, in a thread of its own, while its block runs."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(10)

    @abstractmethod
    def look(self) -> None:
        """Look once."""

    def _look_on(self) -> None:
        while not self._over.wait(_EVERY_SECONDS):
            self.look()


class Progress(Watch):
    """Asks for the target's ends all the time.

    Growth by less than a record a partition is none: that may be the marker of a fence.
    """

    def __init__(self, ends: Ends, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._ask, self._clock = ends, clock
        self._ends: dict[Place, int] = {}
        self._seen_at = float("-inf")

    def look(self) -> None:
        """Look once."""
        asked_at = self._clock()
        found = self._ask()
        grown = sum(max(0, end - self._ends.get(place, end)) for place, end in found.items())
        for place, end in found.items():
            self._ends[place] = max(end, self._ends.get(place, 0))
        if grown > len(self._ends):
            # It grew before it was asked for, whenever the answer came.
            self._seen_at = asked_at

    @property
    def age(self) -> float:
        """For how many seconds no growth was seen."""
        return self._clock() - self._seen_at

    @property
    def offsets(self) -> int:
        """The target's offsets seen, over all partitions."""
        return sum(self._ends.values())


class Stalls(Watch):
    """For how long partitions stood still that a fault does not concern, although there was something to copy.

    `source` and `target` ask for ends. A partition stands from when its source was seen to grow and its target has not
    since; what is written there all the time is to be copied within a second or two.
    """

    def __init__(
        self, source: Ends, target: Ends, places: Collection[Place], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._source, self._target, self.places, self._clock = source, target, frozenset(places), clock
        self._copied: dict[Place, tuple[int, int]] = {}
        self._stands_since: dict[Place, float] = {}
        self._grown: set[Place] = set()
        self.longest = 0.0
        self.place: Place | None = None
        self.until = ""

    def is_steady(self, seconds: float) -> bool:
        """Whether each was seen to grow, and none stood for longer than that."""
        return self._grown == self.places and self.longest <= seconds

    def look(self) -> None:
        """Look once."""
        now = self._clock()
        # The target first: what is written in between is not to have been copied.
        target, source = self._target(), self._source()
        for place in self.places & target.keys() & source.keys():
            grown_to, seen = self._copied.get(place, (-1, -1))
            if target[place] > grown_to:
                if place in self._copied:
                    self._grown.add(place)
                self._copied[place] = target[place], source[place]
                self._stands_since.pop(place, None)
            elif source[place] > seen:
                since = self._stands_since.setdefault(place, now)
                if now - since > self.longest:
                    self.longest, self.place, self.until = now - since, place, time.strftime("%H:%M:%S")
