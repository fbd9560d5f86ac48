"""Logs of every kind, read by their bytes: what a consumer of committed records sees, from anywhere to anywhere."""

import random
import uuid
from dataclasses import replace
from typing import Any

import pytest

from kafka_migration.compare.explain import log as drill_log
from kafka_migration.compare.explain.log import Chunk, Expired, LogReader, open_logs
from kafka_migration.domain.errors import CouldNotFindOut
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire.batch import CorruptBatch, next_batch
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import Fetched
from tests.kafka_tools import ToSend, create_topics, delete_records, produce, produce_transaction
from tests.wire.logs import MadeLog, Row, batch_of, made_log
from tests.wire.made import made_batch

TP = TopicPartition("made", 0)


class Answering(LogReader):
    """Reads a made-up log, in answers of any size."""

    def __init__(self, log: MadeLog, chance: random.Random) -> None:
        self._log, self._chance, self._committed, self.bytes = log, chance, True, 0

    def _fetch(self, tp: TopicPartition, at: int) -> Fetched:
        records, aborted = self._log.answer(at, self._chance.choice((1, 300, 20_000)))
        return Fetched(tp, 0, records, self._log.end, self._log.end, 0, None, aborted)

    def _can_be_empty(self, tp: TopicPartition) -> bool:
        return True


@pytest.mark.parametrize("seed", range(25))
def test_records_of_any_log_are_those_that_a_consumer_sees(seed):
    log, chance = made_log(seed), random.Random(seed)
    first = log.rows[0].offset if log.rows else 0
    start = chance.choice((first, first + chance.randrange(1, 200)))
    end = chance.choice((log.end, max(start, log.end - chance.randrange(100))))
    found = [
        Row(record.offset, record.timestamp, record.rest)
        for chunk in Answering(log, chance).chunks(TP, start, end)
        for record in chunk.records()
    ]
    assert found == [row for row in log.rows if start <= row.offset < end]


def _chunk(batch: bytes, start: int = 0, end: int = 10**9) -> Chunk:
    found = next_batch(memoryview(batch), 0)
    assert found is not None
    return Chunk(*found, start, end)


def test_twins_have_the_same_bytes_whatever_their_places_and_epochs():
    values = [b"a", None, b""]
    one = _chunk(made_batch(values, base_offset=5, leader_epoch=1))
    assert one.is_twin(_chunk(made_batch(values, base_offset=900, leader_epoch=8)))
    assert not one.is_twin(_chunk(made_batch([b"b", None, b""], base_offset=5)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5, codec=1)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5, timestamp=1)))
    assert not one.is_twin(_chunk(made_batch(values, base_offset=5), start=6)), "a part is not the whole"
    stamped = batch_of([], base_offset=5, last_delta=2)
    assert not one.is_twin(_chunk(stamped))


def test_damage_counts_where_it_is_read_only():
    first, second = made_batch([b"a", b"b"], base_offset=0), bytearray(made_batch([b"c"], base_offset=7))
    second[-1] ^= 1

    class Fixed(Answering):
        def _fetch(self, tp: TopicPartition, at: int) -> Fetched:
            return Fetched(tp, 0, bytes(first + second), 8, 8, 0, None, ())

    log = Fixed(made_log(1), random.Random(1))
    assert [record.value for chunk in log.chunks(TP, 0, 5) for record in chunk.records()] == [b"a", b"b"]
    with pytest.raises(CorruptBatch):
        list(log.chunks(TP, 0, 8))


def test_records_that_the_broker_sends_late_are_read_and_it_is_not_waited_for_without_end(source_cluster, monkeypatch):
    topic, left = f"late-{uuid.uuid4().hex[:8]}", [4]
    create_topics(source_cluster.bootstrap_servers, {topic: 1})
    produce(source_cluster.bootstrap_servers, topic, [ToSend(b"%d" % n) for n in range(50)])

    async def silenced(*arguments: Any, **options: Any) -> list[Fetched]:
        answers = await fetch(*arguments, **options)
        left[0] -= 1
        return [replace(one, records=b"") if left[0] >= 0 else one for one in answers]

    monkeypatch.setattr(drill_log, "fetch", silenced)
    side = {"bootstrap_servers": source_cluster.bootstrap_servers}
    with open_logs(side, side) as (log, _):
        assert (
            len([record for chunk in log.chunks(TopicPartition(topic, 0), 0, 50) for record in chunk.records()]) == 50
        )
        left[0] = 10**6
        monkeypatch.setattr(drill_log, "_PATIENCE_SECONDS", 1.0)
        with pytest.raises(CouldNotFindOut, match="sends nothing from offset 0 on"):
            list(log.chunks(TopicPartition(topic, 0), 0, 50))


def test_both_clusters_are_read_each_as_validation_reads_it(source_cluster, target_cluster):
    topic = f"drill-{uuid.uuid4().hex[:8]}"
    tp = TopicPartition(topic, 0)
    sides = [{"bootstrap_servers": one.bootstrap_servers} for one in (source_cluster, target_cluster)]
    for one in (source_cluster, target_cluster):
        create_topics(one.bootstrap_servers, {topic: 1})
        produce(one.bootstrap_servers, topic, [ToSend(b"%d" % n) for n in range(50)])
        produce_transaction(one.bootstrap_servers, topic, [b"in a transaction"])
    with open_logs(*sides) as (source, target):
        for log in (source, target):
            assert log.ends(tp) == (0, 52)
            values = [record.value for chunk in log.chunks(tp, 10, 52) for record in chunk.records()]
            assert values == [*(b"%d" % n for n in range(10, 50)), b"in a transaction"]
            assert log.bytes > 0
            with pytest.raises(CouldNotFindOut, match="before 60"):
                list(log.chunks(tp, 40, 60))
        delete_records(source_cluster.bootstrap_servers, {tp: 20})
        with pytest.raises(Expired, match=r"which is 20\.\.52"):
            list(source.chunks(tp, 10, 52))
