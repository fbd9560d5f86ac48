"""Logs of every kind as pieces to copy: every committed record, at its offset, and nothing else."""

import random
from typing import Any

import crc32c
import pytest

from kafka_migration.wire import codecs, join
from kafka_migration.wire.aborted import aborted_batches, is_left_out
from kafka_migration.wire.batch import CorruptBatch, parse_header, verify_crc
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import RawRecord, write_varint
from tests.wire.logs import (
    CONTROL,
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Row,
    batch_of,
    made_log,
    marker,
    raw,
    rows_of,
    thinned,
)
from tests.wire.made import NOW, field, made_batch

P, Q = (7, 0), (8, 2)


def _plain(offset: int, count: int = 1, *, producer: tuple[int, int] = (-1, -1), attributes: int = 0) -> bytes:
    records = [RawRecord(0, n, 0, field(b"%d" % (offset + n)) + field(b"v") + write_varint(0)) for n in range(count)]
    return batch_of(records, base_offset=offset, last_delta=count - 1, producer=producer, attributes=attributes)


def _in_transaction(offset: int, producer: tuple[int, int], count: int = 1) -> bytes:
    return _plain(offset, count, producer=producer, attributes=TRANSACTIONAL)


def _offsets(records: bytes, aborted=(), *, since: int = 0, join_bytes: int = 0) -> list[int]:
    found = pieces(records, since=since, aborted=aborted, join_bytes=join_bytes)
    return [row.offset for piece in found for row in rows_of(piece)]


@pytest.mark.parametrize("seed", range(80))
def test_any_log_read_in_any_portions_gives_every_committed_record_once_and_no_other(seed):
    log, chance = made_log(seed), random.Random(seed)
    at = log.rows[0].offset if log.rows and chance.random() < 0.5 else 0
    if log.rows and chance.random() < 0.5:
        at = chance.choice(log.rows).offset
    began, found = at, list[Row]()
    while at < log.end:
        records, aborted = log.answer(at, chance.choice((1, 500, 5_000, 10**6)))
        before = at
        for piece in pieces(
            records, since=at, aborted=aborted, join_bytes=chance.choice((0, 400, 10**6)), most_bytes=0
        ):
            rows = rows_of(piece)
            assert all(before <= row.offset < piece.end for row in rows)
            if piece.batch is not None:
                verify_crc(piece.header, piece.batch)
                assert piece.header.is_gapless
                assert (piece.header.records, piece.continues) == (len(rows), rows[-1].offset + 1)
                assert piece.header.base_offset == rows[0].offset
                assert piece.header.max_timestamp == max(row.timestamp for row in rows)
            found += rows
            before = piece.end
        assert before > at or not records
        at = before if records else log.end
    assert found == [row for row in log.rows if row.offset >= began]


@pytest.mark.parametrize("seed", range(20))
def test_any_log_is_split_to_what_the_target_takes(seed):
    log = made_log(seed)
    records, aborted = log.answer(0, 10**9)
    most = random.Random(seed).choice((200, 1_000, 10_000))
    found = list(pieces(records, aborted=aborted, join_bytes=10**5, most_bytes=most))
    assert [row for piece in found for row in rows_of(piece)] == log.rows
    assert all(it.batch is None or it.header.size <= most or it.header.records == 1 for it in found)
    ends = [it.end for it in found]
    assert ends == sorted(ends)
    assert ends[-1] == log.end or not log.batches


def test_last_part_of_a_batch_reaches_to_the_end_of_what_compaction_left() -> None:
    parts = list(pieces(thinned(10, [0, 1, 3], 9), most_bytes=1))
    assert [(it.header.base_offset, it.end) for it in parts] == [(10, 11), (11, 12), (13, 20)]


# -- transactions ---------------------------------------------------------------------------------------------


def test_aborted_transactions_are_left_out_each_up_to_its_marker_whoever_writes_between():
    log = [
        _in_transaction(0, P),
        _in_transaction(1, Q),
        _in_transaction(2, P),
        marker(3, P, commit=False),
        _in_transaction(4, P),
        _in_transaction(5, Q),
        marker(6, Q, commit=True),
        marker(7, P, commit=False),
        _in_transaction(8, P),
        marker(9, P, commit=True),
        _plain(10),
    ]
    # The broker names both of the producer's, in any order.
    assert _offsets(b"".join(log), ((7, 4), (7, 0))) == [1, 5, 8, 10]
    assert _offsets(b"".join(log), ((7, 0), (7, 4)), join_bytes=10**6) == [1, 5, 8, 10]


