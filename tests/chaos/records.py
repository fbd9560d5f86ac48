"""Records of every kind that a producer can write, each another one, and digests by which they are known again."""

import hashlib
import marshal
import random
import zlib
from collections.abc import Sequence
from typing import Any

import confluent_kafka

from tests.kafka_tools import Headers, ToSend

OLD_MS = 1_600_000_000_000
"""Years ago: brokers have forgotten the producers of such records by the next restart or change of leaders."""
ODD_TIMES = (0, -1, 1, -5, -(10**14), OLD_MS, 253_402_300_799_999)
"""Times that hardly anybody means, in ms: the first, none, before 1970, of the year 9999."""
_SUM = "sum"


def digest(
    key: bytes | None, value: bytes | None, timestamp: int, headers: Sequence[tuple[str, bytes | None]]
) -> bytes:
    """16 bytes that tell a record from any other one."""
    return hashlib.blake2b(marshal.dumps((key, value, timestamp, tuple(headers)), 2), digest_size=16).digest()


def send(producer: confluent_kafka.Producer, topic: str, record: ToSend, **more: Any) -> None:
    """Hand `record` to `producer`; `more` goes to its `produce`. Its timestamp cannot be 0, which librdkafka takes for
    none."""
    producer.produce(
        topic,
        value=record.value,
        key=record.key,
        partition=record.partition,
        headers=list(record.headers),
        timestamp=record.timestamp or 0,
        **more,
    )


class Maker:
    """Makes records of one producer, `name`, of sizes and shapes by chance."""

    def __init__(self, name: str, chance: random.Random, partitions: int) -> None:
        self._name, self._chance, self._partitions = name.encode(), chance, partitions
        self._count = 0
        self._noise = chance.randbytes(4096)

    def any(self, *, now_ms: int, age: str = "now") -> ToSend:
        """A record with null, empty and ordinary keys and values, with no headers, or repeated ones.

        `age`: "now", "old" (years), or "mixed" (in no order of time).
        """
        chance, unique = self._chance, self._unique()
        shape = chance.random()
        key = None if chance.random() < 0.2 else b"" if chance.random() < 0.05 else b"key-%d" % chance.randrange(500)
        headers: list[tuple[str, bytes | None]] = []
        if chance.random() < 0.15:
            headers = [("h", b"v"), ("h", None), ("", b""), ("h", b"v")]
        value: bytes | None = unique + b" " + self._padding(300)
        if shape < 0.04:
            # Somewhere it must say which one it is.
            value = None if shape < 0.02 else b""
            if shape % 0.02 < 0.01:
                key = unique
            else:
                headers = [*headers, ("unique", unique)]
        return ToSend(value, key, chance.randrange(self._partitions), self._timestamp(now_ms, age), headers)

    def keyed(self, *, now_ms: int, keys: int, partition: int) -> ToSend:
        """A record of a compacted topic: one of `keys` keys, sometimes a tombstone, with a checksum of itself."""
        chance = self._chance
        key = b"%d/%d" % (partition, chance.randrange(keys))
        value = None if chance.random() < 0.1 else self._padding(600)
        timestamp = self._timestamp(now_ms, "now")
        headers: list[tuple[str, bytes | None]] = [("n", self._unique())]
        headers.append((_SUM, _checksum(key, value, tuple(headers))))
        return ToSend(value, key, partition, timestamp, headers)

    def timed(self, *, now_ms: int) -> ToSend:
        """A record of now, or of a time out of the ordinary."""
        key, time = self._chance.choice((None, b"", b"key")), self._chance.choice((now_ms, *ODD_TIMES))
        return ToSend(self._unique() + b" " + self._padding(200), key, self._chance.randrange(self._partitions), time)

    def big(self, *, now_ms: int, largest: int) -> ToSend:
        """A record of up to `largest` bytes, which compress little."""
        value = self._unique() + self._chance.randbytes(self._chance.randrange(largest // 4, largest))
        return ToSend(value, None, self._chance.randrange(self._partitions), self._timestamp(now_ms, "now"))

    def _unique(self) -> bytes:
        self._count += 1
        return b"%s:%d" % (self._name, self._count)

    def _padding(self, most: int) -> bytes:
        size = self._chance.randrange(most)
        if self._chance.random() < 0.002:
            size += self._chance.randrange(30_000)
        start = self._chance.randrange(2_000)
        return (self._noise[start:] * (size // 2_000 + 1))[:size]

    def _timestamp(self, now_ms: int, age: str) -> int:
        if age == "old" or (age == "mixed" and self._chance.random() < 0.5):
            return OLD_MS + self._count
        return now_ms


def _checksum(key: bytes | None, value: bytes | None, headers: Headers) -> bytes:
    return b"%08x" % zlib.crc32(marshal.dumps((key, value, headers), 2))


def is_whole(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> bool:
    """Whether a record of :meth:`Maker.keyed` is as it was made. Its timestamp is not looked at."""
    return bool(headers) and headers[-1] == (_SUM, _checksum(key, value, tuple(headers[:-1])))
