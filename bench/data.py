"""The records that benchmarks copy: half of every value is random, so that codecs have about as much to do as usual."""

import multiprocessing
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import confluent_kafka

from bench.processes import end_with_parent
from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import HEADER_BYTES, BatchHeader, assemble, batches
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import FetchFrom
from kafka_migration.wire.produce import Append
from kafka_migration.wire.records import RawRecord, encode_records, write_varint
from kafka_migration.wire.selector import Selector

_POOL_BYTES = 4 * 1024 * 1024
_TEXT = b"the quick brown fox jumps over the lazy dog and on to the next field of the record; "
_PRODUCERS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Data:
    """What a source topic holds. ``value_bytes`` is the size of each value; ``batch_bytes`` the producer's batch.size,
    0 for batches of one record; ``transaction_records`` how many are committed together, 0 for no transactions;
    ``keys`` how many keys take turns, 0 if each record has one of its own."""

    topic: str
    partitions: int
    records: int
    value_bytes: int
    batch_bytes: int
    codec: str
    transaction_records: int = 0
    keys: int = 0

    @property
    def tps(self) -> list[TopicPartition]:
        """Its partitions."""
        return [TopicPartition(self.topic, p) for p in range(self.partitions)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What a log looks like, from a sample: mean bytes of a batch, records in one, size compared with uncompressed."""

    batch_bytes: float
    batch_records: float
    ratio: float


def fill(servers: str, data: Data) -> None:
    """Write ``data`` to its topic, which exists and is empty."""
    if data.batch_bytes == 0:
        _fill_with_single_records(servers, data)
        return
    share = data.records // _PRODUCERS
    context = multiprocessing.get_context("spawn")
    shares = [(n * share, share if n < _PRODUCERS - 1 else data.records - n * share) for n in range(_PRODUCERS)]
    workers = [context.Process(target=_produce, args=(servers, data, *it)) for it in shares]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        if worker.exitcode != 0:
            raise RuntimeError(f"a producer of {data.topic} ended with {worker.exitcode}")


def _values(data: Data, seed: int) -> Iterator[bytes]:
    pool = random.Random(seed).randbytes(_POOL_BYTES)
    # A little over half: text costs a codec something too.
    half = data.value_bytes * 11 // 20
    text = (_TEXT * (half // len(_TEXT) + 1))[: data.value_bytes - half]
    chance = random.Random(seed)
    while True:
        at = int(chance.random() * (_POOL_BYTES - half))
        yield pool[at : at + half] + text


def _produce(servers: str, data: Data, first: int, count: int) -> None:
    end_with_parent()
    failures: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            failures.append(error)

    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": data.codec,
            "batch.size": data.batch_bytes,
            "batch.num.messages": 100_000,
            "linger.ms": 100,
            "queue.buffering.max.messages": 200_000,
            "queue.buffering.max.kbytes": 512 * 1024,
            **({"transactional.id": f"{data.topic}-{first}"} if data.transaction_records else {}),
        }
    )
    if data.transaction_records:
        producer.init_transactions(60)
        producer.begin_transaction()
    values, headers = _values(data, first), [("trace", b"0123456789abcdef")]
    for n in range(first, first + count):
        message: dict[str, Any] = {
            "key": b"key-%08d" % (n % data.keys if data.keys else n),
            "value": next(values),
            "partition": n % data.partitions,
            "headers": headers,
        }
        while True:
            try:
                producer.produce(data.topic, on_delivery=told, **message)
                break
            except BufferError:
                producer.poll(0.1)
        if n % 1000 == 0:
            producer.poll(0)
        if data.transaction_records and (n + 1 - first) % data.transaction_records == 0:
            producer.commit_transaction(60)
            producer.begin_transaction()
    if data.transaction_records:
        producer.commit_transaction(60)
    if producer.flush(300) or failures:
        raise RuntimeError(f"not everything was written: {failures[:3]}")


def _fill_with_single_records(servers: str, data: Data) -> None:
    """One batch of every partition in a request, as many requests in flight as a connection takes."""
    net = Selector()
    cluster = WireCluster(net, {"bootstrap_servers": servers}, "source", in_flight=50)
    values, codec = _values(data, 1), codecs.NAMES.index(data.codec)

    def single(n: int) -> bytes:
        key, value = b"key-%08d" % n, next(values)
        rest = write_varint(len(key)) + key + write_varint(len(value)) + value + write_varint(1)
        rest += write_varint(5) + b"trace" + write_varint(16) + b"0123456789abcdef"
        now = int(time.time() * 1000)
        payload = codecs.compress(codec, encode_records([RawRecord(0, 0, 0, rest)]))
        return assemble(attributes=codec, base_timestamp=now, max_timestamp=now, count=1, payload=payload)

    async def send() -> None:
        # Metadata name a leader before that broker has become it: one that answers has.
        await cluster.list_offsets(data.tps, LATEST, deadline=time.monotonic() + 30)
        (node,) = cluster.by_leader(data.tps)
        under_way: list[Append] = []
        for n in range(0, data.records, data.partitions):
            under_way.append(Append(cluster, node, {tp: single(n + tp.partition) for tp in data.tps}))
            if len(under_way) >= 40:
                await _all_well(under_way)
                under_way = []
        await _all_well(under_way)

    async def _all_well(under_way: list[Append]) -> None:
        for append in under_way:
            for answer in await append.answers():
                if answer.error:
                    raise RuntimeError(f"{answer.partition}: error {answer.error}")

    try:
        cluster.connect()
        net.run(send)
    finally:
        cluster.close()
        net.close()


def shape(servers: str, data: Data, *, sample_bytes: int = 16 * 1024 * 1024) -> Shape:
    """Look at the beginning of the first partition's log."""
    raw = read_raw(servers, data.tps[:1], sample_bytes)[data.tps[0]]
    size = count = packed = unpacked = total = 0
    for header, batch in raw:
        if header.is_control:
            continue
        size, count, total = size + header.size, count + header.records, total + 1
        packed += header.size - HEADER_BYTES
        unpacked += len(codecs.decompress(header.codec, bytes(batch[HEADER_BYTES:])))
    return Shape(batch_bytes=size / total, batch_records=count / total, ratio=packed / unpacked)


def read_raw(servers: str, tps: list[TopicPartition], most_bytes: int) -> Any:
    """Whole batches from the beginning of each log, up to about ``most_bytes`` for each partition."""
    net = Selector()
    cluster = WireCluster(net, {"bootstrap_servers": servers}, "source")

    async def read() -> dict[TopicPartition, list[tuple[BatchHeader, memoryview]]]:
        ends = await cluster.list_offsets(tps, LATEST, deadline=time.monotonic() + 30)
        found: dict[TopicPartition, list[tuple[BatchHeader, memoryview]]] = {tp: [] for tp in tps}
        for tp in tps:
            offset = size = 0
            while offset < ends[tp] and size < most_bytes:
                (answer,) = await fetch(
                    cluster,
                    cluster.leaders[tp].node,
                    [FetchFrom(tp, offset, 4 * 1024 * 1024)],
                    max_wait_ms=100,
                    max_bytes=8 * 1024 * 1024,
                )
                for header, batch in batches(answer.records):
                    found[tp].append((header, batch))
                    offset, size = header.next_offset, size + header.size
        return found

    try:
        cluster.connect()
        return net.run(read)
    finally:
        cluster.close()
        net.close()
