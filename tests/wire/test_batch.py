"""Reading and re-addressing record batches: nothing damaged passes, nothing of the records changes."""

import random
import struct

import crc32c
import pytest

from kafka_migration.wire.batch import (
    HEADER_BYTES,
    MAX_SEQUENCE,
    CorruptBatch,
    batches,
    parse_header,
    readdress,
    verify_crc,
)
from tests.wire.made import NOW, made_batch

BATCH = made_batch([b"a", None, b"c"], base_offset=40)


def _altered(batch: bytes, at: int, layout: str, value: int, *, seal: bool = True) -> bytes:
    """`batch` with one header field changed, its CRC made anew if `seal`."""
    copy = bytearray(batch)
    struct.pack_into(layout, copy, at, value)
    if seal:
        struct.pack_into(">I", copy, 17, crc32c.crc32c(bytes(copy[21:])))
    return bytes(copy)


def test_header_is_read_field_by_field():
    header = parse_header(BATCH)
    assert (header.base_offset, header.next_offset, header.records, header.last_offset_delta) == (40, 43, 3, 2)
    assert (header.size, header.leader_epoch, header.magic, header.codec) == (len(BATCH), 3, 2, 0)
    assert (header.base_timestamp, header.max_timestamp) == (NOW, NOW + 2)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (-1, -1, -1)
    assert header.is_gapless


def test_complete_batches_are_yielded_and_a_partial_one_at_the_end_is_left_out():
    whole = BATCH + made_batch([b"d"], base_offset=43)
    for cut in range(1, len(whole) - len(BATCH)):
        assert [h.base_offset for h, _ in batches(whole[: len(BATCH) + cut])] == [40]
    assert [h.base_offset for h, _ in batches(whole)] == [40, 43]
    assert list(batches(b"")) == []


@pytest.mark.parametrize("length", [-1, 0, 5, 48, -(2**31)])
def test_length_that_holds_no_batch_is_corruption(length):
    with pytest.raises(CorruptBatch, match="offset 40"):
        list(batches(_altered(BATCH, 8, ">i", length)))


def test_unknown_format_is_corruption():
    with pytest.raises(CorruptBatch, match="format v7"):
        list(batches(_altered(BATCH, 16, ">b", 7)))


@pytest.mark.parametrize("magic", [0, 1])
def test_message_of_an_old_format_is_named_however_small_it_is(magic):
    value = b"v"
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW) if magic else b"") + struct.pack(">i", -1)
    body += struct.pack(">i", len(value)) + value
    message = struct.pack(">I", 0) + body
    old = struct.pack(">qi", 9, len(message)) + message
    assert len(old) < HEADER_BYTES
    ((header, found),) = batches(old)
    assert bytes(found) == old
    assert (header.base_offset, header.next_offset) == (9, 10)
    assert [h.magic for h, _ in batches(old + BATCH)] == [magic, 2]


@pytest.mark.parametrize("at", range(21, len(BATCH)))
def test_any_damaged_byte_that_the_crc_covers_is_found(at):
    damaged = bytearray(BATCH)
    damaged[at] ^= 0x10
    ((header, batch),) = batches(bytes(damaged))
    with pytest.raises(CorruptBatch, match="CRC-32C"):
        verify_crc(header, batch)
    verify_crc(parse_header(BATCH), memoryview(BATCH))


@pytest.mark.parametrize("seed", range(20))
def test_addressing_anew_keeps_the_records_and_the_codec_and_nothing_else(seed):
    chance = random.Random(seed)
    codec = chance.randrange(5)
    dirt = chance.randrange(0, 2**16) & ~0x07
    batch = _altered(made_batch([chance.randbytes(20)] * 3, base_offset=99, codec=codec), 21, ">H", dirt | codec)
    copy = readdress(batch, producer_id=2**40 + seed, producer_epoch=seed, sequence=seed * 10**8)
    header = parse_header(copy)
    verify_crc(header, memoryview(copy))
    assert copy[HEADER_BYTES:] == batch[HEADER_BYTES:]
    assert (header.base_offset, header.leader_epoch, header.attributes) == (0, -1, codec)
    assert (header.producer_id, header.producer_epoch) == (2**40 + seed, seed)
    before = parse_header(batch)
    for name in ("size", "last_offset_delta", "base_timestamp", "max_timestamp", "records"):
        assert getattr(header, name) == getattr(before, name), name


@pytest.mark.parametrize(
    ("records", "sequence"),
    [(0, 0), (MAX_SEQUENCE - 1, MAX_SEQUENCE - 1), (MAX_SEQUENCE, 0), (5 * MAX_SEQUENCE + 3, 3)],
)
def test_sequence_wraps_to_zero_after_the_largest_int(records, sequence):
    copy = readdress(BATCH, producer_id=1, producer_epoch=0, sequence=records)
    assert parse_header(copy).base_sequence == sequence
