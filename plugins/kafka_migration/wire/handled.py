"""What a handler makes of a batch: the same one, byte for byte, where it changes nothing; one of what it leaves, in the
same codec; or nothing. A record that is dropped leaves a gap, as one that was compacted away."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kafka_migration.domain.handlers import Handle, HandlerFailed, Record, decoded, encoded
from kafka_migration.wire.batch import BatchHeader, CorruptBatch
from kafka_migration.wire.join import Piece, Run, as_piece
from kafka_migration.wire.records import RawRecord, as_long, contents, encode_contents, encode_records, raw_records


def handled(piece: Piece, handle: Handle) -> Iterator[Piece]:
    """``piece``, with what ``handle`` makes of its records. Raises HandlerFailed, and CorruptBatch if a record cannot
    be read, behind what stands before that record."""
    if piece.batch is None:
        yield piece
        return
    header, runs = piece.header, piece.all_runs
    kept: list[RawRecord] = []
    rows: list[Run] = []
    place, at, epoch = 0, header.base_offset, header.leader_epoch
    continues, is_same = at, True
    failure: HandlerFailed | CorruptBatch | None = None
    try:
        records = [*raw_records(header, piece.batch)]
    except CorruptBatch as error:
        raise CorruptBatch(f"{error}; the next batch begins at source offset {piece.end}") from error
    for index, raw in enumerate(records):
        place += place + 1 < len(runs) and runs[place + 1].before == index
        run = runs[place]
        offset = run.source + index - run.before
        try:
            after = handled_record(handle, raw.rest, as_long(header.base_timestamp + raw.timestamp_delta), offset)
        except HandlerFailed as error:
            failure = error
            break
        except CorruptBatch as error:
            failure = CorruptBatch(f"{error}; behind that record: source offset {offset + 1}")
            break
        # By the leader epoch of the last record, dropped or not, it is seen later whether the source was cut.
        at, epoch = offset + 1, run.epoch
        if after is None:
            is_same = False
            continue
        if not rows or offset != continues or run.epoch != rows[-1].epoch:
            rows.append(Run(len(kept), offset, run.epoch))
        timestamp, rest = after
        kept.append(raw._replace(timestamp_delta=as_long(timestamp - header.base_timestamp), rest=rest))
        is_same = is_same and kept[-1] == raw
        continues = offset + 1
    if failure is None:
        if is_same:
            yield piece
            return
        at = piece.end
    if kept:
        yield remade(header, kept, rows, continues, piece.joined)
    if at > continues:
        yield Piece(replace(header, leader_epoch=epoch), None, at)
    if failure is not None:
        raise failure


def handled_record(handle: Handle, rest: bytes, timestamp: int, offset: int) -> tuple[int, bytes] | None:
    """The timestamp that ``handle`` gives a record, and its key, value and headers as encoded, of which ``rest`` are
    those before; None if it drops it. Raises CorruptBatch, and HandlerFailed."""
    key, value, headers = contents(rest)
    before = Record(key, value, tuple([(decoded(name), held) for name, held in headers]), timestamp, offset)
    after = handle(before)
    if after is None:
        return None
    if after is before:
        return timestamp, rest
    named = [(encoded(name), held) for name, held in after.headers]
    return after.timestamp, encode_contents(after.key, after.value, named)


def remade(header: BatchHeader, records: Sequence[RawRecord], runs: Sequence[Run], end: int, joined: int = 1) -> Piece:
    """``records``, whose times are counted as those of the batch of ``header``, as one in the same codec."""
    base = header.base_timestamp
    latest = max(as_long(base + record.timestamp_delta) for record in records)
    return as_piece(header.codec, (base, latest), encode_records(records), len(records), runs, end, joined)
