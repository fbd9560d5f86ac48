"""Logs read again in the driver, batch by batch: hashed by columns, and taken apart only where a record is shown.

By the same reader as record level's (:mod:`kafka_migration.compare.reader`), which shares no code with the mirror.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import count, repeat
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka_migration.compare.digests import SOURCE, TARGET
from kafka_migration.compare.explain.fields import Record
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.handlers import Handler
from kafka_migration.domain.types import TopicPartition

if TYPE_CHECKING:
    from kafka_migration.compare.decode.columns import Columns
    from kafka_migration.compare.reader.client import Client
    from kafka_migration.compare.reader.handled import Spans
    from kafka_migration.compare.reader.side import Batches, Side

_PATIENCE_SECONDS = 60.0
#: Of small batches so many bytes are decoded at once: of a single one that takes a hundred times as long as its record.
_TOGETHER_BYTES = 64 << 10
_CODEC, _STAMPED, _TRANSACTIONAL = 0x07, 0x08, 0x10


class Batch:
    """The bytes of one batch, copied out of the answer that it came in; those of its records count that lie between the
    bounds of ``side``, and not in what is left out there."""

    def __init__(self, side: Side, stored: bytes) -> None:
        self.side, self.stored = side, stored

    @cached_property
    def records(self) -> list[Record]:
        """Its records. Raises CannotRead."""
        side = self.side
        return [
            Record.of(offset, time, *parts)
            for offset, time, *parts in side.records(self.stored)
            if side.start <= offset < side.end and not any(low <= offset < high for low, high in side.left_out)
        ]


class Entry(NamedTuple):
    """A record by its hash, ``digest``; ``timestamp`` is in ms. ``size`` is how many bytes are held for it."""

    offset: int
    timestamp: int
    digest: int
    size: int
    batch: Batch
    nth: int

    @property
    def record(self) -> Record:
        """All of it. Raises CannotRead."""
        return self.batch.records[self.nth]


class _Answer:
    """The batches of one answer. Small ones are decoded together with those behind them."""

    def __init__(self, side: Side, found: Batches) -> None:
        self.side, self.log, self.begins = side, found.log, found.begins
        self.places: list[int] = found.mask.nonzero()[0].tolist()
        self._magics: list[int] = found.log.headers["magic"].tolist()
        self._done = range(0)
        self._columns: Columns | None = None

    def columns(self, nth: int) -> Columns:
        """The records of the batch of ``places`` with this number, in order of offsets. Raises CannotRead."""
        if nth not in self._done or self._columns is None:
            self._done = self._together(nth)
            try:
                self._columns = self._decoded(self._done)
            except CouldNotFindOut:
                # One that is damaged keeps nobody from reading those before it.
                self._done = range(nth, nth + 1)
                self._columns = self._decoded(self._done)
        if len(self._done) == 1:
            return self._columns
        at = self.places[nth]
        return self._columns.slice(*self._columns.offsets.searchsorted([self.begins[at], self.log.ends[at]]).tolist())

    def _together(self, nth: int) -> range:
        """Batches one behind the other, of few bytes in all, of which none reaches back."""
        size, last, stop = 0, self.places[nth], nth
        for stop in range(nth, len(self.places)):
            at = self.places[stop]
            size += self.log.size(at)
            is_other = self._magics[at] != self._magics[last] or self.begins[at] < self.log.ends[last]
            if stop > nth and (is_other or size > _TOGETHER_BYTES):
                return range(nth, stop)
            last = at
        return range(nth, stop + 1)

    def _decoded(self, which: range) -> Columns:
        import numpy as np  # only who drills down pays for it

        mask = np.zeros(len(self.log), np.bool_)
        mask[[self.places[nth] for nth in which]] = True
        side = self.side
        return side.decoded(self.log, mask).between(side.start, side.end, side.left_out)


class Chunk:
    """What one batch, or message of an old format, holds of a side's offsets: decoded once it is asked for.

    ``first`` is the offset that it begins at, ``count`` how many records its header names (0 in old formats), and
    ``newest`` their largest timestamp, None if no header says so. Only all of a batch can be a twin (``is_whole``).
    """

    def __init__(self, answer: _Answer, nth: int) -> None:
        self._answer, self._nth, self._at = answer, nth, answer.places[nth]
        self.first, side = int(answer.begins[self._at]), answer.side
        (_, length, _, magic, _, attributes, last, base, newest, *_, records) = answer.log.headers[self._at].item()
        is_old, end = magic < 2, self.first + last + 1
        self.count: int = records
        self.attributes: int = 0 if is_old else attributes
        self.newest = None if is_old or newest < 0 or side.handled is not None else int(newest)
        self.is_whole = (
            not is_old
            and side.handled is None
            and last + 1 == records
            and side.start <= self.first
            and end <= side.end
            and all(end <= low or self.first >= high for low, high in side.left_out)
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
            and self._body() == other._body()
        )

    def _body(self) -> bytes:
        return bytes(self._answer.side.verified(self._answer.log, self._at))

    def columns(self) -> Columns:
        """Its records as columns. Raises CannotRead."""
        return self._answer.columns(self._nth)

    def entries(self) -> Iterator[Entry]:
        """The same, by their hashes. Raises CannotRead."""
        columns = self.columns()
        batch = Batch(self._answer.side, self._answer.log.stored(self._at))
        # As stored, or as it is once somebody looks into it.
        sizes = columns.sizes.clip(len(batch.stored) // max(1, len(columns)))
        rows = (columns.offsets, columns.times, columns.hashes, sizes)
        return map(Entry._make, zip(*(row.tolist() for row in rows), repeat(batch), count(), strict=False))


Chunks = Iterator[Chunk]


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
        """What stands at ``start`` to ``end`` (not included), but for the spans ``left_out``, which may be damaged.

        ``may_lack``: what the leader does not send is not there, since the log is compacted. Of what ``handler`` makes
        of the records, if there is one. Raises BadInput for a handler that is not here, and CannotRead for what cannot
        be read.
        """
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
                answer = _Answer(side, found)
                for nth in range(len(answer.places)):
                    yield Chunk(answer, nth)
        finally:
            side.drop()
