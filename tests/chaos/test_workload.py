"""The workload writes what it says, of every kind, and the reader finds all of it."""

import json
import random
import time
import uuid
from collections import Counter
from typing import Any

import pytest

from tests.chaos.faults import STEADY
from tests.chaos.reader import bounds, read
from tests.chaos.records import ODD_TIMES, OLD_MS, Maker, digest, is_whole
from tests.chaos.run import INNOCENT_SECONDS
from tests.chaos.scene import workload
from tests.chaos.short import LIMITS, PRODUCER_MEMORY_SECONDS
from tests.chaos.topics import KEPT, KINDS, topic
from tests.chaos.transactions import Hanging
from tests.chaos.workload import CODECS, Mixed, Orders, stream_of
from tests.kafka_tools import create_topics, produce, read_all
from tests.waiting import wait_until

NOW = 1_800_000_000_000


def test_records_are_all_different_and_of_every_shape():
    maker = Maker("p", random.Random(1), 3)
    made = [maker.any(now_ms=NOW, age="mixed") for _ in range(5_000)]
    assert len({digest(it.key, it.value, it.timestamp or 0, it.headers) for it in made}) == len(made)
    assert {it.partition for it in made} == {0, 1, 2}
    for what in ("key", "value"):
        assert {None, b""} < {getattr(it, what) for it in made}
    assert any(not it.headers for it in made)
    repeated = [names for it in made if len(names := [name for name, _ in it.headers]) > len(set(names))]
    assert repeated
    assert {it.timestamp == NOW for it in made} == {True, False}
    assert min(it.timestamp or 0 for it in made) >= OLD_MS
    assert max(len(it.value or b"") for it in made) > 10_000


def test_same_seed_makes_the_same_records():
    one, other = (Maker("p", random.Random(5), 3) for _ in range(2))
    assert [one.any(now_ms=NOW) for _ in range(100)] == [other.any(now_ms=NOW) for _ in range(100)]


def test_keyed_record_that_was_altered_anywhere_is_not_whole():
    maker = Maker("p", random.Random(1), 2)
    it = maker.keyed(now_ms=NOW, keys=5, partition=1)
    while it.value is None:
        it = maker.keyed(now_ms=NOW, keys=5, partition=1)
    assert is_whole(it.key, it.value, it.headers)
    assert not is_whole(b"1/99", it.value, it.headers)
    assert not is_whole(it.key, it.value + b"x", it.headers)
    assert not is_whole(it.key, None, it.headers)
    assert not is_whole(it.key, it.value, [("n", b"other"), it.headers[1]])
    assert not is_whole(it.key, it.value, [])


@pytest.mark.parametrize("what", ["key", "value", "timestamp", "header", "order of headers"])
def test_digest_sees_every_part_of_a_record(what):
    record: dict[str, Any] = {"key": b"k", "value": b"v", "timestamp": 5, "headers": [("a", b"1"), ("a", None)]}
    changes: dict[str, dict[str, Any]] = {
        "key": {"key": b""},
        "value": {"value": None},
        "timestamp": {"timestamp": 6},
        "header": {"headers": [("a", b"1"), ("a", b"")]},
        "order of headers": {"headers": [("a", None), ("a", b"1")]},
    }
    assert digest(**record) == digest(**dict(record))
    assert digest(**record) != digest(**record | changes[what])


def until_decided(servers, topics):
    places = [(name, partition) for name, count in topics.items() for partition in range(count)]

    def is_decided():
        try:
            return bool(bounds(servers, places))
        except ValueError:
            return False

    wait_until(is_decided, "what producers left open that died has timed out")


def test_producer_that_dies_leaves_its_transaction_open_until_it_times_out(source_cluster):
    servers, name = source_cluster.bootstrap_servers, f"hanging-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {name: 2}, KEPT)
    stream = Hanging(servers, name, "w", random.Random(1), partitions=2)
    stream.write(200)
    committed = stream.finish()
    with pytest.raises(ValueError, match="transactions are open"):
        bounds(servers, [(name, 0), (name, 1)])
    until_decided(servers, {name: 2})
    values = [row.value or b"" for rows in read_all(servers, {name: 2}).values() for row in rows]
    assert len(values) == committed > 0
    assert not any(b".dead" in value for value in values), "it was aborted"


