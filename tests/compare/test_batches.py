"""Batch level over made-up logs of every kind: what it digests is what a consumer would, however the batches stand."""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import crc32c
import pytest

from kafka_migration.compare import batches as by_batches
from kafka_migration.compare.batches import compare
from kafka_migration.compare.digests import SOURCE, TARGET, Digest, SegmentOutcome, is_same
from kafka_migration.compare.reader.side import Side
from kafka_migration.compare.reading import CannotRead
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.segments import tiles
from kafka_migration.domain.offset_map import Run
from kafka_migration.wire.batch import HEADER_BYTES, parse_header, readdress
from kafka_migration.wire.pieces import pieces
from tests.compare.made_sides import TP, Answers, MadeClient, answer, digest_of_rows, log_of, side_over
from tests.wire.logs import MadeLog, made_log, marker
from tests.wire.made import made_batch

Log = list[bytes]


Sides = tuple[Side, Side]


@pytest.fixture(autouse=True)
def _is_sure_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that sends nothing twice has nothing."""
    monkeypatch.setattr("kafka_migration.compare.reader.side._EMPTY_SECONDS", 0.0)


def _sides(source: Answers, target: Answers, it: PartitionRange) -> Sides:
    spans = ((it.source_start, it.source_end), (it.target_start, it.target_end))
    one, other = (
        side_over(MadeClient(answers, role), *span, committed=role == SOURCE, may_lack=True)
        for role, answers, span in zip((SOURCE, TARGET), (source, target), spans, strict=True)
    )
    return one, other


def _placed(batch: bytes | bytearray | memoryview, offset: int) -> bytes:
    made = bytearray(batch)
    struct.pack_into(">q", made, 0, offset)
    return bytes(made)


def _copied(log: MadeLog, join_bytes: int, *, takes_aborted: bool = False) -> tuple[Log, tuple[Run, ...], int]:
    """The target's log as the mirror would leave it, the runs, and its end; markers of fences stand here and there.

    `takes_aborted`: as a mirror would that takes aborted transactions for committed ones."""
    chance = random.Random(len(log.batches))
    whole, aborted = log.answer(parse_header(log.batches[0]).base_offset, 2**40)
    aborted = () if takes_aborted else tuple(aborted)
    out, runs, at = [], [], chance.randrange(5)
    for piece in pieces(whole, aborted=aborted, join_bytes=join_bytes):
        if piece.batch is None:
            continue
        if chance.random() < 0.2:
            out.append(marker(at, (7, 0), commit=False))
            at += 1
        sent = readdress(piece.batch, producer_id=7, producer_epoch=0, sequence=0)
        out.append(_placed(sent, at))
        spread = [(run.before, run.source) for run in piece.runs] or [(0, piece.header.base_offset)]
        ends = [*(before for before, _ in spread[1:]), piece.header.records]
        runs += [Run(source, at + before, end - before) for (before, source), end in zip(spread, ends, strict=True)]
        at += piece.header.records
    return out, tuple(runs), at


def _range(log: MadeLog, runs: tuple[Run, ...], target_end: int) -> PartitionRange:
    start = parse_header(log.batches[0]).base_offset
    return PartitionRange(
        topic=TP.topic,
        partition=TP.partition,
        source_start=start,
        source_end=log.end,
        target_start=0,
        target_end=target_end,
        runs=Runs(runs),
    )


def _digested(log: MadeLog, target: Log, it: PartitionRange, **options: bool) -> tuple[Digest, Digest]:
    def source(offset: int) -> Any:
        records, aborted = log.answer(offset, 2_000)
        return answer(records, end=log.end, aborted=aborted)

    return compare(it, _sides(source, log_of(target, at_once=5), it), **options)[:2]


@pytest.mark.parametrize("seed", range(40))
def test_decoded_digests_of_both_sides_are_those_of_the_records_that_a_consumer_sees(seed):
    log = made_log(seed)
    for join_bytes in (0, 3_000):
        target, runs, end = _copied(log, join_bytes)
        one, other = _digested(log, target, _range(log, runs, end), decode_all=True)
        assert one == other == digest_of_rows(log.rows)


@pytest.mark.parametrize("seed", range(40))
def test_copy_is_equal_however_much_of_it_is_proved_by_bytes(seed):
    log = made_log(seed)
    proved = []
    for join_bytes in (0, 3_000):
        target, runs, end = _copied(log, join_bytes)
        one, other = _digested(log, target, _range(log, runs, end))
        assert one == other
        assert one.rows == len(log.rows)
        proved.append(one.proved)
    assert proved[0] >= proved[1]
    assert proved[0] > 0


@pytest.mark.parametrize("seed", range(20))
def test_digests_of_segments_add_up_to_that_of_the_whole(seed):
    log = made_log(seed)
    target, runs, end = _copied(log, 3_000)
    whole = _range(log, runs, end)
    expected, _ = _digested(log, target, whole, decode_all=True)
    for size in (7, 50):
        total = there = Digest()
        for _, tile in tiles(whole, size):
            one, other = _digested(log, target, tile, decode_all=True)
            assert one == other
            total, there = total + one, there + other
        assert total == there == expected


def _sealed(batch: bytearray) -> bytes:
    """With the checksum that it should have."""
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    return bytes(batch)


def _flip(at: int) -> Callable[[bytearray], None]:
    def damage(batch: bytearray) -> None:
        batch[at] ^= 1

    return damage


VALUES: list[bytes | None] = [b"one", b"", None, b"three"]
DAMAGE = {
    "byte of a record": _flip(-2),
    "base timestamp": _flip(34),
    "count of records": lambda it: struct.pack_into(">i", it, 57, 3),
}


@pytest.mark.parametrize("codec", range(5))
def test_batch_with_the_same_bytes_elsewhere_is_not_equal(codec):
    source = [made_batch(VALUES, base_offset=0, codec=codec), made_batch(VALUES, base_offset=4, codec=codec)]
    target = [_placed(each, offset) for each, offset in zip(source, (10, 14), strict=True)]
    it = _made_range(8, Run(0, 10, 8))
    one, other = _pair(source, target, it)
    assert one == other
    assert one.proved == one.rows == 8
    assert one.bytes == sum(len(batch) - HEADER_BYTES for batch in source)
    # The map says that the second begins a record later: not the records, but their places are wrong.
    shifted = replace(it, runs=Runs([Run(0, 10, 4), Run(5, 14, 3)]))
    one, other = _pair(source, target, shifted)
    assert one != other


@pytest.mark.parametrize("name", ["byte of a record", "base timestamp"])
def test_batch_that_differs_in_what_matters_is_decoded_and_differs(name):
    source = [made_batch(VALUES, base_offset=0), made_batch(VALUES, base_offset=4)]
    damaged = bytearray(source[1])
    DAMAGE[name](damaged)
    it = _made_range(8, Run(0, 0, 8))
    one, other = _pair(source, [source[0], _sealed(damaged)], it)
    assert (one.proved, other.proved, one.rows, other.rows) == (4, 4, 8, 8)
    assert one.total != other.total


def test_batch_whose_records_are_fewer_than_it_says_cannot_be_read():
    source = [made_batch(VALUES, base_offset=0)]
    damaged = bytearray(source[0])
    DAMAGE["count of records"](damaged)
    it = _made_range(4, Run(0, 0, 4))
    with pytest.raises(CannotRead, match="target: made-0: batch at offset 0: bytes after its last"):
        _pair(source, [_sealed(damaged)], it)


def test_producer_and_epoch_of_a_batch_do_not_matter():
    source = [made_batch(VALUES, base_offset=0, leader_epoch=3)]
    target = [_placed(readdress(source[0], producer_id=99, producer_epoch=4, sequence=17), 0)]
    it = _made_range(4, Run(0, 0, 4))
    one, other = _pair(source, target, it)
    assert one == other
    assert one.proved == 4


def test_offsets_given_up_inside_a_batch_are_not_compared():
    source, target = [made_batch(VALUES, base_offset=0)], [made_batch(VALUES[:2], base_offset=0)]
    it = _made_range(4, Run(0, 0, 2), left_out=((2, 4),))
    one, other = _pair(source, target, it)
    assert one == other
    assert one.rows == 2


def _made_range(source_end: int, *runs: Run, left_out: tuple[tuple[int, int], ...] = ()) -> PartitionRange:
    """A source from its offset 0, and the target that the runs make of it."""
    return PartitionRange(
        topic="made",
        partition=0,
        source_start=0,
        source_end=source_end,
        target_start=runs[0].target if runs else 0,
        target_end=runs[-1].target + runs[-1].length if runs else 0,
        runs=Runs(runs),
        left_out=left_out,
    )


def _pair(source: Log, target: Log, it: PartitionRange) -> tuple[Digest, Digest]:
    return compare(it, _sides(log_of(source, at_once=3), log_of(target, at_once=2), it))[:2]


@pytest.mark.parametrize("name", ["byte of a record", "base timestamp", "place"])
def test_batches_that_are_wrongly_taken_for_equal_still_make_the_digests_differ(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bulk of the data is never decoded: then what each side counts must come from its own bytes alone."""

    def _credulous(one: by_batches._Batches, other: by_batches._Batches) -> list[tuple[bytes, bytes]]:
        return [(one.body(n), other.body(n)) for n in range(min(one.left, other.left))]

    monkeypatch.setattr(by_batches, "_twins", _credulous)
    source = [made_batch(VALUES, base_offset=0), made_batch(VALUES, base_offset=4)]
    second = bytearray(source[1])
    DAMAGE.get(name, lambda _: None)(second)
    target = [_placed(source[0], 10), _placed(_sealed(second), 14)]
    it = _made_range(9, Run(0, 10, 4), Run(5, 14, 4)) if name == "place" else _made_range(8, Run(0, 10, 8))
    one, other = _pair(source, target, it)
    assert one.proved == other.proved == 8
    assert not SegmentOutcome.of(0, it, "batch", source=one, target=other).is_same


