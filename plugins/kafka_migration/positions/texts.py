"""A position in a text: where its number stands, so that nothing but that number is ever rewritten.

Every format is read into these, and written by replacing numbers: whatever else a text holds (other fields, their
order, spaces, quotes, line ends) stays byte for byte, since nobody serialises it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeGuard

from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.types import TopicPartition

#: What Kafka calls a topic (its Topic.java); a name of other characters is no topic, but a mistake in the text.
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
#: Offsets that name no record, of Spark and of Kafka's tools: the end of the log, and its start.
LATEST, EARLIEST = -1, -2
_MOST = 2**63 - 1
#: Python takes time for longer numbers, and refuses far longer ones; no offset has as many.
_MOST_DIGITS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """``offset`` of ``tp``, written in characters ``start`` to ``end`` (not included) of a text; ``where`` is for
    people: a line or a field. ``is_last_read``: the number is that of the last record that was read, not of the next
    one. It may be LATEST or EARLIEST, which mean the same on every cluster."""

    tp: TopicPartition
    offset: int
    where: str
    start: int
    end: int
    is_last_read: bool = False

    @property
    def is_symbolic(self) -> bool:
        """Whether it names an end of the log, and no offset."""
        return self.offset < 0


def position(
    topic: object,
    partition: object,
    offset: object,
    *,
    file: str,
    where: str,
    span: tuple[int, int],
    is_last_read: bool = False,
) -> Position:
    """The position that these three values are. Raises BadInput, naming ``file`` and ``where``, if they are none."""

    def bad(message: str, value: object, remedy: str) -> BadInput:
        return BadInput(message, file=file, field=where, value=value, remedy=f"{remedy}; found {value!a}")

    if not isinstance(topic, str) or not _TOPIC.fullmatch(topic):
        raise bad("is not the name of a topic", topic, "correct the topic")
    if not _is_whole(partition) or not 0 <= partition < 2**31:
        raise bad("is not the number of a partition", partition, "give a partition of 0 or more")
    if not _is_whole(offset) or not EARLIEST <= offset <= _MOST:
        raise bad("is not an offset", offset, "give an offset of 0 or more, or -1 (latest) or -2 (earliest)")
    tp = TopicPartition(topic, partition)
    return Position(tp=tp, offset=offset, where=where, start=span[0], end=span[1], is_last_read=is_last_read)


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def whole(text: str) -> int | str:
    """The whole number that ``text`` is known to be. One that is too long for an offset or a partition stays a text,
    its beginning: :func:`position` refuses that."""
    return int(text) if len(text) <= _MOST_DIGITS else f"{text[:_MOST_DIGITS]}... ({len(text)} characters)"


def rewritten(text: str, offsets: Mapping[Position, int]) -> str:
    """``text`` with the number of each position replaced, and all else as it was."""
    parts, at = [], 0
    for one in sorted(offsets, key=lambda position: position.start):
        parts += [text[at : one.start], str(offsets[one])]
        at = one.end
    return "".join([*parts, text[at:]])
