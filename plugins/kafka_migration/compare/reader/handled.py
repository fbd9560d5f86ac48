"""Handlers on what record level reads of the source, so that it is compared as the target should have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from kafka_migration.compare.decode.columns import Record
from kafka_migration.compare.digests import Digest
from kafka_migration.compare.reading import CannotRead
from kafka_migration.compare.request import PartitionRange
from kafka_migration.domain.errors import BadInput
from kafka_migration.domain.handlers import Handle, decoded, encoded
from kafka_migration.domain.handlers import Record as Handed

Spans = tuple[tuple[int, int], ...]


class Handled:
    """What a handler makes of records at offsets from ``start`` up to, and without, ``end``, around ``left_out``: of
    others it is not asked. ``dropped`` and ``changed`` count."""

    def __init__(self, handle: Handle, start: int, end: int, left_out: Spans) -> None:
        self._handle, self._start, self._end, self._left_out = handle, start, end, left_out
        self.dropped = self.changed = 0

    @classmethod
    def of(cls, range_: PartitionRange, start: int, end: int, left_out: Spans) -> Handled | None:
        """By the handler of ``range_``; None if it has none. Raises CannotRead if that is not here."""
        try:
            return None if range_.handler is None else cls(range_.handler.load(), start, end, left_out)
        except BadInput as error:
            raise CannotRead(error.message, remedy=error.remedy) from error

    def __call__(self, records: Iterable[Record]) -> Iterator[Record]:
        """Raises HandlerFailed."""
        for offset, time, key, value, headers in records:
            if not self._start <= offset < self._end or any(low <= offset < high for low, high in self._left_out):
                continue
            named = tuple((decoded(bytes(name)), _bytes(held)) for name, held in headers)
            before = Handed(_bytes(key), _bytes(value), named, time, offset)
            after = self._handle(before)
            if after is None:
                self.dropped += 1
                continue
            self.changed += after != before
            held_by = [(encoded(name), held) for name, held in after.headers]
            yield offset, after.timestamp, after.key, after.value, held_by

    def counted(self, digest: Digest) -> Digest:
        """``digest``, with how many were dropped and changed."""
        return replace(digest, dropped=self.dropped, changed=self.changed)


def _bytes(held: bytes | memoryview | None) -> bytes | None:
    return None if held is None else bytes(held)
