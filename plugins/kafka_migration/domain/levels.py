"""How closely a validation compares both clusters."""

from __future__ import annotations

import enum


class Level(enum.StrEnum):
    """What a plan may ask for; see :mod:`kafka_migration.validation.job`."""

    BATCH = "batch"
    RECORD = "record"

    @classmethod
    def _missing_(cls, value: object) -> Level | None:
        # Of earlier versions: batch level, and record level on a sample.
        return cls.RECORD if value == "sampled" else None
