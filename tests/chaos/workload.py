"""Producers in a process of their own: ``python -m tests.chaos.workload ORDERS`` (JSON).

Writes so many records at once, says "prefilled", then writes at a steady rate until its input is closed and it has
written as many as it was told at least; then it waits until all are acknowledged, and says how many those are. Ends
with 0 only if every record was acknowledged, or belongs to a transaction that was aborted.
"""

import json
import random
import select
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Protocol

import confluent_kafka
from kafka import KafkaProducer

from tests.chaos.records import Maker, send
from tests.chaos.topics import KINDS, LARGEST_RECORD, shares, topic
from tests.chaos.transactions import Hanging, Transactions
from tests.kafka_tools import ToSend

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_TICK_SECONDS = 0.1
_FLUSH_SECONDS = 120.0
_BIG_EVERY_SECONDS, _BIG_AT_FIRST = 1.5, 3
_KEYS = 60
_SLOWLY = 0.2
#: What part of the records that are written will be there to be compared.
_LEFT = {"compacted": 0.0, "transactions": 0.65, "hanging": 0.65}


@dataclass(frozen=True)
class Orders:
    """What a workload writes: `prefill` records at once, then `rate` a second, until `least` are there to be read; what
    it writes after that comes slowly, so that a round that lasts does not grow without bound."""

    servers: str
    prefix: str
    kinds: tuple[str, ...]
    seed: int
    name: str
    prefill: int
    rate: float
    least: int

    def as_json(self) -> str:
        return json.dumps(asdict(self))


class Stream(Protocol):
    """Writes the records of one kind."""

    def write(self, count: int) -> None:
        """Write so many records more."""

    def finish(self) -> int:
        """Wait until everything is acknowledged; how many records are there to be read."""


class Failures:
    """Records that no broker acknowledged."""

    def __init__(self) -> None:
        self.first: list[str] = []

    def __call__(self, error: object, _message: object) -> None:
        if error is not None:
            self.first = [*self.first, str(error)][:3]


class Plain:
    """Idempotent producers, each with a codec and a patience of its own, in turn."""

    def __init__(self, servers: str, name: str, chance: random.Random, producers: list[dict[str, Any]]) -> None:
        self._topic, self._chance, self._failures, self._count = name, chance, Failures(), 0
        self._producers = [
            confluent_kafka.Producer(
                {
                    "bootstrap.servers": servers,
                    "enable.idempotence": True,
                    # As long as a broker may be away; what is not acknowledged then fails the round by name.
                    "message.timeout.ms": int(_FLUSH_SECONDS * 1000),
                    "queue.buffering.max.messages": 1_000_000,
                    "log_level": 0,
                    **config,
                }
            )
            for config in producers
        ]

    def records(self, count: int) -> Iterator[ToSend]:
        """The next `count` records."""
        raise NotImplementedError

    def write(self, count: int) -> None:
        producer = self._chance.choice(self._producers)
        for at, record in enumerate(self.records(count)):
            if at % 500 == 499:
                # A burst of each: runs of one codec, then another, in the same partitions.
                producer.poll(0)
                producer = self._chance.choice(self._producers)
            send(producer, self._topic, record, on_delivery=self._failures)
            self._count += 1
        for producer in self._producers:
            producer.poll(0)

    def finish(self) -> int:
        left = sum(producer.flush(_FLUSH_SECONDS) for producer in self._producers)
        if left or self._failures.first:
            raise SystemExit(f"{self._topic}: {left} records are not acknowledged, {self._failures.first} failed")
        return self._count


class Mixed(Plain):
    """Records of any shape, of all codecs."""

    def __init__(self, orders: Orders, kind: str, chance: random.Random) -> None:
        small = kind == "small"
        producers = [
            {
                "compression.type": chance.choice(CODECS),
                "linger.ms": 0 if small else chance.choice((5, 20, 50, 100)),
                "batch.num.messages": 1 if small else chance.choice((20, 200, 10_000)),
                "batch.size": chance.choice((5_000, 30_000, 900_000)),
            }
            for _ in range(2 if small else 3)
        ]
        super().__init__(orders.servers, topic(orders.prefix, kind), chance, producers)
        self._maker = Maker(f"{orders.name}.{kind}", chance, KINDS[kind].partitions)
        self._age = {"old": "old", "mixed": "mixed"}.get(kind, "now")

    def records(self, count: int) -> Iterator[ToSend]:
        return (self._maker.any(now_ms=_now(), age=self._age) for _ in range(count))


