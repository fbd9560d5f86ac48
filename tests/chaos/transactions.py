"""Producers whose transactions interleave in the same partitions, some of them aborted."""

import random
import time
from contextlib import suppress

import confluent_kafka
from confluent_kafka import KafkaException

from tests.chaos.records import Maker, send

_PRODUCERS = 3
_ABORTED = 0.3
_PATIENCE_SECONDS = 60.0
_TIMEOUT_SECONDS, _LONGEST_SECONDS = 60.0, 20.0
"""After so long a transaction is given up by its coordinator; and it is ended long before, however slowly it grows."""
_DIES_EVERY_SECONDS, _TIMES_OUT_SECONDS, _LEAVES = 15.0, 8.0, 20


class Transactions:
    """Some producers, each in the middle of a transaction of its own at any time."""

    def __init__(self, servers: str, topic: str, name: str, chance: random.Random, *, partitions: int) -> None:
        self._topic, self._chance = topic, chance
        self._all = [
            _One(servers, topic, f"{topic}.{name}.{n}", random.Random(chance.getrandbits(32)), partitions)
            for n in range(_PRODUCERS)
        ]

    def write(self, count: int) -> None:
        """Write so many records more, each of a producer by chance: a few in a row."""
        while count > 0:
            burst = min(count, self._chance.randrange(1, 30))
            self._chance.choice(self._all).write(burst)
            count -= burst

    def finish(self) -> int:
        """End the transactions that are under way; how many records were committed."""
        return sum(one.finish() for one in self._all)


class Hanging(Transactions):
    """As these; and every now and then a producer dies in the middle of its transaction, which then holds back whoever
    reads committed records, until the coordinator gives it up."""

    def __init__(self, servers: str, topic: str, name: str, chance: random.Random, *, partitions: int) -> None:
        super().__init__(servers, topic, name, chance, partitions=partitions)
        self._servers, self._partitions = servers, partitions
        self._maker = Maker(f"{name}.dead", chance, partitions)
        self._name, self._deaths, self._due = name, 0, time.monotonic()

    def write(self, count: int) -> None:
        super().write(count)
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + _DIES_EVERY_SECONDS
            # While its broker is away nothing can be left open.
            with suppress(KafkaException):
                self._leave_open()

    def _leave_open(self) -> None:
        self._deaths += 1
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                # Never again, or whoever comes next would abort it.
                "transactional.id": f"{self._topic}.{self._name}.dead.{self._deaths}",
                "transaction.timeout.ms": int(_TIMES_OUT_SECONDS * 1000),
                "log_level": 0,
            }
        )
        producer.init_transactions(_TIMES_OUT_SECONDS)
        producer.begin_transaction()
        for _ in range(_LEAVES):
            send(producer, self._topic, self._maker.any(now_ms=int(time.time() * 1000)))
        producer.flush(_TIMES_OUT_SECONDS)


class _One:
    """One transactional producer. A transaction that its broker gave up is aborted, and the next one begins."""

    def __init__(self, servers: str, topic: str, name: str, chance: random.Random, partitions: int) -> None:
        self._servers, self._topic, self._name, self._chance = servers, topic, name, chance
        self._maker = Maker(name, chance, partitions)
        self._committed = self._open = self._left = 0
        self._began = time.monotonic()
        self._producer = self._connected()

    def _connected(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._servers,
                "transactional.id": self._name,
                "transaction.timeout.ms": int(_TIMEOUT_SECONDS * 1000),
                "compression.type": self._chance.choice(("none", "lz4", "zstd")),
                "linger.ms": self._chance.choice((0, 5)),
                "log_level": 0,
            }
        )
        producer.init_transactions(_PATIENCE_SECONDS)
        return producer

    def write(self, count: int) -> None:
        for _ in range(count):
            try:
                self._write_one()
                self._producer.poll(0)
            except KafkaException:
                # Its broker died in the middle, and it can do nothing more: another one aborts what it left open.
                self._replace()

    def _write_one(self) -> None:
        if not self._left or time.monotonic() - self._began > _LONGEST_SECONDS:
            self._end()
            self._producer.begin_transaction()
            self._open, self._left, self._began = 0, self._chance.choice((1, 2, 20, 200)), time.monotonic()
        record = self._maker.any(now_ms=int(time.time() * 1000), age="mixed")
        send(self._producer, self._topic, record)
        self._open, self._left = self._open + 1, self._left - 1

    def _replace(self) -> None:
        self._producer = self._connected()
        self._open = self._left = 0

    def finish(self) -> int:
        self._end()
        return self._committed

    def _end(self) -> None:
        """Commit or abort what is open, as often as it takes: only a committed record counts."""
        if not self._open:
            return
        commits, until = self._chance.random() >= _ABORTED, time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                if commits:
                    self._producer.commit_transaction(10)
                    self._committed += self._open
                else:
                    self._producer.abort_transaction(10)
                break
            except KafkaException as error:
                why = error.args[0]
                if time.monotonic() > until:
                    raise SystemExit(
                        f"{self._topic}: a transaction of {self._name} could not be ended: {why}"
                    ) from error
                if why.fatal():
                    self._replace()
                    return
                # Retriable: the same again. One that must be aborted was not committed.
                commits = commits and not why.txn_requires_abort()
        self._open = self._left = 0
