"""Logs of every kind, read in batches: what a consumer of committed records sees, from anywhere to anywhere."""

import random
import struct
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import crc32c
import pytest

from kafka_migration.compare.explain.log import Chunk, LogReader, open_logs
from kafka_migration.compare.reader import side as reader_side
from kafka_migration.compare.reading import CannotRead
from kafka_migration.domain.types import TopicPartition
from tests.compare.made_sides import MadeClient, answer, log_of
from tests.handlers import as_is, handler
from tests.kafka_tools import ToSend, create_topics, delete_records, produce, produce_transaction
from tests.mutation.logs import decoded
from tests.wire.logs import made_log
from tests.wire.made import made_batch

TP = TopicPartition("made", 0)
STAMPED = 0x08


def _reader(answers: Any) -> LogReader:
    return LogReader(MadeClient(answers), committed=True)  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", range(25))
def test_records_of_any_log_are_those_that_a_consumer_sees(seed):
    log, chance = made_log(seed), random.Random(seed)
    first = log.rows[0].offset if log.rows else 0
    start = chance.choice((first, first + chance.randrange(1, 200)))
    end = chance.choice((log.end, max(start, log.end - chance.randrange(100))))

    def answers(offset: int) -> Any:
        records, aborted = log.answer(offset, chance.choice((1, 300, 20_000)))
        return answer(records, end=log.end, aborted=aborted)

    chunks = [*_reader(answers).chunks(TP, start, end, may_lack=True)]
    expected = [(row.offset, decoded(row.timestamp, row.rest)) for row in log.rows if start <= row.offset < end]
    entries = [entry for chunk in chunks for entry in chunk.entries()]
    found = [entry.record for entry in entries]
    assert [(one.offset, (one.key, one.value, one.headers, one.timestamp)) for one in found] == expected
    assert [(entry.offset, entry.timestamp, entry.digest) for entry in entries] == [
        (one.offset, one.timestamp, one.digest) for one in found
    ]


def _chunk(batch: bytes, start: int = 0, end: int = 10**9, **options: Any) -> Chunk:
    return next(_reader(log_of([batch], end=10**9)).chunks(TP, start, end, **options))


def test_twins_have_the_same_bytes_whatever_their_places_and_epochs():
    values = [b"a", None, b""]
    one = _chunk(made_batch(values, base_offset=5, leader_epoch=1))
    assert one.is_twin(_chunk(made_batch(values, base_offset=900, leader_epoch=8)))
    assert not one.is_twin(_chunk(made_batch([b"b", None, b""], base_offset=5)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5, codec=1)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5, timestamp=1)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5), start=6)), "a part is not the whole"
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5), end=7)), "a part is not the whole"
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5), left_out=((6, 7),))), "a part is not the whole"
    same = _chunk(made_batch(values, base_offset=5), handler=handler(as_is))
    assert not one.is_twin(same), "what is handled is not what the log holds"
    stamped = _chunk(made_batch(values, base_offset=5, attributes=STAMPED))
    assert not stamped.is_twin(one)
    assert not stamped.is_twin(stamped), "the times of its records are that of the header, whatever their bytes say"


def test_damage_counts_where_it_is_read_only():
    first, second = made_batch([b"a", b"b"], base_offset=0), bytearray(made_batch([b"c"], base_offset=7))
    second[-1] ^= 1

    def values(end: int, left_out: Sequence[tuple[int, int]] = ()) -> list[bytes | None]:
        reader = _reader(log_of([first, bytes(second)], end=8))
        chunks = reader.chunks(TP, 0, end, left_out=tuple(left_out))
        return [entry.record.value for chunk in chunks for entry in chunk.entries()]

    assert values(5) == values(8, [(7, 8)]) == [b"a", b"b"]
    before, damaged = _reader(log_of([first, bytes(second)], end=8)).chunks(TP, 0, 8)
    assert [entry.record.value for entry in before.entries()] == [b"a", b"b"], "what stands before it is read"
    with pytest.raises(CannotRead, match="batch at offset 7: checksum"):
        damaged.entries()


def test_header_that_is_none_counts_where_it_is_read_only():
    broken = bytearray(made_batch([b"c"], base_offset=2))
    broken[16] = 7
    answers = log_of([made_batch([b"a", b"b"]), bytes(broken), made_batch([b"d"], base_offset=3)], at_once=3, end=4)
    given_up = [entry.offset for chunk in _chunks(answers, left_out=((2, 3),)) for entry in chunk.entries()]
    assert given_up == [0, 1, 3]
    with pytest.raises(CannotRead, match="format 7"):
        [*_chunks(answers)]


def _chunks(answers: Any, **options: Any) -> Iterator[Chunk]:
    return _reader(answers).chunks(TP, 0, 4, **options)


def test_batch_that_reaches_back_has_its_own_records_and_no_others():
    batches = [made_batch([b"%d" % at] * 4, base_offset=at) for at in (0, 2, 6)]
    chunks = _reader(log_of(batches, at_once=3, end=10)).chunks(TP, 0, 10)
    found = [[entry.offset for entry in chunk.entries()] for chunk in chunks]
    assert found == [[0, 1, 2, 3], [2, 3, 4, 5], [6, 7, 8, 9]]


def test_entry_holds_the_bytes_of_its_batch_and_not_of_the_answer_around_it():
    batches = [made_batch([bytes(10_000)], base_offset=n) for n in range(50)]
    (entry,) = next(_reader(log_of(batches, at_once=50, end=50)).chunks(TP, 0, 50)).entries()
    assert (len(entry.batch.stored), entry.size) == (len(batches[0]), len(batches[0]))


def test_times_beyond_64_bits_wrap_as_the_java_client_has_them():
    batch = bytearray(made_batch([b"a", b"b", b"c"]))
    struct.pack_into(">q", batch, 27, 2**63 - 2)
    struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    entries = [*_chunk(bytes(batch), end=3).entries()]
    assert [entry.timestamp for entry in entries] == [2**63 - 2, 2**63 - 1, -(2**63)]
    assert [entry.digest for entry in entries] == [entry.record.digest for entry in entries]


def test_both_clusters_are_read_each_as_validation_reads_it(source_cluster, target_cluster, monkeypatch):
    monkeypatch.setattr(reader_side, "_LAGGING_SECONDS", 0.5)
    topic = f"drill-{uuid.uuid4().hex[:8]}"
    tp = TopicPartition(topic, 0)
    sides = [{"bootstrap_servers": one.bootstrap_servers} for one in (source_cluster, target_cluster)]
    for one in (source_cluster, target_cluster):
        create_topics(one.bootstrap_servers, {topic: 1})
        produce(one.bootstrap_servers, topic, [ToSend(b"%d" % n) for n in range(50)])
        produce_transaction(one.bootstrap_servers, topic, [b"aborted"], commit=False)
        produce_transaction(one.bootstrap_servers, topic, [b"committed"])
    numbers = [b"%d" % n for n in range(10, 50)]
    with open_logs(*sides) as (source, target):
        for log, expected in (
            (source, [*numbers, b"committed"]),
            (source.uncommitted(), [*numbers, b"aborted", b"committed"]),
            (target, [*numbers, b"aborted", b"committed"]),
        ):
            assert [entry.record.value for chunk in log.chunks(tp, 10, 54) for entry in chunk.entries()] == expected
            with pytest.raises(CannotRead, match="before the pinned end 60"):
                list(log.chunks(tp, 40, 60))
        delete_records(source_cluster.bootstrap_servers, {tp: 20})
        with pytest.raises(CannotRead, match="holds no such offset"):
            list(source.chunks(tp, 10, 54))
