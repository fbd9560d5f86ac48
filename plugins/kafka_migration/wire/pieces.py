"""A fetched record set, as pieces to copy: batches as they stand where a broker takes them so, re-encoded where not.

=====================================  =================================================================================
a batch                                becomes
=====================================  =================================================================================
of format v2, nothing about it         itself, byte for byte, with another header
small, beside small ones               one of them all (:mod:`kafka_migration.wire.join`)
of a committed transaction             as any other: its producer made sure of it already
of an aborted one; a marker; emptied   nothing: the position moves past it
compacted; LogAppendTime               one without gaps, with CreateTime
of format v0 or v1                     one of format v2 (:mod:`kafka_migration.wire.old_formats`)
of a topic with a handler              what that makes of it (:mod:`kafka_migration.wire.handled`)
=====================================  =================================================================================
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kafka_migration.domain.handlers import Handle
from kafka_migration.wire.aborted import aborted_batches, is_left_out
from kafka_migration.wire.batch import (
    CONTROL,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    CorruptBatch,
    has_more,
    next_batch,
    verify_crc,
)
from kafka_migration.wire.handled import handled, remade
from kafka_migration.wire.join import Piece, Run, join, reencoded, singles, small_neighbours
from kafka_migration.wire.old_formats import old_messages
from kafka_migration.wire.records import RawRecord, raw_records

_OFFSET = struct.Struct(">q")
_ODD = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL


def pieces(
    records: bytes | memoryview,
    *,
    since: int = 0,
    aborted: Sequence[tuple[int, int]] = (),
    join_bytes: int = 0,
    most_bytes: int = 0,
    handle: Handle | None = None,
) -> Iterator[Piece]:
    """All that is complete in ``records`` from source offset ``since`` on, in order.

    ``aborted``: as the fetch returned them. Small batches are joined to at most ``join_bytes``; 0 joins none. Where the
    target has refused larger ones, batches are split to at most ``most_bytes``. A response may begin with a batch that
    starts before ``since``, and may end with a partial one, which is left out. Records are what ``handle`` makes of
    them. Raises CorruptBatch where a batch is damaged, and HandlerFailed, after everything before it.
    """
    found = _pieces(records, since, aborted, join_bytes)
    if handle is not None:
        found = (part for piece in found for part in handled(piece, handle))
    if not most_bytes:
        return found
    return (part for piece in found for part in split(piece, most_bytes))


def _pieces(
    records: bytes | memoryview, since: int, aborted: Sequence[tuple[int, int]], join_bytes: int
) -> Iterator[Piece]:
    view = memoryview(records)
    taken_back = aborted_batches(view, aborted) if aborted else frozenset[int]()
    at = single_to = 0
    while (found := next_batch(view, at)) is not None and found[0].next_offset <= since:
        if found[0].magic == 2:
            verify_crc(*found)
        at += found[0].size
    if found is not None and found[0].base_offset < since:
        # It has to be cut.
        single_to = at + 1
    while True:
        # With nothing behind it, as most batches are that a mirror fetches which has caught up, there is none to join.
        is_joined = join_bytes and at >= single_to and has_more(view, at)
        row = singles(view, at, join_bytes) if is_joined else None
        if row is not None:
            piece, at = row
            yield piece
            continue
        them = small_neighbours(view, at, join_bytes, taken_back) if is_joined else None
        if them is not None:
            try:
                piece = join(view, them)
            except CorruptBatch:
                # Their checksums are right, so this is what was produced: for the target's broker to judge, one by one.
                single_to = them.stop
                continue
            yield piece
            at = them.stop
            continue
        found = next_batch(view, at)
        if found is None:
            return
        header, batch = found
        try:
            if header.magic == 2:
                piece, stop = _alone(header, batch, since, taken_back), at + header.size
            else:
                piece, stop = old_messages(view, at, since, join_bytes)
        except CorruptBatch as error:
            raise CorruptBatch(f"{error}; {_behind(view, at, header)}") from error
        yield piece
        at = stop


def _alone(header: BatchHeader, batch: memoryview, since: int, taken_back: frozenset[int]) -> Piece:
    # Before the header is believed in anything: a damaged one could claim to be empty, and be left out. And a fresh
    # checksum over damaged bytes would hide the damage.
    verify_crc(header, batch)
    end, flags = header.next_offset, header.attributes
    if header.records == end - header.base_offset and not flags & _ODD and header.base_offset >= since:
        return Piece(header, batch, end)
    if is_left_out(header, taken_back):
        return Piece(header, None, end)
    if flags & LOG_APPEND_TIME or header.records != end - header.base_offset or header.base_offset < since:
        return reencoded(header, batch, since)
    return Piece(header, batch, end)


def _behind(view: memoryview, at: int, header: BatchHeader) -> str:
    """Where the copy can go on if the batch at byte ``at`` is given up."""
    stop = at + header.size
    if header.magic == 2 and stop + _OFFSET.size <= len(view):
        # Of the damaged batch itself nothing is believed that need not be.
        return f"the next batch begins at source offset {_OFFSET.unpack_from(view, stop)[0]}"
    return f"by its own header, the next one begins at source offset {header.next_offset}"


def split(piece: Piece, most_bytes: int) -> Iterator[Piece]:
    """``piece``, which holds something, in halves until each is of at most ``most_bytes``, or holds one record only."""
    header = piece.header
    if header.size <= most_bytes or header.records == 1 or piece.batch is None:
        yield piece
        return
    records = list(raw_records(header, piece.batch))
    runs = piece.all_runs
    middle = len(records) // 2
    yield from split(_part(piece, records, runs, 0, middle), most_bytes)
    yield from split(_part(piece, records, runs, middle, len(records)), most_bytes)


def _part(piece: Piece, records: Sequence[RawRecord], runs: Sequence[Run], low: int, high: int) -> Piece:
    """The records from ``low`` to ``high`` (not included); between two parts nothing but a gap can lie."""
    first, last = _run_of(runs, low), _run_of(runs, high - 1)
    mine = [
        Run(0, first.source + low - first.before, first.epoch),
        *(run._replace(before=run.before - low) for run in runs if low < run.before < high),
    ]
    header, part = piece.header, records[low:high]
    end = piece.end if high == len(records) else last.source + high - last.before
    return remade(header, part, mine, end)


def _run_of(runs: Sequence[Run], index: int) -> Run:
    return runs[bisect_right(runs, index, key=lambda run: run.before) - 1]