@pytest.mark.parametrize("bit", range(3, 16))
def test_attribute_that_the_mirror_never_writes_makes_equal_records_different(bit: int) -> None:
    source = [made_batch(VALUES, base_offset=0), made_batch(VALUES, base_offset=4)]
    odd = bytearray(source[1])
    struct.pack_into(">H", odd, 21, 1 << bit)
    it = _made_range(8, Run(0, 0, 8))
    one, other = _pair(source, [source[0], _sealed(odd)], it)
    assert not SegmentOutcome.of(0, it, "batch", source=one, target=other).is_same
    # A control batch is not read as data at all.
    assert other.attributes == (0 if bit == 5 else 1 << bit)


def test_cleaner_of_a_compacted_target_may_mark_when_tombstones_go_and_nothing_else() -> None:
    odd = bytearray(made_batch(VALUES, base_offset=0))
    struct.pack_into(">H", odd, 21, 0x50)
    it = _made_range(4, Run(0, 0, 4))
    found = [
        _pair([_sealed(odd)], [_sealed(odd)], replace(it, target_compacted=compacted))[1].attribute_names
        for compacted in (False, True)
    ]
    assert found == ["transactional, delete horizon", "transactional"]


def test_kinds_of_the_sources_batches_are_told_for_the_sample() -> None:
    found = []
    for codec, more in ((0, 0), (3, 0x10), (4, 0x08)):
        batch = bytearray(made_batch(VALUES, base_offset=0, codec=codec))
        struct.pack_into(">H", batch, 21, codec | more)
        it = _made_range(4)
        found.append(compare(it, _sides(log_of([_sealed(batch)]), log_of([]), it))[2])
    plain, transactional, stamped = found
    assert plain & transactional == plain & stamped == transactional & stamped == 0
    assert [bin(one).count("1") for one in found] == [1, 2, 2]


def _with_header(batch: bytes, form: str, at: int, value: int) -> bytes:
    """``batch`` whose header says something else, its checksum right."""
    made = bytearray(batch)
    struct.pack_into(form, made, at, value)
    return _sealed(made)


def test_headers_that_differ_prove_nothing_and_the_records_are_decoded() -> None:
    batch = made_batch([b"a", b"b"])
    it = PartitionRange(
        topic=TP.topic,
        partition=TP.partition,
        source_start=0,
        source_end=2,
        target_start=0,
        target_end=2,
        runs=Runs([Run(0, 0, 2)]),
    )

    source, target = _pair([batch], [_with_header(batch, ">q", 35, 2**40)], it)
    assert is_same(source, target), "no consumer sees the batch's greatest timestamp"
    assert (source.proved, target.proved) == (0, 0)
    gzip = _with_header(batch, ">h", 21, 1)
    with pytest.raises(CannotRead, match="target"):
        _pair([batch], [gzip], it)
