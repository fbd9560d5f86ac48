"""Messages of formats v0 and v1, as kafka-python's own builder makes them, made into batches of v2."""

import random
import struct
import zlib

import lz4.frame
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from kafka_migration.wire import codecs, old_formats
from kafka_migration.wire.batch import CorruptBatch, batches, verify_crc
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import key_value
from tests.wire.logs import rows_of, source_records
from tests.wire.made import NOW, made_batch

CODECS = (codecs.NONE, codecs.GZIP, codecs.SNAPPY, codecs.LZ4)


def _field(value: bytes | None) -> bytes:
    return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value


def message(
    offset: int,
    value: bytes | None,
    *,
    magic: int = 1,
    key: bytes | None = None,
    timestamp: int = NOW,
    attributes: int = 0,
) -> bytes:
    """A message as a broker stores it."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += _field(key) + _field(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    inner: list[bytes], last: int, codec: int, *, magic: int = 1, timestamp: int = NOW, attributes: int = 0
) -> bytes:
    """A compressed message set; ``last`` is the offset of the last message in it."""
    packed = codecs.compress(codec, b"".join(inner))
    if magic == 0 and codec == codecs.LZ4:
        packed = with_the_old_checksum(packed)
    return message(last, packed, magic=magic, timestamp=timestamp, attributes=codec | attributes)


def with_the_old_checksum(frame: bytes) -> bytes:
    """An LZ4 frame as Kafka before 0.10 wrote it: the header's checksum is taken over its magic number, too."""
    return frame[:6] + bytes(((old_formats._xxh32(frame[:6]) >> 8) & 0xFF,)) + frame[7:]


def read(records: bytes, *, since: int = 0, join_bytes: int = 10**6) -> list[tuple[object, ...]]:
    """Offset, timestamp, key and value of all that comes out, each in a batch that a broker takes."""
    found: list[tuple[object, ...]] = []
    for piece in pieces(records, since=since, join_bytes=join_bytes):
        if piece.batch is not None:
            verify_crc(piece.header, piece.batch)
            assert (piece.header.magic, piece.header.is_gapless, piece.header.attributes & ~7) == (2, True, 0)
        rows, raw = rows_of(piece), source_records(piece)
        found += [(row.offset, row.timestamp, *key_value(record)) for row, (_, record) in zip(rows, raw, strict=True)]
        assert all(record.rest.endswith(b"\0") for _, record in source_records(piece)), "no headers"
    return found


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("join_bytes", [0, 10**6])
def test_what_the_peer_builds_comes_out_record_by_record(magic, codec, join_bytes):
    chance = random.Random(codec)
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=10**6)
    expected = []
    for offset in range(50):
        key = chance.choice((None, b"", b"k%d" % offset))
        value = chance.choice((None, b"", b"v" * chance.randrange(300)))
        builder.append(offset, NOW + offset, key, value)
        expected.append((offset, NOW + offset if magic else -1, key, value))
    built = bytes(builder.build())
    if magic == 0 and codec == codecs.LZ4:
        ((_, whole),) = batches(built)
        built = _peer_with_the_old_checksum(bytes(whole))
    if codec:
        # What the broker does with a wrapper: its offset is that of the last message in it.
        built = struct.pack(">q", 49) + built[8:]
    assert read(built, join_bytes=join_bytes) == expected
    assert read(built, since=20, join_bytes=join_bytes) == expected[20:]


def _peer_with_the_old_checksum(whole: bytes) -> bytes:
    """The peer writes the old checksum only where a module is there that we do not need."""
    at = whole.index(b"\x04\x22\x4d\x18")
    fixed = bytearray(whole[:at] + with_the_old_checksum(whole[at:]))
    struct.pack_into(">I", fixed, 12, zlib.crc32(bytes(fixed[16:])))
    return bytes(fixed)


@pytest.mark.parametrize("codec", CODECS[1:])
def test_codec_stays_as_it_was(codec):
    (piece,) = pieces(wrapper([message(n, b"x" * 50) for n in range(3)], 12, codec))
    assert (piece.header.codec, piece.header.base_offset, piece.end) == (codec, 10, 13)


def test_relative_offsets_of_v1_count_from_the_last_message_and_keep_what_compaction_took():
    inner = [message(n, b"%d" % n) for n in (0, 1, 4, 6)]
    assert [it[0] for it in read(wrapper(inner, 1_006, codecs.GZIP))] == [1_000, 1_001, 1_004, 1_006]
    (piece,) = pieces(wrapper(inner, 1_006, codecs.GZIP))
    assert [(run.before, run.source) for run in piece.runs] == [(0, 1_000), (2, 1_004), (3, 1_006)]
    # Compaction also keeps what a wrapper lost at its beginning.
    assert [it[0] for it in read(wrapper(inner[2:], 1_006, codecs.GZIP))] == [1_004, 1_006]


