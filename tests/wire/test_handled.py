"""What a handler makes of fetched records: batches without what it dropped, and where each record stands."""

import random

import pytest

from kafka_migration.domain.handlers import HandlerFailed, Record
from kafka_migration.wire.batch import CorruptBatch, assemble, parse_header, verify_crc
from kafka_migration.wire.codecs import GZIP
from kafka_migration.wire.join import Piece, Run
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import RawRecord
from tests.handlers import as_is, by_offset, handled_raw, nothing
from tests.wire.logs import Row, batch_of, made_log, rows_of, source_records, thinned
from tests.wire.made import made_batch


@pytest.mark.parametrize("join_bytes", [0, 1 << 18])
@pytest.mark.parametrize("seed", range(12))
def test_any_log_in_any_portions_gives_what_the_handler_makes_of_each_committed_record(seed, join_bytes):
    log, chance = made_log(seed), random.Random(seed)
    at, found = parse_header(log.batches[0]).base_offset, list[Row]()
    while at < log.end:
        records, aborted = log.answer(at, chance.choice((300, 3_000, 60_000)))
        for piece in pieces(records, since=at, aborted=aborted, join_bytes=join_bytes, handle=by_offset):
            assert piece.end > at
            at = piece.end
            if piece.batch is not None:
                verify_crc(piece.header, piece.batch)
                assert piece.header.is_gapless
                assert piece.header.max_timestamp == max(row.timestamp for row in rows_of(piece))
                assert piece.continues <= piece.end
            found += rows_of(piece)
    assert found == handled_raw(log.rows, by_offset)


@pytest.mark.parametrize("codec", range(5))
def test_batch_keeps_its_codec(codec):
    (piece,) = pieces(made_batch([b"a" * 50] * 9, base_offset=12, codec=codec), since=12, handle=by_offset)
    assert (piece.header.codec, piece.header.base_offset, piece.end) == (codec, 13, 21)
    assert [offset for offset, _ in source_records(piece)] == [13, 14, 16, 17, 19, 20]
    assert [(run.before, run.source) for run in piece.runs] == [(0, 13), (2, 16), (4, 19)]


@pytest.mark.parametrize("handle", [as_is, lambda record: record._replace()], ids=["the same", "an equal one"])
def test_batch_that_the_handler_leaves_as_it_is_is_passed_on_and_not_encoded_again(handle):
    batch = made_batch([b"a", None, b"c"], base_offset=5)
    (piece,) = pieces(batch, since=5, handle=handle)
    assert piece.batch is not None
    assert piece.batch.obj is batch


def test_rows_of_other_leader_epochs_are_runs_of_their_own():
    first, second = made_batch([b"a"], leader_epoch=3), made_batch([b"b", b"c"], base_offset=1, leader_epoch=4)
    kept, _ = pieces(first + second, join_bytes=1 << 18, handle=lambda record: record if record.offset < 2 else None)
    assert kept.runs == (Run(0, 0, 3), Run(1, 1, 4))


@pytest.mark.parametrize("rest", [b"\x01\x01", b"\x01\x01\x00\x00", b"\x01\x09a\x00", b"\x01\x01\x02\x01\x01"])
def test_record_whose_fields_do_not_fill_it_is_corruption(rest):
    batch = batch_of([RawRecord(0, 0, 0, rest)], base_offset=0, last_delta=0)
    assert len(list(pieces(batch))) == 1, "copied as it is, it is no concern of ours"
    with pytest.raises(CorruptBatch, match=r"behind that record: source offset 1$"):
        list(pieces(batch, handle=as_is))


def test_what_stands_before_a_record_that_cannot_be_read_is_copied():
    rests = [b"\x01\x01\x00", b"\x01\x01", b"\x01\x01\x00"]
    batch = batch_of([RawRecord(n, n, 0, rest) for n, rest in enumerate(rests)], base_offset=4, last_delta=2)
    found, left = list[Piece](), pieces(batch, since=4, handle=as_is)
    with pytest.raises(CorruptBatch, match=r"behind that record: source offset 6$"):
        found.extend(left)
    assert [piece.end for piece in found] == [5]


def test_batch_that_cannot_be_read_names_where_the_next_one_begins():
    whole = {"base_timestamp": 0, "max_timestamp": 0, "count": 2, "base_offset": 7}
    batch = assemble(attributes=GZIP, payload=b"no gzip", **whole)
    assert len(list(pieces(batch, since=7))) == 1
    with pytest.raises(CorruptBatch, match=r"the next batch begins at source offset 9$"):
        list(pieces(batch, since=7, handle=as_is))


def test_dropped_tail_is_passed_over_under_its_own_leader_epoch():
    first, second = made_batch([b"a"], leader_epoch=3), made_batch([b"b", b"c"], base_offset=1, leader_epoch=4)
    kept, behind = pieces(first + second, join_bytes=1 << 18, handle=lambda it: it if it.offset == 0 else None)
    assert (kept.end, kept.epoch, kept.header.records) == (1, 3, 1)
    assert (behind.end, behind.epoch, behind.batch) == (3, 4, None), "or the source would seem to be truncated"


def test_batch_that_is_dropped_whole_is_passed_over():
    (piece,) = pieces(made_batch([b"a", b"b"], base_offset=7), since=7, handle=nothing)
    assert (piece.end, piece.batch, piece.epoch) == (9, None, 3)


@pytest.mark.parametrize(("fails_at", "ends"), [(0, []), (1, [1]), (2, [1, 2]), (3, [4])])
def test_record_that_the_handler_fails_on_stops_the_copy_right_before_it(fails_at, ends):
    def fail(record: Record) -> Record | None:
        if record.offset == (0, 1, 2, 5)[fails_at]:
            raise HandlerFailed("m:f", record.offset, "ValueError")
        return None if record.offset == 1 else record

    # Offset 4 is a hole that compaction left, with another leader epoch behind it.
    one, other = thinned(0, [0, 1, 2, 3], 3), made_batch([b"x"], base_offset=5, leader_epoch=9)
    found, left = list[Piece](), pieces(one + other, join_bytes=1 << 18, handle=fail)
    with pytest.raises(HandlerFailed):
        found.extend(left)
    assert [piece.end for piece in found] == ends
    assert all(piece.epoch == 3 for piece in found)