class Big(Plain):
    """A large record now and then, whatever count is asked for."""

    def __init__(self, orders: Orders, kind: str, chance: random.Random) -> None:
        config = {"compression.type": "lz4", "message.max.bytes": 2 * LARGEST_RECORD}
        super().__init__(orders.servers, topic(orders.prefix, kind), chance, [config])
        self._maker = Maker(f"{orders.name}.{kind}", chance, KINDS[kind].partitions)
        self._due, self._at_first = time.monotonic(), _BIG_AT_FIRST

    def records(self, count: int) -> Iterator[ToSend]:
        for _ in range(self._at_first):
            yield self._maker.big(now_ms=_now(), largest=LARGEST_RECORD)
        self._at_first = 0
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _BIG_EVERY_SECONDS
            yield self._maker.big(now_ms=_now(), largest=LARGEST_RECORD)


class Keyed(Plain):
    """Few keys, again and again."""

    def __init__(self, orders: Orders, kind: str, chance: random.Random) -> None:
        config = {"compression.type": chance.choice(CODECS), "linger.ms": 5, "batch.num.messages": 50}
        super().__init__(orders.servers, topic(orders.prefix, kind), chance, [config])
        self._maker, self._partitions = Maker(f"{orders.name}.{kind}", chance, 0), KINDS[kind].partitions

    def records(self, count: int) -> Iterator[ToSend]:
        for _ in range(count):
            partition = self._chance.randrange(self._partitions)
            yield self._maker.keyed(now_ms=_now(), keys=_KEYS, partition=partition)


class Timed:
    """Records of any time, through kafka-python: librdkafka knows no time of 0. Its batches have no producer id."""

    def __init__(self, orders: Orders, kind: str, chance: random.Random) -> None:
        self._topic, self._failures, self._count = topic(orders.prefix, kind), Failures(), 0
        self._maker = Maker(f"{orders.name}.{kind}", chance, KINDS[kind].partitions)
        codec = chance.choice(CODECS)
        self._producer = KafkaProducer(
            bootstrap_servers=orders.servers,
            acks="all",
            enable_idempotence=False,
            delivery_timeout_ms=int(_FLUSH_SECONDS * 1000),
            compression_type=None if codec == "none" else codec,
            linger_ms=chance.choice((5, 20, 50)),
        )

    def write(self, count: int) -> None:
        for _ in range(count):
            it = self._maker.timed(now_ms=_now())
            sent = self._producer.send(self._topic, it.value, it.key, partition=it.partition, timestamp_ms=it.timestamp)
            sent.add_errback(self._failures, None)
        self._count += count

    def finish(self) -> int:
        self._producer.flush(_FLUSH_SECONDS)
        self._producer.close()
        if self._failures.first:
            raise SystemExit(f"{self._topic}: {self._failures.first} failed")
        return self._count


def _now() -> int:
    return int(time.time() * 1000)


def stream_of(orders: Orders, kind: str, chance: random.Random) -> Stream:
    """Who writes the records of a kind."""
    if kind in ("transactions", "hanging"):
        streams = Hanging if kind == "hanging" else Transactions
        return streams(
            orders.servers, topic(orders.prefix, kind), orders.name, chance, partitions=KINDS[kind].partitions
        )
    if kind == "odd_times":
        return Timed(orders, kind, chance)
    return {"big": Big, "compacted": Keyed}.get(kind, Mixed)(orders, kind, chance)


def run(orders: Orders, ended: Any) -> int:
    """Write until `ended` (something to select on) has something to read; how many records are there to be read."""
    chance = random.Random(orders.seed)
    kinds = tuple(kind for kind in orders.kinds if kind != "empty")
    streams = {kind: stream_of(orders, kind, random.Random(chance.getrandbits(32))) for kind in kinds}
    written = 0.0
    for kind, share in shares(kinds, "prefill").items():
        streams[kind].write(int(orders.prefill * share))
        written += int(orders.prefill * share) * _LEFT.get(kind, 1.0)
    print("prefilled", flush=True)
    parts, owed = shares(kinds, "live"), dict.fromkeys(kinds, 0.0)
    then, is_over = time.monotonic(), False
    while not is_over or written < orders.least:
        is_over = is_over or bool(select.select([ended], [], [], _TICK_SECONDS)[0])
        now = time.monotonic()
        # A process that was held up does not make up for it at once.
        passed, then = min(now - then, 1.0), now
        rate = orders.rate if written < orders.least else orders.rate * _SLOWLY
        for kind, part in parts.items():
            owed[kind] += rate * part * passed
            count, owed[kind] = int(owed[kind]), owed[kind] % 1
            if count or not part:
                streams[kind].write(count)
                written += count * _LEFT.get(kind, 1.0)
    return sum(stream.finish() for stream in streams.values())


def main() -> int:
    told = json.loads(sys.argv[1])
    orders = Orders(**{**told, "kinds": tuple(told["kinds"])})
    print(json.dumps({"records": run(orders, sys.stdin)}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
