"""What a file or a folder of positions is made of: texts, each with the positions in it."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_migration.positions.texts import Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A text with positions: the file itself (``name`` is ""), or a file of the folder, by its path below it.

    ``needed``: whoever goes on from these positions reads it. Where one that is not needed cannot be translated, it is
    left out together with ``with_it`` (paths below the folder) and with all that are ``older`` than it: pieces of one
    history are numbered, the newest is the highest; None for one that is no history.
    """

    name: str
    text: str
    positions: tuple[Position, ...]
    needed: bool = True
    older: int | None = None
    with_it: tuple[str, ...] = ()

    def place(self, position: Position) -> str:
        """Where a position stands, for people."""
        return f"{self.name}: {position.where}" if self.name else position.where
