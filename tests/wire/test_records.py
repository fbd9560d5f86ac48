"""Records inside batches: varints, the five codecs, trimming, and keyed records of internal topics."""

import random

import pytest

from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, CorruptBatch, assemble, parse_header, verify_crc
from kafka_migration.wire.join import reencoded
from kafka_migration.wire.records import (
    key_value,
    keyed_batch,
    keyed_records,
    raw_records,
    read_varint,
    write_varint,
)
from tests.wire.made import NOW, made_batch

CODECS = range(5)


def test_varints_are_read_back_as_written():
    chance = random.Random(1)
    values = [0, -1, 1, 63, 64, -64, -65, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
    values += [chance.randrange(-(2 ** chance.randrange(1, 63)), 2 ** chance.randrange(1, 63)) for _ in range(2_000)]
    for value in values:
        data = write_varint(value)
        assert len(data) <= 10
        assert read_varint(b"\x00" + data + b"\x7f", 1) == (value, 1 + len(data)), value


def test_small_varints_are_those_of_the_protocol():
    assert [write_varint(v) for v in (0, -1, 1, -2, 300)] == [b"\x00", b"\x01", b"\x02", b"\x03", b"\xd8\x04"]


def test_varint_without_an_end_is_corruption():
    with pytest.raises(CorruptBatch, match="ten bytes"):
        read_varint(b"\xff" * 11, 0)


@pytest.mark.parametrize("codec", CODECS, ids=codecs.NAMES)
def test_codec_gives_back_what_it_took(codec):
    chance = random.Random(codec)
    for size in (0, 1, 100, 32 * 1024, 32 * 1024 + 1, 200_000):
        data = chance.randbytes(size // 2) + b"x" * (size - size // 2)
        assert codecs.decompress(codec, codecs.compress(codec, data)) == data


@pytest.mark.parametrize("codec", CODECS[1:], ids=codecs.NAMES[1:])
def test_damaged_payload_is_corruption_and_never_something_else(codec):
    chance = random.Random(codec)
    whole = made_batch([chance.randbytes(40) for _ in range(20)], codec=codec)
    header = parse_header(whole)
    silent = 0
    for _ in range(200):
        damaged = bytearray(whole)
        damaged[chance.randrange(HEADER_BYTES, len(whole))] ^= 1 << chance.randrange(8)
        try:
            silent += len(list(raw_records(header, bytes(damaged)))) != 20
        except CorruptBatch:
            continue
    assert silent == 0, "the CRC finds the rest"


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codec_is_named(codec):
    with pytest.raises(CorruptBatch, match=f"codec {codec}"):
        codecs.decompress(codec, b"x")
    with pytest.raises(CorruptBatch, match=f"codec {codec}"):
        codecs.compress(codec, b"x")


def test_snappy_without_frames_is_read_too():
    import cramjam

    assert codecs.decompress(codecs.SNAPPY, bytes(cramjam.snappy.compress_raw(b"hello" * 100))) == b"hello" * 100


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xfc", b"\x7f\xff\xff\xff"])
def test_snappy_block_that_points_outside_is_corruption(size):
    framed = codecs.compress(codecs.SNAPPY, b"hello")
    with pytest.raises(CorruptBatch, match="snappy block"):
        codecs.decompress(codecs.SNAPPY, framed[:16] + size + framed[20:])


@pytest.mark.parametrize("codec", CODECS, ids=codecs.NAMES)
@pytest.mark.parametrize("first", range(1, 6))
def test_trimmed_batch_holds_exactly_the_records_from_the_offset_on(codec, first):
    values = [b"v" * n if n % 2 else None for n in range(6)]
    batch = made_batch(values, base_offset=100, codec=codec)
    piece = reencoded(parse_header(batch), batch, 100 + first)
    header, cut = piece.header, piece.batch
    assert cut is not None
    verify_crc(header, cut)
    assert (piece.end, piece.continues, piece.runs) == (106, 106, ())
    assert (header.base_offset, header.next_offset, header.records) == (100 + first, 106, 6 - first)
    assert header.is_gapless
    assert (header.codec, header.max_timestamp) == (codec, NOW + 5)
    found = [
        (header.base_timestamp + r.timestamp_delta, r.offset_delta, *key_value(r)) for r in raw_records(header, cut)
    ]
    assert found == [(NOW + n, n - first, b"k%d" % n, values[n]) for n in range(first, 6)]


def test_trimming_away_everything_leaves_nothing_to_copy():
    batch = made_batch([b"a"], base_offset=7)
    assert reencoded(parse_header(batch), batch, 8)[1:3] == (None, 8)


def test_records_that_end_early_or_late_are_corruption():
    batch = made_batch([b"abc", b"def"])
    header = parse_header(batch)
    for cut in range(HEADER_BYTES, len(batch)):
        with pytest.raises(CorruptBatch):
            list(raw_records(header, batch[:cut]))
    with pytest.raises(CorruptBatch, match="1 bytes after its last record"):
        list(raw_records(header, batch + b"\x00"))


@pytest.mark.parametrize("body", [b"\x01", b"\x02\x00", b"\x08\x00\x00\x00", b"\x04\x00\x80\x80"])
def test_record_that_contradicts_its_length_is_corruption(body):
    batch = assemble(attributes=0, base_timestamp=0, max_timestamp=0, count=1, payload=body)
    with pytest.raises(CorruptBatch):
        list(raw_records(parse_header(batch), batch))


def test_keyed_records_are_read_back_and_null_is_not_empty():
    entries = [(b"a", b"1"), (b"", b""), (b"b", None), (b"x" * 300, b"y" * 70_000)]
    batch = keyed_batch(entries, timestamp=NOW)
    verify_crc(parse_header(batch), memoryview(batch))
    assert list(keyed_records(memoryview(batch))) == entries
    with pytest.raises(ValueError, match="needs a record"):
        keyed_batch([], timestamp=NOW)
