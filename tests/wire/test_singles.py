"""Rows of one-record batches joined as arrays: byte for byte what the general way makes of them, and never more."""

import random

import pytest

from kafka_migration.wire.batch import CorruptBatch, batches, parse_header, verify_crc
from kafka_migration.wire.join import FEWEST, SMALL_BYTES, Piece, join, singles, small_neighbours
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import RawRecord, write_varint
from tests.wire.logs import CONTROL, DELETE_HORIZON, LOG_APPEND_TIME, TRANSACTIONAL, batch_of, raw, rows_of
from tests.wire.made import NOW, field

PLENTY = 1 << 20
LONGEST_SHIFT = 1 << 34


def _single(offset: int, *, time: int = NOW, value: bytes | None = b"v", epoch: int = 3, attributes: int = 0) -> bytes:
    record = RawRecord(0, 0, 0, field(b"k%d" % offset) + field(value) + write_varint(0))
    return batch_of(
        [record],
        base_offset=offset,
        last_delta=0,
        attributes=attributes,
        base_timestamp=time,
        max_timestamp=time,
        leader_epoch=epoch,
    )


def _row(count: int, first: int = 100) -> list[bytes]:
    return [_single(first + n, time=NOW + n) for n in range(count)]


def _singles(*parts: bytes, most_bytes: int = PLENTY):
    return singles(memoryview(b"".join(parts)), 0, most_bytes)


@pytest.mark.parametrize("seed", range(20))
def test_the_batch_is_the_one_that_the_general_way_makes(seed):
    chance = random.Random(seed)
    offset, epoch, parts = chance.randrange(1 << 40), 3, list[bytes]()
    for _ in range(chance.choice((FEWEST, 100, 9_000 if seed == 7 else 1_000))):
        time = NOW + chance.choice((0, 1, -1, 63, 64, -64, -65, 8_192, 10**6, LONGEST_SHIFT - 1, -LONGEST_SHIFT))
        value = chance.choice((None, b"", chance.randbytes(chance.randrange(500)), b"x" * 57, b"x" * 58))
        parts.append(_single(offset, time=NOW if not parts else time, value=value, epoch=epoch))
        offset += chance.choice((1, 1, 1, 1, 2, 900))
        epoch += chance.random() < 0.02
    log = memoryview(b"".join(parts))
    them = small_neighbours(log, 0, len(log), frozenset())
    assert them is not None
    assert len(them.members) == len(parts)
    found = singles(log, 0, len(log))
    assert found is not None
    piece, stop = found
    expected = join(log, them)
    assert stop == len(log)
    assert raw(piece) == raw(expected)
    assert piece == expected
    verify_crc(piece.header, memoryview(raw(piece)))


def test_a_row_stops_where_its_size_is_reached():
    parts = _row(40)
    found = _singles(*parts, most_bytes=len(b"".join(parts[:30])))
    assert found is not None
    piece, stop = found
    assert (piece.joined, piece.end, stop) == (30, 130, len(b"".join(parts[:30])))


def test_few_are_left_to_the_general_way():
    assert _singles(*_row(FEWEST - 1)) is None
    assert _singles(*_row(FEWEST)) is not None
    assert singles(memoryview(b""), 0, PLENTY) is None


def _record(attributes: int = 0, delta: int = 0, place: int = 0) -> RawRecord:
    return RawRecord(delta, place, attributes, field(b"k") + field(b"v") + b"\0")


ODD = {
    "log append time": _single(200, attributes=LOG_APPEND_TIME),
    "transactional": _single(200, attributes=TRANSACTIONAL),
    "marker": _single(200, attributes=TRANSACTIONAL | CONTROL),
    "delete horizon": _single(200, attributes=DELETE_HORIZON),
    "late": _single(200, time=NOW + LONGEST_SHIFT),
    "early": _single(200, time=NOW - LONGEST_SHIFT - 1),
    "goes back": _single(110),
    "large": _single(200, value=b"v" * SMALL_BYTES),
    "two records": batch_of([_record(), _record(place=1)], base_offset=200, last_delta=1),
    "thinned": batch_of([_record()], base_offset=200, last_delta=1),
    "record attributes": batch_of([_record(attributes=5)], base_offset=200, last_delta=0),
    "time delta": batch_of([_record(delta=7)], base_offset=200, last_delta=0),
    "empty": batch_of([], base_offset=200, last_delta=0),
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_whatever_is_odd_ends_the_row(odd):
    found = _singles(*_row(20), odd, *_row(20, first=300))
    assert found is not None
    assert (found[0].joined, found[0].end) == (20, 120)


def test_a_row_ends_before_a_damaged_batch_which_then_stops_the_copy():
    parts = _row(60)
    parts[30] = parts[30][:-3] + b"?" + parts[30][-2:]
    found = _singles(*parts)
    assert found is not None
    assert (found[0].joined, found[0].end) == (30, 130)
    copied = list[Piece]()
    with pytest.raises(CorruptBatch, match="offset 130"):
        copied.extend(pieces(b"".join(parts), join_bytes=PLENTY))
    assert copied[-1].end == 130


@pytest.mark.parametrize("length", [-13, -1, 0, 1 << 30])
def test_a_length_that_cannot_be_ends_the_row(length):
    """One that leads backwards would be walked for ever."""
    parts = _row(30)
    parts[20] = parts[20][:8] + length.to_bytes(4, "big", signed=True) + parts[20][12:]
    found = _singles(*parts)
    assert found is not None
    assert found[0].joined == 20


@pytest.mark.parametrize("seed", range(10))
def test_all_records_of_a_mixed_log_arrive_in_order(seed):
    chance = random.Random(seed)
    parts, offset = [], 10
    for _ in range(600):
        many = chance.random() < 0.04
        records = [
            RawRecord(n, n, 0, field(b"k%d" % (offset + n)) + field(b"v" * chance.randrange(90)) + b"\0")
            for n in range(3 if many else 1)
        ]
        parts.append(
            batch_of(records, base_offset=offset, last_delta=len(records) - 1, max_timestamp=NOW + len(records))
        )
        offset += len(records) + chance.choice((0, 0, 0, 0, 3))
    log = b"".join(parts)
    cut = log[: len(log) - chance.choice((0, 1, 40, 70))]
    whole = [it for header, batch in batches(cut) for it in _rows(header, batch)]
    found = list(pieces(cut, join_bytes=PLENTY))
    assert [row for piece in found for row in rows_of(piece)] == whole
    assert sum(it.joined for it in found) == sum(1 for _ in batches(cut))
    assert len(found) < 150


def _rows(header, batch):
    return rows_of(Piece(parse_header(batch), batch, header.next_offset))
