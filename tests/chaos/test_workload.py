"""The workload writes what it says, of every kind, and the reader finds all of it."""

import json
import random
import uuid
from collections import Counter

import pytest

from tests.chaos.reader import bounds, read
from tests.chaos.records import OLD_MS, Maker, digest, is_whole
from tests.chaos.scene import workload
from tests.chaos.topics import KEPT, KINDS, topic
from tests.chaos.workload import CODECS, Orders
from tests.kafka_tools import create_topics, produce, read_all

NOW = 1_800_000_000_000


def test_records_are_all_different_and_of_every_shape():
    maker = Maker("p", random.Random(1), 3)
    made = [maker.any(now_ms=NOW, age="mixed") for _ in range(5_000)]
    assert len({digest(it.key, it.value, it.timestamp, it.headers) for it in made}) == len(made)
    assert {it.partition for it in made} == {0, 1, 2}
    for what in ("key", "value"):
        assert {None, b""} < {getattr(it, what) for it in made}
    assert any(not it.headers for it in made)
    repeated = [names for it in made if len(names := [name for name, _ in it.headers]) > len(set(names))]
    assert repeated
    assert {it.timestamp == NOW for it in made} == {True, False}
    assert min(it.timestamp for it in made) >= OLD_MS
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
    record = {"key": b"k", "value": b"v", "timestamp": 5, "headers": [("a", b"1"), ("a", None)]}
    other = dict(record)
    other |= {
        "key": {"key": b""},
        "value": {"value": None},
        "timestamp": {"timestamp": 6},
        "header": {"headers": [("a", b"1"), ("a", b"")]},
        "order of headers": {"headers": [("a", None), ("a", b"1")]},
    }[what]
    assert digest(**record) == digest(**dict(record))  # type: ignore[arg-type]
    assert digest(**record) != digest(**other)  # type: ignore[arg-type]


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
    keyed = {topic(prefix, "compacted")}
    logs = read(servers, topics, keyed)
    count = Counter()
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
