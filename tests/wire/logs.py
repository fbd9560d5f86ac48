"""A source's log of every kind, made up by chance: its batches, what a broker would answer, and what counts in it."""

import random
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import assemble, parse_header
from kafka_migration.wire.join import Piece, Run
from kafka_migration.wire.records import RawRecord, encode_records, encoded, raw_records, write_varint
from tests.wire.made import NOW
from tests.wire.made import field as sized

LOG_APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40


class Row(NamedTuple):
    """A record as a consumer of committed records sees it; ``rest`` is key, value and headers as encoded."""

    offset: int
    timestamp: int
    rest: bytes


def source_records(piece: Piece) -> Iterator[tuple[int, RawRecord]]:
    """The records of a piece, each with its offset on the source."""
    if piece.batch is None:
        return
    runs = piece.runs or (Run(0, piece.header.base_offset, piece.header.leader_epoch),)
    for record in raw_records(piece.header, piece.batch):
        run = runs[bisect_right(runs, record.offset_delta, key=lambda it: it.before) - 1]
        yield run.source + record.offset_delta - run.before, record


def rows_of(piece: Piece) -> list[Row]:
    """The same as a consumer would see them on the source."""
    base = piece.header.base_timestamp
    return [Row(offset, base + it.timestamp_delta, it.rest) for offset, it in source_records(piece)]


def raw(piece: Piece) -> bytes:
    """The bytes of a piece that has a batch."""
    assert piece.batch is not None
    return bytes(piece.batch)


def batch_of(
    records: list[RawRecord],
    *,
    base_offset: int,
    last_delta: int,
    attributes: int = 0,
    base_timestamp: int = NOW,
    max_timestamp: int = NOW,
    producer: tuple[int, int] = (-1, -1),
    leader_epoch: int = 3,
) -> bytes:
    """A batch as it may stand in a log, with the offset deltas that the records have."""
    section = b"".join(part for it in records for part in encoded(it, it.timestamp_delta, it.offset_delta))
    made = bytearray(
        assemble(
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            count=len(records),
            payload=codecs.compress(attributes & 7, section),
            base_offset=base_offset,
            leader_epoch=leader_epoch,
        )
    )
    struct.pack_into(">i", made, 23, last_delta)
    struct.pack_into(">qhi", made, 43, *producer, 0)
    struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


def thinned(base_offset: int, kept: list[int], last_delta: int) -> bytes:
    """A batch of which compaction has left the records with the offset deltas ``kept``."""
    rest = [sized(b"%d" % (base_offset + n)) + sized(b"v") + write_varint(0) for n in kept]
    records = [RawRecord(n, n, 0, it) for n, it in zip(kept, rest, strict=True)]
    return batch_of(records, base_offset=base_offset, last_delta=last_delta, max_timestamp=NOW + kept[-1])


def marker(offset: int, producer: tuple[int, int], *, commit: bool, leader_epoch: int = 3) -> bytes:
    """The marker that ends a transaction."""
    rest = sized(struct.pack(">hh", 0, int(commit))) + sized(struct.pack(">hi", 0, 0)) + write_varint(0)
    return batch_of(
        [RawRecord(0, 0, 0, rest)],
        base_offset=offset,
        last_delta=0,
        attributes=TRANSACTIONAL | CONTROL,
        producer=producer,
        leader_epoch=leader_epoch,
    )