def test_answer_that_begins_in_the_middle_of_a_transaction_goes_by_the_list():
    log = [_in_transaction(5, P), _in_transaction(6, Q), marker(7, P, commit=False), _in_transaction(8, P)]
    assert _offsets(b"".join(log), ((7, 0),), since=5) == [6, 8]
    assert _offsets(b"".join(log), (), since=5) == [5, 6, 8], "of a committed one it says nothing"


def test_producer_of_an_aborted_transaction_may_write_without_one_as_well():
    log = [_in_transaction(0, P), marker(1, P, commit=False), _plain(2, producer=P)]
    assert _offsets(b"".join(log), ((7, 0),)) == [2]
    # A mirror writes so: with the producer id of its fences, and outside of their transactions.
    assert _offsets(_plain(0, producer=P) + marker(1, P, commit=False) + _plain(2, producer=P)) == [0, 2]


def test_commit_marker_of_the_same_producer_does_not_end_an_aborted_one():
    # Nobody has seen a broker do so; should a list ever be wider than its log, nothing aborted passes for committed.
    log = [_in_transaction(0, P), marker(1, P, commit=True), _in_transaction(2, P), marker(3, P, commit=False)]
    assert _offsets(b"".join(log), ((7, 0),)) == []


def test_emptied_abort_marker_changes_nothing():
    emptied = batch_of([], base_offset=1, last_delta=0, attributes=TRANSACTIONAL | CONTROL, producer=P)
    assert aborted_batches(_in_transaction(0, P) + emptied + _in_transaction(2, P), [(7, 0)]) == {0, 2}


@pytest.mark.parametrize(
    ("behind", "said"),
    [
        (1, "the next batch begins at source offset 5"),
        (0, "by its own header, the next one begins at source offset 3"),
    ],
)
@pytest.mark.parametrize("join_bytes", [0, 10**6])
def test_corruption_names_the_offset_behind_the_batch(behind, said, join_bytes):
    damaged = bytearray(made_batch([b"0", b"1", b"2"]))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatch, match=said):
        list(pieces(bytes(damaged) + made_batch([b"5"], base_offset=5) * behind, join_bytes=join_bytes))


def test_damaged_marker_is_corruption_and_what_stands_before_it_is_judged():
    damaged = bytearray(marker(1, P, commit=False))
    damaged[-1] ^= 1
    records = _in_transaction(0, P) + bytes(damaged) + _in_transaction(2, P)
    assert aborted_batches(records, [(7, 0)]) == {0}
    found = list[object]()
    with pytest.raises(CorruptBatch, match="offset 1"):
        found.extend((piece.batch, piece.end) for piece in pieces(records, aborted=[(7, 0)]))
    assert found == [(None, 1)]


def test_small_transactions_are_joined_across_their_markers_with_a_run_for_each():
    log = b"".join(
        part
        for n in range(0, 40, 4)
        for part in (
            _in_transaction(n, P),
            marker(n + 1, P, commit=True),
            _in_transaction(n + 2, Q),
            marker(n + 3, Q, commit=False),
        )
    )
    aborted = [(8, n + 2) for n in range(0, 40, 4)]
    first, last, *more = pieces(log, aborted=aborted, join_bytes=10**6)
    assert [run.source for run in first.runs] == list(range(0, 40, 4))
    assert (first.joined, first.header.attributes, first.end, first.continues) == (10, 0, 37, 37)
    assert [it.end for it in (last, *more)] == [38, 39, 40], "what is behind its last record is passed over"
    assert all(it.batch is None for it in (last, *more))


def test_long_row_of_aborted_batches_is_gone_through_once(monkeypatch):
    looked_at = []

    def counted(*asked: Any) -> bool:
        looked_at.append(1)
        return is_left_out(*asked)

    monkeypatch.setattr(join, "is_left_out", counted)
    rows = [_in_transaction(n, P) for n in range(2_000)]
    rows[1_000] = _plain(1_000)
    found = list(pieces(b"".join(rows), aborted=[(7, 0)], join_bytes=10**6))
    assert [row.offset for piece in found for row in rows_of(piece)] == [1_000]
    assert len(looked_at) < 4_000


# -- compaction, timestamps -----------------------------------------------------------------------------------


def _thinned(kept: list[int], *, size: int = 3, attributes: int = 0, last_delta: int = 9) -> bytes:
    records = [RawRecord(n, n, 0, field(b"%d" % n) + field(b"v" * size) + write_varint(0)) for n in kept]
    return batch_of(
        records, base_offset=100, last_delta=last_delta, attributes=attributes, max_timestamp=NOW + kept[-1]
    )


