"""Logs as no broker should leave them, and batches that nearly match: what is wrong is found at both levels."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace

import crc32c
import pytest

from kafka_migration.compare import batches, task
from kafka_migration.compare.digests import SOURCE, TARGET, Digest, is_same
from kafka_migration.compare.reader.side import Side
from kafka_migration.compare.reading import CannotRead
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.domain.offset_map import Run
from kafka_migration.wire.batch import parse_header
from tests.compare.made_sides import TP, Answers, MadeClient, answer, side_over
from tests.wire.logs import CONTROL, TRANSACTIONAL, batch_of, marker
from tests.wire.made import made_batch

LEVELS: dict[str, Callable[[PartitionRange, tuple[Side, Side]], tuple[Digest, Digest, int]]] = {
    "batch": batches.compare,
    "record": task.compare,
}
PRODUCER = (7, 0)
LAST_DELTA_AT, ATTRIBUTES_AT, PRODUCER_AT = 23, 21, 43


def data(offset: int, count: int = 2) -> bytes:
    return made_batch([b"v%d" % n for n in range(offset, offset + count)], base_offset=offset)


def changed(batch: bytes, form: str, at: int, value: int, *, sealed: bool = True) -> bytes:
    """``batch`` with another field in its header, and, if ``sealed``, the checksum for it."""
    made = bytearray(batch)
    struct.pack_into(form, made, at, value)
    if sealed:
        struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


def flipped(batch: bytes) -> bytes:
    """With a wrong bit, and a checksum that no longer fits."""
    return batch[:-1] + bytes([batch[-1] ^ 1])


def answers(log: list[bytes], aborted: list[tuple[int, int]]) -> Answers:
    """As a broker: from the first batch that ends behind the offset on, whatever stands there."""

    def asked(offset: int) -> object:
        first = next((n for n, batch in enumerate(log) if parse_header(batch).next_offset > offset), len(log))
        return answer(b"".join(log[first:]), end=10**6, aborted=aborted)

    return asked


def range_of(source_end: int, target_end: int, *runs: Run) -> PartitionRange:
    return PartitionRange(
        topic=TP.topic,
        partition=TP.partition,
        source_start=0,
        source_end=source_end,
        target_start=0,
        target_end=target_end,
        runs=Runs(runs),
    )


@pytest.fixture(params=LEVELS)
def compared(request, monkeypatch):
    """Both digests of two logs, at either level."""
    monkeypatch.setattr("kafka_migration.compare.reader.side._EMPTY_SECONDS", 0.0)

    def compare(
        source: list[bytes], target: list[bytes], it: PartitionRange, aborted: list[tuple[int, int]] | None = None
    ) -> tuple[Digest, Digest]:
        one = MadeClient(answers(source, aborted or []), SOURCE)
        other = MadeClient(answers(target, []), TARGET)
        sides = (
            side_over(one, it.source_start, it.source_end, left_out=it.left_out, may_lack=True),
            side_over(other, it.target_start, it.target_end, committed=False, may_lack=True),
        )
        return LEVELS[request.param](it, sides)[:2]

    return compare


def test_damaged_marker_is_named_and_hides_nothing_behind_it(compared):
    far = changed(marker(2, PRODUCER, commit=False), ">i", LAST_DELTA_AT, 1_000, sealed=False)
    for log in ([data(0), flipped(marker(2, PRODUCER, commit=False))], [data(0), far, data(3)]):
        with pytest.raises(CannotRead, match=r"target: .*batch at offset 2: checksum"):
            compared([data(0)], log, range_of(2, 5, Run(0, 0, 2)))


def test_damaged_batch_of_an_aborted_transaction_is_named(compared):
    transactional = changed(changed(data(2), ">H", ATTRIBUTES_AT, TRANSACTIONAL), ">q", PRODUCER_AT, PRODUCER[0])
    end = marker(4, PRODUCER, commit=False)
    whole = range_of(5, 2, Run(0, 0, 2))
    found = compared([data(0), transactional, end], [data(0)], whole, [(PRODUCER[0], 2)])
    assert is_same(*found)
    with pytest.raises(CannotRead, match=r"source: .*batch at offset 2: checksum"):
        compared([data(0), flipped(transactional), end], [data(0)], whole, [(PRODUCER[0], 2)])


def test_what_is_damaged_behind_the_end_is_the_trouble_of_the_next_segment(compared):
    transactional = changed(changed(data(2), ">H", ATTRIBUTES_AT, TRANSACTIONAL), ">q", PRODUCER_AT, PRODUCER[0])
    log = [data(0), transactional, flipped(marker(4, PRODUCER, commit=False)), data(5)]
    found = compared(log, [data(0)], range_of(3, 2, Run(0, 0, 2)), [(PRODUCER[0], 2)])
    assert is_same(*found)
    assert found[0].rows == 2


@pytest.mark.parametrize(
    ("source", "target", "is_equal"),
    [
        pytest.param([data(0), data(2)], [data(2), data(0)], False, id="two batches in the wrong order"),
        pytest.param(
            [data(0), data(2, 1)],
            [data(0), marker(2, PRODUCER, commit=False), data(2, 1)],
            False,
            id="a marker at a record's offset",
        ),
        pytest.param([data(0), data(2)], [data(0), data(0), data(2)], True, id="a batch twice"),
    ],
)
def test_what_goes_back_in_the_log_is_read_by_no_consumer(compared, source, target, is_equal):
    end = parse_header(source[-1]).next_offset
    one, other = compared(source, target, range_of(end, end, Run(0, 0, end)))
    assert is_same(one, other) == is_equal
    assert one.rows == end
    assert (other.rows == end) == is_equal


def test_answer_whose_last_batch_goes_back_ends(compared):
    back = changed(data(2), ">q", 0, 0)
    one, other = compared([data(0), data(2)], [data(0), data(2), back], range_of(4, 4, Run(0, 0, 4)))
    assert is_same(one, other)
    below = changed(data(4), ">i", LAST_DELTA_AT, -9)
    one, other = compared([data(0), data(4)], [data(0), below], range_of(6, 4, Run(0, 0, 2), Run(4, 2, 2)))
    assert not is_same(one, other)


def test_batch_that_compaction_has_emptied_is_none(compared):
    emptied = batch_of([], base_offset=2, last_delta=0, attributes=TRANSACTIONAL)
    one, other = compared([data(0)], [data(0), emptied], range_of(2, 3, Run(0, 0, 2)))
    assert is_same(one, other)
    assert (one.attributes, other.attributes) == (0, 0)
    control = batch_of([], base_offset=2, last_delta=0, attributes=TRANSACTIONAL | CONTROL)
    assert is_same(*compared([data(0)], [data(0), control], range_of(2, 3, Run(0, 0, 2))))


FOUR = data(0, 4)
STAMPED = changed(FOUR, ">H", ATTRIBUTES_AT, 0x08)
WHOLE = range_of(4, 4, Run(0, 0, 4))


@pytest.mark.parametrize(
    ("source", "target", "it", "rows"),
    [
        pytest.param(FOUR, [FOUR], replace(WHOLE, runs=Runs([])), (4, 4), id="a map without runs"),
        pytest.param(FOUR, [FOUR], range_of(4, 4, Run(0, 0, 3)), (4, 4), id="a run that ends inside the batch"),
        pytest.param(FOUR, [FOUR], range_of(4, 4, Run(1, 1, 3)), (4, 4), id="a run that begins inside the batch"),
        pytest.param(FOUR, [FOUR], range_of(5, 4, Run(1, 0, 4)), (4, 4), id="records one further on"),
        pytest.param(STAMPED, [FOUR], WHOLE, (4, 4), id="the source's times are the broker's"),
        pytest.param(FOUR, [FOUR, data(4, 1)], range_of(4, 5, Run(0, 0, 4)), (4, 5), id="a batch behind the last run"),
        pytest.param(FOUR, [FOUR], range_of(4, 3, Run(0, 0, 4)), (4, 3), id="cut by the target's end"),
        pytest.param(FOUR, [FOUR], replace(WHOLE, left_out=((1, 2),)), (3, 4), id="offsets given up inside"),
    ],
)
def test_batches_with_the_same_bytes_prove_nothing_where(compared, source, target, it, rows):
    one, other = compared([source], target, it)
    assert not is_same(one, other)
    assert (one.rows, other.rows) == rows


def test_batch_that_the_source_end_cuts_counts_as_far_as_it_is_asked_for(compared):
    one, other = compared([FOUR], [FOUR], range_of(3, 3, Run(0, 0, 3)))
    assert is_same(one, other)
    assert one.rows == 3


def test_checksum_of_a_batch_that_is_the_same_on_both_sides_is_looked_at(compared):
    wrong = changed(FOUR, ">I", 17, 1, sealed=False)
    with pytest.raises(CannotRead, match=r"source: .*checksum"):
        compared([wrong], [wrong], WHOLE)
