"""A batch that the target finds too large, as smaller ones of the same records."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import assemble, parse_header
from kafka_migration.wire.join import Piece, Run
from kafka_migration.wire.records import RawRecord, as_long, encode_records, raw_records


def split(piece: Piece, most_bytes: int) -> Iterator[Piece]:
    """``piece``, which holds something, in halves until each is of at most ``most_bytes``, or holds one record only."""
    header = piece.header
    if header.size <= most_bytes or header.records == 1 or piece.batch is None:
        yield piece
        return
    records = list(raw_records(header, piece.batch))
    runs = piece.runs or (Run(0, header.base_offset, header.leader_epoch),)
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
    header = piece.header
    batch = assemble(
        attributes=header.codec,
        base_timestamp=header.base_timestamp,
        max_timestamp=max(as_long(header.base_timestamp + record.timestamp_delta) for record in records[low:high]),
        count=high - low,
        payload=codecs.compress(header.codec, encode_records(records[low:high])),
        base_offset=mine[0].source,
        leader_epoch=mine[0].epoch,
    )
    end = piece.end if high == len(records) else last.source + high - last.before
    return Piece(parse_header(batch), memoryview(batch), end, 1, tuple(mine) if len(mine) > 1 else ())


def _run_of(runs: Sequence[Run], index: int) -> Run:
    return runs[bisect_right(runs, index, key=lambda run: run.before) - 1]