def test_times_of_zero_none_long_ago_and_far_ahead_are_written_and_told_apart(source_cluster):
    servers, prefix = source_cluster.bootstrap_servers, f"times-{uuid.uuid4().hex[:8]}"
    name = topic(prefix, "odd_times")
    create_topics(servers, {name: 2}, KEPT)
    orders = Orders(servers, prefix, ("odd_times",), 1, "w", 0, 0, 0)
    stream = stream_of(orders, "odd_times", random.Random(1))
    stream.write(300)
    assert stream.finish() == 300
    times = Counter(row.timestamp for rows in read_all(servers, {name: 2}).values() for row in rows)
    assert set(ODD_TIMES) < times.keys()
    assert sum(times[time] for time in ODD_TIMES) < 300, "some are of now"


def test_what_is_written_all_the_time_waits_for_no_hold_even_after_a_fence():
    hold = LIMITS.lease_seconds + LIMITS.late_seconds
    assert PRODUCER_MEMORY_SECONDS / 2 - hold > 2 * INNOCENT_SECONDS, "records of now are young for so long"
    orders = Orders("127.0.0.1:1", "workload", STEADY, 1, "w", 0, 0, 0)
    for kind in STEADY:
        made = Mixed(orders, kind, random.Random(1)).records(300)
        oldest = min(record.timestamp or 0 for record in made)
        assert time.time() * 1000 - oldest < 60_000, kind


def test_live_workload_of_all_kinds_is_there_to_be_read_aborted_transactions_are_not(source_cluster, tmp_path):
    servers, prefix = source_cluster.bootstrap_servers, f"workload-{uuid.uuid4().hex[:8]}"
    topics = {topic(prefix, kind): it.partitions for kind, it in KINDS.items()}
    for kind, it in KINDS.items():
        create_topics(servers, {topic(prefix, kind): it.partitions}, {**KEPT, **it.configs})
    orders = Orders(
        servers=servers,
        prefix=prefix,
        kinds=tuple(KINDS),
        seed=3,
        name="w",
        prefill=4_000,
        rate=4_000,
        least=8_000,
    )
    assert Orders(**{**json.loads(orders.as_json()), "kinds": orders.kinds}) == orders
    with workload([orders], tmp_path) as producers:
        producers.await_prefilled()
        written = producers.finish()
    until_decided(servers, topics)
    keyed = {topic(prefix, "compacted")}
    logs = read(servers, topics, keyed)
    count = Counter[str]()
    for (name, _), log in logs.items():
        count[name.rpartition(".")[2]] += len(log)
    # Compaction may have begun; everything else is there.
    assert sum(count.values()) - count["compacted"] <= written
    assert sum(count.values()) - count["compacted"] >= 7_000, "how many are aborted is chance"
    assert count["empty"] == 0
    assert min(count[kind] for kind in KINDS if kind != "empty") > 0
    gaps = {
        kind: sum(log.end - log.start - len(log) for (name, _), log in logs.items() if name.endswith(kind))
        for kind in ("plain", "transactions")
    }
    assert gaps["plain"] == 0
    assert gaps["transactions"] > 0.05 * count["transactions"], "what was aborted, and markers"


def test_reader_finds_what_another_reader_finds(source_cluster):
    servers, name = source_cluster.bootstrap_servers, f"reader-{uuid.uuid4().hex[:8]}"
    create_topics(servers, {name: 2}, KEPT)
    maker = Maker("p", random.Random(1), 2)
    for codec in CODECS:
        produce(servers, name, [maker.any(now_ms=NOW) for _ in range(300)], **{"compression.type": codec})
    logs = read(servers, {name: 2})
    for tp, rows in read_all(servers, {name: 2}).items():
        log = logs[tp.topic, tp.partition]
        assert list(log.offsets) == [row.offset for row in rows]
        assert log.digests == [digest(row.key, row.value, row.timestamp, row.headers) for row in rows]
        assert (log.start, log.end) == (0, rows[-1].offset + 1)
    assert bounds(servers, [(name, 0)])[name, 0][1] == logs[name, 0].end
