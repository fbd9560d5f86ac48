"""What a handler makes of a batch: the same one, byte for byte, where it changes nothing; one of what it leaves, in the
same codec; or nothing. A record that is dropped leaves a gap, as one that was compacted away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafka_migration.domain.handlers import Handle, HandlerFailed, Record, decoded, encoded
from kafka_migration.wire.batch import BatchHeader
from kafka_migration.wire.join import Piece, Run, as_piece
from kafka_migration.wire.records import RawRecord, as_long, contents, encode_contents, encode_records, raw_records


def handled(piece: Piece, handle: Handle) -> Iterator[Piece]:
    """``piece``, with what ``handle`` makes of its records. Raises CorruptBatch, before anything, if they cannot be
    read, and HandlerFailed behind what stands before that record."""
    if piece.batch is None:
        yield piece
        return
    header, runs = piece.header, piece.all_runs
    kept: list[RawRecord] = []
    rows: list[Run] = []
    place, at, epoch = 0, header.base_offset, header.leader_epoch
    continues, is_same = -1, True
    failure: HandlerFailed | None = None
    for index, raw in enumerate([*raw_records(header, piece.batch)]):
        place += place + 1 < len(runs) and runs[place + 1].before == index
        run = runs[place]
        offset = run.source + index - run.before
        before = _record(header, raw, offset)
        try:
            after = handle(before)
        except HandlerFailed as error:
            failure = error
            break
        at, epoch = offset + 1, run.epoch
        if after is not before:
            is_same = False
        if after is None:
            continue
        if offset != continues or not rows or run.epoch != rows[-1].epoch:
            rows.append(Run(len(kept), offset, run.epoch))
        kept.append(raw if after is before else _raw(header, raw, after))
        continues = offset + 1
    if failure is None:
        if is_same:
            yield piece
            return
        # By the leader epoch of the last record, dropped or not, it is seen later whether the source was cut.
        at, epoch = piece.end, piece.epoch
    if kept:
        yield remade(header, kept, rows, continues, piece.joined)
    if at > (continues if kept else header.base_offset):
        yield Piece(replace(header, leader_epoch=epoch), None, at)
    if failure is not None:
        raise failure


def remade(header: BatchHeader, records: Sequence[RawRecord], runs: Sequence[Run], end: int, joined: int = 1) -> Piece:
    """``records``, whose times are counted as those of the batch of ``header``, as one in the same codec."""
    base = header.base_timestamp
    latest = max(as_long(base + record.timestamp_delta) for record in records)
    return as_piece(header.codec, (base, latest), encode_records(records), len(records), runs, end, joined)


def _record(header: BatchHeader, raw: RawRecord, offset: int) -> Record:
    key, value, headers = contents(raw)
    named = tuple([(decoded(name), held) for name, held in headers])
    return Record(key, value, named, as_long(header.base_timestamp + raw.timestamp_delta), offset)


def _raw(header: BatchHeader, raw: RawRecord, record: Record) -> RawRecord:
    headers = [(encoded(name), held) for name, held in record.headers]
    rest = encode_contents(record.key, record.value, headers)
    return RawRecord(as_long(record.timestamp - header.base_timestamp), raw.offset_delta, raw.attributes, rest)
