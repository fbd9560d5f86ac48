"""Logs read again in the driver, batch by batch: hashed by columns, and taken apart only where a record is shown.

By the same reader as record level's (:mod:`kafka_migration.compare.reader`), which shares no code with the mirror.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import Record
from kafka_migration.domain.handlers import Handler
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.compare.decode.columns import Columns
    from kafka_migration.compare.reader.client import Client
    from kafka_migration.compare.reader.log import Log as Batches
    from kafka_migration.compare.reader.side import Side

_PATIENCE_SECONDS = 60.0
_CODEC, _STAMPED, _TRANSACTIONAL = 0x07, 0x08, 0x10

Spans = tuple[tuple[int, int], ...]


class Entry(NamedTuple):
    """A record by its hash, ``digest``. ``size`` counts the bytes of key and value; ``timestamp`` is in ms."""

    offset: int
    timestamp: int
    digest: int
    size: int
    chunk: Chunk
    nth: int

    @property
    def record(self) -> Record:
        """All of it. Raises CannotRead."""
        return self.chunk.records[self.nth]


class Chunk:
    """What one batch, or message of an old format, holds of a side's offsets: decoded once it is asked for.

    ``first`` is the offset that it begins at, ``count`` how many records its header names (0 in old formats), and
    ``newest`` their largest timestamp, None if no header says so. Only all of a batch can be a twin (``is_whole``).
    """

    def __init__(self, side: Side, batches: Batches, at: int, first: int) -> None:
        self._side, self._batches, self._at, self.first = side, batches, at, first
        (_, length, _, magic, _, attributes, last, base, newest, *_, records) = batches.headers[at].item()
        is_old, end = magic < 2, first + last + 1
        self.count: int = records
        self.attributes: int = 0 if is_old else attributes
        self.newest = None if is_old or newest < 0 or side.handled is not None else int(newest)
        self.is_whole = (
            not is_old
            and side.handled is None
            and last + 1 == records
            and side.start <= first
            and end <= side.end
            and all(end <= low or first >= high for low, high in side.left_out)
        )
        self._likeness = length, records, base, attributes & (_CODEC | _STAMPED)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & _TRANSACTIONAL)

    def is_twin(self, other: Chunk) -> bool:
        """Whether both hold the very same records, by their bytes: all of the batch on both sides. Raises
        CannotRead."""
        return (
            self.is_whole
            and other.is_whole
            and self._likeness == other._likeness
            and not self.attributes & _STAMPED
            and self._stored == other._stored
        )

    @property
    def _stored(self) -> bytes:
        return bytes(self._side.verified(self._batches, self._at))

    @cached_property
    def columns(self) -> Columns:
        """Its records as columns. Raises CannotRead."""
        import numpy as np  # only who drills down pays for it

        only = np.zeros(len(self._batches), np.bool_)
        only[self._at] = True
        side = self._side
        return side.decoded(self._batches, only).between(side.start, side.end, side.left_out)

    @cached_property
    def records(self) -> list[Record]:
        """The same, each in its parts. Raises CannotRead."""
        side = self._side
        return [
            Record.of(offset, time, *parts)
            for offset, time, *parts in side.records(self._batches, self._at)
            if side.start <= offset < side.end and not any(low <= offset < high for low, high in side.left_out)
        ]

    def entries(self) -> Iterator[Entry]:
        """The same, by their hashes. Raises CannotRead."""
        columns = self.columns
        rows = (columns.offsets, columns.times, columns.hashes, columns.sizes)
        return map(Entry._make, zip(*(row.tolist() for row in rows), repeat(self), count(), strict=False))


Chunks = Iterator[Chunk]


class Log(Protocol):
    """One side's logs (:class:`LogReader`)."""

    def chunks(
        self,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        left_out: Spans = (),
        may_lack: bool = False,
        handler: Handler | None = None,
    ) -> Chunks:
        """What stands at ``start`` to ``end`` (not included), but for the spans ``left_out``, which may be damaged.

        ``may_lack``: offsets may hold nothing, since the log is compacted. Of what ``handler`` makes of the records,
        if there is one. Raises BadInput for a handler that is not here, and CannotRead for what cannot be read.
        """


@contextmanager
def open_logs(source: Mapping[str, Any], target: Mapping[str, Any]) -> Iterator[tuple[LogReader, LogReader]]:
    """Readers of both clusters, by kafka-python's properties of their connections.

    The source is read as the mirror reads it, committed records only; on the target, whatever stands there counts.
    Raises ClusterUnreachable and AuthenticationFailed.
    """
    from kafka_migration.compare.task import clients  # with libraries that only who drills down pays for

    with clients({SOURCE: source, TARGET: target}) as both:
        yield LogReader(both[SOURCE], committed=True), LogReader(both[TARGET], committed=False)


class LogReader:
    """One cluster's logs. ``committed``: as a consumer of committed records sees them."""

    def __init__(self, client: Client, *, committed: bool) -> None:
        self._client, self._committed = client, committed

    def uncommitted(self) -> LogReader:
        """The same logs with what no consumer of committed records sees."""
        return LogReader(self._client, committed=False)

    def chunks(
        self,
        tp: TopicPartition,
        start: int,
        end: int,
        *,
        left_out: Spans = (),
        may_lack: bool = False,
        handler: Handler | None = None,
    ) -> Chunks:
        """As :meth:`Log.chunks`."""
        from kafka_migration.compare.reader.handled import Handled
        from kafka_migration.compare.reader.side import Side

        side = Side(
            self._client,
            tp,
            start,
            end,
            committed=self._committed,
            seconds=_PATIENCE_SECONDS,
            may_lack=may_lack,
            left_out=left_out,
            handled=None if handler is None else Handled(handler.load(), start, end, left_out),
        )
        try:
            while (found := side.next_batches()) is not None:
                for at in found.mask.nonzero()[0].tolist():
                    yield Chunk(side, found.log, at, int(found.begins[at]))
        finally:
            side.drop()
