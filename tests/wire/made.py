"""Batches made by hand, and a connection to a real cluster at the protocol's level."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kafka.protocol.admin import DescribeProducersRequest

from kafka_migration.domain.types import TopicPartition
from kafka_migration.wire import codecs
from kafka_migration.wire.batch import BatchHeader, assemble, batches
from kafka_migration.wire.cluster import LATEST, WireCluster
from kafka_migration.wire.fetch import fetch
from kafka_migration.wire.fetch_request import FetchFrom
from kafka_migration.wire.produce import Append
from kafka_migration.wire.produce_request import Appended
from kafka_migration.wire.records import RawRecord, encode_records, write_varint
from kafka_migration.wire.selector import Selector
from tests.waiting import wait_until

NOW = 1_700_000_000_000


def field(value: bytes | None) -> bytes:
    return write_varint(-1) if value is None else write_varint(len(value)) + value


def made_batch(
    values: list[bytes | None],
    *,
    base_offset: int = 0,
    codec: int = codecs.NONE,
    attributes: int = 0,
    leader_epoch: int = 3,
    timestamp: int = NOW,
) -> bytes:
    """A gapless batch as a broker stores it; record n has key b"k<n>" and the timestamp plus n."""
    records = [RawRecord(n, n, 0, field(b"k%d" % n) + field(value) + write_varint(0)) for n, value in enumerate(values)]
    batch = bytearray(
        assemble(
            attributes=codec | attributes,
            base_timestamp=timestamp,
            max_timestamp=timestamp + max(0, len(values) - 1),
            count=len(values),
            payload=codecs.compress(codec, encode_records(records)),
            base_offset=base_offset,
        )
    )
    batch[12:16] = leader_epoch.to_bytes(4, "big")
    return bytes(batch)


class Wire:
    """One cluster, driven from a test: every call runs the loop until it is done."""

    def __init__(self, servers: str, **config: Any) -> None:
        self.net = Selector()
        self.cluster = WireCluster(self.net, {"bootstrap_servers": servers, **config}, "target")
        self.cluster.connect()

    def __call__(self, work: Any, *args: Any, **more: Any) -> Any:
        return self.net.run(lambda: work(self.cluster, *args, **more))

    def refresh(self, *topics: str) -> dict[str, int]:
        problems: dict[str, int] = self.net.run(lambda: self.cluster.refresh(topics))
        return problems

    def append(self, *requests: Mapping[TopicPartition, bytes | bytearray]) -> list[list[Appended]]:
        """Send all requests at once to the leader of their first partition, then await their answers."""

        async def send() -> list[list[Appended]]:
            under_way = [
                Append(self.cluster, self.cluster.leaders[next(iter(request))].node, request) for request in requests
            ]
            return [await it.answers() for it in under_way]

        answers: list[list[Appended]] = self.net.run(send)
        return answers

    def stored(self, tp: TopicPartition, offset: int = 0) -> list[tuple[BatchHeader, bytes]]:
        """The batches from the one around `offset` to the log's end, as they are stored."""
        found: list[tuple[BatchHeader, bytes]] = []
        while True:  # a fetch does not reach over the end of a segment
            node = self.cluster.leaders[tp].node
            (answer,) = self(fetch, node, [FetchFrom(tp, offset, 10**7)], max_wait_ms=0, max_bytes=10**7)
            assert answer.error == 0
            new = [(header, bytes(batch)) for header, batch in batches(answer.records) if header.next_offset > offset]
            if not new:
                return found
            found += new
            offset = new[-1][0].next_offset

    def end(self, tp: TopicPartition) -> int:
        """The high watermark."""
        deadline = time.monotonic() + 10
        found: dict[TopicPartition, int] = self.net.run(
            lambda: self.cluster.list_offsets([tp], LATEST, deadline=deadline)
        )
        return found[tp]

    def close(self) -> None:
        self.cluster.close()
        self.net.close()


async def _producers(cluster: WireCluster, tp: TopicPartition) -> int:
    request = DescribeProducersRequest(
        topics=[DescribeProducersRequest.TopicRequest(name=tp.topic, partition_indexes=[tp.partition])]
    )
    response = await cluster.send(request, cluster.leaders[tp].node)
    (partition,) = response.topics[0].partitions
    assert partition.error_code == 0
    return len(partition.active_producers)


def is_forgotten(wire: Wire, tp: TopicPartition) -> bool:
    """Whether the leader remembers no producer of `tp`."""
    return bool(wire(_producers, tp) == 0)


def until_forgotten(wire: Wire, tp: TopicPartition) -> None:
    wait_until(lambda: is_forgotten(wire, tp), "the broker has forgotten the producer")


@contextmanager
def wired(servers: str, *topics: str, **config: Any) -> Iterator[Wire]:
    """A connected :class:`Wire` that knows the leaders of `topics`."""
    wire = Wire(servers, **config)
    try:
        if topics:
            assert wire.refresh(*topics) == {}
        yield wire
    finally:
        wire.close()