@dataclass
class MadeLog:
    """``rows`` are its committed records, ``aborted`` transactions by producer id, first offset and marker."""

    batches: list[bytes] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    end: int = 0

    def answer(self, offset: int, most_bytes: int, end: int | None = None) -> tuple[bytes, tuple[tuple[int, int], ...]]:
        """What a broker answers to a fetch of committed records: batches from the one around ``offset`` on, below
        ``end``, and the aborted transactions that reach into them. May end with a part of a batch."""
        found, size, upper = list[bytes](), 0, offset
        for batch in self.batches:
            header = parse_header(batch)
            if header.next_offset <= offset or (end is not None and header.base_offset >= end):
                continue
            if found and size + len(batch) > most_bytes:
                found.append(batch[: len(batch) // 3])
                break
            found.append(batch)
            size += len(batch)
            upper = header.next_offset
        reaching = ((p, first) for p, first, last in self.aborted if last >= offset and first < upper)
        return b"".join(found), tuple(reaching)


def made_log(seed: int, *, batches: int = 60) -> MadeLog:
    """Every kind of batch, in the order that chance gives; every transaction has an end."""
    chance, log = random.Random(seed), MadeLog(end=random.Random(seed).choice((0, 17, 2**40)))
    producers = [(5_000 + n, n) for n in range(3)]
    under_way: dict[tuple[int, int], tuple[int, list[Row]]] = {}
    codec, epoch = chance.randrange(5), 3

    def finish(who: tuple[int, int]) -> None:
        first, rows = under_way.pop(who)
        commit = chance.random() < 0.6
        if commit:
            log.rows += rows
        else:
            log.aborted.append((who[0], first, log.end))
        log.batches.append(marker(log.end, who, commit=commit, leader_epoch=epoch))
        log.end += 1

    def write(who: tuple[int, int] | None) -> None:
        batch, rows, end = _data(chance, log.end, codec, epoch, who)
        if who is None:
            log.rows += rows
        else:
            under_way.setdefault(who, (log.end, []))[1].extend(rows)
        log.batches.append(batch)
        log.end = end

    for _ in range(batches):
        what = chance.random()
        if what < 0.35:
            write(None)
        elif what < 0.7:
            write(chance.choice(producers))
        elif what < 0.85:
            if under_way:
                finish(chance.choice(list(under_way)))
        elif what < 0.9:
            last = chance.randrange(4)
            log.batches.append(batch_of([], base_offset=log.end, last_delta=last, leader_epoch=epoch))
            log.end += last + 1
        elif what < 0.95:
            log.end += chance.randrange(1, 9)  # compaction took all of it
        else:
            codec, epoch = chance.randrange(5), epoch + chance.randrange(2)
    for who in list(under_way):
        finish(who)
    log.rows.sort()
    return log


def _data(
    chance: random.Random, offset: int, codec: int, epoch: int, who: tuple[int, int] | None
) -> tuple[bytes, list[Row], int]:
    count = chance.choice((1, 1, 1, 2, 5, 9))
    kept = [n for n in range(count) if chance.random() < 0.7] if chance.random() < 0.3 else list(range(count))
    attributes = codec | (TRANSACTIONAL if who else 0)
    base = NOW + chance.randrange(-(10**7), 10**7)
    if chance.random() < 0.15:
        attributes, base = attributes | DELETE_HORIZON, base + 86_400_000
    stamp = NOW + chance.randrange(10**6) if chance.random() < 0.15 else None
    attributes |= 0 if stamp is None else LOG_APPEND_TIME
    size = chance.choice((0, 3, 30, 200, 3_000, 20_000) if chance.random() < 0.3 else (0, 3, 30))
    records = [
        RawRecord(
            chance.choice((0, n, -n, 70_000)),
            n,
            0,
            sized(chance.choice((None, b"", b"k%d" % n)))
            + sized(chance.choice((None, b"", chance.randbytes(size))))
            + chance.choice((write_varint(0), write_varint(1) + write_varint(1) + b"h" + sized(None))),
        )
        for n in kept
    ]
    times = [base + it.timestamp_delta if stamp is None else stamp for it in records]
    batch = batch_of(
        records,
        base_offset=offset,
        last_delta=count - 1,
        attributes=attributes,
        base_timestamp=base,
        max_timestamp=stamp if stamp is not None else max(times, default=base),
        producer=who or (-1, -1),
        leader_epoch=epoch,
    )
    rows = [Row(offset + it.offset_delta, time, it.rest) for it, time in zip(records, times, strict=True)]
    return batch, rows, offset + count


__all__ = ["MadeLog", "Row", "batch_of", "encode_records", "made_log", "marker", "rows_of", "source_records"]