def test_absolute_offsets_of_v0_are_taken_as_they_are():
    inner = [message(n, b"x", magic=0) for n in (7, 9, 10)]
    assert read(wrapper(inner, 10, codecs.SNAPPY, magic=0)) == [(n, -1, None, b"x") for n in (7, 9, 10)]


def test_timestamps_are_each_messages_own_unless_the_broker_gave_the_wrapper_one():
    inner = [message(n, b"x", timestamp=NOW + n) for n in range(3)]
    assert [it[1] for it in read(wrapper(inner, 2, codecs.GZIP, timestamp=NOW + 99))] == [NOW, NOW + 1, NOW + 2]
    stamped = wrapper(inner, 2, codecs.GZIP, timestamp=NOW + 99, attributes=0x08)
    assert [it[1] for it in read(stamped)] == [NOW + 99] * 3
    assert [it[1] for it in read(message(5, b"x", timestamp=NOW + 7, attributes=0x08))] == [NOW + 7]


def test_times_at_their_ends_survive():
    times = (0, -1, 2**63 - 1, NOW, -5, -1)
    records = b"".join(message(n, b"x", timestamp=time) for n, time in enumerate(times))
    assert [it[1] for it in read(records)] == list(times)


def test_single_messages_are_joined_and_an_end_of_format_and_codec_ends_a_joint():
    records = b"".join(
        (
            *(message(n, b"a", magic=0) for n in range(3)),
            *(message(n, b"b") for n in range(3, 6)),
            wrapper([message(n, b"c") for n in range(2)], 7, codecs.GZIP),
            *(message(n, b"d") for n in range(8, 10)),
            made_batch([b"e"], base_offset=10),
        )
    )
    found = list(pieces(records, join_bytes=10**6))
    assert [(it.header.base_offset, it.end, it.joined) for it in found] == [
        (0, 6, 6),
        (6, 8, 1),
        (8, 10, 2),
        (10, 11, 1),
    ]
    assert [it[0] for it in read(records)] == list(range(11))
    assert [it.epoch for it in found] == [-1, -1, -1, 3], "of an old message nobody knows the leader epoch"


def test_no_joint_of_messages_is_much_larger_than_asked():
    records = b"".join(message(n, b"x" * 100) for n in range(100))
    found = list(pieces(records, join_bytes=1_000))
    assert max(it.header.size for it in found) <= 1_100
    assert [row.offset for it in found for row in rows_of(it)] == list(range(100))


@pytest.mark.parametrize("magic", [0, 1])
def test_any_damaged_byte_is_found_once_what_stands_before_it_is_out(magic):
    good, bad = message(0, b"good", magic=magic), message(1, b"precious", key=b"k", magic=magic)
    for at in range(16, len(bad)):
        damaged = bytearray(bad)
        damaged[at] ^= 0x40
        found = list[int]()
        with pytest.raises(CorruptBatch):
            found.extend(piece.end for piece in pieces(good + bytes(damaged), join_bytes=10**6))
        assert found == [1]


def _sealed(body: bytes) -> bytes:
    return struct.pack(">qiI", 3, len(body) + 4, zlib.crc32(body)) + body


@pytest.mark.parametrize(
    "broken",
    [
        _sealed(struct.pack(">bbq", 1, 0, NOW) + _field(b"k")),
        _sealed(struct.pack(">bbq", 1, 0, NOW) + _field(b"k") + struct.pack(">i", 99) + b"v"),
        _sealed(struct.pack(">bbq", 1, 0, NOW) + _field(None) + _field(b"v") + b"more"),
        _sealed(struct.pack(">bbq", 1, codecs.GZIP, NOW) + _field(None) + _field(None)),
        wrapper([], 3, codecs.GZIP),
        wrapper([b"\0\0\0"], 3, codecs.GZIP),
        wrapper([message(0, b"x")[:-1]], 3, codecs.GZIP),
        wrapper([message(1, b"x"), message(1, b"y")], 3, codecs.GZIP),
        wrapper([message(1, b"x"), message(9, b"y")], 3, codecs.GZIP),
        wrapper([message(4, b"x", magic=0)], 3, codecs.GZIP, magic=0),
        wrapper([message(0, b"x", magic=0)], 3, codecs.GZIP),
        wrapper([wrapper([message(0, b"x")], 0, codecs.GZIP)], 3, codecs.GZIP),
        message(3, b"not compressed", attributes=codecs.SNAPPY),
        message(3, b"short", magic=0, attributes=codecs.LZ4),
    ],
)
def test_message_that_contradicts_itself_is_corruption(broken):
    with pytest.raises(CorruptBatch):
        list(pieces(broken))


@pytest.mark.parametrize("size", [2, 10])
def test_checksum_of_an_lz4_header_is_computed_as_lz4_does(size):
    frame = lz4.frame.compress(b"x" * 100, store_size=size == 10)
    wrong = bytearray(frame)
    wrong[4 + size] ^= 0xFF
    assert old_formats._repaired(bytes(wrong)) == frame
