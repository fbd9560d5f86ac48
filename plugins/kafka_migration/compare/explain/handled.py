"""The source's logs, with each record as its topic's handler makes it: as the target should have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kafka_migration.compare.explain.fields import Record
from kafka_migration.compare.explain.log import Chunk, Chunks, Log, Old
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.handlers import Handle, HandlerFailed, HandlerOf
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.handled import handled_record


class HandledLog:
    """``log``, by ``handler_of`` its topics."""

    def __init__(self, log: Log, handler_of: HandlerOf) -> None:
        self._log, self._handler_of = log, handler_of
        self.ends: Callable[[TopicPartition], tuple[int, int]] = log.ends

    def chunks(self, tp: TopicPartition, start: int, end: int) -> Chunks:
        """What stands at ``start`` to ``end`` (not included). Raises what the log does, BadInput for a handler that is
        not here, and CouldNotFindOut where one fails."""
        found = self._log.chunks(tp, start, end)
        handler = self._handler_of(tp.topic)
        return found if handler is None else _handled(found, handler.load(), tp)


def _handled(chunks: Chunks, handle: Handle, tp: TopicPartition) -> Iterator[Chunk | Old]:
    for chunk in chunks:
        try:
            yield Old([*_each(chunk.records(), handle)])
        except HandlerFailed as error:
            raise CouldNotFindOut(f"{tp}: {error}", remedy="correct the handler") from error


def _each(records: Iterator[Record], handle: Handle) -> Iterator[Record]:
    for record in records:
        after = handled_record(handle, record.rest, record.timestamp, record.offset)
        if after is not None:
            yield Record(record.offset, *after)
