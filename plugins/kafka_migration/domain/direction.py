"""The directions of a link: forward copies from source to target, reverse from target to source, for the way back.

Both links of a migration keep their state in the same place, :data:`HOME`, whichever way they copy: what a migration
remembers must not be spread over two clusters, one of which goes away.
"""

from __future__ import annotations

import enum
from typing import Final, Literal

Side = Literal["source", "target"]
SOURCE: Final = "source"
TARGET: Final = "target"
#: The cluster where journal and links of a migration live.
HOME: Final = TARGET
#: No plan's name holds a colon, so no plan's keys begin as those of another plan's reverse link.
_REVERSE = ":reverse"


class Direction(enum.StrEnum):
    """Which way a link copies. ``origin`` and ``destination`` are names of clusters."""

    FORWARD = "forward"
    REVERSE = "reverse"

    @property
    def origin(self) -> Side:
        """Where records are read."""
        return SOURCE if self is Direction.FORWARD else TARGET

    @property
    def destination(self) -> Side:
        """Where they are written."""
        return TARGET if self is Direction.FORWARD else SOURCE

    @property
    def opposite(self) -> Direction:
        """The other one."""
        return Direction.REVERSE if self is Direction.FORWARD else Direction.FORWARD

    def own(self, name: str, generation: int = 1) -> str:
        """``name`` (of a link, or of what the journal holds of it) as this direction's own, in its ``generation``.

        The first forward link's names are those that it had before there was another one.
        """
        own = name if self is Direction.FORWARD else f"{name}{_REVERSE}"
        return own if generation == 1 else f"{own}:{generation}"
