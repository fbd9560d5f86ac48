"""Small neighbours as one batch: the same records, the same times, nothing joined that does not belong together."""

import random
import struct
import tracemalloc

import crc32c
import pytest

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, CorruptBatch, assemble, batches, parse_header, verify_crc
from kafka_migration.wire.join import SMALL_BYTES, Piece
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import RawRecord, encode_records, raw_records, write_varint
from tests.wire.logs import raw, source_records
from tests.wire.made import NOW, field, made_batch

PLENTY = 1 << 20


def _join(*parts: bytes, most_bytes: int = PLENTY) -> list[Piece]:
    return list(pieces(b"".join(parts), join_bytes=most_bytes))


def _contents(parts):
    """Offset, time, attributes and the rest of every record."""
    return [
        (header.base_offset + r.offset_delta, header.base_timestamp + r.timestamp_delta, r.attributes, r.rest)
        for header, batch in parts
        for r in raw_records(header, batch)
    ]


def _moved(parts: list[Piece]):
    return [
        (offset, it.header.base_timestamp + r.timestamp_delta, r.attributes, r.rest)
        for it in parts
        for offset, r in source_records(it)
    ]


def _of(records: list[RawRecord], *, base_offset: int, timestamp: int, codec: int) -> bytes:
    return assemble(
        attributes=codec,
        base_timestamp=timestamp,
        max_timestamp=timestamp + max(r.timestamp_delta for r in records),
        count=len(records),
        payload=codecs.compress(codec, encode_records(records)),
        base_offset=base_offset,
    )


@pytest.mark.parametrize("codec", range(5))
@pytest.mark.parametrize("seed", range(5))
def test_neighbours_become_one_batch_of_the_same_records(codec, seed):
    chance = random.Random(seed)
    offset, parts = chance.randrange(1 << 40), []
    for _ in range(chance.randrange(2, 400)):
        records = [
            RawRecord(
                chance.choice((0, 0, 1, -1, 70, -5_000, 1 << 33)),
                n,
                chance.choice((0, 0, 0, 5)),
                field(chance.choice((None, b"", b"k" * chance.randrange(200))))
                + field(chance.choice((None, b"", chance.randbytes(chance.randrange(300)))))
                + chance.choice((write_varint(0), write_varint(1) + write_varint(1) + b"h" + field(None))),
            )
            for n in range(chance.choice((1, 1, 1, 2, 5)))
        ]
        parts.append(_of(records, base_offset=offset, timestamp=NOW + chance.randrange(-(10**6), 10**10), codec=codec))
        offset += len(records)
    result = _join(*parts)
    assert _moved(result) == _contents(batches(b"".join(parts)))
    assert [it.joined for it in result] == [len(parts)]
    ((header, batch, *_),) = result
    assert batch is not None
    verify_crc(header, batch)
    assert (header.attributes, header.is_gapless) == (codec, True)
    assert header.max_timestamp == max(it.max_timestamp for it, _ in batches(b"".join(parts)))


def test_another_codec_and_a_large_batch_end_a_joint_and_a_gap_is_a_run_in_it():
    parts = [
        made_batch([b"a"], base_offset=10),
        made_batch([b"b"], base_offset=11),
        made_batch([b"c"], base_offset=13),  # 12 is missing
        made_batch([b"d"], base_offset=14),
        made_batch([b"e"], base_offset=15, codec=codecs.LZ4),
        made_batch([b"f"], base_offset=16, codec=codecs.LZ4),
        made_batch([bytes(SMALL_BYTES)], base_offset=17),
        made_batch([b"g"], base_offset=18),
    ]
    result = _join(*parts)
    assert [(it.header.base_offset, it.header.records, it.end, it.joined, it.runs) for it in result] == [
        (10, 4, 15, 4, ((0, 10, 3), (2, 13, 3))),
        (15, 2, 17, 2, ()),
        (17, 1, 18, 1, ()),
        (18, 1, 19, 1, ()),
    ]
    assert _moved(result) == _contents(batches(b"".join(parts)))
    assert raw(result[2]) == parts[6], "whoever stays alone stays as it was"
    assert raw(result[3]) == parts[7]


def test_no_joint_is_larger_than_asked():
    parts = [made_batch([b"x" * 500], base_offset=n) for n in range(100)]
    result = _join(*parts, most_bytes=4_000)
    assert all(it.header.size <= 4_000 for it in result)
    assert len(result) < 20
    assert _moved(result) == _contents(batches(b"".join(parts)))
    assert [raw(it) for it in _join(*parts, most_bytes=0)] == parts, "0 joins nothing"


def test_another_leader_epoch_begins_a_run():
    # By it the source tells whether its log was truncated below what was copied last.
    parts = [made_batch([b"a"], base_offset=n, leader_epoch=epoch) for n, epoch in enumerate((3, 3, 4))]
    (piece,) = _join(*parts)
    assert (piece.header.leader_epoch, piece.epoch, piece.continues) == (3, 4, 3)
    assert piece.runs == ((0, 0, 3), (2, 2, 4))


def test_damaged_batch_is_not_laundered():
    damaged = bytearray(made_batch([b"precious"], base_offset=1))
    damaged[-3] ^= 1
    found = list[int]()
    records = made_batch([b"a"]) + bytes(damaged) + made_batch([b"c"], base_offset=2)
    with pytest.raises(CorruptBatch, match="offset 1"):
        found.extend(piece.end for piece in pieces(records, join_bytes=PLENTY))
    assert found == [1], "what stands before it is copied, what follows it is not"


@pytest.mark.parametrize(
    "payload", [b"", b"\x0a\x00", b"\x7f" * 9, encode_records([RawRecord(0, 0, 0, b"")]) + b"\x00", b"\x01\x00\x00\x00"]
)
def test_records_that_cannot_be_read_are_for_the_broker_to_judge(payload):
    odd = bytearray(made_batch([b"x"], base_offset=1)[:HEADER_BYTES] + payload)
    struct.pack_into(">i", odd, 8, len(odd) - 12)
    struct.pack_into(">I", odd, 17, crc32c.crc32c(bytes(odd[21:])))
    parts = [made_batch([b"a"], base_offset=0), bytes(odd), made_batch([b"b"], base_offset=2)]
    result = _join(*parts)
    assert [raw(it) for it in result][1:] == parts[1:]
    assert _moved(result[:1]) == _contents(batches(parts[0]))
    assert parse_header(odd).records == 1


def test_few_bytes_that_would_become_very_many_are_not_unpacked():
    bombs = [
        assemble(
            attributes=codecs.ZSTD, base_timestamp=NOW, max_timestamp=NOW, count=1, payload=payload, base_offset=at
        )
        for at, payload in enumerate([codecs.compress(codecs.ZSTD, bytes(40_000_000))] * 2)
    ]
    assert all(len(bomb) < SMALL_BYTES for bomb in bombs)
    tracemalloc.start()
    try:
        parts = _join(*bombs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [raw(it) for it in parts] == bombs, "for the broker to judge, as they are"
    assert peak < 20_000_000
    with pytest.raises(CorruptBatch, match="zstd"):
        codecs.decompress(codecs.ZSTD, codecs.compress(codecs.ZSTD, bytes(1_001)), most=1_000)
    assert codecs.decompress(codecs.ZSTD, codecs.compress(codecs.ZSTD, bytes(10_000)), most=10_000) == bytes(10_000)
