"""Names of states in the journal, as they are read again: a later version may have written others."""

from __future__ import annotations

import enum
from typing import TypeVar

from kafka_migration.domain.errors import StateConflict

S = TypeVar("S", bound=enum.StrEnum)


def known(states: type[S], name: str, whose: str) -> S:
    """The state called ``name``. Raises StateConflict for one that this version does not know; the message begins with
    ``whose`` it is."""
    try:
        return states(name)
    except ValueError as error:
        raise StateConflict(
            f"{whose} {name!r}, which this version does not know",
            remedy="use the version of this tool that wrote it",
        ) from error
