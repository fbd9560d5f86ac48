"""Whatever bytes a source answers with: a partition halts by name, and what stands before them is copied."""

import random
import struct
from contextlib import suppress

import crc32c
import pytest

from kafka_migration.copy.task import partition
from kafka_migration.copy.task.partition import PartitionCopy, Stand
from kafka_migration.domain.types import Halt
from kafka_migration.wire.batch import CorruptBatch, parse_header
from kafka_migration.wire.pieces import pieces
from kafka_migration.wire.records import RawRecord, as_long, raw_records, write_varint
from tests.copy.test_partition import _copy, _fetched
from tests.wire.logs import CONTROL, TRANSACTIONAL, batch_of, made_log
from tests.wire.made import field

LONG_MAX = 2**63 - 1
#: Fields of a batch's header: where each stands, and its format.
FIELDS = ((0, ">q"), (12, ">i"), (21, ">h"), (23, ">i"), (27, ">q"), (35, ">q"), (43, ">q"), (57, ">i"))


def _altered(batch: bytes, chance: random.Random) -> bytes:
    """``batch`` with another header or other records, and a checksum that is right."""
    made = bytearray(batch)
    for _ in range(chance.choice((1, 1, 2, 4))):
        at, kind = chance.choice(FIELDS)
        if chance.random() < 0.3:
            bits = 8 * struct.calcsize(kind) - 1
            ends = (0, 1, -1, 2**bits - 1, -(2**bits), chance.getrandbits(bits))
            struct.pack_into(kind, made, at, chance.choice(ends))
        elif len(made) > 70:
            at = chance.randrange(61, len(made) - 9)
            what = chance.randrange(3)
            if what == 0:
                made[at] = chance.randrange(256)
            elif what == 1:
                made[at : at + 9] = b"\xff" * 9
            else:
                del made[at : at + chance.randrange(1, 4)]
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, crc32c.crc32c(bytes(made[21:])))
    return bytes(made)


def _queued(copy: PartitionCopy) -> list[tuple[int, bytes]]:
    """Timestamp, and everything but the place, of each record that waits to be sent."""
    found: list[tuple[int, bytes]] = []
    for prepared in copy.queue:
        header = parse_header(prepared.data)
        # One that is copied as it stands may hold anything.
        with suppress(CorruptBatch):
            for it in raw_records(header, bytes(prepared.data)):
                found.append((as_long(header.base_timestamp + it.timestamp_delta), it.rest))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_whatever_a_batch_holds_what_stands_before_it_is_copied_and_only_its_partition_halts(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        log = made_log(chance.getrandbits(30), batches=6)
        if not log.batches:
            continue
        first = chance.randrange(len(log.batches))
        stands = parse_header(log.batches[first]).base_offset
        expected = [(row.timestamp, row.rest) for row in log.rows if row.offset < stands]
        batches = [
            _altered(it, chance) if at == first or (at > first and chance.random() < 0.3) else it
            for at, it in enumerate(log.batches)
        ]
        start = parse_header(log.batches[0]).base_offset
        joined, most = chance.choice((0, 400, 10**6)), chance.choice((0, 0, 300))
        copy = _copy(source=start, join_bytes=joined, most_bytes=most)
        aborted = tuple((producer, begun) for producer, begun, _ in log.aborted)
        openings = copy.take(_fetched(*batches, aborted=aborted))
        found = _queued(copy)[: len(expected)]
        assert found == expected[: len(found)]
        assert len(found) == len(expected) or copy.halting is not None
        assert copy.fetch_offset >= start
        assert {it for prepared in copy.queue for it in prepared.openings} <= set(openings)


@pytest.mark.parametrize("most_bytes", [0, 100])
@pytest.mark.parametrize("delta", [5, -5])
def test_timestamps_past_the_end_of_a_long_wrap_as_every_java_client_reads_them(delta: int, most_bytes: int) -> None:
    base = LONG_MAX if delta > 0 else -LONG_MAX
    rest = field(b"k") + field(b"v" * 40) + write_varint(0)
    # With a gap, as after compaction: such a batch is re-encoded.
    records = [RawRecord(delta * n, n, 0, rest) for n in (0, 1, 3, 4)]
    log = batch_of(records, base_offset=100, last_delta=4, base_timestamp=base, max_timestamp=base)
    copy = _copy(source=100, most_bytes=most_bytes)
    copy.take(_fetched(log))
    assert [time for time, _ in _queued(copy)] == [as_long(base + delta * n) for n in (0, 1, 3, 4)]
    assert copy.halting is None
    assert len(copy.queue) == (1 if not most_bytes else 4)


def test_failure_that_nobody_foresaw_halts_its_partition_with_what_failed_and_where(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def failing(*args: object, **more: object) -> object:
        yield from pieces(*args, **more)  # type: ignore[arg-type]
        raise ZeroDivisionError("of all things")

    monkeypatch.setattr(partition, "pieces", failing)
    rest = field(b"k") + field(b"v") + write_varint(0)
    copy = _copy(source=100)
    copy.take(_fetched(batch_of([RawRecord(0, 0, 0, rest)], base_offset=100, last_delta=0)))
    assert (copy.stand, len(copy.queue)) == (Stand.RUN, 1)
    assert copy.halting is not None
    reason, detail = copy.halting
    assert reason is Halt.UNREADABLE
    assert "at source offset 101" in detail
    assert "ZeroDivisionError: of all things (test_unreadable.py, line" in detail


def test_marker_that_says_nothing_halts_before_records_of_which_nobody_knows_whether_they_count() -> None:
    rest = field(b"k") + field(b"v") + write_varint(0)
    who = (7, 0)

    def written(offset: int, what: bytes, attributes: int) -> bytes:
        records = [RawRecord(0, 0, 0, what)]
        return batch_of(records, base_offset=offset, last_delta=0, attributes=attributes, producer=who)

    # Its key claims four bytes, and has one.
    log = [
        written(100, rest, TRANSACTIONAL),
        written(101, b"\x80", TRANSACTIONAL | CONTROL),
        written(102, rest, TRANSACTIONAL),
    ]
    copy = _copy(source=100)
    copy.take(_fetched(*log, aborted=((7, 100),)))
    assert (len(copy.queue), copy.fetch_offset) == (0, 100)
    assert copy.halting is not None
    assert copy.halting[0] is Halt.CORRUPT
