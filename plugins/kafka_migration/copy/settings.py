"""How a run of the mirror is set up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kafka_migration.copy.orders import Limits

_STILL_REPORTS = 3
"""In how many reports of its task, at least, a partition must not have moved."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """``streams`` tasks at once; every ``epoch_seconds`` a new copy round begins, unless they are caught up; an outage
    is borne for ``outage_seconds``; new topics are looked for every ``follow_seconds``. ``held_open`` are configs that
    every target topic must keep while it is mirrored: where one is different, the topic's partitions halt. A batch that
    never gets a clear answer is tried for ``unclear_seconds`` at the least before its partition halts."""

    streams: int = 2
    epoch_seconds: float = 15.0
    outage_seconds: float = 900.0
    follow_seconds: float = 30.0
    unclear_seconds: float = 300.0
    held_open: Mapping[str, str] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    @property
    def still_seconds(self) -> float:
        """For how long a partition that has something to copy may stand before that counts as a standstill."""
        return max(self.epoch_seconds, _STILL_REPORTS * self.limits.progress_seconds)
