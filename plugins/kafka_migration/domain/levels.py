"""How closely a validation compares both clusters."""

from __future__ import annotations

import enum


class Level(enum.StrEnum):
    """What a plan may say; see :mod:`kafka_migration.validation.levels`."""

    BATCH = "batch"
    RECORD = "record"
    SAMPLED = "sampled"
