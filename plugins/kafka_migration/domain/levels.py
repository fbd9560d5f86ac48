"""How closely a validation compares both clusters."""

from __future__ import annotations

import enum


class Level(enum.StrEnum):
    """What a plan may say; see :mod:`kafka_migration.validation.levels`."""

    BATCH = "batch"
    RECORD = "record"
    SAMPLED = "sampled"

    def covers(self, other: Level) -> bool:
        """Whether what was found equal at this level would do where ``other`` is asked for."""
        return _RISING.index(self) >= _RISING.index(other)


_RISING = (Level.BATCH, Level.SAMPLED, Level.RECORD)


def sample_size(count: int, share: float) -> int:
    """How many of ``count`` segments a sample of ``share`` holds: one at the least, of any and for any."""
    return min(count, max(1, round(share * count))) if share else 0
