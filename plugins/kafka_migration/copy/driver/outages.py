"""What a run waits out: a cluster that does not answer, and an authorizer that refuses for a moment what it permitted
before."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from kafka_migration.copy.driver.fencing import Fences
from kafka_migration.copy.driver.link import Link
from kafka_migration.domain.errors import CouldNotFindOut, NotAuthorized
from kafka_migration.domain.types import Desired
from kafka_migration.wire.selector import Selector

T = TypeVar("T")

PASSING = (CouldNotFindOut, NotAuthorized)
_PAUSE_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outages:
    """Waits them out for ``outage_seconds`` each, once the run has begun to copy. ``interrupted`` asks for a clean end
    of the run."""

    link: Link
    net: Selector
    fences: Fences
    log: Callable[[str], None]
    outage_seconds: float
    interrupted: Callable[[], bool]

    def wait_out(self, work: Callable[[], T]) -> T:
        """What ``work`` returns. Raises what it raises, if that lasts too long, or the run is to end."""
        until = time.monotonic() + self.outage_seconds
        while True:
            try:
                return work()
            except PASSING as error:
                if time.monotonic() > until or not self.fences.count or self.is_to_stop():
                    raise
                self.log(f"waiting: {error.message}")
                self.pause()

    def pause(self) -> None:
        self.net.run(self.net.sleep, _PAUSE_SECONDS)

    def is_to_stop(self) -> bool:
        """True if somebody wants the run to end, as far as that can be found out."""
        try:
            return self.interrupted() or self.link.wanted()[0] is Desired.STOP
        except CouldNotFindOut:
            return False