@pytest.mark.parametrize("codec", range(5))
def test_thinned_batch_becomes_one_without_gaps_with_a_run_for_each_row(codec):
    (piece,) = pieces(_thinned([2, 3, 7], attributes=codec))
    assert piece.runs == ((0, 102, 3), (2, 107, 3))
    assert (piece.header.codec, piece.header.records, piece.end, piece.continues) == (codec, 3, 110, 108)
    assert [(row.offset, row.timestamp) for row in rows_of(piece)] == [
        (102, NOW + 2),
        (103, NOW + 3),
        (107, NOW + 7),
    ]


@pytest.mark.parametrize(("since", "left"), [(100, [2, 3, 7]), (103, [3, 7]), (104, [7]), (108, [])])
def test_thinned_batch_is_cut_at_any_offset_also_behind_its_last_record(since, left):
    (piece,) = pieces(_thinned([2, 3, 7]), since=since)
    assert [row.offset - 100 for row in rows_of(piece)] == left
    assert piece.end == 110
    assert (piece.batch is None) == (not left)


def test_batch_that_only_lost_its_tail_is_one_row():
    (piece,) = pieces(_thinned([0, 1, 2]))
    assert (piece.runs, piece.end, piece.continues) == ((), 110, 103)


@pytest.mark.parametrize("size", [3, 20_000])
def test_log_append_time_is_the_batchs_latest_for_all_of_its_records(size):
    records = _thinned([0, 1, 2], size=size, attributes=LOG_APPEND_TIME, last_delta=2)
    for join_bytes in (0, 10**6):
        found = list(pieces(records, join_bytes=join_bytes))
        assert [row.timestamp for it in found for row in rows_of(it)] == [NOW + 2] * 3
        assert all(it.header.attributes == 0 for it in found)


def test_delete_horizon_is_a_base_like_any_other_and_its_bit_goes():
    batch = _thinned([0, 1, 2], attributes=DELETE_HORIZON, last_delta=2)
    (alone,) = pieces(batch)
    assert raw(alone) == batch, "the bit goes when it is addressed anew"
    other = batch_of([RawRecord(5, 0, 0, field(None) * 2 + b"\0")], base_offset=103, last_delta=0)
    (joint,) = pieces(batch + other, join_bytes=10**6)
    assert joint.header.attributes == 0
    assert [row.timestamp - NOW for row in rows_of(joint)] == [0, 1, 2, 5]


def test_neighbours_too_far_apart_in_time_for_a_delta_stay_alone():
    # Readers in languages without overflow would not find the way back.
    rest = field(None) * 2 + b"\0"
    times = (2**63 - 1, -(10**14), 0, 5, 2**63 - 1)
    log = b"".join(
        batch_of([RawRecord(0, 0, 0, rest)], base_offset=n, last_delta=0, base_timestamp=time, max_timestamp=time)
        for n, time in enumerate(times)
    )
    found = [row for piece in pieces(log, join_bytes=10**6) for row in rows_of(piece)]
    assert [row.timestamp for row in found] == list(times)


@pytest.mark.parametrize("kept", [[3, 3], [4, 2], [10], [11]])
def test_records_at_offsets_that_their_batch_does_not_have_are_corruption(kept):
    with pytest.raises(CorruptBatch, match="claims offset"):
        list(pieces(_thinned(kept)))


def test_batch_with_more_records_than_offsets_is_corruption():
    with pytest.raises(CorruptBatch):
        list(pieces(_thinned([0, 1, 2], last_delta=1)))


def test_negative_count_is_corruption():
    damaged = bytearray(made_batch([b"x"]))
    damaged[57:61] = (-4).to_bytes(4, "big", signed=True)
    damaged[17:21] = crc32c.crc32c(bytes(damaged[21:])).to_bytes(4, "big")
    with pytest.raises(CorruptBatch, match="claims -4 records"):
        list(pieces(bytes(damaged)))


def test_ordinary_batch_is_passed_on_byte_for_byte():
    batches = [made_batch([b"x" * 9_000] * 3, base_offset=3 * n, codec=codecs.NONE) for n in range(3)]
    found = list(pieces(b"".join(batches), join_bytes=10**6, most_bytes=10**6))
    assert [(raw(it), it.end, it.runs) for it in found] == [
        (batch, parse_header(batch).next_offset, ()) for batch in batches
    ]


def test_damage_of_a_batch_that_is_passed_over_is_seen() -> None:
    """A damaged one could claim offsets that it does not have, and have those behind it passed over, too."""
    first, second = _plain(0, 5), _plain(5, 5)
    damaged = bytearray(first)
    damaged[-1] ^= 1
    assert _offsets(first + second, since=5) == [5, 6, 7, 8, 9]
    with pytest.raises(CorruptBatch, match="batch at offset 0: CRC-32C"):
        _offsets(bytes(damaged) + second, since=5)
