"""The validation's reader, over what a broker may answer: every format, aborted, damaged, silent, or with errors."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from typing import Any

import crc32c
import kafka.errors as kafka_errors
import lz4.frame
import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from kafka_migration.compare.decode.columns import Columns, Damaged, columns_of
from kafka_migration.compare.digests import SOURCE, TARGET, Digest
from kafka_migration.compare.orders import Orders
from kafka_migration.compare.placing import SourceSums
from kafka_migration.compare.reader.log import Log
from kafka_migration.compare.reader.side import Side
from kafka_migration.compare.reading import IN_TRANSACTION, OLD, STAMPED, CannotRead, Unanswered
from kafka_migration.compare.request import PartitionRange
from kafka_migration.compare.runs import Runs
from kafka_migration.compare.task import side_of
from kafka_migration.domain.levels import Level
from kafka_migration.domain.offset_map import Run
from kafka_migration.wire.batch import parse_header
from kafka_migration.wire.records import RawRecord, write_varint
from tests.compare.made_sides import TP, Answers, MadeClient, answer, digest_of_rows, log_of, side_over
from tests.wire.logs import CONTROL, TRANSACTIONAL, MadeLog, batch_of, made_log, marker
from tests.wire.made import NOW, field, made_batch

VALUES: list[bytes | None] = [b"a", b"b", None, b""]
NOT_LEADER, OUT_OF_RANGE = 6, 1
SNAPPY, LZ4 = 2, 3

_RECORDS = [RawRecord(n, n, 0, field(b"k") + field(b"v") + write_varint(0)) for n in range(2)]


def _range(start: int, end: int, **more: Any) -> PartitionRange:
    length = end - start
    runs = Runs([Run(start, 0, length)] if length else [])
    return PartitionRange(
        topic=TP.topic,
        partition=TP.partition,
        source_start=start,
        source_end=end,
        target_start=0,
        target_end=length,
        runs=runs,
        **more,
    )


def read(answers: Answers, start: int, end: int, **options: Any) -> tuple[Digest, Side, MadeClient]:
    """The digest of a source's side, the side, and whom it asked."""
    client = MadeClient(answers)
    side = side_over(client, start, end, **options)
    sums = SourceSums(_range(start, end, left_out=options.get("left_out", ())))
    while (records := side.next()) is not None:
        sums.add(records)
    return sums.digest(), side, client


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("most_bytes", [1, 2_000, 2**40])
def test_committed_records_are_those_that_a_consumer_sees_whatever_one_answer_holds(
    seed: int, most_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_migration.compare.reader.side._EMPTY_SECONDS", 0.05)
    log: MadeLog = made_log(seed)
    start = parse_header(log.batches[0]).base_offset

    def answers(offset: int) -> Any:
        records, aborted = log.answer(offset, most_bytes)
        return answer(records, end=log.end, aborted=aborted)

    found, _, _ = read(answers, start, log.end, may_lack=True)
    assert found == digest_of_rows(log.rows)


@pytest.mark.parametrize("seed", range(10))
def test_of_the_target_what_was_aborted_is_read_too(seed: int) -> None:
    log = made_log(seed)
    start = parse_header(log.batches[0]).base_offset

    def answers(offset: int) -> Any:
        return answer(log.answer(offset, 3_000)[0], end=log.end)

    found, side, _ = read(answers, start, log.end, committed=False)
    headers = [parse_header(batch) for batch in log.batches]
    assert found.rows == sum(header.records for header in headers if not header.is_control)
    assert bool(side.traits & IN_TRANSACTION) == any(h.is_transactional and not h.is_control for h in headers)
    assert bool(side.traits & STAMPED) == any(h.is_log_append_time for h in headers)


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_is_read(codec: int) -> None:
    batches = [made_batch([b"%d" % n * 40 for n in range(9)], base_offset=9 * at, codec=codec) for at in range(4)]
    plain = [made_batch([b"%d" % n * 40 for n in range(9)], base_offset=9 * at) for at in range(4)]
    found, side, _ = read(log_of(batches), 0, 36)
    assert found == read(log_of(plain), 0, 36)[0]
    assert (found.rows, side.traits) == (36, 1 << codec)


def test_snappy_of_librdkafka_is_read_too() -> None:
    """One block, not Java's many."""
    import snappy

    batch = made_batch(VALUES)
    assert read(log_of([_packed(batch, SNAPPY, snappy.compress)]), 0, 4)[0] == read(log_of([batch]), 0, 4)[0]


def _packed(batch: bytes, codec: int, pack: Callable[[bytes], bytes]) -> bytes:
    """A batch without a codec, with one."""
    packed = bytearray(batch[:61] + pack(batch[61:]))
    struct.pack_into(">i", packed, 8, len(packed) - 12)
    _sealed(packed, lambda: struct.pack_into(">h", packed, 21, codec))
    return bytes(packed)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"block_linked": False},
        {"block_linked": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB},
        {"block_linked": False, "content_checksum": True},
        {"block_linked": False, "block_checksum": True},
        {"block_linked": False, "store_size": True},
        {"compression_level": 9, "block_linked": False},
    ],
)
@pytest.mark.parametrize("size", [10, 70_000, 900_000, 5_000_000])
def test_lz4_of_any_client_is_read_from_blocks_and_from_frames(options: dict[str, Any], size: int) -> None:
    """Linked blocks and checksums are left to the library; of what does not shrink, blocks are stored as they are."""
    dice = random.Random(size)
    values: list[bytes | None] = [dice.randbytes(size // 3), b"a" * size, dice.randbytes(size // 2), None]
    batches = [made_batch(values, base_offset=4 * n) for n in range(3)]
    packed = [
        _packed(batch, LZ4, lambda data: lz4.frame.compress(data, **{"store_size": False, **options}))
        for batch in batches
    ]
    found, side, _ = read(log_of(packed), 0, 12)
    assert found == read(log_of(batches), 0, 12)[0]
    assert side.traits == 1 << LZ4


@pytest.mark.parametrize("cut", range(1, 12))
def test_lz4_that_ends_early_is_damaged(cut: int) -> None:
    batch = made_batch([b"a" * 300])
    with pytest.raises(Damaged, match="offset 0: it cannot be decompressed"):
        _all_of(_packed(batch, LZ4, lambda data: _frame(data)[:-cut]))


def test_bytes_behind_a_frame_of_lz4_are_more_of_it_or_damage() -> None:
    batch = made_batch([b"a" * 300])
    two = _all_of(_packed(batch, LZ4, lambda data: _frame(data[:100]) + _frame(data[100:])))
    assert two.hashes.tolist() == _all_of(batch).hashes.tolist()
    with pytest.raises(Damaged, match="offset 0: it cannot be decompressed"):
        _all_of(_packed(batch, LZ4, lambda data: _frame(data) + b"more"))


def _frame(data: bytes) -> bytes:
    return bytes(lz4.frame.compress(data, block_linked=False, store_size=False))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", range(4))
def test_messages_of_old_formats_are_read(magic: int, codec: int) -> None:
    builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=10**6)
    rows = []
    for n in range(5):
        time, key, value = NOW + n, (None if n == 1 else b"k%d" % n), (None if n == 2 else b"v%d" % n)
        builder.append(n, timestamp=time, key=key, value=value)
        rows.append((n, time if magic else -1, key, value, ()))
    old = bytes(builder.build())
    new = made_batch(VALUES, base_offset=5)

    def answers(offset: int) -> Any:
        return answer((old if offset < 5 else b"") + new)

    found, side, _ = read(answers, 0, 9)
    sums = SourceSums(_range(0, 5))
    sums.add(columns_of(rows))
    expected = sums.digest() + read(log_of([new]), 5, 9)[0]
    assert found == expected
    assert side.traits & OLD


def test_a_few_records_around_the_bounds_are_read_and_do_not_count() -> None:
    log = [made_batch(VALUES, base_offset=4 * n) for n in range(10)]
    found, _, client = read(log_of(log, at_once=3), 6, 26)
    assert found.rows == 20
    assert client.asked == [6, 16]


def test_what_was_given_up_is_not_read_though_it_is_damaged() -> None:
    log = [bytearray(made_batch(VALUES, base_offset=4 * n)) for n in range(6)]
    log[2][70] ^= 1
    batches = [bytes(batch) for batch in log]
    found, _, _ = read(log_of(batches), 0, 24, left_out=((8, 12),))
    assert found.rows == 20
    with pytest.raises(CannotRead, match="source: made-0: batch at offset 8: checksum"):
        read(log_of(batches), 0, 24)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda b: b.__setitem__(16, 3), "format 3"),
        (lambda b: struct.pack_into(">i", b, 8, 10), "10 bytes"),
        (lambda b: b.__setitem__(80, b[80] ^ 1), "checksum"),
        (lambda b: _sealed(b, lambda: struct.pack_into(">h", b, 21, 5)), "codec 5 is unknown"),
        (lambda b: _sealed(b, lambda: struct.pack_into(">h", b, 21, 4)), "cannot be decompressed"),
        (lambda b: _sealed(b, lambda: struct.pack_into(">i", b, 57, 9)), "a record"),
    ],
)
def test_damaged_batch_is_named_by_its_offset(change: Callable[[bytearray], Any], named: str) -> None:
    batch = bytearray(made_batch(VALUES, base_offset=4))
    change(batch)
    with pytest.raises(Damaged, match=f"batch at offset 4: .*{named}"):
        _all_of(bytes(batch) + made_batch(VALUES, base_offset=8))


def _all_of(records: bytes) -> Columns:
    log = Log(records)
    return log.decoded(log.headers["magic"] == 2)


def _sealed(batch: bytearray, change: Callable[[], None]) -> None:
    change()
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))


def test_batch_that_is_cut_off_is_read_with_the_next_answer() -> None:
    whole = made_batch(VALUES) + made_batch(VALUES, base_offset=4)
    for size in range(len(whole)):
        assert len(Log(whole[:size])) == (size >= len(whole) // 2)


def test_new_leader_is_looked_for_and_read_from() -> None:
    failures = [NOT_LEADER, NOT_LEADER]

    def answers(offset: int) -> Any:
        return answer(b"", error=failures.pop()) if failures else log_of([made_batch(VALUES)])(offset)

    found, _, client = read(answers, 0, 4, seconds=30.0)
    assert (found.rows, client.looked) == (4, 2)


def test_offsets_that_are_gone_are_named_once_the_leader_has_denied_them() -> None:
    with pytest.raises(CannotRead, match="source: made-0 from offset 0 on: the log holds no such offset"):
        read(lambda _: answer(b"", error=OUT_OF_RANGE), 0, 4, seconds=30.0)
    stale = [OUT_OF_RANGE]

    def answers(offset: int) -> Any:
        return answer(b"", error=stale.pop()) if stale else log_of([made_batch(VALUES)])(offset)

    found, _, client = read(answers, 0, 4, seconds=30.0)
    assert (found.rows, client.looked) == (4, 1)


def test_quota_is_waited_for() -> None:
    """A broker that throttles answers without a partition."""
    silences = [True] * 3

    def answers(offset: int) -> Any:
        if silences:
            silences.pop()
            return None
        return log_of([made_batch(VALUES)])(offset)

    assert read(answers, 0, 4)[0].rows == 4


def test_log_of_a_new_leader_may_lag_for_a_moment() -> None:
    calls: list[int] = []

    def answers(offset: int) -> Any:
        calls.append(offset)
        return answer(b"", end=2) if len(calls) < 4 else log_of([made_batch(VALUES)])(offset)

    found, _, client = read(answers, 0, 4, seconds=30.0)
    assert found.rows == 4
    assert client.looked > 0


def test_what_is_aborted_ends_with_its_marker_also_where_that_was_given_up() -> None:
    producer = (7, 0)
    log = [
        batch_of(_RECORDS, base_offset=0, last_delta=1, attributes=TRANSACTIONAL, producer=producer),
        marker(2, producer, commit=False),
        batch_of(_RECORDS, base_offset=3, last_delta=1, attributes=TRANSACTIONAL, producer=producer),
        marker(5, producer, commit=True),
    ]
    records = b"".join(log)
    for left_out in ((), ((2, 3),)):
        found, _, _ = read(lambda _: answer(records, aborted=[(7, 0)]), 0, 6, left_out=left_out)
        assert found.rows == 2, left_out


def test_marker_whose_record_the_cleaner_has_taken_ends_nothing() -> None:
    producer = (7, 0)
    empty = batch_of([], base_offset=2, last_delta=0, attributes=TRANSACTIONAL | CONTROL, producer=producer)
    data = batch_of(_RECORDS, base_offset=0, last_delta=1, attributes=TRANSACTIONAL, producer=producer)
    plain = made_batch(VALUES, base_offset=3)
    assert read(lambda _: answer(data + empty + plain, aborted=[(7, 0)]), 0, 7)[0].rows == 4


def test_old_messages_beside_a_damaged_one_that_was_given_up_are_read() -> None:
    messages = []
    for n in range(3):
        builder = LegacyRecordBatchBuilder(magic=1, compression_type=0, batch_size=10**6)
        builder.append(n, timestamp=NOW, key=b"k", value=b"v")
        messages.append(bytearray(builder.build()))
    messages[1][-1] ^= 1
    records = b"".join(map(bytes, messages))
    assert read(lambda _: answer(records), 0, 3, left_out=((1, 2),))[0].rows == 2


def test_leader_that_does_not_answer_is_the_trouble_of_its_partition() -> None:
    def answers(_offset: int) -> Any:
        raise kafka_errors.KafkaConnectionError("gone")

    with pytest.raises(Unanswered, match=r"source: made-0 from offset 0 on: no answer for 0.3 s: .*gone"):
        read(answers, 0, 4)


def test_log_that_ends_before_its_pinned_end_is_not_read_short() -> None:
    with pytest.raises(CannotRead, match="the log ends at 4 by now, before the pinned end 8"):
        read(log_of([made_batch(VALUES)], end=4), 0, 8)


def test_no_more_is_asked_for_than_about_what_is_left() -> None:
    log = [made_batch([b"x" * 5_000] * 10, base_offset=10 * n) for n in range(100)]
    _, _, client = read(log_of(log, at_once=20), 0, 230)
    assert client.sizes[0] == 1 << 20
    assert client.sizes[1] < 200_000, "30 records of 5,000 bytes are left"


def test_records_that_the_broker_sends_late_are_read() -> None:
    log, silences = [made_batch(VALUES), made_batch(VALUES, base_offset=4)], [True] * 4

    def answers(offset: int) -> Any:
        if offset == 4 and silences:
            silences.pop()
            return answer(b"")
        return log_of(log, at_once=1)(offset)

    assert read(answers, 0, 8, seconds=30.0)[0].rows == 8
    assert not silences


@pytest.mark.parametrize("compacted", [True, False])
def test_end_of_which_compaction_left_nothing_is_passed_over_and_no_other(
    compacted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_migration.compare.reader.side._EMPTY_SECONDS", 0.05)
    if compacted:
        assert read(log_of([made_batch(VALUES)], end=8), 0, 8, may_lack=True)[0].rows == 4
        return
    with pytest.raises(Unanswered, match="from offset 4 on: the broker sends nothing"):
        read(log_of([made_batch(VALUES)], end=8), 0, 8)


@pytest.mark.parametrize("role", [SOURCE, TARGET])
@pytest.mark.parametrize("tiered", [True, False])
def test_silence_of_a_compacted_log_is_no_end_where_some_may_lie_in_remote_storage(
    role: str, tiered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kafka_migration.compare.reader.side._EMPTY_SECONDS", 0.05)
    prefix = "" if role == SOURCE else "target_"
    range_ = _range(0, 8, **{f"{prefix}compacted": True, f"{prefix}tiered": tiered})
    orders = Orders(level=Level.RECORD, committed=True, seconds=0.3, wires={})
    client: Any = MadeClient(log_of([made_batch(VALUES)], end=8), role)
    side = side_of(role, range_, client, orders)
    assert side.next()
    if tiered:
        with pytest.raises(Unanswered, match="from offset 4 on: the broker sends nothing"):
            side.next()
    else:
        assert side.next() is None
